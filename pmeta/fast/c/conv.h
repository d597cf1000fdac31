/* 3x3 convolutions, stride 1, padding 1, and their weight gradients in float32, channels last: images are (B, H, W, C).
 *
 * cv_winograd: 25 products where 81 were (Lavin & Gray 2016, F(3x3, 3x3)). In one dimension three outputs of a filter g over
 * five inputs d are A^T (G g * B^T d): polynomials are multiplied by their values at the points P1, -P1, P2, -P2 and infinity.
 * P1 = 5/4 and P2 = 3/8 round least of what we tried, about as PyTorch's own convs do, and their squares are exact.
 * The form is trilinear, so the gradient of g is G^T (A y * B^T d). For images all this applies to rows, then to columns.
 * cv_thin: few input channels, as the first layer has. */
#include "lanes.h"

enum { TILES = 24, BLOCK = 16, MOST = 128 /* channels */, SIDE = 3, POINTS = 5, PLACES = POINTS * POINTS };
/* TILES tiles lie in memory as (channels / BLOCK, PLACES, TILES + 1, BLOCK): next to each other for a product, and with a space between
 * the places, which would else share the same few lines of the cache. */
enum { PLACE = (TILES + 1) * BLOCK, NEXT = PLACES * PLACE };
/* What the registers hold: WIDE vectors at a time for ROWS rows of a product, DEEP of a correlation. */
enum { WIDE = LANES == 4 ? 4 : 2, ROWS = LANES == 8 ? 6 : 24 / WIDE, DEEP = LANES == 8 ? 4 : 16 / WIDE, ONE = BLOCK / LANES };

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

/* How far the vector q of a row of blocks is from its first float, where a block of channels is `next` floats from the one before. */
PART size_t vector_at(int q, size_t next) { return q * LANES / BLOCK * next + q * LANES % BLOCK; }

/* Matrices whose columns come in blocks. */
typedef struct {
    int part;    /* columns in a block */
    size_t next; /* floats from a block to the next */
    size_t row;  /* floats from a row to the next */
} blocks;

/* m[R][Q vectors] = v[R][K] u[K][N]; R and Q are constants. */
PART void product_part(const float *v, blocks of_v, const float *u, float *m, blocks of_m, int K, int N, const int R, const int Q) {
    vec a[12][4];
    for (int r = 0; r < R; r++)
        for (int q = 0; q < Q; q++) a[r][q] = all(0);
    for (int i = 0; i < K; i += of_v.part, v += of_v.next) {
        for (int k = 0; k < of_v.part; k++, u += N) {
            vec w[4];
            for (int q = 0; q < Q; q++) w[q] = get(u + q * LANES);
            for (int r = 0; r < R; r++) {
                vec f = all(v[r * of_v.row + k]);
                for (int q = 0; q < Q; q++) a[r][q] = fused(f, w[q], a[r][q]);
            }
        }
    }
    for (int r = 0; r < R; r++)
        for (int q = 0; q < Q; q++) put(m + r * of_m.row + vector_at(q, of_m.next), a[r][q]);
}

/* m[ROWS][N] = v[ROWS][K] u[K][N] */
PART void product(const float *v, blocks of_v, const float *u, float *m, blocks of_m, int K, int N) {
    int n = 0;
    for (; n + WIDE * LANES <= N; n += WIDE * LANES) product_part(v, of_v, u + n, m + n / BLOCK * of_m.next, of_m, K, N, ROWS, WIDE);
    for (; n < N; n += BLOCK) product_part(v, of_v, u + n, m + n / BLOCK * of_m.next, of_m, K, N, ROWS, ONE);
}

/* sum[R][Q vectors] += over t of v[t][r] y[t]; a row of v is `step` floats. */
PART void correlate_part(const float *v, int step, const float *y, blocks of_y, float *sum, int T, int N, const int R, const int Q) {
    vec a[12][8];
    for (int r = 0; r < R; r++)
        for (int q = 0; q < Q; q++) a[r][q] = all(0); /* sums of sums round less than one long sum */
    for (int t = 0; t < T; t++, v += step, y += of_y.row) {
        vec g[8];
        for (int q = 0; q < Q; q++) g[q] = get(y + vector_at(q, of_y.next));
        for (int r = 0; r < R; r++) {
            vec f = all(v[r]);
            for (int q = 0; q < Q; q++) a[r][q] = fused(f, g[q], a[r][q]);
        }
    }
    for (int r = 0; r < R; r++)
        for (int q = 0; q < Q; q++) {
            float *to = sum + (size_t)r * N + q * LANES;
            put(to, get(to) + a[r][q]);
        }
}

/* sum[R][N] += over t of v[t][r] y[t][N], Q vectors at a time. */
PART void correlate(const float *v, int step, const float *y, blocks of_y, float *sum, int T, int N, const int R, const int Q) {
    int n = 0;
    for (; n + Q * LANES <= N; n += Q * LANES) correlate_part(v, step, y + n / BLOCK * of_y.next, of_y, sum + n, T, N, R, Q);
    for (; n < N; n += BLOCK) correlate_part(v, step, y + n / BLOCK * of_y.next, of_y, sum + n, T, N, R, ONE);
}

/* Where tile t of all images begins. */
typedef struct {
    int image, row, column;
} tile;

PART int along(int pixels) { return (pixels + SIDE - 1) / SIDE; }
PART int least(int a, int b) { return a < b ? a : b; }
PART int most(int a, int b) { return a > b ? a : b; }
PART int tiles_of(const cv_shape *s) { return s->batch * along(s->height) * along(s->width); }

PART tile tile_at(const cv_shape *s, int t) {
    int across = along(s->width), per_image = along(s->height) * across;
    return (tile){t / per_image, t % per_image / across * SIDE, t % across * SIDE};
}

/* A square of pixels of an image with C channels. */
typedef struct {
    float *first; /* in the image; outside of it not to be read */
    size_t row;   /* floats from a row to the next */
    int from_row, to_row, from_column, to_column; /* those inside */
} square;

PART square square_at(const float *x, const cv_shape *s, int C, int image, int row, int column, int size) {
    ptrdiff_t first = (((ptrdiff_t)image * s->height + row) * s->width + column) * C;
    return (square){(float *)x + first, (size_t)s->width * C, most(0, -row), least(size, s->height - row), most(0, -column),
                    least(size, s->width - column)};
}

PART int is_inside(square p, int size) { return p.from_row == 0 && p.to_row == size && p.from_column == 0 && p.to_column == size; }

PART void copy(float *to, const float *from, size_t n) {
    for (size_t i = 0; i < n; i += LANES) put(to + i, get(from + i));
}

/* The same square as it is read: where it reaches out of the image, a copy with zeros outside. */
PART square read_square(square p, int size, int C, float *place) {
    if (is_inside(p, size)) return p;
    size_t row = (size_t)size * C, n = (size_t)(p.to_column - p.from_column) * C, skip = (size_t)p.from_column * C;
    memset(place, 0, sizeof *place * size * row);
    for (int i = p.from_row; i < p.to_row; i++) copy(place + i * row + skip, p.first + i * p.row + skip, n);
    p.first = place, p.row = row;
    return p;
}

/* The tile `at` of v: B^T d B of 5x5 inputs. */
PART void transform_input(const float *x, const cv_shape *s, tile in, float *v, int at) {
    int C = s->inputs;
    float place[PLACES * MOST];
    square p = read_square(square_at(x, s, C, in.image, in.row - 1, in.column - 1, POINTS), POINTS, C, place);
    for (int c = 0; c < C; c += LANES) {
        vec half[POINTS][POINTS]; /* [column][row] */
        const float *from = p.first + c;
        float *to = v + c / BLOCK * NEXT + at * BLOCK + c % BLOCK;
        for (int j = 0; j < POINTS; j++) {
            vec d[POINTS];
            for (int i = 0; i < POINTS; i++) d[i] = get(from + i * p.row + (size_t)j * C);
            input_points(d, half[j]);
        }
        for (int i = 0; i < POINTS; i++) {
            vec d[POINTS] = {half[0][i], half[1][i], half[2][i], half[3][i], half[4][i]}, out[POINTS];
            input_points(d, out);
            for (int j = 0; j < POINTS; j++) put(to + (POINTS * i + j) * PLACE, out[j]);
        }
    }
}

/* 3x3 outputs A^T m A from the tile `at` of m. */
PART void transform_output(const float *m, int at, const cv_shape *s, tile in, float *y) {
    int C = s->outputs;
    float place[SIDE * SIDE * MOST];
    square p = square_at(y, s, C, in.image, in.row, in.column, SIDE), q = p;
    if (!is_inside(p, SIDE)) q.first = place, q.row = (size_t)SIDE * C;
    for (int c = 0; c < C; c += LANES) {
        vec half[POINTS][SIDE]; /* [column][row] */
        const float *from = m + c / BLOCK * NEXT + at * BLOCK + c % BLOCK;
        float *to = q.first + c;
        for (int j = 0; j < POINTS; j++) {
            vec d[POINTS];
            for (int i = 0; i < POINTS; i++) d[i] = get(from + (POINTS * i + j) * PLACE);
            outputs_of_points(d, half[j]);
        }
        for (int i = 0; i < SIDE; i++) {
            vec d[POINTS] = {half[0][i], half[1][i], half[2][i], half[3][i], half[4][i]}, out[SIDE];
            outputs_of_points(d, out);
            for (int j = 0; j < SIDE; j++) put(to + i * q.row + (size_t)j * C, out[j]);
        }
    }
    if (!is_inside(p, SIDE))
        for (int i = 0; i < p.to_row; i++) copy(p.first + i * p.row, place + i * q.row, (size_t)p.to_column * C);
}

/* The tile `at` of v: A g A^T of 3x3 output gradients. */
PART void transform_gradient(const float *g, const cv_shape *s, tile in, float *v, int at) {
    int C = s->outputs;
    float place[SIDE * SIDE * MOST];
    square p = read_square(square_at(g, s, C, in.image, in.row, in.column, SIDE), SIDE, C, place);
    for (int c = 0; c < C; c += LANES) {
        vec half[SIDE][POINTS]; /* [column][row] */
        const float *from = p.first + c;
        float *to = v + c / BLOCK * NEXT + at * BLOCK + c % BLOCK;
        for (int j = 0; j < SIDE; j++) {
            vec d[SIDE];
            for (int i = 0; i < SIDE; i++) d[i] = get(from + i * p.row + (size_t)j * C);
            gradient_points(d, half[j]);
        }
        for (int i = 0; i < POINTS; i++) {
            vec d[SIDE] = {half[0][i], half[1][i], half[2][i]}, out[POINTS];
            gradient_points(d, out);
            for (int j = 0; j < POINTS; j++) put(to + (POINTS * i + j) * PLACE, out[j]);
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
 * scratch: PLACES (inputs outputs + (TILES + 1) (inputs + outputs)) floats. Channels are multiples of 16 and at most MOST. */
KERNEL(cv_winograd)(const cv_shape *s, const float *x, const float *w, int32_t turned, float *y, float *scratch) {
    int C = s->inputs, F = s->outputs, tiles = tiles_of(s);
    float *u = scratch, *v = u + (size_t)PLACES * C * F, *m = v + (size_t)NEXT * C / BLOCK;
    const blocks tiled = {BLOCK, NEXT, BLOCK};
    transform_filters(w, C, F, turned, u);
    memset(v, 0, sizeof *v * NEXT * (size_t)C / BLOCK); /* the last tiles may be fewer */
    for (int t = 0; t < tiles; t += TILES) {
        int n = least(TILES, tiles - t);
        for (int i = 0; i < n; i++) transform_input(x, s, tile_at(s, t + i), v, i);
        for (int k = 0; k < PLACES; k++)
            for (int i = 0; i < n; i += ROWS) {
                size_t at = (size_t)k * PLACE + i * BLOCK;
                product(v + at, tiled, u + (size_t)k * C * F, m + at, tiled, C, F);
            }
        for (int i = 0; i < n; i++) transform_output(m, i, s, tile_at(s, t + i), y);
    }
}

/* gw = the weight gradient (outputs, inputs, 3, 3) from the input x and the output gradient g; scratch and channels as above. */
KERNEL(cv_winograd_weight)(const cv_shape *s, const float *x, const float *g, float *gw, float *scratch) {
    int C = s->inputs, F = s->outputs, tiles = tiles_of(s);
    float *sum = scratch, *v = sum + (size_t)PLACES * C * F, *y = v + (size_t)NEXT * C / BLOCK;
    const blocks tiled = {BLOCK, NEXT, BLOCK};
    memset(sum, 0, sizeof *sum * PLACES * (size_t)C * F);
    for (int t = 0; t < tiles; t += TILES) {
        int n = least(TILES, tiles - t);
        for (int i = 0; i < n; i++) {
            transform_input(x, s, tile_at(s, t + i), v, i);
            transform_gradient(g, s, tile_at(s, t + i), y, i);
        }
        for (int k = 0; k < PLACES; k++)
            for (int c = 0; c < C; c += DEEP) {
                const float *from = v + c / BLOCK * NEXT + k * PLACE + c % BLOCK;
                correlate(from, BLOCK, y + k * PLACE, tiled, sum + ((size_t)k * C + c) * F, n, F, DEEP, WIDE);
            }
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
    const blocks seen = {3 * C, next, C}, image = {BLOCK, BLOCK, F};
    for (int f = 0; f < F; f++)
        for (int c = 0; c < C; c++)
            for (int k = 0; k < 9; k++) u[((size_t)k * C + c) * F + f] = w[((size_t)f * C + c) * 9 + k];
    for (int b = 0; b < s->batch; b++, x += (size_t)H * W * C) {
        for (int i = 0; i < H; i++, y += (size_t)W * F) {
            rows_around(x, s, i, rows);
            int j = 0;
            for (; j + ROWS <= W; j += ROWS) product(rows + (size_t)j * C, seen, u, y + (size_t)j * F, image, taps, F);
            if (j < W) {
                product(rows + (size_t)j * C, seen, u, last, image, taps, F);
                memcpy(y + (size_t)j * F, last, sizeof *y * (size_t)(W - j) * F);
            }
        }
    }
}

KERNEL(cv_thin_weight)(const cv_shape *s, const float *x, const float *g, float *gw, float *scratch) {
    int H = s->height, W = s->width, C = s->inputs, F = s->outputs, taps = 3 * C, next = (W + 2 + SPARE) * C;
    float *sum = scratch, *rows = sum + (size_t)3 * taps * F;
    const blocks image = {BLOCK, BLOCK, F};
    memset(sum, 0, sizeof *sum * 3 * (size_t)taps * F);
    for (int b = 0; b < s->batch; b++, x += (size_t)H * W * C) {
        for (int i = 0; i < H; i++, g += (size_t)W * F) {
            rows_around(x, s, i, rows);
            for (int k = 0; k < 3; k++) {
                const float *v = rows + (size_t)k * next;
                float *to = sum + (size_t)k * taps * F;
                if (LANES == 16 && C == 3)
                    correlate(v, C, g, image, to, W, F, 9, 2);
                else
                    for (int c = 0; c < taps; c += 3) correlate(v + c, C, g, image, to + (size_t)c * F, W, F, 3, LANES == 16 ? 2 : 4);
            }
        }
    }
    for (int f = 0; f < F; f++)
        for (int c = 0; c < C; c++)
            for (int k = 0; k < 9; k++) gw[((size_t)f * C + c) * 9 + k] = sum[((size_t)k * C + c) * F + f];
}
