/* Group normalization (Sec. 3.5.2): x -> xhat in place, y = w xhat + b; backward turns xhat into
 * g(x) in place. */
#include "kernels.h"
#include <math.h>

#define SUMS 8

/* sum over i of f(i) in eight partial sums: one order everywhere, and ten times the accuracy of
 * a single running sum. */
PMETA_FAST static float sum(const float *x, int n)
{
    float s[SUMS] = {0}, total = 0.0f;
    int i = 0;
    for (; i + SUMS <= n; i += SUMS)
        for (int j = 0; j < SUMS; j++) s[j] += x[i + j];
    for (int j = 0; i < n; i++, j++) s[j] += x[i];
    for (int j = 0; j < SUMS; j++) total += s[j];
    return total;
}

PMETA_FAST static float sum_squares(const float *x, float mean, int n)
{
    float s[SUMS] = {0}, total = 0.0f;
    int i = 0;
    for (; i + SUMS <= n; i += SUMS)
        for (int j = 0; j < SUMS; j++) s[j] += (x[i + j] - mean) * (x[i + j] - mean);
    for (int j = 0; i < n; i++, j++) s[j] += (x[i] - mean) * (x[i] - mean);
    for (int j = 0; j < SUMS; j++) total += s[j];
    return total;
}

PMETA_FAST static float sum_products(const float *x, const float *y, int n)
{
    float s[SUMS] = {0}, total = 0.0f;
    int i = 0;
    for (; i + SUMS <= n; i += SUMS)
        for (int j = 0; j < SUMS; j++) s[j] += x[i + j] * y[i + j];
    for (int j = 0; i < n; i++, j++) s[j] += x[i] * y[i];
    for (int j = 0; j < SUMS; j++) total += s[j];
    return total;
}

PMETA_FAST static void scale_shift(float *y, const float *x, float s, float b, int n)
{
    for (int i = 0; i < n; i++) y[i] = x[i] * s + b;
}

void pmeta_norm(float *xhat, float *y, const float *w, const float *b, float *rstd, int c, int n,
                int per_group, float eps)
{
    for (int c0 = 0; c0 < c; c0 += per_group) {
        const float size = (float)per_group * (float)n;
        float mean = 0.0f, var = 0.0f;
        for (int i = c0; i < c0 + per_group; i++) mean += sum(xhat + (size_t)i * n, n);
        mean /= size;
        for (int i = c0; i < c0 + per_group; i++) var += sum_squares(xhat + (size_t)i * n, mean, n);
        const float r = 1.0f / sqrtf(var / size + eps);
        if (rstd) rstd[c0 / per_group] = r;
        for (int i = c0; i < c0 + per_group; i++) {
            scale_shift(xhat + (size_t)i * n, xhat + (size_t)i * n, r, -mean * r, n);
            scale_shift(y + (size_t)i * n, xhat + (size_t)i * n, w ? w[i] : 1.0f, b ? b[i] : 0.0f,
                        n);
        }
    }
}

PMETA_FAST static void input_gradient(float *xhat, const float *gy, float wr, float a, float b,
                                      int n)
{
    for (int i = 0; i < n; i++) xhat[i] = wr * gy[i] - a - b * xhat[i];
}

/* g(x) = rstd (w g(y) - mean(w g(y)) - xhat mean(w g(y) xhat)), means over the group; leaves
 * mean g(y) and sum g(y) xhat per channel. */
void pmeta_norm_bw(float *xhat, const float *gy, const float *w, const float *rstd, float *mean_g,
                   float *sum_gx, int c, int n, int per_group, int want_dx)
{
    const float size = (float)per_group * (float)n;
    for (int c0 = 0; c0 < c; c0 += per_group) {
        float a = 0.0f, b = 0.0f;
        for (int i = c0; i < c0 + per_group; i++) {
            const float g = sum(gy + (size_t)i * n, n),
                        gx = sum_products(gy + (size_t)i * n, xhat + (size_t)i * n, n);
            if (mean_g) mean_g[i] = g / (float)n;
            if (sum_gx) sum_gx[i] = gx;
            a += (w ? w[i] : 1.0f) * g;
            b += (w ? w[i] : 1.0f) * gx;
        }
        const float r = rstd[c0 / per_group];
        for (int i = c0; want_dx && i < c0 + per_group; i++)
            input_gradient(xhat + (size_t)i * n, gy + (size_t)i * n, (w ? w[i] : 1.0f) * r,
                           r * a / size, r * b / size, n);
    }
}

void pmeta_norm_acc(float *acc_w, float *acc_b, const float *mean_g, const float *sum_gx,
                    const float *gamma_fw, const float *gamma_bw, int c, int n)
{
    for (int i = 0; i < c; i++) {
        const float fw = gamma_fw ? gamma_fw[i] : 1.0f, bw = gamma_bw ? gamma_bw[i] : 1.0f;
        acc_w[i] += fw * bw * sum_gx[i];
        acc_b[i] += bw * mean_g[i] * (float)n;
    }
}
