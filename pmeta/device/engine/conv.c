/* Convolution forward, and backward to the weights and to the input: patches of a strip of
 * pixels (im2col), times weights.
 *
 * A strip is a few panels of 16 output pixels. Patches of a panel are (depth, 16), so that a
 * 4 x 16 tile reads them in order. */
#include "kernels.h"
#include <string.h>
#ifdef PMETA_MVE
#include <arm_mve.h>
#endif

#define DEPTH_BLOCK 512 /* rows of a panel that stay in the first-level cache */

/* Which source pixel a tap reads: s = (o * mul + tap * step + off) / div, when the division
 * leaves no rest and s is inside. */
typedef struct {
    int mul, step, off, div, size;
} axis;

/* Patches of source channels [c0, c0 + c) at output pixels of an image of width wo, for taps
 * kh x kw. Of the source there are `held` rows, from row `top` on. */
typedef struct {
    axis y, x;
    int kh, kw, wo, pixels, c0, c, top, held;
} patches;

/* What output pixels read of input channels [c0, c0 + c). */
static patches input_patches(const pmeta_geom *g, int c0, int c)
{
    const axis y = {g->sh, g->dh, -g->ph, 1, g->h}, x = {g->sw, g->dw, -g->pw, 1, g->w};
    const patches q = {y, x, g->kh, g->kw, g->wo, g->ho * g->wo, c0, c, 0, g->h};
    return q;
}

/* The other way round: the output pixels of channels [c0, c0 + c) that read each input pixel. */
static patches output_patches(const pmeta_geom *g, int c0, int c)
{
    const axis y = {1, -g->dh, g->ph, g->sh, g->ho}, x = {1, -g->dw, g->pw, g->sw, g->wo};
    const patches q = {y, x, g->kh, g->kw, g->w, g->h * g->w, c0, c, 0, g->ho};
    return q;
}

static int minimum(int a, int b) { return a < b ? a : b; }

static float factor(const pmeta_source *x, int c)
{
    const float s = x->scale ? x->scale[c] : 1.0f;
    return x->gamma && !x->compact ? s * x->gamma[c] : s;
}

static float offset(const pmeta_source *x, int c)
{
    return x->shift ? x->shift[c] * (x->gamma ? x->gamma[c] : 1.0f) : 0.0f;
}

/* First j >= 0 with base + j * mul >= bound. */
static int first_at_least(int base, int mul, int bound)
{
    return base >= bound ? 0 : (bound - base + mul - 1) / mul;
}

/* out[j] = in[j] s + shift of raw pixels. */
static void scale_bytes(float *out, const unsigned char *in, float s, float shift, int n)
{
#ifdef PMETA_MVE
    const float32x4_t factors = vdupq_n_f32(s);
    for (int j = 0; j < n; j += 4) {
        const mve_pred16_t lanes = vctp32q((uint32_t)(n - j));
        const float32x4_t pixels = vcvtq_f32_u32(vldrbq_z_u32(in + j, lanes));
        vstrwq_p_f32(out + j, vfmasq_n_f32(pixels, factors, shift), lanes);
    }
#else
    for (int j = 0; j < n; j++) out[j] = (float)in[j] * s + shift;
#endif
}

/* One tap of one channel: lanes [0, n) of a panel from one source row. */
static void copy_lanes(float *out, const pmeta_source *x, int c, size_t row, const axis *ax,
                       int base, int lo, int hi, int n)
{
    for (int j = 0; j < lo; j++) out[j] = 0.0f;
    for (int j = hi; j < n; j++) out[j] = 0.0f;
    const float s = factor(x, c);
    if (x->u8) {
        const unsigned char *in = (const unsigned char *)x->data + row;
        const float shift = offset(x, c);
        if (ax->mul == 1) {
            if (lo < hi) scale_bytes(out + lo, in + (base + lo), s, shift, hi - lo);
            return;
        }
        for (int j = lo; j < hi; j++) out[j] = (float)in[base + j * ax->mul] * s + shift;
        return;
    }
    const float *in = (const float *)x->data + row;
    if (ax->div > 1) {
        for (int j = lo; j < hi; j++)
            out[j] = (base + j) % ax->div ? 0.0f : in[(base + j) / ax->div] * s;
    } else if (ax->mul > 1) {
        for (int j = lo; j < hi; j++) out[j] = in[base + j * ax->mul] * s;
    } else {
        for (int j = lo; j < hi; j++) out[j] = in[base + j] * s;
    }
}

/* Four words at once: on small cores one instruction loads them and one stores them. */
typedef struct {
    float v[4];
} four;

static void copy_four(float *out, const float *in)
{
    *(four *)(void *)out = *(const four *)(const void *)in;
}

/* The common case: all 16 lanes inside, neighbours in memory, nothing to scale. */
PMETA_FAST static void copy_full(float *out, size_t out_step, const float *in, size_t in_step,
                                 int channels)
{
    for (int c = 0; c < channels; c++, out += out_step, in += in_step)
        for (int j = 0; j < PMETA_LANES; j += 4) copy_four(out + j, in + j);
}

/* The same of raw pixels of channels [c0, c0 + channels). */
PMETA_FAST static void copy_full_u8(float *out, size_t out_step, const pmeta_source *x,
                                    size_t first, size_t in_step, int c0, int channels)
{
    const unsigned char *in = (const unsigned char *)x->data + first;
    for (int c = 0; c < channels; c++, out += out_step, in += in_step) {
        const float s = factor(x, c0 + c), shift = offset(x, c0 + c);
        scale_bytes(out, in, s, shift, PMETA_LANES);
    }
}

#if PMETA_SMALL_TILE
static void zero_column(float *out, size_t step, int channels)
{
    for (int c = 0; c < channels; c++, out += step) *out = 0.0f;
}

static void copy_column(float *out, size_t out_step, const float *in, size_t in_step, int channels)
{
    for (int c = 0; c < channels; c++, out += out_step, in += in_step) *out = *in;
}

static void copy_four_columns(float *out, size_t out_step, const float *in, size_t in_step,
                              int channels)
{
    for (int c = 0; c < channels; c++, out += out_step, in += in_step) copy_four(out, in);
}

/* The same at the end of a row: lanes [lo, hi) are inside, the others of [0, n) are zero. Without a
 * cache, columns are as good as rows, and all loops are over the channels. */
static void copy_part(float *out, size_t out_step, const float *in, size_t in_step, int channels,
                      int lo, int hi, int n)
{
    int j = 0;
    for (; j < lo; j++) zero_column(out + j, out_step, channels);
    for (; j + 4 <= hi; j += 4)
        copy_four_columns(out + j, out_step, in + (j - lo), in_step, channels);
    for (; j < hi; j++) copy_column(out + j, out_step, in + (j - lo), in_step, channels);
    for (; j < n; j++) zero_column(out + j, out_step, channels);
}
#else
/* The same at the end of a row: lanes [lo, hi) are inside, the others of [0, n) are zero. */
static void copy_part(float *out, size_t out_step, const float *in, size_t in_step, int channels,
                      int lo, int hi, int n)
{
    for (int c = 0; c < channels; c++, out += out_step, in += in_step) {
        for (int j = 0; j < lo; j++) out[j] = 0.0f;
        for (int j = lo; j < hi; j++) out[j] = in[j - lo];
        for (int j = hi; j < n; j++) out[j] = 0.0f;
    }
}
#endif

static void zero_lanes(float *out, size_t step, int count, int n)
{
    for (int c = 0; c < count; c++, out += step)
        for (int j = 0; j < n; j++) out[j] = 0.0f;
}

/* Lanes [0, n) at output pixels (oy, ox), (oy, ox + 1), ... : one run of one output row. */
static void gather_run(float *out, const pmeta_source *x, const patches *q, int oy, int ox, int n)
{
    const size_t taps = (size_t)q->kh * q->kw, step = taps * PMETA_LANES,
                 plane = (size_t)q->held * q->x.size;
    const int neighbours = q->x.mul == 1 && q->x.div == 1,
              plain = neighbours && !x->u8 && (!x->gamma || x->compact);
    for (int m = 0; m < q->kh; m++) {
        const int ty = oy * q->y.mul + m * q->y.step + q->y.off, sy = ty / q->y.div;
        const int inside = ty >= 0 && ty % q->y.div == 0 && sy < q->y.size;
        for (int k = 0; k < q->kw; k++) {
            float *to = out + ((size_t)m * q->kw + k) * PMETA_LANES;
            if (!inside) {
                zero_lanes(to, step, q->c, n);
                continue;
            }
            const int base = ox * q->x.mul + k * q->x.step + q->x.off;
            const int lo = minimum(n, first_at_least(base, q->x.mul, 0));
            const int hi = minimum(n, first_at_least(base, q->x.mul, q->x.size * q->x.div));
            const size_t row = (size_t)q->c0 * plane + (size_t)(sy - q->top) * q->x.size;
            const float *in = plain ? (const float *)x->data + row : NULL;
            if (plain && n == PMETA_LANES && lo == 0 && hi == n)
                copy_full(to, step, in + base, plane, q->c);
            else if (plain)
                copy_part(to, step, in + (base + lo), plane, q->c, lo, hi, n);
            else if (x->u8 && neighbours && n == PMETA_LANES && lo == 0 && hi == n)
                copy_full_u8(to, step, x, row + (size_t)base, plane, q->c0, q->c);
            else
                for (int c = 0; c < q->c; c++)
                    copy_lanes(to + c * step, x, q->c0 + c, row + c * plane, &q->x, base, lo, hi,
                               n);
        }
    }
}

/* Panels (depth, 16) of patches at pixels [p0, p0 + count); lanes past the last pixel are zero. */
static void gather(float *panels, const pmeta_source *x, const patches *q, int p0, int count)
{
    const size_t depth = (size_t)q->c * q->kh * q->kw;
    for (int p = p0; p < p0 + count; p += PMETA_LANES, panels += depth * PMETA_LANES) {
        int lane = 0;
        while (lane < PMETA_LANES && p + lane < q->pixels) {
            const int oy = (p + lane) / q->wo, ox = (p + lane) % q->wo;
            const int n = minimum(PMETA_LANES - lane, minimum(q->wo - ox, q->pixels - p - lane));
            gather_run(panels + lane, x, q, oy, ox, n);
            lane += n;
        }
        zero_lanes(panels + lane, PMETA_LANES, (int)depth, PMETA_LANES - lane);
    }
}

/* y[r][p] (+)= sum_d a[r][d] panel[d][p] for rows [0, rows) and the pixels of one strip; row r
 * of y starts at y + r * y_step. */
static void multiply(float *y, size_t y_step, const float *a, size_t depth, int rows,
                     const float *panels, int pixels, int add)
{
    for (size_t d = 0; d < depth; d += DEPTH_BLOCK) {
        const int block = (int)(depth - d < DEPTH_BLOCK ? depth - d : DEPTH_BLOCK);
        for (int p = 0; p < pixels; p += PMETA_LANES) {
            const float *b = panels + (size_t)p * depth + d * PMETA_LANES;
            for (int r = 0; r < rows; r += 4) {
                const int n = minimum(4, rows - r);
                float *c[4];
                for (int i = 0; i < n; i++) c[i] = y + (size_t)(r + i) * y_step + p;
                pmeta_tile(c, n, minimum(PMETA_LANES, pixels - p), a + (size_t)r * depth + d, depth,
                           0, b, 1, block, add || d > 0);
            }
        }
    }
}

static int round_up(int n) { return (n + PMETA_LANES - 1) / PMETA_LANES * PMETA_LANES; }

/* Rows of the input that `rows` rows of output read. */
static int rows_held(const pmeta_geom *g, int rows)
{
    return (rows - 1) * g->sh + g->dh * (g->kh - 1) + 1;
}

/* The same where weights [f, f + rows) are packed: four rows of them at a time are float32. */
static void multiply_packed(float *y, size_t y_step, const pmeta_weights *w, int f, size_t depth,
                            int rows, float *a, const float *panels, int pixels)
{
    for (int r = 0; r < rows; r += 4) {
        const int n = minimum(4, rows - r);
        for (int i = 0; i < n; i++)
            pmeta_unpack(a + (size_t)i * depth, w, (size_t)(f + r + i), depth, 0, depth);
        multiply(y + (size_t)r * y_step, y_step, a, depth, n, panels, pixels, 0);
    }
}

/* Output channels [f0, f0 + f_count), of them the `rows` rows from `row` on; y and w point at the
 * first of them. In a window x holds the rows that these read and no others; a whole y has all
 * rows, of which these are written. Packed weights take 4 * depth words of scratch more. */
void pmeta_conv_rows(float *y, const pmeta_source *x, const pmeta_weights *w, const float *bias,
                     float *scratch, const pmeta_geom *g, int f0, int f_count, int strip, int row,
                     int rows, int how)
{
    const int per_group = g->c_out / g->groups, c = g->c_in / g->groups;
    const int first = row * g->wo, end = minimum(row + rows, g->ho) * g->wo;
    const int window = how & PMETA_WINDOW, whole = how & PMETA_WHOLE, packed = w->type != PMETA_WORD;
    const int top = window ? row * g->sh - g->ph : 0, held = window ? rows_held(g, rows) : g->h;
    const size_t depth = (size_t)c * g->kh * g->kw,
                 plane = (size_t)(whole ? g->ho : rows) * g->wo;
    float *panels = packed ? scratch + 4 * depth : scratch;
    if (row >= g->ho) return;
    if (whole) y += first;
    if (c == 1 && !x->u8 && !x->gamma && !whole && !packed) {
        pmeta_depthwise(y, x->data, w->data, bias, g, f0, f_count, row, rows, top, held);
        return;
    }
    for (int f = 0; f < f_count;) {
        const int group = (f0 + f) / per_group,
                  count = minimum(f_count - f, (group + 1) * per_group - f0 - f);
        patches q = input_patches(g, group * c, c);
        q.pixels = end;
        q.top = top;
        q.held = held;
        for (int p = first; p < end; p += strip) {
            const int n = minimum(strip, end - p);
            float *to = y + (size_t)f * plane + (p - first);
            gather(panels, x, &q, p, n);
            if (packed)
                multiply_packed(to, plane, w, f, depth, count, scratch, panels, n);
            else
                multiply(to, plane, (const float *)w->data + (size_t)f * depth, depth, count,
                         panels, n, 0);
        }
        f += count;
    }
    for (int f = 0; bias && f < f_count; f++)
        for (int p = 0; p < end - first; p++) y[(size_t)f * plane + p] += bias[f];
}

/* a[r][(f, tap)] = w[f0 + f][c + r][tap]: four rows of the weights, turned around. */
static void turn_weights(float *a, const pmeta_weights *w, int f0, int rows, int filters, int c,
                         int c_count, int taps)
{
    for (int r = 0; r < rows; r++)
        for (int f = 0; f < filters; f++, a += taps)
            pmeta_unpack(a, w, (size_t)(f0 + f), (size_t)c_count * taps, (size_t)(c + r) * taps,
                         (size_t)taps);
}

/* g(x_{l-1}) (+)= w^T g(y_l): every input pixel gathers from the output pixels that read it. */
void pmeta_conv_bw_x(float *gx, const float *gy, const pmeta_weights *w, float *scratch,
                     const pmeta_geom *g, int strip, int add)
{
    const int pixels = g->h * g->w, filters = g->c_out / g->groups, c_count = g->c_in / g->groups,
              taps = g->kh * g->kw;
    const size_t depth = (size_t)filters * taps;
    float *a = scratch, *panels = scratch + 4 * depth;
    const pmeta_source source = {gy, NULL, NULL, NULL, 0, 0, 0};
    for (int group = 0; group < g->groups; group++) {
        const patches q = output_patches(g, group * filters, filters);
        for (int p = 0; p < pixels; p += strip) {
            const int n = minimum(strip, pixels - p);
            gather(panels, &source, &q, p, n);
            for (int c = 0; c < c_count; c += 4) {
                const int rows = minimum(4, c_count - c);
                turn_weights(a, w, group * filters, rows, filters, c, c_count, taps);
                multiply(gx + ((size_t)group * c_count + c) * pixels + p, (size_t)pixels, a, depth,
                         rows, panels, n, add);
            }
        }
    }
}

/* t[f / 16][p][f % 16] = gamma_bw[f] g(y_l)[f][p0 + p], zero from pixel `end` on. */
static void turn_gradient(float *t, const float *gy, const float *gamma_bw, int filters, int pixels,
                          int p0, int end, int count)
{
    for (int f = 0; f < round_up(filters); f++) {
        float *to = t + (size_t)(f / PMETA_LANES) * count * PMETA_LANES + f % PMETA_LANES;
        const float s = f < filters && gamma_bw ? gamma_bw[f] : 1.0f;
        for (int p = 0; p < count; p++)
            to[(size_t)p * PMETA_LANES] =
                f < filters && p0 + p < end ? s * gy[(size_t)f * pixels + p0 + p] : 0.0f;
    }
}

/* acc[k][f] += sum_p panel[k][p] t[p][f] for the kept channels of one convolution group; rows of
 * acc lie `stride` apart. */
static void accumulate(float *acc, size_t stride, const float *panels, const float *t,
                       const float *keep, int channels, int kept, int taps, int filters, int count)
{
    const int depth = kept * taps;
    float *row[4];
    int k0 = 0, c = -1, j = -1;
    for (int k = 0; k < depth; k++) {
        if (k / taps != j) {
            j = k / taps;
            do c++;
            while (c < channels - 1 && keep && keep[c] == 0.0f);
            /* in a hostile file scratch may lie over the scores and change them on the way */
            c = minimum(c, channels - 1);
        }
        row[k - k0] = acc + ((size_t)c * taps + k % taps) * stride;
        if (k - k0 < 3 && k < depth - 1) continue;
        for (int f = 0; f < filters; f += PMETA_LANES) {
            float *to[4];
            for (int i = 0; i <= k - k0; i++) to[i] = row[i] + f;
            pmeta_tile(to, k - k0 + 1, minimum(PMETA_LANES, filters - f),
                       panels + (size_t)k0 * PMETA_LANES, PMETA_LANES, (size_t)depth * PMETA_LANES,
                       t + (size_t)f * count, count / PMETA_LANES, PMETA_LANES, 1);
        }
        k0 = k + 1;
    }
}

/* acc (groups, depth, filters) += gamma_bw[f] gamma_fw[c] g(w_l): Eq. 13, weights of one group
 * with the filters innermost. A part of a conv with one group has filters [f0, f0 + f_count), at
 * whose gradient and scores gy and gamma_bw point. */
void pmeta_conv_bw_w_part(float *acc, const float *gy, const pmeta_source *x, const float *gamma_bw,
                          float *scratch, const pmeta_geom *g, int strip, int f0, int f_count)
{
    const int pixels = g->ho * g->wo, all = g->c_out / g->groups, c_count = g->c_in / g->groups,
              taps = g->kh * g->kw, filters = minimum(all, f_count);
    const size_t depth = (size_t)c_count * taps;
    int stored = 0;
    acc += f0;
    for (int group = 0; group < g->groups; group++) {
        const float *keep = x->compact ? x->gamma + (size_t)group * c_count : NULL;
        int kept = 0;
        for (int c = 0; c < c_count; c++)
            kept += !keep || (keep[c] != 0.0f && stored + kept < x->cap);
        const patches q = input_patches(g, keep ? stored : group * c_count, kept);
        float *t = scratch + depth * strip;
        for (int p = 0; p < pixels && kept > 0; p += strip) {
            const int count = round_up(minimum(strip, pixels - p));
            gather(scratch, x, &q, p, count);
            turn_gradient(t, gy + (size_t)group * filters * pixels,
                          gamma_bw ? gamma_bw + (size_t)group * filters : NULL, filters, pixels, p,
                          pixels, count);
            accumulate(acc + group * depth * all, (size_t)all, scratch, t, keep, c_count, kept,
                       taps, filters, count);
        }
        stored += kept;
    }
}

/* The same of the `rows` rows of gy from `row` on, for a conv of one group: x holds the rows that
 * these read. */
void pmeta_conv_bw_w_rows(float *acc, const float *gy, const pmeta_source *x,
                          const float *gamma_bw, float *scratch, const pmeta_geom *g, int strip,
                          int row, int rows)
{
    const int end = minimum(row + rows, g->ho) * g->wo, taps = g->kh * g->kw, f = g->c_out;
    float *t = scratch + (size_t)g->c_in * taps * strip;
    patches q = input_patches(g, 0, g->c_in);
    q.pixels = end;
    q.top = row * g->sh - g->ph;
    q.held = rows_held(g, rows);
    for (int p = row * g->wo; p < end; p += strip) {
        const int count = round_up(minimum(strip, end - p));
        gather(scratch, x, &q, p, count);
        turn_gradient(t, gy, gamma_bw, f, g->ho * g->wo, p, end, count);
        accumulate(acc, (size_t)f, scratch, t, NULL, g->c_in, g->c_in, taps, f, count);
    }
}
