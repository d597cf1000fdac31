/* The kernels for AVX-512. */
#if defined(__x86_64__)
#define LANES 16
#define TARGET "avx512f,avx512bw,avx512dq,avx512vl"
#include "norm_pool.h"
#include "conv.h"
#endif
