/* The instructions by name. Made by pmeta/device/instructions.py, not by hand. */
#ifndef PMETA_INSTRUCTIONS_H
#define PMETA_INSTRUCTIONS_H
#include <stdint.h>

enum {
    PMETA_OP_LOOP = 1, PMETA_OP_CONV = 2, PMETA_OP_CONV_BW_W = 3, PMETA_OP_CONV_BW_X = 4,
    PMETA_OP_BIAS_BW = 5, PMETA_OP_NORM = 6, PMETA_OP_NORM_BW = 7, PMETA_OP_NORM_ACC = 8,
    PMETA_OP_ACT = 9, PMETA_OP_ACT_BW = 10, PMETA_OP_MAXPOOL = 11, PMETA_OP_MAXPOOL_BW = 12,
    PMETA_OP_AVGPOOL = 13, PMETA_OP_AVGPOOL_BW = 14, PMETA_OP_ADD = 15, PMETA_OP_COPY = 16,
    PMETA_OP_FC = 17, PMETA_OP_FC_BW_W = 18, PMETA_OP_FC_BW_X = 19, PMETA_OP_SCORE = 20,
    PMETA_OP_COMPACT = 21, PMETA_OP_UPDATE = 22, PMETA_OP_SCORE_SUM = 23, PMETA_OP_SCORE_MEAN = 24,
    PMETA_OP_MERGE = 25, PMETA_OP_CURVE = 26, PMETA_OP_CURVE_BW = 27, PMETA_OP_MUL = 28,
    PMETA_OP_MUL_BW = 29, PMETA_OP_LAYER_NORM = 30, PMETA_OP_LAYER_NORM_BW = 31, PMETA_OP_MOMENTS = 32,
    PMETA_OP_GROUP_STAT = 33, PMETA_OP_NORMALISE = 34, PMETA_OP_SHIFT = 35, PMETA_OP_NORM_COEF = 36,
    PMETA_OP_NORM_POOL_BW = 37, PMETA_OP_PROTOTYPES = 38,
};
enum {
    PMETA_FLAG_ADD = 1, PMETA_FLAG_NO_DX = 2, PMETA_FLAG_ROWS_FIRST = 4, PMETA_FLAG_BACKWARD = 8,
    PMETA_FLAG_COUNT_PAD = 16, PMETA_FLAG_WINDOW = 32, PMETA_FLAG_RELU = 64, PMETA_FLAG_RELU6 = 128,
    PMETA_FLAG_WHOLE = 256, PMETA_FLAG_MEANS = 512, PMETA_FLAG_HALF = 1024, PMETA_FLAG_BYTE = 2048,
};

/* One number for each operand, by the name of the operation and of the operand. */
#define PMETA_SLOTS 6
#define PMETA_OPERANDS(number) \
    number slot[PMETA_SLOTS]; \
    struct { number y, x, w, bias, patches, scale; } conv; \
    struct { number acc, gy, x, gamma_fw, gamma_bw, patches; } conv_bw_w; \
    struct { number gx, gy, w, patches, scale; } conv_bw_x; \
    struct { number acc, gy, gamma_bw; } bias_bw; \
    struct { number xhat, y, w, bias, rstd; } norm, layer_norm; \
    struct { number xhat, gy, w, rstd, mean, products; } norm_bw, layer_norm_bw; \
    struct { number acc_w, acc_b, mean, products, gamma_fw, gamma_bw; } norm_acc; \
    struct { number x, mask; } act; \
    struct { number g, mask; } act_bw; \
    struct { number y, x, index, w; } maxpool; \
    struct { number gx, gy, index; } maxpool_bw; \
    struct { number y, x; } avgpool, add, copy; \
    struct { number gx, gy; } avgpool_bw; \
    struct { number y, x, w, bias, scale; } fc; \
    struct { number acc, gy, x, gamma_fw, gamma_bw; } fc_bw_w; \
    struct { number gx, gy, w, scale; } fc_bw_x; \
    struct { number gamma, x, module, scratch; } score; \
    struct { number x, gamma; } compact; \
    struct { number w, acc; } update; \
    struct { number sum, x, module, scratch; } score_sum; \
    struct { number gamma, sum, order; } score_mean; \
    struct { number acc, part, row, column; } merge; \
    struct { number x, kept; } curve; \
    struct { number g, kept; } curve_bw; \
    struct { number y, x, s; } mul; \
    struct { number gs, gy, x; } mul_bw; \
    struct { number stat, x; } moments; \
    struct { number stat, means, rstd; } group_stat; \
    struct { number xhat, y, stat, w, bias; } normalise; \
    struct { number x; } shift; \
    struct { number coef, stat, means, w, mean, products; } norm_coef; \
    struct { number x, gy, index, coef; } norm_pool_bw; \
    struct { number w, bias, acc, count; } prototypes;

typedef union {
    uint32_t word[6];
    struct { uint32_t rounds, body; } loop;
    struct { uint32_t geom, channels, strip, rows, first, channel; } conv;
    struct { uint32_t geom, stored, strip, channels, rows, first; } conv_bw_w;
    struct { uint32_t geom, channels, strip; } conv_bw_x;
    struct { uint32_t channels, plane; } bias_bw, norm_acc;
    struct { uint32_t channels, plane, per_group; float eps; } norm, norm_bw;
    struct { uint32_t count, kind; float slope; } act, act_bw;
    struct { uint32_t geom, channels, rows, first, window, place; } maxpool;
    struct { uint32_t geom, channels; } maxpool_bw, avgpool, avgpool_bw;
    struct { uint32_t count; } add;
    struct { uint32_t count, plane; } copy;
    struct { uint32_t outputs, inputs, rows; } fc, fc_bw_x;
    struct { uint32_t outputs, inputs, rows, stored; } fc_bw_w;
    struct { uint32_t channels, plane; float threshold; } score, score_sum, score_mean;
    struct { uint32_t channels, plane, stored; } compact;
    struct { uint32_t layer, groups, depth, filters; } update;
    struct { uint32_t groups, depth, filters, taps; } merge;
    struct { uint32_t count, kind; } curve, curve_bw;
    struct { uint32_t factors, each; } mul, mul_bw;
    struct { uint32_t channels, rows; float eps; } layer_norm, layer_norm_bw;
    struct { uint32_t channels, plane, width, rows, first, window; } moments;
    struct { uint32_t channels, count, per_group; float eps; } group_stat;
    struct { uint32_t channels, width, rows, window, place; } normalise;
    struct { uint32_t channels, width, window, keep; } shift;
    struct { uint32_t channels, plane, pooled, per_group; } norm_coef;
    struct { uint32_t geom, channels, stride; } norm_pool_bw;
    struct { uint32_t outputs, inputs; float scale; } prototypes;
} pmeta_parameters;

/* Operands as bits: written; may be none; bytes without alignment; may be a uint8 sample. */
typedef struct {
    uint8_t writes, optional, packed, input;
} pmeta_marks;
#define PMETA_MARKS \
    [PMETA_OP_LOOP] = {0x00, 0x00, 0x00, 0x00}, \
    [PMETA_OP_CONV] = {0x11, 0x08, 0x00, 0x02}, \
    [PMETA_OP_CONV_BW_W] = {0x21, 0x18, 0x00, 0x04}, \
    [PMETA_OP_CONV_BW_X] = {0x09, 0x00, 0x00, 0x00}, \
    [PMETA_OP_BIAS_BW] = {0x01, 0x04, 0x00, 0x00}, \
    [PMETA_OP_NORM] = {0x13, 0x1c, 0x00, 0x00}, \
    [PMETA_OP_NORM_BW] = {0x31, 0x3c, 0x00, 0x00}, \
    [PMETA_OP_NORM_ACC] = {0x03, 0x30, 0x00, 0x00}, \
    [PMETA_OP_ACT] = {0x03, 0x02, 0x02, 0x00}, \
    [PMETA_OP_ACT_BW] = {0x01, 0x00, 0x02, 0x00}, \
    [PMETA_OP_MAXPOOL] = {0x05, 0x0c, 0x04, 0x00}, \
    [PMETA_OP_MAXPOOL_BW] = {0x01, 0x00, 0x04, 0x00}, \
    [PMETA_OP_AVGPOOL] = {0x01, 0x00, 0x00, 0x00}, \
    [PMETA_OP_AVGPOOL_BW] = {0x01, 0x00, 0x00, 0x00}, \
    [PMETA_OP_ADD] = {0x01, 0x00, 0x00, 0x00}, \
    [PMETA_OP_COPY] = {0x01, 0x00, 0x00, 0x02}, \
    [PMETA_OP_FC] = {0x01, 0x08, 0x00, 0x00}, \
    [PMETA_OP_FC_BW_W] = {0x01, 0x18, 0x00, 0x00}, \
    [PMETA_OP_FC_BW_X] = {0x01, 0x00, 0x00, 0x00}, \
    [PMETA_OP_SCORE] = {0x09, 0x00, 0x00, 0x02}, \
    [PMETA_OP_COMPACT] = {0x01, 0x00, 0x00, 0x00}, \
    [PMETA_OP_UPDATE] = {0x01, 0x00, 0x00, 0x00}, \
    [PMETA_OP_SCORE_SUM] = {0x09, 0x00, 0x00, 0x02}, \
    [PMETA_OP_SCORE_MEAN] = {0x07, 0x00, 0x00, 0x00}, \
    [PMETA_OP_MERGE] = {0x03, 0x0c, 0x00, 0x00}, \
    [PMETA_OP_CURVE] = {0x03, 0x02, 0x00, 0x00}, \
    [PMETA_OP_CURVE_BW] = {0x01, 0x00, 0x00, 0x00}, \
    [PMETA_OP_MUL] = {0x01, 0x00, 0x00, 0x00}, \
    [PMETA_OP_MUL_BW] = {0x01, 0x00, 0x00, 0x00}, \
    [PMETA_OP_LAYER_NORM] = {0x13, 0x1c, 0x00, 0x00}, \
    [PMETA_OP_LAYER_NORM_BW] = {0x31, 0x3c, 0x00, 0x00}, \
    [PMETA_OP_MOMENTS] = {0x01, 0x00, 0x00, 0x00}, \
    [PMETA_OP_GROUP_STAT] = {0x07, 0x06, 0x00, 0x00}, \
    [PMETA_OP_NORMALISE] = {0x03, 0x18, 0x00, 0x00}, \
    [PMETA_OP_SHIFT] = {0x01, 0x00, 0x00, 0x00}, \
    [PMETA_OP_NORM_COEF] = {0x01, 0x0c, 0x00, 0x00}, \
    [PMETA_OP_NORM_POOL_BW] = {0x01, 0x00, 0x04, 0x00}, \
    [PMETA_OP_PROTOTYPES] = {0x03, 0x00, 0x00, 0x00},

#endif
