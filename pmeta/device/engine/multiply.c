/* The product of two tensors, the second of which may have one number for many of the first
 * (squeeze-and-excitation: a factor for each channel). */
#include "kernels.h"

#define SUMS 8 /* partial sums in one fixed order on every machine */

/* y[i][j] = x[i][j] s[i]; y may be x */
PMETA_FAST void pmeta_mul(float *y, const float *x, const float *s, size_t factors, size_t each)
{
    if (each == 1) {
        for (size_t i = 0; i < factors; i++) y[i] = x[i] * s[i];
        return;
    }
    for (size_t i = 0; i < factors; i++, y += each, x += each) {
        const float factor = s[i];
        for (size_t j = 0; j < each; j++) y[j] = x[j] * factor;
    }
}

PMETA_FAST static float products(const float *a, const float *b, size_t n)
{
    float s[SUMS] = {0}, total = 0.0f;
    size_t i = 0;
    for (; i + SUMS <= n; i += SUMS)
        for (int j = 0; j < SUMS; j++) s[j] += a[i + j] * b[i + j];
    for (int j = 0; i < n; i++, j++) s[j] += a[i] * b[i];
    for (int j = 0; j < SUMS; j++) total += s[j];
    return total;
}

/* gs[i] (+)= sum_j gy[i][j] x[i][j] */
void pmeta_mul_bw(float *gs, const float *gy, const float *x, size_t factors, size_t each, int add)
{
    for (size_t i = 0; i < factors; i++) {
        const float sum = products(gy + i * each, x + i * each, each);
        gs[i] = add ? gs[i] + sum : sum;
    }
}
