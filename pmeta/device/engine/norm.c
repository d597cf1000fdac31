/* Group normalization (Sec. 3.5.2): x -> xhat in place, y = w xhat + b; backward turns xhat into
 * g(x) in place. Before a max-pool only the winners of its windows are normalized, with
 * statistics that may come from one strip of rows after the other. */
#include "kernels.h"
#include <math.h>
#include <string.h>

#define SUMS 8

/* sum over i of f(i) in eight partial sums: one order everywhere, and ten times the accuracy of
 * a single running sum. */
PMETA_FAST static float sum(const float *x, int n)
{
    float s[SUMS] = {0}, total = 0.0f;
    int i = 0;
    for (; i + SUMS <= n; i += SUMS)
        for (int j = 0; j < SUMS; j++) s[j] += x[i + j];
    for (int j = 0; j < SUMS; j++)
        if (i + j < n) s[j] += x[i + j];
    for (int j = 0; j < SUMS; j++) total += s[j];
    return total;
}

PMETA_FAST static float sum_squares(const float *x, float mean, int n)
{
    float s[SUMS] = {0}, total = 0.0f;
    int i = 0;
    for (; i + SUMS <= n; i += SUMS)
        for (int j = 0; j < SUMS; j++) s[j] += (x[i + j] - mean) * (x[i + j] - mean);
    for (int j = 0; j < SUMS; j++)
        if (i + j < n) s[j] += (x[i + j] - mean) * (x[i + j] - mean);
    for (int j = 0; j < SUMS; j++) total += s[j];
    return total;
}

PMETA_FAST static float sum_products(const float *x, const float *y, int n)
{
    float s[SUMS] = {0}, total = 0.0f;
    int i = 0;
    for (; i + SUMS <= n; i += SUMS)
        for (int j = 0; j < SUMS; j++) s[j] += x[i + j] * y[i + j];
    for (int j = 0; j < SUMS; j++)
        if (i + j < n) s[j] += x[i + j] * y[i + j];
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
        const float r = want_dx ? rstd[c0 / per_group] : 0.0f;
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

/* stat (c, 2): mean of each channel and the sum of squared differences from it, of `before`
 * numbers seen so far and of the n that begin each stride of x. */
void pmeta_moments(float *stat, const float *x, int c, size_t stride, int before, int n)
{
    for (int i = 0; i < c; i++, stat += 2, x += stride) {
        const float mean = sum(x, n) / (float)n, squares = sum_squares(x, mean, n);
        if (before == 0) {
            stat[0] = mean;
            stat[1] = squares;
            continue;
        }
        const float old = (float)before, part = (float)n / (old + (float)n), d = mean - stat[0];
        stat[0] += d * part;
        stat[1] += squares + d * d * old * part;
    }
}

/* The means alone. */
void pmeta_means(float *mean, const float *x, int c, size_t stride, int before, int n)
{
    for (int i = 0; i < c; i++, x += stride) {
        const float m = sum(x, n) / (float)n, old = (float)before;
        mean[i] = before ? mean[i] + (m - mean[i]) * ((float)n / (old + (float)n)) : m;
    }
}

/* stat of each channel of `count` numbers becomes (mean, 1 / standard deviation) of its group;
 * means: of the channel once it is normalized. */
void pmeta_group_stat(float *stat, float *means, float *rstd, int c, int count, int per_group,
                      float eps)
{
    for (int c0 = 0; c0 < c; c0 += per_group) {
        float mean = 0.0f, var = 0.0f;
        for (int i = c0; i < c0 + per_group; i++) mean += stat[2 * i];
        mean /= (float)per_group;
        for (int i = c0; i < c0 + per_group; i++) {
            const float d = stat[2 * i] - mean;
            var += stat[2 * i + 1] + d * d * (float)count;
        }
        const float r = 1.0f / sqrtf(var / ((float)per_group * (float)count) + eps);
        if (rstd) rstd[c0 / per_group] = r;
        for (int i = c0; i < c0 + per_group; i++) {
            if (means) means[i] = (stat[2 * i] - mean) * r;
            stat[2 * i] = mean;
            stat[2 * i + 1] = r;
        }
    }
}

PMETA_FAST static void clamp(float *y, float top, int n)
{
    for (int i = 0; i < n; i++) y[i] = y[i] > 0.0f ? (y[i] < top ? y[i] : top) : 0.0f * y[i];
}

/* The n numbers that begin each stride of xhat are normalized in place; y = w xhat + b, clamped to
 * 0 and `top` where top > 0. */
void pmeta_normalise(float *xhat, float *y, const float *stat, const float *w, const float *b,
                     int c, size_t stride, int n, float top)
{
    for (int i = 0; i < c; i++, xhat += stride, y += stride) {
        const float r = stat[2 * i + 1];
        scale_shift(xhat, xhat, r, -stat[2 * i] * r, n);
        scale_shift(y, xhat, w ? w[i] : 1.0f, b ? b[i] : 0.0f, n);
        if (top > 0.0f) clamp(y, top, n);
    }
}

/* The last `keep` rows of a window of rows move to its beginning, in every channel. */
void pmeta_shift(float *x, int c, int width, int window, int keep)
{
    const size_t row = (size_t)width, plane = row * window;
    for (int i = 0; i < c; i++, x += plane)
        memmove(x, x + row * (window - keep), row * keep * sizeof(float));
}

/* The input gradient of a norm before a max-pool is p x + q, and s g more where a window looked.
 * coef (4, c): mean of that gradient over the channel, p, q, s. mean and products are those of
 * pmeta_norm_bw on the `pooled` numbers of a channel of n. */
void pmeta_norm_coef(float *coef, const float *stat, const float *means, const float *w,
                     const float *mean_g, const float *sum_gx, int c, int n, int pooled,
                     int per_group)
{
    const float size = (float)per_group * (float)n;
    float *p = coef + c, *q = p + c, *s = q + c;
    for (int c0 = 0; c0 < c; c0 += per_group) {
        const float mean = stat[2 * c0], r = stat[2 * c0 + 1];
        float a = 0.0f, b = 0.0f;
        for (int i = c0; i < c0 + per_group; i++) {
            a += (w ? w[i] : 1.0f) * mean_g[i] * (float)pooled;
            b += (w ? w[i] : 1.0f) * sum_gx[i];
        }
        a *= r / size;
        b *= r / size;
        for (int i = c0; i < c0 + per_group; i++) {
            s[i] = (w ? w[i] : 1.0f) * r;
            p[i] = -b * r;
            q[i] = b * mean * r - a;
            coef[i] = s[i] * mean_g[i] * ((float)pooled / (float)n) - a - b * (means ? means[i] : 0.0f);
        }
    }
}
