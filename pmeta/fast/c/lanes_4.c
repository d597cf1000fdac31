/* The kernels for NEON, and for any other processor; on x86 only the convs need FMA. */
#define LANES 4
#define TARGET "sse2"
#include "norm_pool.h"
#undef TARGET
#define TARGET "fma"
#include "conv.h"
