/* Every backward kernel against finite differences of its forward kernel. Exit code 0: all hold.
 *
 * L = sum_i r_i y_i with random r, so that g(y) = r; for a random direction v, (L(x + h v) - L(x
 * - h v)) / 2h must be <g(x), v>. Convolution, fc, adding and average pooling are linear: h =
 * 0.5 has no truncation error, only rounding. The kinks (ReLU at 0 and 6, equal pixels under a
 * max-pooling window) are kept away from by values with gaps larger than h. */
#include "differences.h"
#include <stdlib.h>
#include <string.h>

#define MAX 20000

static float scratch[1 << 20];
static float x[MAX], x2[MAX], v[MAX], w[MAX], w2[MAX], y[MAX], r[MAX], g[MAX], acc[MAX],
    gamma_fw[MAX], gamma_bw[MAX];

/* Weights that are float32. */
static const pmeta_weights *words(const float *weight)
{
    static pmeta_weights plain;
    plain.data = weight;
    return &plain;
}

/* All channels and rows, in strips of 32 pixels. */
static void conv(float *to, const pmeta_source *from, const pmeta_weights *weight, const float *bias,
                 const pmeta_geom *q)
{
    pmeta_conv_rows(to, from, weight, bias, scratch, q, 0, q->c_out, 32, 0, q->ho, 0);
}

static void conv_bw_w(float *to, const float *gy, const pmeta_source *from, const float *gamma,
                      const pmeta_geom *q)
{
    pmeta_conv_bw_w_part(to, gy, from, gamma, scratch, q, 32, 0, q->c_out);
}

static double conv_loss(const float *in, const float *weight, const pmeta_geom *q)
{
    const pmeta_source s = {in, NULL, NULL, NULL, 0, 0, 0};
    conv(y, &s, words(weight), NULL, q);
    return dot(y, r, q->c_out * q->ho * q->wo);
}

static void check_conv(const pmeta_geom q, int compact)
{
    const int nx = q.c_in * q.h * q.w, ny = q.c_out * q.ho * q.wo,
              depth = q.c_in / q.groups * q.kh * q.kw, nw = q.c_out * depth;
    const int filters = q.c_out / q.groups;
    const float h = 0.5f;
    fill(x, nx), fill(w, nw), fill(r, ny), fill(v, nx);
    moved(x2, x, v, h, nx);
    double up = conv_loss(x2, w, &q);
    moved(x2, x, v, -h, nx);
    const double by_x = (up - conv_loss(x2, w, &q)) / (2 * h);
    pmeta_conv_bw_x(g, r, words(w), scratch, &q, 32, 0);
    expect("conv input", by_x, dot(g, v, nx), 1.0, 1e-4);
    pmeta_conv_bw_x(g, r, words(w), scratch, &q, 32, 1);
    expect("conv input added", 2 * by_x, dot(g, v, nx), 1.0, 1e-4);

    fill(v, nw);
    moved(w2, w, v, h, nw);
    up = conv_loss(x, w2, &q);
    moved(w2, w, v, -h, nw);
    const double by_w = (up - conv_loss(x, w2, &q)) / (2 * h);
    memset(acc, 0, sizeof acc);
    pmeta_source s = {x, NULL, NULL, NULL, 0, 0, 0};
    conv_bw_w(acc, r, &s, NULL, &q);
    double sum = 0.0;
    for (int f = 0; f < q.c_out; f++)
        for (int k = 0; k < depth; k++)
            sum +=
                (double)acc[(f / filters * depth + k) * filters + f % filters] * v[f * depth + k];
    expect("conv weight", by_w, sum, 1.0, 1e-4);

    /* With scores, dense and compact: each entry must be gamma_bw[f] gamma_fw[c] times the plain
     * one. */
    memcpy(w2, acc, sizeof acc);
    for (int c = 0; c < q.c_in; c++) gamma_fw[c] = c % 3 == 1 ? 0.0f : uniform();
    fill(gamma_bw, q.c_out);
    memset(acc, 0, sizeof acc);
    if (compact) {
        memcpy(x2, x, sizeof(float) * (size_t)nx);
        pmeta_compact(x2, gamma_fw, q.c_in, q.h * q.w, q.c_in, 0);
        s.data = x2;
    }
    s.gamma = gamma_fw, s.compact = compact, s.cap = q.c_in;
    conv_bw_w(acc, r, &s, gamma_bw, &q);
    for (int f = 0; f < q.c_out; f++)
        for (int k = 0; k < depth; k++) {
            const int at = (f / filters * depth + k) * filters + f % filters;
            const int c = f / filters * (q.c_in / q.groups) + k / (q.kh * q.kw);
            expect("conv scores", (double)gamma_bw[f] * gamma_fw[c] * w2[at], acc[at], 1.0, 1e-4);
        }
}

static void check_fc(int f, int c, int t)
{
    const float h = 0.5f;
    fill(x, t * c), fill(w, f * c), fill(r, t * f), fill(v, t * c);
    moved(x2, x, v, h, t * c);
    pmeta_fc(y, x2, words(w), NULL, f, c, t);
    double up = dot(y, r, t * f);
    moved(x2, x, v, -h, t * c);
    pmeta_fc(y, x2, words(w), NULL, f, c, t);
    pmeta_fc_bw_x(g, r, words(w), f, c, t, 0);
    expect("fc input", (up - dot(y, r, t * f)) / (2 * h), dot(g, v, t * c), 1.0, 1e-4);
    fill(v, f * c);
    moved(w2, w, v, h, f * c);
    pmeta_fc(y, x, words(w2), NULL, f, c, t);
    up = dot(y, r, t * f);
    moved(w2, w, v, -h, f * c);
    pmeta_fc(y, x, words(w2), NULL, f, c, t);
    memset(acc, 0, sizeof acc);
    pmeta_fc_bw_w(acc, r, x, NULL, NULL, f, c, t, 0);
    expect("fc weight", (up - dot(y, r, t * f)) / (2 * h), dot(acc, v, f * c), 1.0, 1e-4);

    memcpy(w2, acc, sizeof acc);
    for (int i = 0; i < c; i++) gamma_fw[i] = i % 3 == 1 ? 0.0f : uniform();
    fill(gamma_bw, f);
    memcpy(x2, x, sizeof(float) * (size_t)(t * c));
    pmeta_compact(x2, gamma_fw, c, t, c, 1);
    memset(acc, 0, sizeof acc);
    pmeta_fc_bw_w(acc, r, x2, gamma_fw, gamma_bw, f, c, t, c);
    for (int i = 0; i < f * c; i++)
        expect("fc scores", (double)gamma_bw[i / c] * gamma_fw[i % c] * w2[i], acc[i], 1.0, 1e-4);
    memset(acc, 0, sizeof acc);
    pmeta_bias_bw(acc, r, NULL, f, t, 1);
    for (int i = 0; i < f; i++) {
        double s = 0.0;
        for (int j = 0; j < t; j++) s += r[j * f + i];
        expect("fc bias", s, acc[i], 1.0, 1e-5);
    }
}

static double norm_loss(const float *in, const float *weight, const float *bias, int c, int n,
                        int per_group)
{
    memcpy(g, in, sizeof(float) * (size_t)(c * n));
    pmeta_norm(g, y, weight, bias, NULL, c, n, per_group, 1e-5f);
    return dot(y, r, c * n);
}

static void check_norm(int c, int n, int per_group)
{
    static float rstd[64], mean[64], sums[64], bias[64];
    const float h = 0.01f; /* the truncation error is of the order h^2 */
    fill(x, c * n), fill(w, c), fill(bias, c), fill(r, c * n), fill(v, c * n);
    moved(x2, x, v, h, c * n);
    double up = norm_loss(x2, w, bias, c, n, per_group);
    moved(x2, x, v, -h, c * n);
    const double by_x = (up - norm_loss(x2, w, bias, c, n, per_group)) / (2 * h);
    fill(v + c * n, 2 * c);
    const float *vw = v + c * n, *vb = vw + c;
    moved(w2, w, vw, 0.5f, c);
    up = norm_loss(x, w2, bias, c, n, per_group);
    moved(w2, w, vw, -0.5f, c);
    const double by_w = up - norm_loss(x, w2, bias, c, n, per_group);

    memcpy(x2, x, sizeof(float) * (size_t)(c * n));
    pmeta_norm(x2, y, w, bias, rstd, c, n, per_group, 1e-5f);
    pmeta_norm_bw(x2, r, w, rstd, mean, sums, c, n, per_group, 1);
    expect("norm input", by_x, dot(x2, v, c * n), 1.0, 2e-3);
    memset(acc, 0, sizeof acc);
    pmeta_norm_acc(acc, acc + c, mean, sums, NULL, NULL, c, n);
    expect("norm weight", by_w, dot(acc, vw, c), 1.0, 1e-4);
    double s = 0.0;
    for (int i = 0; i < c * n; i++) s += (double)r[i] * vb[i / n];
    expect("norm bias", s, dot(acc + c, vb, c), 1.0, 1e-4);
}

static void check_act(int kind, float slope)
{
    static unsigned char mask[100];
    const int n = 777;
    const float h = 0.002f;
    fill_apart(x, n, -1.0f); /* from -1 past 6 */
    fill(r, n), fill(v, n);
    moved(x2, x, v, h, n);
    pmeta_act(x2, NULL, (size_t)n, kind, slope);
    const double up = dot(x2, r, n);
    moved(x2, x, v, -h, n);
    pmeta_act(x2, NULL, (size_t)n, kind, slope);
    const double numeric = (up - dot(x2, r, n)) / (2 * h);
    pmeta_act(x, mask, (size_t)n, kind, slope);
    memcpy(g, r, sizeof(float) * (size_t)n);
    pmeta_act_bw(g, mask, (size_t)n, kind, slope);
    expect("activation", numeric, dot(g, v, n), 1.0, 2e-3);
}

static void check_pool(const pmeta_geom q, int max)
{
    static unsigned char index[MAX];
    const int nx = q.c_in * q.h * q.w, ny = q.c_in * q.ho * q.wo;
    const float h = max ? 0.002f : 0.5f;
    fill_apart(x, nx, -3.0f);
    fill(r, ny), fill(v, nx);
    double side[2];
    for (int i = 0; i < 2; i++) {
        moved(x2, x, v, i ? -h : h, nx);
        if (max)
            pmeta_maxpool(y, x2, NULL, NULL, &q, q.c_in);
        else
            pmeta_avgpool(y, x2, &q, q.c_in, 1);
        side[i] = dot(y, r, ny);
    }
    for (int i = 0; i < nx; i++) g[i] = NAN; /* every target must be written */
    if (max) {
        memset(index, 255, sizeof index);
        pmeta_maxpool(y, x, index, NULL, &q, q.c_in);
        pmeta_maxpool_bw(g, r, index, &q, q.c_in);
    } else {
        pmeta_avgpool_bw(g, r, &q, q.c_in, 1);
    }
    expect(max ? "max-pool" : "average pool", (side[0] - side[1]) / (2 * h), dot(g, v, nx), 1.0,
           max ? 5e-3 : 1e-4);
}

/* y (pooled) of a norm and its max-pool, the winners first; leaves statistics and places. */
static void pooled_norm(const float *in, const float *weight, const float *bias,
                        const pmeta_geom *q, int per_group, float *xhat, float *stat, float *means,
                        unsigned char *index)
{
    pmeta_moments(stat, in, q->c_in, (size_t)(q->h * q->w), 0, q->h * q->w);
    pmeta_group_stat(stat, means, NULL, q->c_in, q->h * q->w, per_group, 1e-5f);
    pmeta_maxpool(xhat, in, index, weight, q, q->c_in);
    pmeta_normalise(xhat, y, stat, weight, bias, q->c_in, (size_t)(q->ho * q->wo), q->ho * q->wo,
                    0.0f);
}

/* A norm behind its max-pool: the same as before it, in strips of rows too; and its gradient. */
static void check_pooled(const pmeta_geom q, int per_group)
{
    static float xhat[MAX], stat[128], strips[128], means[64], mean[64], sums[64], coef[256],
        bias[64], want[MAX];
    static unsigned char index[MAX];
    const int c = q.c_in, n = q.h * q.w, nx = c * n, ny = c * q.ho * q.wo;
    const float h = 0.002f;
    fill_apart(x, nx, -3.0f);
    fill(r, ny), fill(v, nx), fill(w, c), fill(bias, c);
    w[0] = fabsf(w[0]), w[1] = -fabsf(w[1]);
    memcpy(g, x, sizeof(float) * (size_t)nx);
    pmeta_norm(g, x2, w, bias, NULL, c, n, per_group, 1e-5f);
    pmeta_maxpool(want, x2, NULL, NULL, &q, c);
    double side[2];
    for (int i = 0; i < 2; i++) {
        moved(x2, x, v, i ? -h : h, nx);
        pooled_norm(x2, w, bias, &q, per_group, xhat, stat, means, NULL);
        side[i] = dot(y, r, ny);
    }
    pooled_norm(x, w, bias, &q, per_group, xhat, stat, means, index);
    for (int i = 0; i < ny; i++) expect("norm behind its pool", want[i], y[i], 1.0, 1e-5);
    for (int i = 0; i < c; i++) {
        double s = 0.0;
        for (int j = 0; j < n; j++) s += g[i * n + j];
        expect("means of a norm", s / n, means[i], 1.0, 1e-5);
    }
    const int rows = 2 * q.sh; /* strips that do not divide the image */
    for (int row = 0; row < q.h; row += rows) {
        const int some = row + rows < q.h ? rows : q.h - row;
        for (int i = 0; i < c; i++)
            memcpy(x2 + i * rows * q.w, x + i * n + row * q.w,
                   sizeof(float) * (size_t)(some * q.w));
        pmeta_moments(strips, x2, c, (size_t)(rows * q.w), row * q.w, some * q.w);
        if (row / q.sh < q.ho && q.ph == 0 && q.kh <= q.sh)
            pmeta_maxpool_rows(want + row / q.sh * q.wo, (size_t)(q.ho * q.wo), x2, w, &q, c,
                               row / q.sh, 2);
    }
    pmeta_group_stat(strips, NULL, NULL, c, n, per_group, 1e-5f);
    for (int i = 0; i < 2 * c; i++) expect("statistics in strips", stat[i], strips[i], 0.1, 1e-5);
    pmeta_normalise(want, want, strips, w, bias, c, (size_t)(q.ho * q.wo), q.ho * q.wo, 0.0f);
    for (int i = 0; i < ny && q.ph == 0 && q.kh <= q.sh; i++)
        expect("norm behind its pool in strips", y[i], want[i], 1.0, 1e-5);

    pmeta_norm_bw(xhat, r, w, NULL, mean, sums, c, q.ho * q.wo, per_group, 0);
    pmeta_norm_coef(coef, stat, means, w, mean, sums, c, n, q.ho * q.wo, per_group);
    memcpy(g, x, sizeof(float) * (size_t)nx);
    pmeta_norm_pool_bw(g, r, index, coef, &q, c, (size_t)c);
    expect("norm behind its pool, input", (side[0] - side[1]) / (2 * h), dot(g, v, nx), 1.0, 5e-3);
    for (int i = 0; i < c; i++) {
        double s = 0.0;
        for (int j = 0; j < n; j++) s += g[i * n + j];
        expect("mean gradient of a norm", s / n, coef[i], 0.01, 1e-3);
    }
}

/* The rows of x that output rows from `row` on read; what lies outside is no number. */
static void window_of(float *window, const pmeta_geom *q, int row, int held)
{
    for (int i = 0; i < q->c_in * held * q->w; i++) {
        const int at = row * q->sh - q->ph + i / q->w % held;
        window[i] =
            at < 0 || at >= q->h ? NAN : x[(i / q->w / held * q->h + at) * q->w + i % q->w];
    }
}

/* Parts of a conv equal the whole: strips of rows from a window, parts of the filters backward. */
static void check_parts(const pmeta_geom q)
{
    const int nx = q.c_in * q.h * q.w, ny = q.c_out * q.ho * q.wo, plane = q.ho * q.wo,
              depth = q.c_in / q.groups * q.kh * q.kw, rows = 3;
    const int held = (rows - 1) * q.sh + q.dh * (q.kh - 1) + 1;
    static float part[MAX], window[MAX];
    pmeta_source s = {x, NULL, NULL, NULL, 0, 0, 0};
    const pmeta_source from = {window, NULL, NULL, NULL, 0, 0, 0};
    fill(x, nx), fill(w, q.c_out * depth), fill(r, ny), fill(gamma_bw, q.c_out);
    conv(y, &s, words(w), gamma_bw, &q);
    for (int row = 0; row < q.ho; row += rows) {
        window_of(window, &q, row, held);
        pmeta_conv_rows(part, &from, words(w), gamma_bw, scratch, &q, 0, q.c_out, 16, row, rows,
                        PMETA_WINDOW);
        for (int f = 0; f < q.c_out; f++)
            for (int p = 0; p < rows * q.wo && row * q.wo + p < plane; p++)
                expect("conv of a window", y[f * plane + row * q.wo + p],
                       part[f * rows * q.wo + p], 1.0, 1e-6);
    }
    if (q.groups > 1) return;
    memset(acc, 0, sizeof acc), memset(w2, 0, sizeof w2), fill(x2, ny);
    conv_bw_w(acc, r, &s, gamma_bw, &q);
    for (int row = 0; row < q.ho + rows; row += rows) { /* the last strip lies outside */
        window_of(window, &q, row, held);
        pmeta_conv_rows(x2, &from, words(w), gamma_bw, scratch, &q, 0, q.c_out, 16, row, rows,
                        PMETA_WINDOW | PMETA_WHOLE);
        pmeta_conv_bw_w_rows(w2, r, &from, gamma_bw, scratch, &q, 16, row, rows);
    }
    for (int i = 0; i < ny; i++) expect("conv into a whole", y[i], x2[i], 1.0, 1e-6);
    for (int i = 0; i < q.c_out * depth; i++) expect("conv weight by rows", acc[i], w2[i], 1.0, 1e-5);
    memset(w2, 0, sizeof w2);
    pmeta_conv_bw_x(g, r, words(w), scratch, &q, 32, 0);
    for (int f = 0; f < q.c_out; f += 2) {
        pmeta_geom two = q;
        two.c_out = q.c_out - f < 2 ? q.c_out - f : 2;
        pmeta_conv_bw_w_part(w2, r + f * plane, &s, gamma_bw + f, scratch, &q, 32, f, two.c_out);
        pmeta_conv_bw_x(x2, r + f * plane, words(w + f * depth), scratch, &two, 32, f > 0);
    }
    for (int i = 0; i < q.c_out * depth; i++) expect("conv weight in parts", acc[i], w2[i], 1.0, 1e-5);
    for (int i = 0; i < nx; i++) expect("conv input in parts", g[i], x2[i], 1.0, 1e-5);
}

/* The half of a few eighths, which are below one. */
static uint16_t half_of(int eighths)
{
    const int size = abs(eighths), sign = eighths < 0 ? 0x8000 : 0;
    int exponent = 12;
    while (size >> (exponent - 11)) exponent++;
    return (uint16_t)(size ? sign | exponent << 10 | (size << (22 - exponent) & 0x3FF) : sign);
}

/* w2, rounded, as halves or bytes into `packed`; w: the numbers that these are. */
static void pack(unsigned char *packed, float *scale, int rows, int width, int type)
{
    for (int i = 0; i < rows * width; i++) {
        const int step = (int)(127.0f * w2[i]), eighths = (int)(8.0f * w2[i]);
        const uint16_t half = half_of(eighths);
        scale[i / width] = 0.01f * (float)(i / width + 1);
        if (type == PMETA_HALF)
            memcpy(packed + 2 * i, &half, 2);
        else
            packed[i] = (unsigned char)(step < 0 ? step + 256 : step);
        w[i] = type == PMETA_HALF ? (float)eighths / 8.0f : (float)step * scale[i / width];
    }
}

/* Packed weights do what the same numbers do in float32. */
static void check_packed(const pmeta_geom q, int type)
{
    static unsigned char packed[2 * MAX + 1];
    static float scale[MAX];
    const int nx = q.c_in * q.h * q.w, ny = q.c_out * q.ho * q.wo,
              depth = q.c_in / q.groups * q.kh * q.kw;
    const pmeta_source s = {x, NULL, NULL, NULL, 0, 0, 0};
    const pmeta_weights small = {packed + 1, scale, type}; /* without alignment */
    fill(x, nx), fill(r, ny), fill(w2, q.c_out * depth);
    pack(packed + 1, scale, q.c_out, depth, type);
    conv(y, &s, words(w), NULL, &q);
    conv(x2, &s, &small, NULL, &q);
    for (int i = 0; i < ny; i++) expect("packed conv", y[i], x2[i], 1.0, 1e-5);
    pmeta_conv_bw_x(g, r, words(w), scratch, &q, 32, 0);
    pmeta_conv_bw_x(x2, r, &small, scratch, &q, 32, 0);
    for (int i = 0; i < nx; i++) expect("packed conv input", g[i], x2[i], 1.0, 1e-5);
    pmeta_fc(y, x, words(w), NULL, q.c_out, depth, 2);
    pmeta_fc(x2, x, &small, NULL, q.c_out, depth, 2);
    for (int i = 0; i < 2 * q.c_out; i++) expect("packed fc", y[i], x2[i], 1.0, 1e-5);
    pmeta_fc_bw_x(g, r, words(w), q.c_out, depth, 2, 0);
    pmeta_fc_bw_x(x2, r, &small, q.c_out, depth, 2, 0);
    for (int i = 0; i < 2 * depth; i++) expect("packed fc input", g[i], x2[i], 1.0, 1e-5);
}

static void check_loss(void)
{
    const float z[5] = {0.3f, -1.2f, 2.0f, 0.0f, 0.7f}, h = 0.01f;
    float up[5], down[5], grad[5], dummy[5];
    pmeta_cross_entropy(grad, z, 5, 3, 0.25f);
    for (int i = 0; i < 5; i++) {
        memcpy(up, z, sizeof z), memcpy(down, z, sizeof z);
        up[i] += h, down[i] -= h;
        const float a = pmeta_cross_entropy(dummy, up, 5, 3, 1.0f),
                    b = pmeta_cross_entropy(dummy, down, 5, 3, 1.0f);
        expect("cross-entropy", 0.25 * (double)(a - b) / (2 * h), grad[i], 0.01, 1e-2);
    }
}

static void check_clip(void)
{
    float pi[4] = {0.4f, 0.1f, 0.3f, 0.2f}, peak[3] = {0.02f, 0.9f, 0.08f},
          equal[4] = {0.25f, 0.25f, 0.25f, 0.25f};
    uint32_t order[4];
    pmeta_clip(pi, order, 4, 0.3f - 1e-6f); /* 0.1 and 0.2 go; the rest sums to 4 */
    const double want[4] = {0.4 / 0.7 * 4, 0, 0.3 / 0.7 * 4, 0};
    for (int i = 0; i < 4; i++) expect("Alg. 1", want[i], pi[i], 0.0, 1e-5);
    pmeta_clip(peak, order, 3, 0.3f - 1e-6f); /* never the last channel */
    const double left[3] = {0, 3, 0};
    for (int i = 0; i < 3; i++) expect("Alg. 1, one peak", left[i], peak[i], 0.0, 1e-5);
    pmeta_clip(equal, order, 4, 0.3f - 1e-6f); /* ties go in the order of the channels */
    const double tied[4] = {0, 0, 2, 2};
    for (int i = 0; i < 4; i++) expect("Alg. 1, ties", tied[i], equal[i], 0.0, 1e-5);
}

/* Of equal pixels the first one wins, and has the whole gradient. */
static void check_ties(void)
{
    const pmeta_geom q = geometry(1, 2, 2, 1, 2, 2, 2, 0, 1, 1);
    const float even[4] = {1.0f, 1.0f, 1.0f, 1.0f}, one = 1.0f;
    unsigned char index[1];
    pmeta_maxpool(y, even, index, NULL, &q, 1);
    pmeta_maxpool_bw(g, &one, index, &q, 1);
    for (int i = 0; i < 4; i++) expect("ties under a max-pool", i == 0, g[i], 0.0, 0.0);
}

/* In a hostile file more scores are not zero than there are channels: the first `cap` count. */
static void check_cap(void)
{
    const float gy[1] = {1.0f}, gamma[3] = {1.0f, 1.0f, 1.0f};
    const float kept[4] = {2.0f, 3.0f, 5.0f, 7.0f}; /* two rows of two */
    memset(acc, 0, sizeof acc);
    pmeta_fc_bw_w(acc, gy, kept, gamma, NULL, 1, 3, 1, 2);
    const double want[3] = {2, 3, 0};
    for (int i = 0; i < 3; i++) expect("fc, stored channels", want[i], acc[i], 0.0, 0.0);
}

int main(void)
{
    check_pooled(geometry(8, 10, 9, 8, 2, 2, 2, 0, 1, 1), 4);
    check_pooled(geometry(6, 13, 11, 6, 2, 2, 2, 0, 1, 1), 2); /* a row and a column are left out */
    check_pooled(geometry(6, 12, 9, 6, 3, 3, 2, 1, 1, 1), 3);  /* windows that overlap */
    check_parts(geometry(3, 9, 11, 8, 3, 3, 1, 1, 1, 1));
    check_parts(geometry(6, 20, 7, 5, 5, 3, 2, 2, 1, 1));
    check_parts(geometry(8, 10, 10, 36, 3, 3, 3, 4, 2, 2));
    check_parts(geometry(8, 7, 6, 8, 3, 3, 1, 1, 1, 8));
    for (int type = PMETA_HALF; type <= PMETA_BYTE; type++) {
        check_packed(geometry(3, 9, 11, 7, 3, 3, 1, 1, 1, 1), type);
        check_packed(geometry(8, 10, 10, 36, 3, 3, 3, 4, 2, 2), type);
        check_packed(geometry(70, 4, 4, 6, 3, 3, 1, 1, 1, 1), type);
        check_packed(geometry(8, 6, 6, 8, 3, 3, 1, 1, 1, 8), type);
    }
    for (int compact = 0; compact < 2; compact++) {
        check_conv(geometry(3, 9, 11, 8, 3, 3, 1, 1, 1, 1), compact);
        check_conv(geometry(6, 20, 7, 5, 5, 3, 2, 2, 1, 1), compact);
        check_conv(geometry(8, 6, 6, 8, 3, 3, 1, 1, 1, 8), compact); /* depthwise */
        check_conv(geometry(4, 8, 8, 12, 3, 3, 2, 1, 1, 4),
                   compact); /* depthwise, three filters a channel */
        check_conv(geometry(8, 10, 10, 36, 3, 3, 3, 4, 2, 2), compact);
        check_conv(geometry(5, 1, 40, 7, 1, 9, 2, 0, 1, 1), compact); /* 1-D */
        check_conv(geometry(20, 5, 5, 17, 1, 1, 1, 0, 1, 1), compact);
        check_conv(geometry(70, 4, 4, 6, 3, 3, 1, 1, 1, 1),
                   compact); /* more than one block of depth */
    }
    check_fc(5, 33, 1);
    check_fc(7, 20, 9);
    check_norm(8, 49, 2);
    check_norm(6, 100, 6);
    check_act(PMETA_RELU, 0.0f);
    check_act(PMETA_LEAKY, 0.1f);
    check_act(PMETA_RELU6, 0.0f);
    for (int max = 0; max < 2; max++) {
        check_pool(geometry(3, 9, 9, 3, 2, 2, 2, 0, 1, 1), max);
        check_pool(geometry(2, 10, 10, 2, 2, 2, 1, 1, 1, 1), max);
        check_pool(geometry(2, 11, 9, 2, 3, 3, 2, 1, 1, 1), max); /* overlapping */
        check_pool(geometry(2, 8, 8, 2, 8, 8, 8, 0, 1, 1), max);  /* global */
    }
    check_loss();
    check_clip();
    check_ties();
    check_cap();
    printf("%d checks, %d failures\n", checks, failures);
    return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
