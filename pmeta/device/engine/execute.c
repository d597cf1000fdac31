/* The interpreter: one instruction on the operands that it names. */
#include "format.h"
#include <math.h>
#include <string.h>

/* Kernels and this file count in int: a 16-bit int would not do. */
typedef char pmeta_int_has_32_bits[sizeof(int) >= 4 ? 1 : -1];

static void count_high_water(pmeta_model *m, const pmeta_instr *i, uint32_t round)
{
#ifdef PMETA_NO_HIGH_WATER
    (void)m, (void)i, (void)round;
#else
    pmeta_operands o;
    pmeta_describe(&o, m, i, 1);
    for (int s = 0; s < PMETA_SLOTS; s++) {
        const uint32_t at = i->at.slot[s];
        const size_t end = PMETA_OFFSET(at) + (size_t)round * i->step.slot[s] +
                           (size_t)o.bytes.slot[s];
        if (o.bytes.slot[s] && PMETA_SPACE(at) == PMETA_ARENA && end > m->high_water)
            m->high_water = end;
    }
#endif
}

pmeta_pointers pmeta_reach(pmeta_model *m, const pmeta_instr *i, uint32_t round)
{
    pmeta_pointers to;
    count_high_water(m, i, round);
    for (int s = 0; s < PMETA_SLOTS; s++) {
        const uint32_t at = i->at.slot[s], space = PMETA_SPACE(at);
        const size_t offset = PMETA_OFFSET(at) + (size_t)round * i->step.slot[s];
        to.slot[s] = NULL;
        if (at == PMETA_NONE) continue;
        const unsigned char *base = space == PMETA_FILE ? m->file : m->x;
        if (space == PMETA_ARENA) base = m->arena;
        /* pmeta_open saw that only the arena is written. In whole numbers: what is not used may lie
         * anywhere, and a pointer to there would be undefined. */
        to.slot[s] = (void *)((uintptr_t)base + offset);
    }
    return to;
}

/* An operand that may be the sample itself; stored > 0: only channels with gamma != 0 are there. */
static pmeta_source source(const pmeta_model *m, uint32_t at, const void *data, const float *gamma,
                           uint32_t stored)
{
    const pmeta_header *h = pmeta_head(m);
    const float *scale = (const float *)(const void *)(m->file + h->at_scale);
    const int u8 = PMETA_SPACE(at) == PMETA_INPUT && h->input_type == PMETA_UINT8;
    const float *shift = scale + h->input_channels;
    if (!u8) scale = shift = NULL;
    const pmeta_source s = {data, scale, shift, gamma, u8, stored > 0, (int)stored};
    return s;
}

static void copy(float *y, const pmeta_source *x, size_t start, size_t count, size_t plane)
{
    if (!x->u8) {
        memmove(y, x->data, count * sizeof(float));
        return;
    }
    const unsigned char *pixel = x->data;
    for (size_t j = 0; j < count; j++) {
        const size_t c = (start + j) / plane;
        y[j] = (float)pixel[j] * x->scale[c] + x->shift[c];
    }
}

int pmeta_all_finite(const void *data, size_t n)
{
    const unsigned char *p = data;
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++, p += sizeof(float)) {
        uint32_t bits;
        memcpy(&bits, p, sizeof bits);
        bad |= (bits & 0x7F800000u) == 0x7F800000u;
    }
    return !bad;
}

/* Eq. 14: w <- w - alpha_l^k acc; acc is (groups, depth, filters), w (groups, filters, depth).
 * A trial writes nothing. 1: the weights are finite. */
static int update(float *w, const float *acc, float alpha, uint32_t groups, uint32_t depth,
                  uint32_t filters, int trial)
{
    const size_t group = (size_t)filters * depth;
    int finite = 1;
    for (size_t g = 0; g < groups; g++, w += group, acc += group)
        for (size_t f = 0; f < filters; f++)
            for (size_t k = 0; k < depth; k++) {
                const float v = w[f * depth + k] - alpha * acc[k * filters + f];
                if (trial)
                    finite &= pmeta_all_finite(&v, 1);
                else
                    w[f * depth + k] = v;
            }
    return finite;
}

/* w_k = 2 s c_k and bias_k = -s |c_k|^2 from the sums over the samples of each class. A trial
 * writes nothing. 1: the weights are finite. */
static int prototypes(const pmeta_pointers *to, const pmeta_parameters *p, uint32_t classes,
                      int trial)
{
    const size_t inputs = p->prototypes.inputs;
    const float s = p->prototypes.scale, *count = to->prototypes.count;
    int finite = 1;
    for (uint32_t k = 0; k < p->prototypes.outputs && k < classes; k++) {
        const float *sum = (const float *)to->prototypes.acc + k * inputs;
        float *w = (float *)to->prototypes.w + k * inputs, square = 0.0f;
        for (size_t j = 0; j < inputs; j++) {
            const float c = sum[j] / count[k];
            square += c * c;
            if (!trial) w[j] = 2.0f * s * c;
        }
        square *= -s;
        finite &= pmeta_all_finite(&square, 1);
        if (!trial) ((float *)to->prototypes.bias)[k] = square;
    }
    return finite;
}

static float step_size(const pmeta_model *m, uint32_t layer)
{
    const pmeta_header *h = pmeta_head(m);
    const float *alpha = (const float *)(const void *)(m->file + h->at_alpha); /* (K, L) */
    return alpha[(size_t)m->step * h->layers + layer];
}

/* Weights in the form that the flags say. */
static pmeta_weights weights(const void *data, const float *scale, uint32_t flags)
{
    const int packed = flags & PMETA_FLAG_HALF ? PMETA_HALF : PMETA_BYTE;
    const pmeta_weights w = {data, scale, flags & PMETA_PACKED ? packed : PMETA_WORD};
    return w;
}

/* W1, b1, W2, b2; packed ones begin with what is float32: b1, b2, and the scales of bytes. */
static pmeta_attention attention(const float *module, uint32_t channels, uint32_t flags)
{
    const size_t c = channels, square = c * c;
    if (!(flags & PMETA_PACKED)) {
        const pmeta_attention a = {weights(module, NULL, 0), weights(module + square + c, NULL, 0),
                                   module + square, module + 2 * square + c};
        return a;
    }
    const int bytes = (flags & PMETA_FLAG_HALF) == 0;
    const float *scale = module + 2 * c;
    const unsigned char *w1 = (const unsigned char *)(const void *)(bytes ? scale + 2 * c : scale);
    const pmeta_attention a = {weights(w1, scale, flags),
                               weights(w1 + (bytes ? square : 2 * square), scale + c, flags),
                               module, module + c};
    return a;
}

/* Rounds are parts of the channels, or with `rows` > 0 strips of so many rows. */
static void conv(const pmeta_pointers *to, const pmeta_source *x, const pmeta_parameters *p,
                 const pmeta_geom *g, uint32_t round, uint32_t flags)
{
    const int rows = (int)p->conv.rows, f = (int)p->conv.channel,
              row = rows ? (int)(p->conv.first + round * p->conv.rows) : 0,
              how = (flags & PMETA_FLAG_WINDOW ? PMETA_WINDOW : 0) |
                    (flags & PMETA_FLAG_WHOLE ? PMETA_WHOLE : 0);
    const pmeta_weights w = weights(to->conv.w, to->conv.scale, flags);
    pmeta_conv_rows(to->conv.y, x, &w, to->conv.bias, to->conv.patches, g,
                    rows ? f : f + (int)(round * p->conv.channels), (int)p->conv.channels,
                    (int)p->conv.strip, row, rows ? rows : g->ho, how);
}

/* Rounds are parts of the filters, or with `rows` > 0 strips of so many rows of gy. */
static void conv_bw_w(const pmeta_pointers *to, const pmeta_source *x, const pmeta_parameters *p,
                      const pmeta_geom *g, uint32_t round)
{
    const int rows = (int)p->conv_bw_w.rows, strip = (int)p->conv_bw_w.strip,
              part = (int)p->conv_bw_w.channels;
    if (rows)
        pmeta_conv_bw_w_rows(to->conv_bw_w.acc, to->conv_bw_w.gy, x, to->conv_bw_w.gamma_bw,
                             to->conv_bw_w.patches, g, strip,
                             (int)(p->conv_bw_w.first + round * p->conv_bw_w.rows), rows);
    else
        pmeta_conv_bw_w_part(to->conv_bw_w.acc, to->conv_bw_w.gy, x, to->conv_bw_w.gamma_bw,
                             to->conv_bw_w.patches, g, strip, (int)round * part,
                             part ? part : g->c_out);
}

/* Strips of rows go into the whole output, or from row `place` on into a window of rows. */
static void maxpool(const pmeta_pointers *to, const pmeta_parameters *p, const pmeta_geom *g,
                    uint32_t round)
{
    const uint32_t rows = p->maxpool.rows, row = p->maxpool.first + round * rows;
    const size_t width = (size_t)g->wo, window = p->maxpool.window;
    const int c = (int)p->maxpool.channels;
    float *y = to->maxpool.y;
    if (rows && row < (uint32_t)g->ho)
        pmeta_maxpool_rows(y + width * (window ? p->maxpool.place : row),
                           width * (window ? window : (size_t)g->ho), to->maxpool.x,
                           to->maxpool.w, g, c, (int)row, (int)rows);
    else if (!rows)
        pmeta_maxpool(y, to->maxpool.x, to->maxpool.index, to->maxpool.w, g, c);
}

static void moments(const pmeta_pointers *to, const pmeta_parameters *p, uint32_t round, int means)
{
    const uint32_t plane = p->moments.plane, most = p->moments.rows * p->moments.width,
                   before = most ? p->moments.first * p->moments.width + round * most : 0,
                   left = before < plane ? plane - before : 0,
                   n = most && most < left ? most : left;
    const size_t stride = p->moments.window ? (size_t)p->moments.window * p->moments.width
                          : most            ? most
                                            : plane;
    if (n > 0)
        (means ? pmeta_means : pmeta_moments)(to->moments.stat, to->moments.x,
                                              (int)p->moments.channels, stride, (int)before,
                                              (int)n);
}

static void normalise(const pmeta_pointers *to, const pmeta_parameters *p, uint32_t flags)
{
    const size_t width = p->normalise.width, at = width * p->normalise.place;
    const float top = flags & PMETA_FLAG_RELU6 ? 6.0f : flags & PMETA_FLAG_RELU ? INFINITY : 0.0f;
    pmeta_normalise((float *)to->normalise.xhat + at, (float *)to->normalise.y + at,
                    to->normalise.stat, to->normalise.w, to->normalise.bias,
                    (int)p->normalise.channels, width * p->normalise.window,
                    (int)(width * p->normalise.rows), top);
}

void pmeta_execute(pmeta_model *m, const pmeta_instr *i, uint32_t round)
{
    const pmeta_parameters *p = &i->p;
    const pmeta_pointers to = pmeta_reach(m, i, round);
    const pmeta_geom *geoms = pmeta_geoms(m);
    const int add = (i->flags & PMETA_FLAG_ADD) != 0;
    const int want_dx = (i->flags & PMETA_FLAG_NO_DX) == 0;
    const int rows_first = (i->flags & PMETA_FLAG_ROWS_FIRST) != 0;
    const int backward = (i->flags & PMETA_FLAG_BACKWARD) != 0;
    const int count_pad = (i->flags & PMETA_FLAG_COUNT_PAD) != 0;
    pmeta_source x;
    pmeta_weights w;
    pmeta_attention module;
    pmeta_geom part;
    switch (i->op) {
    case PMETA_OP_CONV:
        x = source(m, i->at.conv.x, to.conv.x, NULL, 0);
        conv(&to, &x, p, geoms + p->conv.geom, round, i->flags);
        break;
    case PMETA_OP_CONV_BW_W:
        x = source(m, i->at.conv_bw_w.x, to.conv_bw_w.x, to.conv_bw_w.gamma_fw,
                   p->conv_bw_w.stored);
        conv_bw_w(&to, &x, p, geoms + p->conv_bw_w.geom, round);
        break;
    case PMETA_OP_CONV_BW_X:
        part = geoms[p->conv_bw_x.geom];
        if (p->conv_bw_x.channels) part.c_out = (int)p->conv_bw_x.channels;
        w = weights(to.conv_bw_x.w, to.conv_bw_x.scale, i->flags);
        pmeta_conv_bw_x(to.conv_bw_x.gx, to.conv_bw_x.gy, &w, to.conv_bw_x.patches, &part,
                        p->conv_bw_x.strip, add || round > 0);
        break;
    case PMETA_OP_BIAS_BW:
        pmeta_bias_bw(to.bias_bw.acc, to.bias_bw.gy, to.bias_bw.gamma_bw, p->bias_bw.channels,
                      p->bias_bw.plane, rows_first);
        break;
    case PMETA_OP_NORM:
        pmeta_norm(to.norm.xhat, to.norm.y, to.norm.w, to.norm.bias, to.norm.rstd, p->norm.channels,
                   p->norm.plane, p->norm.per_group, p->norm.eps);
        break;
    case PMETA_OP_NORM_BW:
        pmeta_norm_bw(to.norm_bw.xhat, to.norm_bw.gy, to.norm_bw.w, to.norm_bw.rstd,
                      to.norm_bw.mean, to.norm_bw.products, p->norm_bw.channels, p->norm_bw.plane,
                      p->norm_bw.per_group, want_dx);
        break;
    case PMETA_OP_NORM_ACC:
        pmeta_norm_acc(to.norm_acc.acc_w, to.norm_acc.acc_b, to.norm_acc.mean, to.norm_acc.products,
                       to.norm_acc.gamma_fw, to.norm_acc.gamma_bw, p->norm_acc.channels,
                       p->norm_acc.plane);
        break;
    case PMETA_OP_ACT:
        pmeta_act(to.act.x, to.act.mask, p->act.count, (int)p->act.kind, p->act.slope);
        break;
    case PMETA_OP_ACT_BW:
        pmeta_act_bw(to.act_bw.g, to.act_bw.mask, p->act_bw.count, p->act_bw.kind, p->act_bw.slope);
        break;
    case PMETA_OP_CURVE:
        pmeta_curve(to.curve.x, to.curve.kept, p->curve.count, (int)p->curve.kind);
        break;
    case PMETA_OP_CURVE_BW:
        pmeta_curve_bw(to.curve_bw.g, to.curve_bw.kept, p->curve_bw.count, (int)p->curve_bw.kind);
        break;
    case PMETA_OP_MUL:
        pmeta_mul(to.mul.y, to.mul.x, to.mul.s, p->mul.factors, p->mul.each);
        break;
    case PMETA_OP_MUL_BW:
        pmeta_mul_bw(to.mul_bw.gs, to.mul_bw.gy, to.mul_bw.x, p->mul_bw.factors, p->mul_bw.each,
                     add);
        break;
    case PMETA_OP_LAYER_NORM:
        pmeta_layer_norm(to.layer_norm.xhat, to.layer_norm.y, to.layer_norm.w, to.layer_norm.bias,
                         to.layer_norm.rstd, (int)p->layer_norm.channels, (int)p->layer_norm.rows,
                         p->layer_norm.eps);
        break;
    case PMETA_OP_LAYER_NORM_BW:
        pmeta_layer_norm_bw(to.layer_norm_bw.xhat, to.layer_norm_bw.gy, to.layer_norm_bw.w,
                            to.layer_norm_bw.rstd, to.layer_norm_bw.mean, to.layer_norm_bw.products,
                            (int)p->layer_norm_bw.channels, (int)p->layer_norm_bw.rows, want_dx);
        break;
    case PMETA_OP_MAXPOOL:
        maxpool(&to, p, geoms + p->maxpool.geom, round);
        break;
    case PMETA_OP_MAXPOOL_BW:
        pmeta_maxpool_bw(to.maxpool_bw.gx, to.maxpool_bw.gy, to.maxpool_bw.index,
                         geoms + p->maxpool_bw.geom, p->maxpool_bw.channels);
        break;
    case PMETA_OP_MOMENTS: moments(&to, p, round, (i->flags & PMETA_FLAG_MEANS) != 0); break;
    case PMETA_OP_GROUP_STAT:
        pmeta_group_stat(to.group_stat.stat, to.group_stat.means, to.group_stat.rstd,
                         p->group_stat.channels, p->group_stat.count, p->group_stat.per_group,
                         p->group_stat.eps);
        break;
    case PMETA_OP_NORMALISE: normalise(&to, p, i->flags); break;
    case PMETA_OP_SHIFT:
        pmeta_shift(to.shift.x, p->shift.channels, p->shift.width, p->shift.window, p->shift.keep);
        break;
    case PMETA_OP_NORM_COEF:
        pmeta_norm_coef(to.norm_coef.coef, to.norm_coef.stat, to.norm_coef.means, to.norm_coef.w,
                        to.norm_coef.mean, to.norm_coef.products, p->norm_coef.channels,
                        p->norm_coef.plane, p->norm_coef.pooled, p->norm_coef.per_group);
        break;
    case PMETA_OP_NORM_POOL_BW:
        pmeta_norm_pool_bw(to.norm_pool_bw.x, to.norm_pool_bw.gy, to.norm_pool_bw.index,
                           to.norm_pool_bw.coef, geoms + p->norm_pool_bw.geom,
                           p->norm_pool_bw.channels, p->norm_pool_bw.stride);
        break;
    case PMETA_OP_AVGPOOL:
        pmeta_avgpool(to.avgpool.y, to.avgpool.x, geoms + p->avgpool.geom, p->avgpool.channels,
                      count_pad);
        break;
    case PMETA_OP_AVGPOOL_BW:
        pmeta_avgpool_bw(to.avgpool_bw.gx, to.avgpool_bw.gy, geoms + p->avgpool_bw.geom,
                         p->avgpool_bw.channels, count_pad);
        break;
    case PMETA_OP_ADD: pmeta_add(to.add.y, to.add.x, p->add.count); break;
    case PMETA_OP_COPY:
        x = source(m, i->at.copy.x, to.copy.x, NULL, 0);
        copy(to.copy.y, &x, PMETA_OFFSET(i->at.copy.x) + (size_t)round * i->step.copy.x,
             p->copy.count, p->copy.plane);
        break;
    case PMETA_OP_FC:
        w = weights(to.fc.w, to.fc.scale, i->flags);
        pmeta_fc(to.fc.y, to.fc.x, &w, to.fc.bias, p->fc.outputs, p->fc.inputs, p->fc.rows);
        break;
    case PMETA_OP_FC_BW_W:
        pmeta_fc_bw_w(to.fc_bw_w.acc, to.fc_bw_w.gy, to.fc_bw_w.x, to.fc_bw_w.gamma_fw,
                      to.fc_bw_w.gamma_bw, p->fc_bw_w.outputs, p->fc_bw_w.inputs, p->fc_bw_w.rows,
                      p->fc_bw_w.stored);
        break;
    case PMETA_OP_FC_BW_X:
        w = weights(to.fc_bw_x.w, to.fc_bw_x.scale, i->flags);
        pmeta_fc_bw_x(to.fc_bw_x.gx, to.fc_bw_x.gy, &w, p->fc_bw_x.outputs, p->fc_bw_x.inputs,
                      p->fc_bw_x.rows, add);
        break;
    case PMETA_OP_SCORE:
        x = source(m, i->at.score.x, to.score.x, NULL, 0);
        module = attention(to.score.module, p->score.channels, i->flags);
        pmeta_score(to.score.gamma, &x, &module, to.score.scratch, p->score.channels,
                    p->score.plane, rows_first, p->score.threshold, backward);
        break;
    case PMETA_OP_SCORE_SUM:
        x = source(m, i->at.score_sum.x, to.score_sum.x, NULL, 0);
        module = attention(to.score_sum.module, p->score_sum.channels, i->flags);
        pmeta_score_sum(to.score_sum.sum, &x, &module, to.score_sum.scratch,
                        p->score_sum.channels, p->score_sum.plane, rows_first, backward);
        break;
    case PMETA_OP_SCORE_MEAN:
        pmeta_score_mean(to.score_mean.gamma, to.score_mean.sum, to.score_mean.order,
                         p->score_mean.channels, p->score_mean.threshold, m->in_batch);
        break;
    case PMETA_OP_COMPACT:
        pmeta_compact(to.compact.x, to.compact.gamma, p->compact.channels, p->compact.plane,
                      p->compact.stored, rows_first);
        break;
    case PMETA_OP_MERGE:
        pmeta_merge(to.merge.acc, to.merge.part, to.merge.row, to.merge.column, p->merge.groups,
                    p->merge.depth, p->merge.filters, p->merge.taps);
        break;
    case PMETA_OP_UPDATE:
        m->finite &= (uint32_t)update(to.update.w, to.update.acc, step_size(m, p->update.layer),
                                      p->update.groups, p->update.depth, p->update.filters,
                                      m->trial != 0);
        break;
    case PMETA_OP_PROTOTYPES:
        m->finite &= (uint32_t)prototypes(&to, p, m->classes, m->trial != 0);
        break;
    }
}
