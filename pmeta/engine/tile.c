/* The one inner loop of every convolution: a 4 x 16 tile of a matrix product, kept in registers. */
#include "kernels.h"

/* c[r][j] (+)= sum over blocks i and d < depth of a[i * a_step + r * lda + d] * b[(i * depth + d) * 16 + j] */
PM_FAST void pm_tile(float *const c[4], int rows, int cols, const float *a, size_t lda, size_t a_step, const float *b, int blocks,
                     int depth, int add)
{
    float t[4][PM_LANES] = {{0}};
    const size_t r1 = rows > 1 ? lda : 0, r2 = rows > 2 ? 2 * lda : 0, r3 = rows > 3 ? 3 * lda : 0;
    for (int i = 0; i < blocks; i++, a += a_step)
        for (int d = 0; d < depth; d++, b += PM_LANES) {
            const float s0 = a[d], s1 = a[r1 + d], s2 = a[r2 + d], s3 = a[r3 + d];
            for (int j = 0; j < PM_LANES; j++) {
                t[0][j] += s0 * b[j];
                t[1][j] += s1 * b[j];
                t[2][j] += s2 * b[j];
                t[3][j] += s3 * b[j];
            }
        }
    for (int r = 0; r < rows; r++) {
        float *out = c[r];
        if (add)
            for (int j = 0; j < cols; j++) out[j] += t[r][j];
        else
            for (int j = 0; j < cols; j++) out[j] = t[r][j];
    }
}
