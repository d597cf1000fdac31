/* 3x3 convolutions, stride 1, padding 1, and their weight gradients in float32, channels last: images are (B, H, W, C).
 *
 * cv_winograd: 16 products where 36 were (Lavin & Gray 2016, F(2x2, 3x3)). In one dimension two outputs of a filter g over four
 * inputs d are A^T (G g * B^T d), with
 *   B^T = 1  0 -1  0    G = 1    0   0     A^T = 1 1  1  0
 *         0  1  1  0        1/2  1/2 1/2         0 1 -1 -1
 *         0 -1  1  0        1/2 -1/2 1/2
 *         0  1  0 -1        0    0   1
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
enum { LANES = 8, TILES = 24, ROWS = 6, MOST = 128 /* channels */ };

typedef struct {
    int32_t batch, height, width, inputs, outputs;
} cv_shape;

PART vec get(const float *p) { return *(const vec *)p; }
PART void put(float *p, vec v) { *(vec *)p = v; }
PART vec all(float f) { return (vec){f, f, f, f, f, f, f, f}; }

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
            for (int q = 0; q < Q; q++) a[r][q] = get(sum + (size_t)r * N + n + q * LANES);
        for (int t = 0; t < T; t++) {
            vec f[4];
            for (int r = 0; r < R; r++) f[r] = all(v[(size_t)t * step + r]);
            for (int q = 0; q < Q; q++) {
                vec g = get(y + (size_t)t * N + n + q * LANES);
                for (int r = 0; r < R; r++) a[r][q] += f[r] * g;
            }
        }
        for (int r = 0; r < R; r++)
            for (int q = 0; q < Q; q++) put(sum + (size_t)r * N + n + q * LANES, a[r][q]);
    }
}

/* Where tile t of all images begins, and whether its second row and column are inside. */
typedef struct {
    int image, row, column, two_rows, two_columns;
} tile;

PART int tiles_of(const cv_shape *s) { return s->batch * ((s->height + 1) / 2) * ((s->width + 1) / 2); }

PART tile tile_at(const cv_shape *s, int t) {
    int across = (s->width + 1) / 2, per_image = (s->height + 1) / 2 * across;
    int row = t % per_image / across * 2, column = t % across * 2;
    return (tile){t / per_image, row, column, row + 1 < s->height, column + 1 < s->width};
}

static const float ZEROS[MOST];

/* v[16][TILES][C] at place `at`: B^T d B of a tile's 4x4 inputs. */
PART void transform_input(const float *x, const cv_shape *s, tile at_image, float *v, int at) {
    int H = s->height, W = s->width, C = s->inputs;
    const float *p[16];
    for (int k = 0; k < 16; k++) {
        int i = at_image.row - 1 + k / 4, j = at_image.column - 1 + k % 4;
        p[k] = i < 0 || i >= H || j < 0 || j >= W ? ZEROS : x + (((size_t)at_image.image * H + i) * W + j) * C;
    }
    for (int c = 0; c < C; c += LANES) {
        vec half[4][4];
        for (int j = 0; j < 4; j++) {
            vec d0 = get(p[j] + c), d1 = get(p[4 + j] + c), d2 = get(p[8 + j] + c), d3 = get(p[12 + j] + c);
            half[0][j] = d0 - d2, half[1][j] = d1 + d2, half[2][j] = d2 - d1, half[3][j] = d1 - d3;
        }
        for (int i = 0; i < 4; i++) {
            vec *d = half[i], out[4] = {d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]};
            for (int j = 0; j < 4; j++) put(v + ((size_t)(4 * i + j) * TILES + at) * C + c, out[j]);
        }
    }
}

/* The image's 2x2 outputs A^T m A from m[16][TILES][C] at place `at`. */
PART void transform_output(const float *m, int at, const cv_shape *s, tile at_image, float *y) {
    int H = s->height, W = s->width, C = s->outputs;
    y += (((size_t)at_image.image * H + at_image.row) * W + at_image.column) * C;
    for (int c = 0; c < C; c += LANES) {
        vec half[2][4];
        for (int j = 0; j < 4; j++) {
            vec d[4];
            for (int i = 0; i < 4; i++) d[i] = get(m + ((size_t)(4 * i + j) * TILES + at) * C + c);
            half[0][j] = d[0] + d[1] + d[2], half[1][j] = d[1] - d[2] - d[3];
        }
        for (int i = 0; i < 1 + at_image.two_rows; i++) {
            vec *d = half[i];
            float *out = y + (size_t)i * W * C + c;
            put(out, d[0] + d[1] + d[2]);
            if (at_image.two_columns) put(out + C, d[1] - d[2] - d[3]);
        }
    }
}

/* v[16][TILES][C] at place `at`: A g A^T of a tile's 2x2 output gradients. */
PART void transform_gradient(const float *g, const cv_shape *s, tile at_image, float *v, int at) {
    int H = s->height, W = s->width, C = s->outputs;
    g += (((size_t)at_image.image * H + at_image.row) * W + at_image.column) * C;
    const float *right = at_image.two_columns ? g + C : ZEROS, *below = at_image.two_rows ? g + (size_t)W * C : ZEROS;
    const float *across = at_image.two_rows && at_image.two_columns ? below + C : ZEROS;
    for (int c = 0; c < C; c += LANES) {
        vec a = get(g + c), b = get(right + c), d = get(below + c), e = get(across + c);
        vec l[4] = {a, a + d, a - d, -d}, r[4] = {b, b + e, b - e, -e};
        for (int i = 0; i < 4; i++) {
            vec out[4] = {l[i], l[i] + r[i], l[i] - r[i], -r[i]};
            for (int j = 0; j < 4; j++) put(v + ((size_t)(4 * i + j) * TILES + at) * C + c, out[j]);
        }
    }
}

/* G g */
PART void widen(const vec *g, vec *out) {
    out[0] = g[0], out[1] = (g[0] + g[1] + g[2]) * .5f, out[2] = (g[0] - g[1] + g[2]) * .5f, out[3] = g[2];
}

/* G^T s */
PART void narrow(const vec *s, vec *out) {
    out[0] = s[0] + (s[1] + s[2]) * .5f, out[1] = (s[1] - s[2]) * .5f, out[2] = (s[1] + s[2]) * .5f + s[3];
}

/* u[16][C][F] = G w G^T from w (F, C, 3, 3); turned: from w (C, F, 3, 3) turned round, the filters of the input gradient. */
PART void transform_filters(const float *w, int C, int F, int turned, float *u) {
    for (int c = 0; c < C; c++) {
        for (int f = 0; f < F; f += LANES) {
            const float *first = w + ((size_t)(turned ? c : f) * (turned ? F : C) + (turned ? f : c)) * 9;
            size_t next = turned ? 9 : (size_t)C * 9;
            vec half[3][4]; /* [column][row] */
            for (int j = 0; j < 3; j++) {
                vec g[3];
                for (int i = 0; i < 3; i++)
                    for (int l = 0; l < LANES; l++) g[i][l] = first[l * next + (turned ? 8 - 3 * i - j : 3 * i + j)];
                widen(g, half[j]);
            }
            for (int i = 0; i < 4; i++) {
                vec g[3] = {half[0][i], half[1][i], half[2][i]}, out[4];
                widen(g, out);
                for (int j = 0; j < 4; j++) put(u + ((size_t)(4 * i + j) * C + c) * F + f, out[j]);
            }
        }
    }
}

/* gw (F, C, 3, 3) = G^T sum G from sum[16][C][F]. */
PART void transform_sums(const float *sum, int C, int F, float *gw) {
    for (int c = 0; c < C; c++) {
        for (int f = 0; f < F; f += LANES) {
            vec half[4][3]; /* [column][row] */
            for (int j = 0; j < 4; j++) {
                vec d[4];
                for (int i = 0; i < 4; i++) d[i] = get(sum + ((size_t)(4 * i + j) * C + c) * F + f);
                narrow(d, half[j]);
            }
            for (int i = 0; i < 3; i++) {
                vec d[4] = {half[0][i], half[1][i], half[2][i], half[3][i]}, out[3];
                narrow(d, out);
                for (int j = 0; j < 3; j++)
                    for (int l = 0; l < LANES; l++) gw[((size_t)(f + l) * C + c) * 9 + 3 * i + j] = out[j][l];
            }
        }
    }
}

/* y = conv(x, w); turned: the input gradient x of a conv with the weight w, from its output gradient.
 * scratch: 16 (inputs outputs + TILES (inputs + outputs)) floats. Channels are multiples of 16 and at most MOST. */
FAST void cv_winograd(const cv_shape *s, const float *x, const float *w, int32_t turned, float *y, float *scratch) {
    int C = s->inputs, F = s->outputs, tiles = tiles_of(s);
    float *u = scratch, *v = u + (size_t)16 * C * F, *m = v + (size_t)16 * TILES * C;
    transform_filters(w, C, F, turned, u);
    memset(v, 0, sizeof *v * 16 * TILES * (size_t)C); /* the last tiles may be fewer */
    for (int t = 0; t < tiles; t += TILES) {
        int n = tiles - t < TILES ? tiles - t : TILES;
        for (int i = 0; i < n; i++) transform_input(x, s, tile_at(s, t + i), v, i);
        for (int k = 0; k < 16; k++)
            for (int i = k * TILES; i < k * TILES + n; i += ROWS)
                product(v + (size_t)i * C, u + (size_t)k * C * F, m + (size_t)i * F, C, F);
        for (int i = 0; i < n; i++) transform_output(m, i, s, tile_at(s, t + i), y);
    }
}

/* gw = the weight gradient (outputs, inputs, 3, 3) from the input x and the output gradient g; scratch and channels as above. */
FAST void cv_winograd_weight(const cv_shape *s, const float *x, const float *g, float *gw, float *scratch) {
    int C = s->inputs, F = s->outputs, tiles = tiles_of(s);
    float *sum = scratch, *v = sum + (size_t)16 * C * F, *y = v + (size_t)16 * TILES * C;
    memset(sum, 0, sizeof *sum * 16 * (size_t)C * F);
    for (int t = 0; t < tiles; t += TILES) {
        int n = tiles - t < TILES ? tiles - t : TILES;
        for (int i = 0; i < n; i++) {
            transform_input(x, s, tile_at(s, t + i), v, i);
            transform_gradient(g, s, tile_at(s, t + i), y, i);
        }
        for (int k = 0; k < 16; k++)
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
