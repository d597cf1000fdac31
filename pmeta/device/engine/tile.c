/* The one inner loop of every convolution: a 4 x 16 tile of a matrix product, kept in registers. */
#include "kernels.h"

/* Eight floats at once. GCC and Clang have a type for it on every target that computes in float;
 * elsewhere (x87 computes in more) it is an array and a loop. */
#if defined(__GNUC__) && (__FLT_EVAL_METHOD__ == 0 || __FLT_EVAL_METHOD__ == 16)
typedef float eight __attribute__((vector_size(32), aligned(4), may_alias));
#define LOAD(p) (*(const eight *)(const void *)(p))
#define ADD_SCALED(sum, s, v) ((sum) += (s) * (v))
#else
typedef struct {
    float v[8];
} eight;
#define LOAD(p) (*(const eight *)(const void *)(p))
#define ADD_SCALED(sum, s, x) \
    for (int j = 0; j < 8; j++) (sum).v[j] += (s) * (x).v[j]
#endif

static void store(float *c, const eight *t, int cols, int add)
{
    const float *from = (const float *)(const void *)t;
    for (int j = 0; j < cols; j++) c[j] = add ? c[j] + from[j] : from[j];
}

/* c[r][j] (+)= sum over blocks i and d < depth of a[i * a_step + r * lda + d] * b[(i * depth +
 * d) * 16 + j] */
PMETA_FAST void pmeta_tile(float *const c[4], int rows, int cols, const float *a, size_t lda,
                           size_t a_step, const float *b, int blocks, int depth, int add)
{
    const eight zero = {0};
    eight t00 = zero, t01 = zero, t10 = zero, t11 = zero, t20 = zero, t21 = zero, t30 = zero,
          t31 = zero;
    const size_t r1 = rows > 1 ? lda : 0, r2 = rows > 2 ? 2 * lda : 0, r3 = rows > 3 ? 3 * lda : 0;
    for (int i = 0; i < blocks; i++, a += a_step)
        for (int d = 0; d < depth; d++, b += PMETA_LANES) {
            const eight b0 = LOAD(b), b1 = LOAD(b + 8);
            const float s0 = a[d], s1 = a[r1 + d], s2 = a[r2 + d], s3 = a[r3 + d];
            ADD_SCALED(t00, s0, b0);
            ADD_SCALED(t01, s0, b1);
            ADD_SCALED(t10, s1, b0);
            ADD_SCALED(t11, s1, b1);
            ADD_SCALED(t20, s2, b0);
            ADD_SCALED(t21, s2, b1);
            ADD_SCALED(t30, s3, b0);
            ADD_SCALED(t31, s3, b1);
        }
    const eight t[4][2] = {{t00, t01}, {t10, t11}, {t20, t21}, {t30, t31}};
    for (int r = 0; r < rows; r++) store(c[r], t[r], cols, add);
}
