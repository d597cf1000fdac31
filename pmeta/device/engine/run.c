/* Running a model: start, infer, feed, step; and the interpreter of its instructions. */
#include "format.h"
#include <math.h>
#include <string.h>

enum { OPENED = 1, STARTED = 2, FEEDING = 3, HALFWAY = 4 };

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

/* Where the operands of an instruction lie, NULL for those that are not there. */
static pmeta_pointers reach(pmeta_model *m, const pmeta_instr *i, uint32_t round)
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

/* By the bits: it holds under -ffast-math, too, and needs no alignment. */
static int all_finite(const void *data, size_t n)
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
                    finite &= all_finite(&v, 1);
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
        finite &= all_finite(&square, 1);
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

/* Rounds are parts of the channels, or with `rows` > 0 strips of so many rows. */
static void conv(const pmeta_pointers *to, const pmeta_source *x, const pmeta_parameters *p,
                 const pmeta_geom *g, uint32_t round, int window)
{
    const int rows = (int)p->conv.rows, f = (int)p->conv.channel,
              row = rows ? (int)(p->conv.first + round * p->conv.rows) : 0;
    pmeta_conv_rows(to->conv.y, x, to->conv.w, to->conv.bias, to->conv.patches, g,
                    rows ? f : f + (int)(round * p->conv.channels), (int)p->conv.channels,
                    (int)p->conv.strip, row, rows ? rows : g->ho, window);
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

static void moments(const pmeta_pointers *to, const pmeta_parameters *p, uint32_t round)
{
    const uint32_t plane = p->moments.plane, most = p->moments.rows * p->moments.width,
                   before = most ? p->moments.first * p->moments.width + round * most : 0,
                   left = before < plane ? plane - before : 0,
                   n = most && most < left ? most : left;
    if (n > 0)
        pmeta_moments(to->moments.stat, to->moments.x, (int)p->moments.channels,
                      most ? most : plane, (int)before, (int)n);
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

static void execute(pmeta_model *m, const pmeta_instr *i, uint32_t round)
{
    const pmeta_parameters *p = &i->p;
    const pmeta_pointers to = reach(m, i, round);
    const pmeta_geom *geoms = pmeta_geoms(m);
    const int add = (i->flags & PMETA_FLAG_ADD) != 0;
    const int want_dx = (i->flags & PMETA_FLAG_NO_DX) == 0;
    const int rows_first = (i->flags & PMETA_FLAG_ROWS_FIRST) != 0;
    const int backward = (i->flags & PMETA_FLAG_BACKWARD) != 0;
    const int count_pad = (i->flags & PMETA_FLAG_COUNT_PAD) != 0;
    pmeta_source x;
    pmeta_geom part;
    switch (i->op) {
    case PMETA_OP_CONV:
        x = source(m, i->at.conv.x, to.conv.x, NULL, 0);
        conv(&to, &x, p, geoms + p->conv.geom, round, (i->flags & PMETA_FLAG_WINDOW) != 0);
        break;
    case PMETA_OP_CONV_BW_W:
        x = source(m, i->at.conv_bw_w.x, to.conv_bw_w.x, to.conv_bw_w.gamma_fw,
                   p->conv_bw_w.stored);
        pmeta_conv_bw_w_part(to.conv_bw_w.acc, to.conv_bw_w.gy, &x, to.conv_bw_w.gamma_bw,
                             to.conv_bw_w.patches, geoms + p->conv_bw_w.geom, p->conv_bw_w.strip,
                             round * p->conv_bw_w.channels,
                             p->conv_bw_w.channels ? (int)p->conv_bw_w.channels
                                                   : geoms[p->conv_bw_w.geom].c_out);
        break;
    case PMETA_OP_CONV_BW_X:
        part = geoms[p->conv_bw_x.geom];
        if (p->conv_bw_x.channels) part.c_out = (int)p->conv_bw_x.channels;
        pmeta_conv_bw_x(to.conv_bw_x.gx, to.conv_bw_x.gy, to.conv_bw_x.w, to.conv_bw_x.patches,
                        &part, p->conv_bw_x.strip, add || round > 0);
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
    case PMETA_OP_MOMENTS: moments(&to, p, round); break;
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
        pmeta_fc(to.fc.y, to.fc.x, to.fc.w, to.fc.bias, p->fc.outputs, p->fc.inputs, p->fc.rows);
        break;
    case PMETA_OP_FC_BW_W:
        pmeta_fc_bw_w(to.fc_bw_w.acc, to.fc_bw_w.gy, to.fc_bw_w.x, to.fc_bw_w.gamma_fw,
                      to.fc_bw_w.gamma_bw, p->fc_bw_w.outputs, p->fc_bw_w.inputs, p->fc_bw_w.rows,
                      p->fc_bw_w.stored);
        break;
    case PMETA_OP_FC_BW_X:
        pmeta_fc_bw_x(to.fc_bw_x.gx, to.fc_bw_x.gy, to.fc_bw_x.w, p->fc_bw_x.outputs,
                      p->fc_bw_x.inputs, p->fc_bw_x.rows, add);
        break;
    case PMETA_OP_SCORE:
        x = source(m, i->at.score.x, to.score.x, NULL, 0);
        pmeta_score(to.score.gamma, &x, to.score.module, to.score.scratch, p->score.channels,
                    p->score.plane, rows_first, p->score.threshold, backward);
        break;
    case PMETA_OP_SCORE_SUM:
        x = source(m, i->at.score_sum.x, to.score_sum.x, NULL, 0);
        pmeta_score_sum(to.score_sum.sum, &x, to.score_sum.module, to.score_sum.scratch,
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

/* 0: the caller's function asked to stop. */
static int done(pmeta_model *m, const pmeta_instr *i, uint32_t round)
{
    execute(m, i, round);
    m->instruction = (uint32_t)(i - pmeta_instrs(m));
    return !m->yield || m->yield(m->context) == 0;
}

static int run(pmeta_model *m, uint32_t first, uint32_t count)
{
    int going = 1;
    const pmeta_instr *all = pmeta_instrs(m);
    for (uint32_t i = first; i < first + count; i++) {
        uint32_t rounds = 1, body = 1;
        if (all[i].op == PMETA_OP_LOOP) {
            rounds = all[i].p.loop.rounds;
            body = all[i].p.loop.body;
            i++;
        }
        for (uint32_t r = 0; r < rounds; r++)
            for (uint32_t j = i; j < i + body; j++) {
                going &= done(m, &all[j], r);
                if (!going && !pmeta_ends_step(all[j].op)) return 0;
            }
        i += body - 1;
    }
    return 1;
}

/* An adaptation that cannot go on: its weights are those of the last step. */
static pmeta_status give_up(pmeta_model *m, pmeta_status status)
{
    m->phase = STARTED;
    return status;
}

static const pmeta_program *current(const pmeta_model *m)
{
    return pmeta_programs(m) +
           ((const uint32_t *)(const void *)(m->file + pmeta_head(m)->at_steps))[m->step];
}

/* The pass that gathers prototypes, or NULL where a step takes gradients. */
static const pmeta_instr *gathering(const pmeta_model *m, const pmeta_program *p)
{
    const pmeta_instr *i = pmeta_instrs(m) + p->first + p->forward + p->backward;
    return p->update && i->op == PMETA_OP_PROTOTYPES ? i : NULL;
}

static int every_class_came(pmeta_model *m, const pmeta_instr *i)
{
    const pmeta_pointers to = reach(m, i, 0);
    const float *count = to.prototypes.count;
    for (uint32_t k = 0; k < i->p.prototypes.outputs && k < m->classes; k++)
        if (!(count[k] > 0.0f)) return 0;
    return 1;
}

pmeta_status pmeta_start(pmeta_model *m, void *arena, size_t arena_bytes)
{
    if (!m || !arena) return PMETA_ARGUMENT;
    if (m->phase < OPENED) return PMETA_ORDER;
    if ((uintptr_t)arena % 4) return PMETA_ALIGNMENT;
    if (arena_bytes < m->infer_bytes) return PMETA_ARENA_TOO_SMALL;
    m->arena = arena;
    m->arena_given = arena_bytes;
#ifndef PMETA_NO_HIGH_WATER
    m->high_water = m->state_bytes;
#endif
    m->phase = STARTED;
    return pmeta_reset(m);
}

pmeta_status pmeta_reset(pmeta_model *m)
{
    if (!m) return PMETA_ARGUMENT;
    if (m->phase < STARTED) return PMETA_ORDER;
    const pmeta_copy *c = (const pmeta_copy *)(const void *)(m->file + pmeta_head(m)->at_copies);
    memset(m->arena, 0, m->state_bytes); /* the gaps, so that a saved state has one form */
    for (uint32_t i = 0; i < pmeta_head(m)->copies; i++)
        memcpy(m->arena + c[i].arena_offset, m->file + c[i].file_offset, c[i].bytes);
    m->phase = STARTED;
    m->support = 0;
    return PMETA_OK;
}

int pmeta_is_still(const pmeta_model *m)
{
    return m->phase == STARTED || (m->phase == FEEDING && m->step == m->steps);
}

pmeta_status pmeta_read_state(const pmeta_model *m, void *state, size_t bytes)
{
    if (!m || !state || bytes != m->state_bytes) return PMETA_ARGUMENT;
    if (m->phase < STARTED) return PMETA_ORDER;
    memcpy(state, m->arena, bytes);
    return PMETA_OK;
}

pmeta_status pmeta_write_state(pmeta_model *m, const void *state, size_t bytes)
{
    if (!m || !state || bytes != m->state_bytes) return PMETA_ARGUMENT;
    if (m->phase < STARTED) return PMETA_ORDER;
    const pmeta_copy *c = (const pmeta_copy *)(const void *)(m->file + pmeta_head(m)->at_copies);
    for (uint32_t i = 0; i < pmeta_head(m)->copies; i++)
        if (!all_finite((const unsigned char *)state + c[i].arena_offset,
                        c[i].bytes / sizeof(float)))
            return PMETA_NOT_FINITE;
    memcpy(m->arena, state, bytes);
    m->phase = STARTED;
    return PMETA_OK;
}

static pmeta_status good_sample(const pmeta_model *m, const void *x)
{
    if (m->input_type == PMETA_UINT8) return PMETA_OK;
    if ((uintptr_t)x % 4) return PMETA_ALIGNMENT;
    return all_finite(x, m->input_bytes / sizeof(float)) ? PMETA_OK : PMETA_NOT_FINITE;
}

pmeta_status pmeta_on_yield(pmeta_model *m, int (*f)(void *context), void *context)
{
    if (!m) return PMETA_ARGUMENT;
    if (m->phase < OPENED) return PMETA_ORDER;
    m->yield = f;
    m->context = context;
    return PMETA_OK;
}

/* Between the samples of a step the accumulators hold their sum, and inference would run over
 * them. */
pmeta_status pmeta_infer(pmeta_model *m, const void *x, float *output)
{
    if (!m || !x || !output) return PMETA_ARGUMENT;
    if (m->phase < STARTED || m->phase == HALFWAY || (m->phase == FEEDING && m->fed > 0))
        return PMETA_ORDER;
    const pmeta_status status = good_sample(m, x);
    if (status != PMETA_OK) return status;
    m->x = x;
    if (!run(m, pmeta_programs(m)->first, pmeta_programs(m)->forward)) return PMETA_STOPPED;
    memcpy(output, m->arena + pmeta_programs(m)->output, (size_t)m->outputs * sizeof(float));
    return all_finite(output, m->outputs) ? PMETA_OK : PMETA_NOT_FINITE;
}

/* A value for 1, 2, ... support samples of a class; the last one for more, and for a file that was
 * saved by an adaptation. */
float pmeta_temperature(const pmeta_model *m)
{
    if (!m || !m->file || !pmeta_head(m)->at_temperatures) return 1.0f;
    const uint32_t *n = (const uint32_t *)(const void *)(m->file + pmeta_head(m)->at_temperatures);
    const float *t = (const float *)(const void *)(n + 1);
    const uint32_t shots = m->support ? (m->support + m->classes / 2) / m->classes : *n;
    return t[shots < 1 ? 0 : shots < *n ? shots - 1 : *n - 1];
}

pmeta_status pmeta_probabilities(const pmeta_model *m, const float *scores, float *p)
{
    if (!m || !scores || !p) return PMETA_ARGUMENT;
    if (m->phase < OPENED) return PMETA_ORDER;
    if (m->rows != 1) return PMETA_LABEL;
    const float t = pmeta_temperature(m);
    float top = scores[0], sum = 0.0f;
    for (uint32_t i = 1; i < m->classes; i++) top = scores[i] > top ? scores[i] : top;
    for (uint32_t i = 0; i < m->classes; i++) sum += p[i] = expf((scores[i] - top) / t);
    for (uint32_t i = 0; i < m->classes; i++) p[i] /= sum;
    return PMETA_OK;
}

pmeta_status pmeta_classes(pmeta_model *m, uint32_t n)
{
    if (!m || n < 1) return PMETA_ARGUMENT;
    if (m->phase < OPENED || m->phase == HALFWAY || (m->phase == FEEDING && m->step < m->steps))
        return PMETA_ORDER;
    if (m->rows != 1 || n > m->outputs) return PMETA_LABEL;
    m->classes = n;
    return PMETA_OK;
}

pmeta_status pmeta_begin(pmeta_model *m, uint32_t n_support)
{
    if (!m || n_support < 1) return PMETA_ARGUMENT;
    if (m->phase < STARTED) return PMETA_ORDER;
    if (m->arena_given < m->arena_bytes) return PMETA_ARENA_TOO_SMALL;
    m->support = n_support;
    m->fed = m->in_batch = m->step = 0;
    m->phase = FEEDING;
    return PMETA_OK;
}

pmeta_status pmeta_forward(pmeta_model *m, const void *x, float *output)
{
    if (!m || !x) return PMETA_ARGUMENT;
    if (m->phase != FEEDING || m->step >= m->steps || m->fed >= m->support) return PMETA_ORDER;
    const pmeta_status status = good_sample(m, x);
    if (status != PMETA_OK) return status;
    const pmeta_program *p = current(m);
    if (m->fed == 0) memset(m->arena + p->acc, 0, p->acc_bytes);
#ifndef PMETA_NO_HIGH_WATER
    if (m->fed == 0 && p->acc + (size_t)p->acc_bytes > m->high_water)
        m->high_water = p->acc + (size_t)p->acc_bytes;
#endif
    m->x = x;
    if (!run(m, p->first, p->forward)) return give_up(m, PMETA_STOPPED);
    if (!all_finite(m->arena + p->output, m->outputs)) return give_up(m, PMETA_NOT_FINITE);
    if (output) memcpy(output, m->arena + p->output, (size_t)m->outputs * sizeof(float));
    m->phase = HALFWAY;
    return PMETA_OK;
}

/* The second half of a sample; the last of a micro-batch gives them all their scores (Sec.
 * 3.5.1). */
static pmeta_status finish(pmeta_model *m, const pmeta_program *p)
{
    if (!run(m, p->first + p->forward, p->backward)) return give_up(m, PMETA_STOPPED);
    m->fed++;
    m->in_batch++;
    m->phase = FEEDING;
    if (m->in_batch != m->batch && m->fed != m->support) return PMETA_OK;
    if (!run(m, p->first + p->forward + p->backward + p->update, p->merge))
        return give_up(m, PMETA_STOPPED);
    m->in_batch = 0;
    return PMETA_OK;
}

pmeta_status pmeta_backward(pmeta_model *m, const float *g_output)
{
    if (!m || !g_output) return PMETA_ARGUMENT;
    if (m->phase != HALFWAY) return PMETA_ORDER;
    if (!all_finite(g_output, m->outputs)) return PMETA_NOT_FINITE;
    const pmeta_program *p = current(m);
    if (p->backward) memcpy(m->arena + p->g_output, g_output, (size_t)m->outputs * sizeof(float));
    return finish(m, p);
}

pmeta_status pmeta_feed(pmeta_model *m, const void *x, uint32_t label, float *loss)
{
    if (!m || !x) return PMETA_ARGUMENT;
    if (m->rows != 1 || label >= m->classes) return PMETA_LABEL;
    const pmeta_status status = pmeta_forward(m, x, NULL);
    if (status != PMETA_OK) return status;
    const pmeta_program *p = current(m);
    float *z = (float *)(void *)(m->arena + p->output);
    float *g = p->backward ? (float *)(void *)(m->arena + p->g_output) : z;
    float value = 0.0f;
    if (gathering(m, p)) /* sums over a class instead of gradients */
        for (uint32_t i = 0; i < m->classes; i++) g[i] = i == label ? 1.0f : 0.0f;
    else
        value = pmeta_cross_entropy(g, z, (int)m->classes, (int)label, 1.0f / (float)m->support);
    for (uint32_t i = m->classes; i < m->outputs; i++) g[i] = 0.0f;
    if (loss) *loss = value;
    if (!all_finite(&value, 1)) return give_up(m, PMETA_NOT_FINITE);
    return finish(m, p);
}

pmeta_status pmeta_step(pmeta_model *m)
{
    if (!m) return PMETA_ARGUMENT;
    if (m->phase != FEEDING || m->step >= m->steps || m->fed != m->support) return PMETA_ORDER;
    const pmeta_program *p = current(m);
    if (gathering(m, p) && !every_class_came(m, gathering(m, p))) return give_up(m, PMETA_LABEL);
    m->finite = m->trial = 1;
    run(m, p->first + p->forward + p->backward, p->update);
    m->trial = 0;
    if (!m->finite) return give_up(m, PMETA_NOT_FINITE);
    run(m, p->first + p->forward + p->backward, p->update);
    m->step++;
    m->fed = 0;
    return PMETA_OK;
}

size_t pmeta_high_water(const pmeta_model *m) { return m ? m->high_water : 0; }

const char *pmeta_message(pmeta_status status)
{
    switch (status) {
    case PMETA_OK: return "no error";
    case PMETA_NOT_A_MODEL: return "the file is not a pmeta model: write one with `pmeta export`";
    case PMETA_FOREIGN_ENDIAN: return "the file is little-endian and this machine is not";
    case PMETA_OTHER_VERSION:
        return "the file has another format version than this engine: export it again with the "
               "same release";
    case PMETA_TRUNCATED: return "the file ends before the length in its header: copy it again";
    case PMETA_CHECKSUM:
        return "the checksum does not fit: the file was changed or damaged, copy it again";
    case PMETA_CORRUPT:
        return "the file holds an offset, a size or an instruction that does not fit: export it "
               "again";
    case PMETA_ALIGNMENT:
        return "file, arena and float32 samples must start at addresses that 4 divides";
    case PMETA_ARENA_TOO_SMALL:
        return "the arena is smaller than the model needs: give it arena_bytes (infer_bytes to "
               "infer only)";
    case PMETA_ORDER:
        return "call out of order: open, start, begin, then in each step feed every support sample "
               "and step";
    case PMETA_LABEL:
        return "labels are 0 to classes - 1, and classes at most as many as outputs; a head from "
               "prototypes needs a sample of each; a model with many rows takes pmeta_forward and "
               "pmeta_backward";
    case PMETA_ARGUMENT: return "an argument is null, or a size is not the one that the model has";
    case PMETA_NOT_FINITE:
        return "samples, gradients, outputs and weights must be finite, one is not: mend the "
               "sample, or, where the steps diverged, take other samples";
    case PMETA_STOPPED: return "stopped by the function that pmeta_on_yield was given";
    case PMETA_NO_STATE:
        return "neither slot holds a whole state of this model: adapt it and save its state first";
    case PMETA_TOO_MUCH_WORK:
        return "the file asks for more work than the engine's limit for one sample: do not trust "
               "it, or raise PMETA_MOST_WORK";
    case PMETA_STORAGE:
        return "a slot could not be erased, written or read back: the state that was saved before "
               "is still there";
    }
    return "unknown status";
}
