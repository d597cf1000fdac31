/* Vectors of LANES floats. lanes_4.c, lanes_8.c and lanes_16.c say how many and compile all kernels for that.
 *
 * The results have the same bits for any number of lanes, with any compiler: no sum runs across lanes, the order of every sum is that
 * of the text, and only `fused` rounds once (the compiler may not contract: -ffp-contract=off). */
#ifndef LANES_H
#define LANES_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__x86_64__)
#define FAST __attribute__((target(TARGET)))
#else
#define FAST
#endif
#define PART static inline __attribute__((always_inline)) FAST

#define PASTED(name, lanes) name##_##lanes
#define WITH(name, lanes) PASTED(name, lanes)
#define KERNEL(name) FAST void WITH(name, LANES)

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef float vec_in_memory __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

PART vec get(const float *p) { return *(const vec_in_memory *)p; }
PART void put(float *p, vec v) { *(vec_in_memory *)p = v; }
PART vec all(float f) { return f - (vec){0}; }

#endif
