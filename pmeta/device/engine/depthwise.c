/* Convolution channel by channel, straight from the image without patches. */
#include "kernels.h"

static int minimum(int a, int b) { return a < b ? a : b; }

/* Outputs [lo, hi) of a row read inside the image at this tap: 0 <= o * s + off < size. */
typedef struct {
    int lo, hi, off;
} reach;

static reach reach_of(int off, int s, int size, int outputs)
{
    reach r = {0, 0, off};
    if (off < 0) r.lo = minimum(outputs, (-off + s - 1) / s);
    if (off < size) r.hi = minimum(outputs, (size - off + s - 1) / s);
    if (r.hi < r.lo) r.hi = r.lo;
    return r;
}

PMETA_FAST static void add_row(float *y, const float *x, float w, int n)
{
    for (int i = 0; i < n; i++) y[i] += w * x[i];
}

PMETA_FAST static void add_row_of_two(float *y, const float *x, float w, int n)
{
    for (int i = 0; i < n; i++) y[i] += w * x[2 * i];
}

static void add_taps(float *y, const float *x, float w, const reach *r, int s)
{
    const float *from = x + r->lo * s + r->off;
    if (s == 1)
        add_row(y + r->lo, from, w, r->hi - r->lo);
    else if (s == 2)
        add_row_of_two(y + r->lo, from, w, r->hi - r->lo);
    else
        for (int i = r->lo; i < r->hi; i++) y[i] += w * x[i * s + r->off];
}

/* One output channel from one input channel; x holds `held` rows, from row `top` on. */
static void channel(float *y, const float *x, const float *w, float bias, const pmeta_geom *g,
                    int row, int end, int top, int held)
{
    for (int oy = row; oy < end; oy++, y += g->wo) {
        for (int i = 0; i < g->wo; i++) y[i] = bias;
        for (int m = 0; m < g->kh; m++) {
            const int sy = oy * g->sh + m * g->dh - g->ph;
            if (sy < 0 || sy >= g->h || sy < top || sy >= top + held) continue;
            for (int k = 0; k < g->kw; k++) {
                const reach r = reach_of(k * g->dw - g->pw, g->sw, g->w, g->wo);
                add_taps(y, x + (size_t)(sy - top) * g->w, w[m * g->kw + k], &r, g->sw);
            }
        }
    }
}

/* As pmeta_conv_rows where every output channel reads one input channel. */
void pmeta_depthwise(float *y, const float *x, const float *w, const float *bias,
                     const pmeta_geom *g, int f0, int f_count, int row, int rows, int top, int held)
{
    const int each = g->c_out / g->groups, taps = g->kh * g->kw, end = minimum(row + rows, g->ho);
    for (int f = 0; f < f_count; f++)
        channel(y + (size_t)f * rows * g->wo, x + (size_t)((f0 + f) / each) * held * g->w,
                w + (size_t)f * taps, bias ? bias[f] : 0.0f, g, row, end, top, held);
}
