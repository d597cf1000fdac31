/* The kernels for AVX2. */
#if defined(__x86_64__)
#define LANES 8
#define TARGET "avx2,fma"
#include "norm_pool.h"
#include "conv.h"
#endif
