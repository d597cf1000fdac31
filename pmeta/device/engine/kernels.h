/* The arithmetic of the engine. Outputs first, sizes last. Images are (channels, height, width);
 * shapes stand on the right. */
#ifndef PMETA_KERNELS_H
#define PMETA_KERNELS_H
#include <stddef.h>
#include <stdint.h>

/* Compiled for AVX2 as well where the loader can choose (glibc's can, but not under a
 * sanitizer); plain C everywhere else. */
#if defined(__x86_64__) && defined(__GNUC__) && __GNUC__ >= 12 && !defined(__clang__) && \
    defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define PMETA_FAST __attribute__((target_clones("default", "arch=x86-64-v3")))
#else
#define PMETA_FAST
#endif

/* Processors that compute in double by a library, slowly. */
#if (defined(__arm__) && !(defined(__ARM_FP) && (__ARM_FP & 8))) || defined(__xtensa__) || \
    (defined(__riscv) && !(defined(__riscv_flen) && __riscv_flen >= 64))
#define PMETA_NO_DOUBLE
#endif

/* Small cores, with 32 single registers or the 8 vectors of MVE: tiles of 4 x 4. */
#ifndef PMETA_SMALL_TILE
#if defined(__arm__) || defined(__riscv) || defined(__xtensa__)
#define PMETA_SMALL_TILE 1
#else
#define PMETA_SMALL_TILE 0
#endif
#endif

#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 2)
#define PMETA_MVE /* vectors of four floats: Cortex-M55 and M85 */
#endif

#define PMETA_LANES 16 /* columns of a panel */

/* Geometry of a convolution or of a pooling window; 16 words in the file. A 1-D layer has
 * h = kh = 1. */
typedef struct {
    int32_t c_in, h, w, c_out, ho, wo, kh, kw, sh, sw, ph, pw, dh, dw, groups, reserved;
} pmeta_geom;

/* A tensor that is read channel by channel: kept channels of x, float32 or raw uint8, as
 * x * scale + shift. */
typedef struct {
    const void *data;
    const float *scale, *shift; /* (C) or NULL: uint8 samples */
    const float *gamma;         /* (C) or NULL: multiplied on reading, if it is not compact */
    int u8, compact;            /* compact: gamma x of the cap channels with gamma != 0 */
    int cap;
} pmeta_source;

/* Weights (rows, width): float32, halves, or bytes with a scale for each row. */
enum { PMETA_WORD = 0, PMETA_HALF = 1, PMETA_BYTE = 2 };
typedef struct {
    const void *data;
    const float *scale; /* (rows) or NULL */
    int type;
} pmeta_weights;

/* Numbers [first, first + n) of one row. */
void pmeta_unpack(float *y, const pmeta_weights *w, size_t row, size_t width, size_t first,
                  size_t n);

/* (rows <= 4, cols <= 16) of a product: c[r][j] (+)= sum_{i, d} a[i * a_step + r * lda + d] *
 * b[(i * depth + d) * 16 + j] */
void pmeta_tile(float *const c[4], int rows, int cols, const float *a, size_t lda, size_t a_step,
                const float *b, int blocks, int depth, int add);

enum { PMETA_WINDOW = 1, PMETA_WHOLE = 2 };
void pmeta_conv_rows(float *y, const pmeta_source *x, const pmeta_weights *w, const float *bias,
                     float *scratch, const pmeta_geom *g, int f0, int f_count, int strip, int row,
                     int rows, int how);
/* The same where every output channel reads one input channel, of which x holds `held` rows from
 * row `top` on. */
void pmeta_depthwise(float *y, const float *x, const float *w, const float *bias,
                     const pmeta_geom *g, int f0, int f_count, int row, int rows, int top,
                     int held);
void pmeta_conv_bw_w_part(float *acc, const float *gy, const pmeta_source *x, const float *gamma_bw,
                          float *scratch, const pmeta_geom *g, int strip, int f0, int f_count);
void pmeta_conv_bw_w_rows(float *acc, const float *gy, const pmeta_source *x,
                          const float *gamma_bw, float *scratch, const pmeta_geom *g, int strip,
                          int row, int rows);
void pmeta_conv_bw_x(float *gx, const float *gy, const pmeta_weights *w, float *scratch,
                     const pmeta_geom *g, int strip, int add);

void pmeta_bias_bw(float *acc, const float *gy, const float *gamma_bw, int c, int n, int rows);
void pmeta_fc(float *y, const float *x, const pmeta_weights *w, const float *bias, int f, int c,
              int t);
void pmeta_fc_bw_w(float *acc, const float *gy, const float *x, const float *gamma_fw,
                   const float *gamma_bw, int f, int c, int t, int cap);
void pmeta_fc_bw_x(float *gx, const float *gy, const pmeta_weights *w, int f, int c, int t,
                   int add);

void pmeta_norm(float *xhat, float *y, const float *w, const float *b, float *rstd, int c, int n,
                int per_group, float eps);
void pmeta_norm_bw(float *xhat, const float *gy, const float *w, const float *rstd, float *mean_g,
                   float *sum_gx, int c, int n, int per_group, int want_dx);
void pmeta_layer_norm(float *xhat, float *y, const float *w, const float *b, float *rstd, int c,
                      int rows, float eps);
void pmeta_layer_norm_bw(float *xhat, const float *gy, const float *w, const float *rstd,
                         float *mean_g, float *sum_gx, int c, int rows, int want_dx);
void pmeta_norm_acc(float *acc_w, float *acc_b, const float *mean_g, const float *sum_gx,
                    const float *gamma_fw, const float *gamma_bw, int c, int n);
void pmeta_moments(float *stat, const float *x, int c, size_t stride, int before, int n);
void pmeta_means(float *mean, const float *x, int c, size_t stride, int before, int n);
void pmeta_group_stat(float *stat, float *means, float *rstd, int c, int count, int per_group,
                      float eps);
void pmeta_normalise(float *xhat, float *y, const float *stat, const float *w, const float *b,
                     int c, size_t stride, int n, float top);
void pmeta_shift(float *x, int c, int width, int window, int keep);
void pmeta_norm_coef(float *coef, const float *stat, const float *means, const float *w,
                     const float *mean_g, const float *sum_gx, int c, int n, int pooled,
                     int per_group);

enum { PMETA_RELU = 0, PMETA_LEAKY = 1, PMETA_RELU6 = 2, PMETA_HARDSIGMOID = 3 };
void pmeta_act(float *x, unsigned char *mask, size_t n, int kind, float slope);
void pmeta_act_bw(float *g, const unsigned char *mask, size_t n, int kind, float slope);
enum { PMETA_SIGMOID = 0, PMETA_SILU = 1, PMETA_HARDSWISH = 2 };
void pmeta_curve(float *x, float *kept, size_t n, int kind);
void pmeta_curve_bw(float *g, const float *kept, size_t n, int kind);

void pmeta_maxpool(float *y, const float *x, unsigned char *index, const float *w,
                   const pmeta_geom *g, int c);
void pmeta_maxpool_rows(float *y, size_t y_step, const float *x, const float *w,
                        const pmeta_geom *g, int c, int row, int rows);
void pmeta_maxpool_bw(float *gx, const float *gy, const unsigned char *index, const pmeta_geom *g,
                      int c);
void pmeta_norm_pool_bw(float *x, const float *gy, const unsigned char *index, const float *coef,
                        const pmeta_geom *g, int c, size_t stride);
void pmeta_avgpool(float *y, const float *x, const pmeta_geom *g, int c, int count_pad);
void pmeta_avgpool_bw(float *gx, const float *gy, const pmeta_geom *g, int c, int count_pad);

void pmeta_mul(float *y, const float *x, const float *s, size_t factors, size_t each);
void pmeta_mul_bw(float *gs, const float *gy, const float *x, size_t factors, size_t each, int add);
void pmeta_add(float *y, const float *x, size_t n);
float pmeta_cross_entropy(float *g, const float *z, int n, int label, float scale);

/* Sec. 3.3: gamma = clip_and_normalise(softmax(W2 relu(W1 v + b1) + b2)), v the mean of x over
 * space. */
typedef struct {
    pmeta_weights w1, w2; /* (c, c) */
    const float *b1, *b2; /* (c) */
} pmeta_attention;
void pmeta_score(float *gamma, const pmeta_source *x, const pmeta_attention *params,
                 float *scratch, int c, int n, int rows, float threshold, int backward);
/* The same for samples that share their scores: z of each is added up, gamma comes from their
 * mean and empties the sum. */
void pmeta_score_sum(float *sum, const pmeta_source *x, const pmeta_attention *params,
                     float *scratch, int c, int n, int rows, int backward);
void pmeta_score_mean(float *gamma, float *sum, uint32_t *order, int c, float threshold,
                      uint32_t samples);
/* acc += row[k / taps] column[f] part, which is emptied; (groups, depth, filters), rows and
 * columns of one group after the other */
void pmeta_merge(float *acc, float *part, const float *row, const float *column, size_t groups,
                 size_t depth, size_t filters, size_t taps);
void pmeta_clip(float *gamma, uint32_t *order, int c, float threshold);
void pmeta_compact(float *x, const float *gamma, int c, int n, int cap, int rows);

#endif
