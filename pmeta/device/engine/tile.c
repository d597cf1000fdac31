/* The one inner loop of every convolution: a tile of a matrix product, kept in registers. Large
 * cores compute 4 x 16 at once, small ones 4 x 4 four times; each sum has the same order. */
#include "kernels.h"

#if PMETA_SMALL_TILE
#ifdef PMETA_MVE
#include <arm_mve.h>

static void store(float *c, float32x4_t t, int cols, int add)
{
    const mve_pred16_t lanes = vctp32q((uint32_t)cols);
    if (add) t = vaddq_f32(t, vldrwq_z_f32(c, lanes));
    vstrwq_p_f32(c, t, lanes);
}

/* Columns [0, cols), cols <= 4, of what pmeta_tile does. */
static void quad(float *const c[4], int at, int rows, int cols, const float *a, size_t lda,
                 size_t a_step, const float *b, int blocks, int depth, int add)
{
    float32x4_t t0 = vdupq_n_f32(0.0f), t1 = t0, t2 = t0, t3 = t0;
    const size_t r1 = rows > 1 ? lda : 0, r2 = rows > 2 ? 2 * lda : 0, r3 = rows > 3 ? 3 * lda : 0;
    for (int i = 0; i < blocks; i++, a += a_step) {
        const float *a0 = a, *a1 = a + r1, *a2 = a + r2, *a3 = a + r3;
        for (int d = 0; d < depth; d++, b += PMETA_LANES) {
            const float32x4_t v = vld1q_f32(b);
            t0 = vfmaq_n_f32(t0, v, *a0++);
            t1 = vfmaq_n_f32(t1, v, *a1++);
            t2 = vfmaq_n_f32(t2, v, *a2++);
            t3 = vfmaq_n_f32(t3, v, *a3++);
        }
    }
    store(c[0] + at, t0, cols, add);
    if (rows > 1) store(c[1] + at, t1, cols, add);
    if (rows > 2) store(c[2] + at, t2, cols, add);
    if (rows > 3) store(c[3] + at, t3, cols, add);
}
#else
static void store(float *c, float t0, float t1, float t2, float t3, int cols, int add)
{
    if (add) {
        t0 += c[0];
        if (cols > 1) t1 += c[1];
        if (cols > 2) t2 += c[2];
        if (cols > 3) t3 += c[3];
    }
    c[0] = t0;
    if (cols > 1) c[1] = t1;
    if (cols > 2) c[2] = t2;
    if (cols > 3) c[3] = t3;
}

#define ROW(t, s) (t##0 += (s) * b0, t##1 += (s) * b1, t##2 += (s) * b2, t##3 += (s) * b3)
#define STORE(r, t) \
    if (rows > r) store(c[r] + at, t##0, t##1, t##2, t##3, cols, add)

/* Columns [0, cols), cols <= 4, of what pmeta_tile does; 16 sums in registers. */
static void quad(float *const c[4], int at, int rows, int cols, const float *a, size_t lda,
                 size_t a_step, const float *b, int blocks, int depth, int add)
{
    float p0 = 0, p1 = 0, p2 = 0, p3 = 0, q0 = 0, q1 = 0, q2 = 0, q3 = 0;
    float s0 = 0, s1 = 0, s2 = 0, s3 = 0, t0 = 0, t1 = 0, t2 = 0, t3 = 0;
    const size_t r1 = rows > 1 ? lda : 0, r2 = rows > 2 ? 2 * lda : 0, r3 = rows > 3 ? 3 * lda : 0;
    for (int i = 0; i < blocks; i++, a += a_step) {
        const float *a0 = a, *a1 = a + r1, *a2 = a + r2, *a3 = a + r3, *end = b + depth * PMETA_LANES;
        for (; b < end; b += PMETA_LANES) {
            const float b0 = b[0], b1 = b[1], b2 = b[2], b3 = b[3];
            ROW(p, *a0);
            ROW(q, *a1);
            ROW(s, *a2);
            ROW(t, *a3);
            a0++, a1++, a2++, a3++;
        }
    }
    STORE(0, p);
    STORE(1, q);
    STORE(2, s);
    STORE(3, t);
}
#endif

void pmeta_tile(float *const c[4], int rows, int cols, const float *a, size_t lda, size_t a_step,
                const float *b, int blocks, int depth, int add)
{
    for (int at = 0; at < cols; at += 4)
        quad(c, at, rows, cols - at < 4 ? cols - at : 4, a, lda, a_step, b + at, blocks, depth,
             add);
}
#else
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
#endif
