/* Which of the kernels this processor runs. */
#include <stdint.h>

#if defined(__x86_64__)
#define HAS __builtin_cpu_supports

int32_t most_lanes(void) {
    if (HAS("avx512f") && HAS("avx512bw") && HAS("avx512dq") && HAS("avx512vl")) return 16;
    return HAS("avx2") && HAS("fma") ? 8 : 4;
}

int32_t convs_run_here(void) { return HAS("fma") != 0; }
#else
int32_t most_lanes(void) { return 4; }

#if defined(__aarch64__)
int32_t convs_run_here(void) { return 1; }
#else
int32_t convs_run_here(void) { return 0; } /* never measured there */
#endif
#endif
