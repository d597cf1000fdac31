/* 3x3 convolutions, stride 1, padding 1, and their weight gradients in float32, channels last: images are (B, H, W, C).
 *
 * cv_winograd: 25 products where 81 were (Lavin & Gray 2016, F(3x3, 3x3)). In one dimension three outputs of a filter g over
 * five inputs d are A^T (G g * B^T d): polynomials are multiplied by their values at the points P1, -P1, P2, -P2 and infinity.
 * P1 = 5/4 and P2 = 3/8 round least of what we tried, about as PyTorch's own convs do, and their squares are exact.
 * The form is trilinear, so the gradient of g is G^T (A y * B^T d). For images all this applies to rows, then to columns.
 * cv_thin: few input channels, as the first layer has. */
#include "lanes.h"

enum { TILES = 24, MOST = 128 /* channels */, SIDE = 3, POINTS = 5, PLACES = POINTS * POINTS };
/* What the registers hold: WIDE vectors at a time for ROWS rows of a product, DEEP of a correlation. */
enum { WIDE = LANES == 4 ? 4 : 2, ROWS = LANES == 8 ? 6 : 24 / WIDE, DEEP = LANES == 8 ? 4 : 16 / WIDE };

/* a b + c */
PART vec fused(vec a, vec b, vec c) {
#if !defined(__x86_64__) && !defined(__aarch64__)
    for (int i = 0; i < LANES; i++) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return c;
#elif LANES == 16
    return (vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif LANES == 8
    return (vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__x86_64__)
    return (vec)_mm_fmadd_ps((__m128)a, (__m128)b, (__m128)c);
#else
    return (vec)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#endif
}

typedef struct {
    int32_t batch, height, width, inputs, outputs;
} cv_shape;

#define P1 1.25f
#define P2 .375f
#define OF_1 (1 / (2 * P1 * (P1 * P1 - P2 * P2)))
#define OF_2 (1 / (2 * P2 * (P2 * P2 - P1 * P1)))

/* to + f v */
PART vec add(vec to, float f, vec v) { return fused(all(f), v, to); }

/* B^T d */
PART void input_points(const vec *d, vec *out) {
    vec even_1 = add(d[2], -P2 * P2, d[0]), odd_1 = add(d[3], -P2 * P2, d[1]);
    vec even_2 = add(d[2], -P1 * P1, d[0]), odd_2 = add(d[3], -P1 * P1, d[1]);
    out[0] = add(odd_1, P1, even_1), out[1] = add(odd_1, -P1, even_1), out[2] = add(odd_2, P2, even_2), out[3] = add(odd_2, -P2, even_2);
    out[4] = add(add(d[4], -P2 * P2, d[2]), -P1 * P1, even_1);
}

/* A^T m */
PART void outputs_of_points(const vec *m, vec *out) {
    vec sum_1 = m[0] + m[1], sum_2 = m[2] + m[3];
    out[0] = sum_1 + sum_2, out[1] = add(all(P2) * (m[2] - m[3]), P1, m[0] - m[1]);
    out[2] = add(add(m[4], P2 * P2, sum_2), P1 * P1, sum_1);
}

/* A g */
PART void gradient_points(const vec *g, vec *out) {
    vec even_1 = add(g[0], P1 * P1, g[2]), even_2 = add(g[0], P2 * P2, g[2]);
    out[0] = add(even_1, P1, g[1]), out[1] = add(even_1, -P1, g[1]), out[2] = add(even_2, P2, g[1]), out[3] = add(even_2, -P2, g[1]);
    out[4] = g[2];
}

/* G g */
PART void filter_points(const vec *g, vec *out) {
    vec even_1 = all(OF_1) * add(g[0], P1 * P1, g[2]), odd_1 = all(OF_1 * P1) * g[1];
    vec even_2 = all(OF_2) * add(g[0], P2 * P2, g[2]), odd_2 = all(OF_2 * P2) * g[1];
    out[0] = odd_1 + even_1, out[1] = odd_1 - even_1, out[2] = odd_2 + even_2, out[3] = odd_2 - even_2, out[4] = g[2];
}

/* G^T s */
PART void filter_of_points(const vec *s, vec *out) {
    vec less_1 = all(OF_1) * (s[0] - s[1]), less_2 = all(OF_2) * (s[2] - s[3]);
    out[0] = less_1 + less_2, out[1] = add(all(OF_2 * P2) * (s[2] + s[3]), OF_1 * P1, s[0] + s[1]);
    out[2] = add(add(s[4], P2 * P2, less_2), P1 * P1, less_1);
}

/* m[R][N] = v[R][K] u[K][N] in columns n and the next Q vectors of them; R and Q are constants.
 * v comes in parts of K / parts columns, `next` floats from one to the next; a row is `step` floats on. */
PART void product_part(const float *v, int step, int next, int parts, const float *u, float *m, int K, int N, int n, const int R,
                       const int Q) {
    vec a[12][4];
    for (int r = 0; r < R; r++)
        for (int q = 0; q < Q; q++) a[r][q] = all(0);
    for (int p = 0; p < parts; p++, v += next) {
        for (int k = 0; k < K / parts; k++, u += N) {
            vec w[4];
            for (int q = 0; q < Q; q++) w[q] = get(u + n + q * LANES);
            for (int r = 0; r < R; r++) {
                vec f = all(v[(size_t)r * step + k]);
                for (int q = 0; q < Q; q++) a[r][q] = fused(f, w[q], a[r][q]);
            }
        }
    }
    for (int r = 0; r < R; r++)
        for (int q = 0; q < Q; q++) put(m + (size_t)r * N + n + q * LANES, a[r][q]);
}

/* m[ROWS][N] = v[ROWS][K] u[K][N] */
PART void product(const float *v, int step, int next, int parts, const float *u, float *m, int K, int N) {
    int n = 0;
    for (; n + WIDE * LANES <= N; n += WIDE * LANES) product_part(v, step, next, parts, u, m, K, N, n, ROWS, WIDE);
    for (; n < N; n += LANES) product_part(v, step, next, parts, u, m, K, N, n, ROWS, 1);
}

/* sum[R][N] += over t of v[t step + r] y[t][n] in columns n and the next Q vectors of them. */
PART void correlate_part(const float *v, int step, const float *y, float *sum, int T, int N, int n, const int R, const int Q) {
    vec a[12][8];
    for (int r = 0; r < R; r++)
        for (int q = 0; q < Q; q++) a[r][q] = all(0); /* sums of sums round less than one long sum */
    for (int t = 0; t < T; t++) {
        vec g[8];
        for (int q = 0; q < Q; q++) g[q] = get(y + (size_t)t * N + n + q * LANES);
        for (int r = 0; r < R; r++) {
            vec f = all(v[(size_t)t * step + r]);
            for (int q = 0; q < Q; q++) a[r][q] = fused(f, g[q], a[r][q]);
        }
    }
    for (int r = 0; r < R; r++)
        for (int q = 0; q < Q; q++) {
            float *to = sum + (size_t)r * N + n + q * LANES;
            put(to, get(to) + a[r][q]);
        }
}

PART void correlate(const float *v, int step, const float *y, float *sum, int T, int N, const int R, const int Q) {
    int n = 0;
    for (; n + Q * LANES <= N; n += Q * LANES) correlate_part(v, step, y, sum, T, N, n, R, Q);
    for (; n < N; n += LANES) correlate_part(v, step, y, sum, T, N, n, R, 1);
}

/* Where tile t of all images begins, and how many of its rows and columns are inside. */
typedef struct {
    int image, row, column, rows, columns;
} tile;

PART int along(int pixels) { return (pixels + SIDE - 1) / SIDE; }
PART int least(int a, int b) { return a < b ? a : b; }
PART int tiles_of(const cv_shape *s) { return s->batch * along(s->height) * along(s->width); }

PART tile tile_at(const cv_shape *s, int t) {
    int across = along(s->width), per_image = along(s->height) * across;
    int row = t % per_image / across * SIDE, column = t % across * SIDE;
    return (tile){t / per_image, row, column, least(SIDE, s->height - row), least(SIDE, s->width - column)};
}

static const float ZEROS[MOST];

/* v[PLACES][TILES][C] at place `at`: B^T d B of a tile's 5x5 inputs. */
PART void transform_input(const float *x, const cv_shape *s, tile in, float *v, int at) {
    int H = s->height, W = s->width, C = s->inputs;
    const float *p[PLACES];
    for (int k = 0; k < PLACES; k++) {
        int i = in.row - 1 + k / POINTS, j = in.column - 1 + k % POINTS;
        p[k] = i < 0 || i >= H || j < 0 || j >= W ? ZEROS : x + (((size_t)in.image * H + i) * W + j) * C;
    }
    for (int c = 0; c < C; c += LANES) {
        vec half[POINTS][POINTS]; /* [column][row] */
        for (int j = 0; j < POINTS; j++) {
            vec d[POINTS];
            for (int i = 0; i < POINTS; i++) d[i] = get(p[POINTS * i + j] + c);
            input_points(d, half[j]);
        }
        for (int i = 0; i < POINTS; i++) {
            vec d[POINTS] = {half[0][i], half[1][i], half[2][i], half[3][i], half[4][i]}, out[POINTS];
            input_points(d, out);
            for (int j = 0; j < POINTS; j++) put(v + ((size_t)(POINTS * i + j) * TILES + at) * C + c, out[j]);
        }
    }
}

/* The image's 3x3 outputs A^T m A from m[PLACES][TILES][C] at place `at`. */
PART void transform_output(const float *m, int at, const cv_shape *s, tile in, float *y) {
    int H = s->height, W = s->width, C = s->outputs;
    y += (((size_t)in.image * H + in.row) * W + in.column) * C;
    for (int c = 0; c < C; c += LANES) {
        vec half[POINTS][SIDE]; /* [column][row] */
        for (int j = 0; j < POINTS; j++) {
            vec d[POINTS];
            for (int i = 0; i < POINTS; i++) d[i] = get(m + ((size_t)(POINTS * i + j) * TILES + at) * C + c);
            outputs_of_points(d, half[j]);
        }
        for (int i = 0; i < in.rows; i++) {
            vec d[POINTS] = {half[0][i], half[1][i], half[2][i], half[3][i], half[4][i]}, out[SIDE];
            outputs_of_points(d, out);
            for (int j = 0; j < in.columns; j++) put(y + ((size_t)i * W + j) * C + c, out[j]);
        }
    }
}

/* v[PLACES][TILES][C] at place `at`: A g A^T of a tile's 3x3 output gradients. */
PART void transform_gradient(const float *g, const cv_shape *s, tile in, float *v, int at) {
    int W = s->width, C = s->outputs;
    const float *p[SIDE * SIDE];
    g += (((size_t)in.image * s->height + in.row) * W + in.column) * C;
    for (int k = 0; k < SIDE * SIDE; k++)
        p[k] = k / SIDE < in.rows && k % SIDE < in.columns ? g + ((size_t)(k / SIDE) * W + k % SIDE) * C : ZEROS;
    for (int c = 0; c < C; c += LANES) {
        vec half[SIDE][POINTS]; /* [column][row] */
        for (int j = 0; j < SIDE; j++) {
            vec d[SIDE] = {get(p[j] + c), get(p[SIDE + j] + c), get(p[2 * SIDE + j] + c)};
            gradient_points(d, half[j]);
        }
        for (int i = 0; i < POINTS; i++) {
            vec d[SIDE] = {half[0][i], half[1][i], half[2][i]}, out[POINTS];
            gradient_points(d, out);
            for (int j = 0; j < POINTS; j++) put(v + ((size_t)(POINTS * i + j) * TILES + at) * C + c, out[j]);
        }
    }
}

/* u[PLACES][C][F] = G w G^T from w (F, C, 3, 3); turned: from w (C, F, 3, 3) turned round, the filters of the input gradient. */
PART void transform_filters(const float *w, int C, int F, int turned, float *u) {
    for (int c = 0; c < C; c++) {
        for (int f = 0; f < F; f += LANES) {
            const float *first = w + ((size_t)(turned ? c : f) * (turned ? F : C) + (turned ? f : c)) * 9;
            size_t next = turned ? 9 : (size_t)C * 9;
            vec half[3][POINTS]; /* [column][row] */
            for (int j = 0; j < 3; j++) {
                vec g[3] = {all(0), all(0), all(0)};
                for (int i = 0; i < 3; i++)
                    for (int l = 0; l < LANES; l++) g[i][l] = first[l * next + (turned ? 8 - 3 * i - j : 3 * i + j)];
                filter_points(g, half[j]);
            }
            for (int i = 0; i < POINTS; i++) {
                vec g[3] = {half[0][i], half[1][i], half[2][i]}, out[POINTS];
                filter_points(g, out);
                for (int j = 0; j < POINTS; j++) put(u + ((size_t)(POINTS * i + j) * C + c) * F + f, out[j]);
            }
        }
    }
}

/* gw (F, C, 3, 3) = G^T sum G from sum[PLACES][C][F]. */
PART void transform_sums(const float *sum, int C, int F, float *gw) {
    for (int c = 0; c < C; c++) {
        for (int f = 0; f < F; f += LANES) {
            vec half[POINTS][3]; /* [column][row] */
            for (int j = 0; j < POINTS; j++) {
                vec d[POINTS];
                for (int i = 0; i < POINTS; i++) d[i] = get(sum + ((size_t)(POINTS * i + j) * C + c) * F + f);
                filter_of_points(d, half[j]);
            }
            for (int i = 0; i < 3; i++) {
                vec d[POINTS] = {half[0][i], half[1][i], half[2][i], half[3][i], half[4][i]}, out[3];
                filter_of_points(d, out);
                for (int j = 0; j < 3; j++)
                    for (int l = 0; l < LANES; l++) gw[((size_t)(f + l) * C + c) * 9 + 3 * i + j] = out[j][l];
            }
        }
    }
}

/* y = conv(x, w); turned: the input gradient x of a conv with the weight w, from its output gradient.
 * scratch: PLACES (inputs outputs + TILES (inputs + outputs)) floats. Channels are multiples of 16 and at most MOST. */
KERNEL(cv_winograd)(const cv_shape *s, const float *x, const float *w, int32_t turned, float *y, float *scratch) {
    int C = s->inputs, F = s->outputs, tiles = tiles_of(s);
    float *u = scratch, *v = u + (size_t)PLACES * C * F, *m = v + (size_t)PLACES * TILES * C;
    transform_filters(w, C, F, turned, u);
    memset(v, 0, sizeof *v * PLACES * TILES * (size_t)C); /* the last tiles may be fewer */
    for (int t = 0; t < tiles; t += TILES) {
        int n = least(TILES, tiles - t);
        for (int i = 0; i < n; i++) transform_input(x, s, tile_at(s, t + i), v, i);
        for (int k = 0; k < PLACES; k++)
            for (int i = k * TILES; i < k * TILES + n; i += ROWS)
                product(v + (size_t)i * C, C, 0, 1, u + (size_t)k * C * F, m + (size_t)i * F, C, F);
        for (int i = 0; i < n; i++) transform_output(m, i, s, tile_at(s, t + i), y);
    }
}

/* gw = the weight gradient (outputs, inputs, 3, 3) from the input x and the output gradient g; scratch and channels as above. */
KERNEL(cv_winograd_weight)(const cv_shape *s, const float *x, const float *g, float *gw, float *scratch) {
    int C = s->inputs, F = s->outputs, tiles = tiles_of(s);
    float *sum = scratch, *v = sum + (size_t)PLACES * C * F, *y = v + (size_t)PLACES * TILES * C;
    memset(sum, 0, sizeof *sum * PLACES * (size_t)C * F);
    for (int t = 0; t < tiles; t += TILES) {
        int n = least(TILES, tiles - t);
        for (int i = 0; i < n; i++) {
            transform_input(x, s, tile_at(s, t + i), v, i);
            transform_gradient(g, s, tile_at(s, t + i), y, i);
        }
        for (int k = 0; k < PLACES; k++)
            for (int c = 0; c < C; c += DEEP)
                correlate(v + (size_t)k * TILES * C + c, C, y + (size_t)k * TILES * F, sum + ((size_t)k * C + c) * F, n, F, DEEP, WIDE);
    }
    transform_sums(sum, C, F, gw);
}

enum { SPARE = 12 }; /* pixels behind a row, which the last products may read */

/* Rows i - 1, i and i + 1 of an image, with zeros around it, as (3, W + 2 + SPARE, C). */
PART void rows_around(const float *x, const cv_shape *s, int i, float *rows) {
    size_t C = (size_t)s->inputs, n = (size_t)s->width * C, next = n + (2 + SPARE) * C;
    memset(rows, 0, sizeof *rows * 3 * next);
    for (int k = 0; k < 3; k++)
        if (i - 1 + k >= 0 && i - 1 + k < s->height) memcpy(rows + k * next + C, x + (size_t)(i - 1 + k) * n, sizeof *x * n);
}

/* The same two where the inputs are few, without detours: outputs are a multiple of 16.
 * scratch: (9 outputs + 3 (width + 14)) inputs + 12 outputs floats. */
KERNEL(cv_thin)(const cv_shape *s, const float *x, const float *w, float *y, float *scratch) {
    int H = s->height, W = s->width, C = s->inputs, F = s->outputs, taps = 9 * C, next = (W + 2 + SPARE) * C;
    float *u = scratch, *rows = u + (size_t)taps * F, *last = rows + (size_t)3 * next;
    for (int f = 0; f < F; f++)
        for (int c = 0; c < C; c++)
            for (int k = 0; k < 9; k++) u[((size_t)k * C + c) * F + f] = w[((size_t)f * C + c) * 9 + k];
    for (int b = 0; b < s->batch; b++, x += (size_t)H * W * C) {
        for (int i = 0; i < H; i++, y += (size_t)W * F) {
            rows_around(x, s, i, rows);
            int j = 0;
            for (; j + ROWS <= W; j += ROWS) product(rows + (size_t)j * C, C, next, 3, u, y + (size_t)j * F, taps, F);
            if (j < W) {
                product(rows + (size_t)j * C, C, next, 3, u, last, taps, F);
                memcpy(y + (size_t)j * F, last, sizeof *y * (size_t)(W - j) * F);
            }
        }
    }
}

KERNEL(cv_thin_weight)(const cv_shape *s, const float *x, const float *g, float *gw, float *scratch) {
    int H = s->height, W = s->width, C = s->inputs, F = s->outputs, taps = 3 * C, next = (W + 2 + SPARE) * C;
    float *sum = scratch, *rows = sum + (size_t)3 * taps * F;
    memset(sum, 0, sizeof *sum * 3 * (size_t)taps * F);
    for (int b = 0; b < s->batch; b++, x += (size_t)H * W * C) {
        for (int i = 0; i < H; i++, g += (size_t)W * F) {
            rows_around(x, s, i, rows);
            for (int k = 0; k < 3; k++) {
                const float *v = rows + (size_t)k * next;
                float *to = sum + (size_t)k * taps * F;
                if (LANES == 16 && C == 3)
                    correlate(v, C, g, to, W, F, 9, 2);
                else
                    for (int c = 0; c < taps; c += 3) correlate(v + c, C, g, to + (size_t)c * F, W, F, 3, LANES == 16 ? 2 : 4);
            }
        }
    }
    for (int f = 0; f < F; f++)
        for (int c = 0; c < C; c++)
            for (int k = 0; k < 9; k++) gw[((size_t)f * C + c) * 9 + k] = sum[((size_t)k * C + c) * F + f];
}
