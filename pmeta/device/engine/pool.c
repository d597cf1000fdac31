/* Max-pooling with 2-bit indices (windows up to 4) or bytes; average pooling. */
#include "kernels.h"
#include <math.h>

void pmeta_add(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] += x[i];
}

static int window(const pmeta_geom *g) { return g->kh * g->kw; }

static void put_index(unsigned char *index, size_t i, unsigned k, int two_bits)
{
    if (!two_bits)
        index[i] = (unsigned char)k;
    else if (i % 4 == 0)
        index[i / 4] = (unsigned char)k;
    else
        index[i / 4] = (unsigned char)(index[i / 4] | k << i % 4 * 2);
}

static unsigned get_index(const unsigned char *index, size_t i, int two_bits)
{
    return two_bits ? index[i / 4] >> i % 4 * 2 & 3u : index[i];
}

static int inside(int y, int x, const pmeta_geom *g)
{
    return y >= 0 && y < g->h && x >= 0 && x < g->w;
}

/* The largest pixel of one window that lies inside, 2 x 2: the place is 0 to 3. sign -1: the
 * smallest; 0: the first. */
static float best_of_four(unsigned *place, const float *x, int w, float sign)
{
    const unsigned top = sign * x[1] > sign * x[0], low = sign * x[w + 1] > sign * x[w];
    const float a = x[top], b = x[w + (int)low];
    *place = sign * b > sign * a ? 2 + low : top;
    return sign * b > sign * a ? b : a;
}

/* The largest pixel of one window and its place in the window, the first of equals as in
 * PyTorch. */
static float window_best(unsigned *place, const float *x, const pmeta_geom *g, int y0, int x0,
                         float sign)
{
    if (g->kh == 2 && g->kw == 2 && g->dh == 1 && g->dw == 1 && inside(y0, x0, g) &&
        inside(y0 + 1, x0 + 1, g))
        return best_of_four(place, x + (size_t)y0 * g->w + x0, g->w, sign);
    float best = -INFINITY;
    int found = 0;
    for (int m = 0; m < g->kh; m++)
        for (int k = 0; k < g->kw; k++) {
            const int y = y0 + m * g->dh, z = x0 + k * g->dw;
            if (!inside(y, z, g)) continue;
            const float v = x[(size_t)y * g->w + z];
            if (found && !(sign * v > sign * best)) continue;
            best = v;
            *place = (unsigned)(m * g->kw + k);
            found = 1;
        }
    return best;
}

/* Before a norm whose weights are w: what is largest behind it, the smallest where w < 0. */
static float sign_of(const float *w, int c)
{
    return !w || w[c] > 0.0f ? 1.0f : w[c] < 0.0f ? -1.0f : 0.0f;
}

/* 2 x 2 windows without dilation that all lie inside. */
static int four_inside(const pmeta_geom *g)
{
    return g->kh == 2 && g->kw == 2 && g->dh == 1 && g->dw == 1 && !g->ph && !g->pw &&
           (g->ho - 1) * g->sh + 2 <= g->h && (g->wo - 1) * g->sw + 2 <= g->w;
}

static void maxpool_four(float *y, const float *x, unsigned char *index, const float *w,
                         const pmeta_geom *g, int c)
{
    size_t i = 0;
    for (int ch = 0; ch < c; ch++, x += (size_t)g->h * g->w)
        for (int oy = 0; oy < g->ho; oy++) {
            const float *row = x + (size_t)oy * g->sh * g->w, sign = sign_of(w, ch);
            for (int ox = 0; ox < g->wo; ox++, i++, row += g->sw) {
                unsigned place;
                y[i] = best_of_four(&place, row, g->w, sign);
                if (index) put_index(index, i, place, 1);
            }
        }
}

void pmeta_maxpool(float *y, const float *x, unsigned char *index, const float *w,
                   const pmeta_geom *g, int c)
{
    if (four_inside(g)) {
        maxpool_four(y, x, index, w, g, c);
        return;
    }
    size_t i = 0;
    for (int ch = 0; ch < c; ch++, x += (size_t)g->h * g->w)
        for (int oy = 0; oy < g->ho; oy++)
            for (int ox = 0; ox < g->wo; ox++, i++) {
                unsigned place = 0;
                y[i] = window_best(&place, x, g, oy * g->sh - g->ph, ox * g->sw - g->pw,
                                   sign_of(w, ch));
                if (index) put_index(index, i, place, window(g) <= 4);
            }
}

/* The `rows` rows of output from `row` on, of an input that begins with the rows they look at;
 * channels of y lie y_step apart. */
void pmeta_maxpool_rows(float *y, size_t y_step, const float *x, const float *w,
                        const pmeta_geom *g, int c, int row, int rows)
{
    pmeta_geom part = *g;
    part.h = rows * g->sh;
    part.ho = row + rows < g->ho ? rows : g->ho - row;
    for (int ch = 0; ch < c && part.ho > 0; ch++, y += y_step, x += (size_t)part.h * g->w)
        pmeta_maxpool(y, x, NULL, w ? w + ch : NULL, &part, 1);
}

void pmeta_maxpool_bw(float *gx, const float *gy, const unsigned char *index, const pmeta_geom *g,
                      int c)
{
    const size_t plane = (size_t)g->h * g->w;
    for (size_t i = 0; i < plane * c; i++)
        gx[i] = 0.0f; /* windows may overlap, or leave pixels out */
    size_t i = 0;
    for (int ch = 0; ch < c; ch++, gx += plane)
        for (int oy = 0; oy < g->ho; oy++)
            for (int ox = 0; ox < g->wo; ox++, i++) {
                const int k = (int)get_index(index, i, window(g) <= 4);
                const int y = oy * g->sh - g->ph + k / g->kw * g->dh,
                          x = ox * g->sw - g->pw + k % g->kw * g->dw;
                if (inside(y, x, g)) gx[(size_t)y * g->w + x] += gy[i];
            }
}

/* A norm before a max-pool: x becomes its gradient, p x + q everywhere and s g(y) more at the
 * winners; p, q and s begin the rows 1 to 3 of coef, `stride` apart. */
void pmeta_norm_pool_bw(float *x, const float *gy, const unsigned char *index, const float *coef,
                        const pmeta_geom *g, int c, size_t stride)
{
    const size_t plane = (size_t)g->h * g->w;
    size_t i = 0;
    for (int ch = 0; ch < c; ch++, x += plane) {
        const float p = coef[stride + ch], q = coef[2 * stride + ch], s = coef[3 * stride + ch];
        for (size_t j = 0; j < plane; j++) x[j] = p * x[j] + q;
        for (int oy = 0; oy < g->ho; oy++)
            for (int ox = 0; ox < g->wo; ox++, i++) {
                const int k = (int)get_index(index, i, window(g) <= 4);
                const int y = oy * g->sh - g->ph + k / g->kw * g->dh,
                          z = ox * g->sw - g->pw + k % g->kw * g->dw;
                if (inside(y, z, g)) x[(size_t)y * g->w + z] += s * gy[i];
            }
    }
}

/* Pixels of a window that lie inside, or with the padding. PyTorch counts padding, but never
 * past it. */
static int window_count(const pmeta_geom *g, int y0, int x0, int count_pad)
{
    int n = 0;
    for (int m = 0; m < g->kh; m++)
        for (int k = 0; k < g->kw; k++)
            n += count_pad ? y0 + m < g->h + g->ph && x0 + k < g->w + g->pw
                           : inside(y0 + m, x0 + k, g);
    return n;
}

void pmeta_avgpool(float *y, const float *x, const pmeta_geom *g, int c, int count_pad)
{
    for (int ch = 0; ch < c; ch++, x += (size_t)g->h * g->w)
        for (int oy = 0; oy < g->ho; oy++)
            for (int ox = 0; ox < g->wo; ox++) {
                const int y0 = oy * g->sh - g->ph, x0 = ox * g->sw - g->pw;
                float s = 0.0f;
                for (int m = 0; m < g->kh; m++)
                    for (int k = 0; k < g->kw; k++)
                        if (inside(y0 + m, x0 + k, g)) s += x[(size_t)(y0 + m) * g->w + x0 + k];
                *y++ = s / (float)window_count(g, y0, x0, count_pad);
            }
}

void pmeta_avgpool_bw(float *gx, const float *gy, const pmeta_geom *g, int c, int count_pad)
{
    const size_t plane = (size_t)g->h * g->w;
    for (size_t i = 0; i < plane * c; i++) gx[i] = 0.0f;
    for (int ch = 0; ch < c; ch++, gx += plane)
        for (int oy = 0; oy < g->ho; oy++)
            for (int ox = 0; ox < g->wo; ox++) {
                const int y0 = oy * g->sh - g->ph, x0 = ox * g->sw - g->pw;
                const float s = *gy++ / (float)window_count(g, y0, x0, count_pad);
                for (int m = 0; m < g->kh; m++)
                    for (int k = 0; k < g->kw; k++)
                        if (inside(y0 + m, x0 + k, g)) gx[(size_t)(y0 + m) * g->w + x0 + k] += s;
            }
}
