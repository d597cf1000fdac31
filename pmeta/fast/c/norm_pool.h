/* Group norm with the 2x2 max-pool behind it, pooled first: the three passes of norm_pool.py in float32, channels last.
 *
 * All images are (B, H, W, C) and all pooled ones (B, H / 2, W / 2, C); mean, r, v, m, a and the rest of one number a channel
 * are (B, C). A place is 0 to 3: which of its window, in reading order, the max-pool chose. */
#include <math.h>

#include "lanes.h"

typedef struct {
    int32_t batch, height, width, channels, groups;
} np_shape;

#if defined(__GNUC__) && !defined(__clang__)
#define EACH_CHANNEL _Pragma("GCC ivdep") for (int c = 0; c < C; c++) /* what is written is not read by another channel */
#else
#define EACH_CHANNEL for (int c = 0; c < C; c++)
#endif

enum { MOST_NORMED = 1024 }; /* channels; norm_pool_c.py asks for no more */

/* The mean over its group of each channel's sum / n. */
PART void group_means(const double *sum, double n, const np_shape *s, double *mean) {
    int per = s->channels / s->groups;
    for (int c = 0; c < s->channels; c += per) {
        double total = 0;
        for (int i = c; i < c + per; i++) total += sum[i];
        for (int i = c; i < c + per; i++) mean[i] = total / (n * per);
    }
}

PART void add_row(double *sum, const float *row, int C) {
    EACH_CHANNEL sum[c] += row[c];
}

/* For each channel the sum over all places of p, and of p q. */
PART void sums(const float *p, const float *q, int height, int width, int C, double *sum, double *products) {
    float row_sum[MOST_NORMED], row_products[MOST_NORMED];
    memset(sum, 0, sizeof sum[0] * (size_t)C);
    memset(products, 0, sizeof products[0] * (size_t)C);
    for (int i = 0; i < height; i++) {
        memset(row_sum, 0, sizeof row_sum[0] * (size_t)C);
        memset(row_products, 0, sizeof row_products[0] * (size_t)C);
        for (int j = 0; j < width; j++, p += C, q += C) EACH_CHANNEL {
            row_sum[c] += p[c];
            row_products[c] += p[c] * q[c];
        }
        add_row(sum, row_sum, C);
        add_row(products, row_products, C);
    }
}

/* For each channel of each image the sums over all places of g x and of g. (B, C) */
KERNEL(np_sums)(const np_shape *s, const float *g, const float *x, float *products, float *sums_) {
    int C = s->channels;
    double sum[MOST_NORMED], product[MOST_NORMED];
    size_t image = (size_t)s->height * s->width * C;
    for (int b = 0; b < s->batch; b++, g += image, x += image, products += C, sums_ += C) {
        sums(g, x, s->height, s->width, C, sum, product);
        EACH_CHANNEL {
            products[c] = (float)product[c];
            sums_[c] = (float)sum[c];
        }
    }
}

KERNEL(np_forward)(const np_shape *s, const float *x, const float *sign, float eps, float *x_hat, uint8_t *place,
                     float *v, float *mean, float *r) {
    int H = s->height, W = s->width, C = s->channels, h = H / 2, w = W / 2;
    double n = (double)H * W, sum[MOST_NORMED], squares[MOST_NORMED], m[MOST_NORMED], m2[MOST_NORMED];
    for (int b = 0; b < s->batch; b++, x += (size_t)H * W * C, v += C, mean += C, r += C) {
        sums(x, x, H, W, C, sum, squares);
        group_means(sum, n, s, m);
        group_means(squares, n, s, m2);
        EACH_CHANNEL {
            double var = m2[c] - m[c] * m[c];
            mean[c] = (float)m[c];
            r[c] = (float)(1 / sqrt((var < 0 ? 0 : var) + eps));
            v[c] = (float)((sum[c] / n - m[c]) * r[c]);
        }
        for (int i = 0; i < h; i++) {
            for (int j = 0; j < w; j++, x_hat += C, place += C) {
                const float *restrict p0 = x + ((size_t)2 * i * W + 2 * j) * C, *restrict p1 = p0 + C;
                const float *restrict p2 = p0 + (size_t)W * C, *restrict p3 = p2 + C;
                float *restrict out = x_hat;
                uint8_t *restrict at = place;
                EACH_CHANNEL { /* the first of the largest, or a NaN: as PyTorch */
                    float best = p0[c] * sign[c], value = p0[c], t;
                    int32_t k = 0, larger;
                    t = p1[c] * sign[c], larger = (t > best) | (t != t);
                    best = larger ? t : best, value = larger ? p1[c] : value, k = larger ? 1 : k;
                    t = p2[c] * sign[c], larger = (t > best) | (t != t);
                    best = larger ? t : best, value = larger ? p2[c] : value, k = larger ? 2 : k;
                    t = p3[c] * sign[c], larger = (t > best) | (t != t);
                    value = larger ? p3[c] : value, k = larger ? 3 : k;
                    out[c] = (value - mean[c]) * r[c];
                    at[c] = (uint8_t)k;
                }
            }
        }
    }
}

/* out = of_x x + rest + of_u u, and of_g g at the chosen place of each window; u may be null. */
PART void affine_and_scatter(const np_shape *s, const float *x, const float *of_x, const float *rest, const float *u,
                              const float *of_u, const float *g, const float *of_g, const uint8_t *place, float *out) {
    int H = s->height, W = s->width, C = s->channels, h = H / 2, w = W / 2;
    for (int i = 0; i < H; i++) {
        for (int j = 0; j < W; j++) {
            size_t at = ((size_t)i * W + j) * C, pooled = ((size_t)(i / 2) * w + j / 2) * C;
            int inside = i < 2 * h && j < 2 * w;
            int32_t k = i % 2 * 2 + j % 2;
            const float *restrict p = x + at, *restrict q = u ? u + at : p, *restrict d = g + (inside ? pooled : 0);
            const uint8_t *restrict chosen = place + (inside ? pooled : 0);
            float *restrict o = out + at;
            if (!inside)
                EACH_CHANNEL o[c] = of_x[c] * p[c] + rest[c] + (u ? of_u[c] * q[c] : 0);
            else
                EACH_CHANNEL {
                    float here = (float)((int32_t)chosen[c] == k); /* a factor, since GCC does not vectorise a choice */
                    o[c] = of_x[c] * p[c] + rest[c] + (u ? of_u[c] * q[c] : 0.0f) + here * of_g[c] * d[c];
                }
        }
    }
}

KERNEL(np_backward)(const np_shape *s, const float *g, const float *g_v, const float *x, const float *x_hat, const float *v,
                      const uint8_t *place, const float *mean, const float *r, float *g_x, float *m, float *a) {
    int C = s->channels, h = s->height / 2, w = s->width / 2;
    double n = (double)s->height * s->width, sum[MOST_NORMED], products[MOST_NORMED], m_[MOST_NORMED], a_[MOST_NORMED];
    float of_x[MOST_NORMED], rest[MOST_NORMED];
    size_t full = (size_t)s->height * s->width * C, pooled = (size_t)h * w * C;
    for (int b = 0; b < s->batch; b++) {
        sums(g, x_hat, h, w, C, sum, products);
        for (int c = 0; g_v && c < C; c++) {
            sum[c] += g_v[c];
            products[c] += (double)g_v[c] * v[c];
        }
        group_means(sum, n, s, m_);
        group_means(products, n, s, a_);
        EACH_CHANNEL {
            double of = -a_[c] * r[c] * r[c];
            m[c] = (float)m_[c];
            a[c] = (float)a_[c];
            of_x[c] = (float)of;
            rest[c] = (float)(-m_[c] * r[c] - of * mean[c] + (g_v ? g_v[c] * r[c] / n : 0));
        }
        affine_and_scatter(s, x, of_x, rest, NULL, NULL, g, r, place, g_x);
        g += pooled, x_hat += pooled, place += pooled, x += full, g_x += full;
        mean += C, r += C, m += C, a += C;
        if (g_v) g_v += C, v += C;
    }
}

KERNEL(np_twice)(const np_shape *s, const float *u, const float *g, const float *x, const float *x_hat, const uint8_t *place,
                   const float *mean, const float *r, const float *m, const float *a, float *d_g, float *d_x) {
    int H = s->height, W = s->width, C = s->channels, h = H / 2, w = W / 2;
    double n = (double)H * W, sum[MOST_NORMED], products[MOST_NORMED], chosen[MOST_NORMED], mean_u[MOST_NORMED], mean_ux[MOST_NORMED], mean_ug[MOST_NORMED];
    float row_sum[MOST_NORMED], of_x[MOST_NORMED], rest[MOST_NORMED], of_u[MOST_NORMED], of_g[MOST_NORMED], b_[MOST_NORMED], mu[MOST_NORMED];
    size_t full = (size_t)H * W * C, pooled = (size_t)h * w * C;
    for (int b = 0; b < s->batch; b++) {
        sums(u, x, H, W, C, sum, products);
        memset(chosen, 0, sizeof chosen[0] * (size_t)C);
        for (int i = 0; i < h; i++) {
            memset(row_sum, 0, sizeof row_sum[0] * (size_t)C);
            for (int j = 0; j < w; j++) { /* d_g holds the chosen u for the moment */
                size_t at = ((size_t)i * w + j) * C;
                const float *restrict p0 = u + ((size_t)2 * i * W + 2 * j) * C, *restrict p1 = p0 + C;
                const float *restrict p2 = p0 + (size_t)W * C, *restrict p3 = p2 + C, *restrict q = g + at;
                const uint8_t *restrict k = place + at;
                float *restrict out = d_g + at;
                EACH_CHANNEL {
                    float f0 = p0[c], f1 = p1[c], f2 = p2[c], f3 = p3[c];
                    int32_t which = k[c];
                    f0 = which == 1 ? f1 : f0;
                    f0 = which == 2 ? f2 : f0;
                    f0 = which == 3 ? f3 : f0;
                    out[c] = f0;
                    row_sum[c] += f0 * q[c];
                }
            }
            add_row(chosen, row_sum, C);
        }
        group_means(sum, n, s, mean_u);
        group_means(products, n, s, mean_ux);
        group_means(chosen, n, s, mean_ug);
        EACH_CHANNEL {
            double bb = (mean_ux[c] - mean[c] * mean_u[c]) * r[c], ss = mean_ug[c] - mean_u[c] * m[c], r2 = (double)r[c] * r[c];
            double of = (3 * a[c] * bb - ss) * r2 * r[c];
            of_x[c] = (float)of;
            rest[c] = (float)((m[c] * bb + mean_u[c] * a[c]) * r2 - of * mean[c]);
            of_u[c] = (float)(-a[c] * r2);
            of_g[c] = (float)(-bb * r2);
            b_[c] = (float)bb;
            mu[c] = (float)mean_u[c];
        }
        affine_and_scatter(s, x, of_x, rest, u, of_u, g, of_g, place, d_x);
        for (size_t i = 0; i < (size_t)h * w; i++) {
            float *restrict out = d_g + i * C;
            const float *restrict p = x_hat + i * C;
            EACH_CHANNEL out[c] = (out[c] - mu[c] - p[c] * b_[c]) * r[c];
        }
        u += full, x += full, d_x += full, g += pooled, x_hat += pooled, place += pooled, d_g += pooled;
        mean += C, r += C, m += C, a += C;
    }
}
