/* 3x3 convolutions, stride 1, padding 1, and their weight gradients in float32, channels last: images are (B, H, W, C).
 *
 * cv_winograd: 25 products where 81 were (Lavin & Gray 2016, F(3x3, 3x3)). In one dimension three outputs of a filter g over
 * five inputs d are A^T (G g * B^T d): polynomials are multiplied by their values at the points P1, -P1, P2, -P2 and infinity.
 * P1 = 5/4 and P2 = 3/8 round least of what we tried, about as PyTorch's own convs do, and their squares are exact.
 * The form is trilinear, so the gradient of g is G^T (A y * B^T d). For images all this applies to rows, then to columns.
 * cv_thin_weight: few input channels, as the first layer has. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#define FAST __attribute__((target("avx2,fma")))
int32_t cv_runs_here(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
#else
#define FAST
int32_t cv_runs_here(void) { return 0; } /* never measured there */
#endif
#define PART static inline __attribute__((always_inline)) FAST

typedef float vec __attribute__((vector_size(32), aligned(4), may_alias));
enum { LANES = 8, TILES = 18, ROWS = 6, MOST = 128 /* channels */, SIDE = 3, POINTS = 5, PLACES = POINTS * POINTS };

typedef struct {
    int32_t batch, height, width, inputs, outputs;
} cv_shape;

PART vec get(const float *p) { return *(const vec *)p; }
PART void put(float *p, vec v) { *(vec *)p = v; }
PART vec all(float f) { return (vec){f, f, f, f, f, f, f, f}; }

#define P1 1.25f
#define P2 .375f
#define OF_1 (1 / (2 * P1 * (P1 * P1 - P2 * P2)))
#define OF_2 (1 / (2 * P2 * (P2 * P2 - P1 * P1)))

/* B^T d */
PART void input_points(const vec *d, vec *out) {
    vec even_1 = d[2] - P2 * P2 * d[0], odd_1 = d[3] - P2 * P2 * d[1], even_2 = d[2] - P1 * P1 * d[0], odd_2 = d[3] - P1 * P1 * d[1];
    out[0] = odd_1 + P1 * even_1, out[1] = odd_1 - P1 * even_1, out[2] = odd_2 + P2 * even_2, out[3] = odd_2 - P2 * even_2;
    out[4] = d[4] - P2 * P2 * d[2] - P1 * P1 * even_1;
}

/* A^T m */
PART void outputs_of_points(const vec *m, vec *out) {
    vec sum_1 = m[0] + m[1], sum_2 = m[2] + m[3];
    out[0] = sum_1 + sum_2, out[1] = P1 * (m[0] - m[1]) + P2 * (m[2] - m[3]), out[2] = P1 * P1 * sum_1 + (P2 * P2 * sum_2 + m[4]);
}

/* A g */
PART void gradient_points(const vec *g, vec *out) {
    vec even_1 = g[0] + P1 * P1 * g[2], even_2 = g[0] + P2 * P2 * g[2];
    out[0] = even_1 + P1 * g[1], out[1] = even_1 - P1 * g[1], out[2] = even_2 + P2 * g[1], out[3] = even_2 - P2 * g[1], out[4] = g[2];
}

/* G g */
PART void filter_points(const vec *g, vec *out) {
    vec even_1 = OF_1 * (g[0] + P1 * P1 * g[2]), odd_1 = OF_1 * P1 * g[1];
    vec even_2 = OF_2 * (g[0] + P2 * P2 * g[2]), odd_2 = OF_2 * P2 * g[1];
    out[0] = odd_1 + even_1, out[1] = odd_1 - even_1, out[2] = odd_2 + even_2, out[3] = odd_2 - even_2, out[4] = g[2];
}

/* G^T s */
PART void filter_of_points(const vec *s, vec *out) {
    vec less_1 = OF_1 * (s[0] - s[1]), less_2 = OF_2 * (s[2] - s[3]);
    out[0] = less_1 + less_2, out[1] = OF_1 * P1 * (s[0] + s[1]) + OF_2 * P2 * (s[2] + s[3]);
    out[2] = P1 * P1 * less_1 + (P2 * P2 * less_2 + s[4]);
}

/* m[ROWS][N] = v[ROWS][K] u[K][N] */
PART void product(const float *v, const float *u, float *m, int K, int N) {
    for (int n = 0; n < N; n += 2 * LANES) {
        vec a[ROWS][2];
        for (int r = 0; r < ROWS; r++) a[r][0] = a[r][1] = all(0);
        for (int k = 0; k < K; k++) {
            vec u0 = get(u + (size_t)k * N + n), u1 = get(u + (size_t)k * N + n + LANES);
            for (int r = 0; r < ROWS; r++) {
                vec f = all(v[(size_t)r * K + k]);
                a[r][0] += f * u0;
                a[r][1] += f * u1;
            }
        }
        for (int r = 0; r < ROWS; r++)
            for (int q = 0; q < 2; q++) put(m + (size_t)r * N + n + q * LANES, a[r][q]);
    }
}

/* sum[R][N] += over t of v[t step + r] y[t][n], Q vectors of n at a time; R and Q are constants up to 4. */
PART void correlate(const float *v, int step, const float *y, float *sum, int T, int N, const int R, const int Q) {
    for (int n = 0; n < N; n += Q * LANES) {
        vec a[4][4];
        for (int r = 0; r < R; r++)
            for (int q = 0; q < Q; q++) a[r][q] = all(0); /* sums of sums round less than one long sum */
        for (int t = 0; t < T; t++) {
            vec f[4];
            for (int r = 0; r < R; r++) f[r] = all(v[(size_t)t * step + r]);
            for (int q = 0; q < Q; q++) {
                vec g = get(y + (size_t)t * N + n + q * LANES);
                for (int r = 0; r < R; r++) a[r][q] += f[r] * g;
            }
        }
        for (int r = 0; r < R; r++)
            for (int q = 0; q < Q; q++) {
                float *to = sum + (size_t)r * N + n + q * LANES;
                put(to, get(to) + a[r][q]);
            }
    }
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
                vec g[3];
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
FAST void cv_winograd(const cv_shape *s, const float *x, const float *w, int32_t turned, float *y, float *scratch) {
    int C = s->inputs, F = s->outputs, tiles = tiles_of(s);
    float *u = scratch, *v = u + (size_t)PLACES * C * F, *m = v + (size_t)PLACES * TILES * C;
    transform_filters(w, C, F, turned, u);
    memset(v, 0, sizeof *v * PLACES * TILES * (size_t)C); /* the last tiles may be fewer */
    for (int t = 0; t < tiles; t += TILES) {
        int n = least(TILES, tiles - t);
        for (int i = 0; i < n; i++) transform_input(x, s, tile_at(s, t + i), v, i);
        for (int k = 0; k < PLACES; k++)
            for (int i = k * TILES; i < k * TILES + n; i += ROWS)
                product(v + (size_t)i * C, u + (size_t)k * C * F, m + (size_t)i * F, C, F);
        for (int i = 0; i < n; i++) transform_output(m, i, s, tile_at(s, t + i), y);
    }
}

/* gw = the weight gradient (outputs, inputs, 3, 3) from the input x and the output gradient g; scratch and channels as above. */
FAST void cv_winograd_weight(const cv_shape *s, const float *x, const float *g, float *gw, float *scratch) {
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
            for (int c = 0; c < C; c += 4)
                correlate(v + (size_t)k * TILES * C + c, C, y + (size_t)k * TILES * F, sum + ((size_t)k * C + c) * F, n, F, 4, 2);
    }
    transform_sums(sum, C, F, gw);
}

/* Row i of an image with a zero pixel on both sides; outside the image all is zero. (W + 2, C) */
PART void padded_row(const float *x, const cv_shape *s, int i, float *row) {
    size_t C = (size_t)s->inputs, n = (size_t)s->width * C;
    memset(row, 0, sizeof *row * (n + 2 * C));
    if (i >= 0 && i < s->height) memcpy(row + C, x + (size_t)i * n, sizeof *row * n);
}

/* The same where the inputs are few, without detours: outputs are a multiple of 32.
 * scratch: (9 outputs + width + 2) inputs floats. */
FAST void cv_thin_weight(const cv_shape *s, const float *x, const float *g, float *gw, float *scratch) {
    int H = s->height, W = s->width, C = s->inputs, F = s->outputs, taps = 3 * C;
    float *sum = scratch, *row = sum + (size_t)3 * taps * F;
    memset(sum, 0, sizeof *sum * 3 * (size_t)taps * F);
    for (int b = 0; b < s->batch; b++, x += (size_t)H * W * C) {
        for (int i = 0; i < H; i++, g += (size_t)W * F) {
            for (int k = 0; k < 3; k++) {
                padded_row(x, s, i - 1 + k, row);
                for (int c = 0; c < taps; c += 3) correlate(row + c, C, g, sum + ((size_t)k * taps + c) * F, W, F, 3, 4);
            }
        }
    }
    for (int f = 0; f < F; f++)
        for (int c = 0; c < C; c++)
            for (int k = 0; k < 9; k++) gw[((size_t)f * C + c) * 9 + k] = sum[((size_t)k * C + c) * F + f];
}
