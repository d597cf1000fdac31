/* Layer normalization: every row of x (rows, channels) by itself; x -> xhat in place, y = w xhat +
 * b; backward turns xhat into g(x) in place. */
#include "kernels.h"

void pmeta_layer_norm(float *xhat, float *y, const float *w, const float *b, float *rstd, int c,
                      int rows, float eps)
{
    for (int r = 0; r < rows; r++, xhat += c, y += c) {
        pmeta_norm(xhat, y, NULL, NULL, rstd ? rstd + r : NULL, 1, c, 1, eps); /* one channel */
        for (int i = 0; w && i < c; i++) y[i] *= w[i];
        for (int i = 0; b && i < c; i++) y[i] += b[i];
    }
}

/* mean of g(y) and sum of g(y) xhat over the rows, per channel */
static void channel_sums(float *mean_g, float *sum_gx, const float *gy, const float *xhat, int c,
                         int rows)
{
    for (int i = 0; i < c; i++) {
        float g = 0.0f, gx = 0.0f;
        for (int r = 0; r < rows; r++) {
            g += gy[(size_t)r * c + i];
            gx += gy[(size_t)r * c + i] * xhat[(size_t)r * c + i];
        }
        if (mean_g) mean_g[i] = g / (float)rows;
        if (sum_gx) sum_gx[i] = gx;
    }
}

/* g(x) = rstd (w g(y) - mean(w g(y)) - xhat mean(w g(y) xhat)), means over the row */
void pmeta_layer_norm_bw(float *xhat, const float *gy, const float *w, const float *rstd,
                         float *mean_g, float *sum_gx, int c, int rows, int want_dx)
{
    if (mean_g || sum_gx) channel_sums(mean_g, sum_gx, gy, xhat, c, rows);
    for (int r = 0; want_dx && r < rows; r++, xhat += c, gy += c) {
        float a = 0.0f, b = 0.0f;
        for (int i = 0; i < c; i++) {
            const float g = w ? w[i] * gy[i] : gy[i];
            a += g;
            b += g * xhat[i];
        }
        a /= (float)c, b /= (float)c;
        for (int i = 0; i < c; i++)
            xhat[i] = rstd[r] * ((w ? w[i] * gy[i] : gy[i]) - a - xhat[i] * b);
    }
}
