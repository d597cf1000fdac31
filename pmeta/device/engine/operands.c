/* What every instruction reads and writes, from its parameters alone. Opening a file checks it;
 * running adds up the high water. */
#include "format.h"
#include <string.h>

#define LIMIT 65535u      /* channels, rounds, strips */
#define WIDE 0xFFFFFFu    /* outputs or inputs of an fc layer */
#define WORDS 0x3FFFFFFFu /* of one tensor */
#define SIDE 32767        /* image sides */
/* Kernel sides, strides, paddings and dilations of a conv. A pooling window may be larger. */
#define TAP 255

static int between(int32_t v, int32_t lo, int32_t hi) { return v >= lo && v <= hi; }

static int output_side(int in, int k, int s, int p, int d)
{
    return (in + 2 * p - d * (k - 1) - 1) / s + 1;
}

/* Pooling may have one window more that ends outside (ceil_mode), if it begins inside. */
static int good_side(int out, int whole, int in, int s, int p)
{
    return out == whole || (out == whole + 1 && whole * s < in + p);
}

static int good_geom(const pmeta_geom *g, int tap)
{
    if (!between(g->c_in, 1, LIMIT) || !between(g->c_out, 1, LIMIT) || !between(g->h, 1, SIDE) ||
        !between(g->w, 1, SIDE))
        return 0;
    if (!between(g->kh, 1, tap) || !between(g->kw, 1, tap) || !between(g->sh, 1, tap) ||
        !between(g->sw, 1, tap))
        return 0;
    if (!between(g->ph, 0, tap) || !between(g->pw, 0, tap) || !between(g->dh, 1, TAP) ||
        !between(g->dw, 1, TAP))
        return 0;
    if (!between(g->groups, 1, LIMIT) || g->c_in % g->groups || g->c_out % g->groups) return 0;
    if (!between(g->ho, 1, SIDE) || !between(g->wo, 1, SIDE)) return 0;
    if (g->h + 2 * g->ph < g->dh * (g->kh - 1) + 1 || g->w + 2 * g->pw < g->dw * (g->kw - 1) + 1)
        return 0;
    const int whole_h = output_side(g->h, g->kh, g->sh, g->ph, g->dh),
              whole_w = output_side(g->w, g->kw, g->sw, g->pw, g->dw);
    if (tap == TAP) return g->ho == whole_h && g->wo == whole_w;
    return good_side(g->ho, whole_h, g->h, g->sh, g->ph) &&
           good_side(g->wo, whole_w, g->w, g->sw, g->pw);
}

static uint64_t plane_in(const pmeta_geom *g) { return (uint64_t)g->h * g->w; }
static uint64_t plane_out(const pmeta_geom *g) { return (uint64_t)g->ho * g->wo; }
static uint64_t taps(const pmeta_geom *g) { return (uint64_t)g->kh * g->kw; }
static uint64_t depth(const pmeta_geom *g) { return (uint64_t)(g->c_in / g->groups) * taps(g); }

static int good_strip(uint64_t strip)
{
    return strip >= PMETA_LANES && strip <= LIMIT && strip % PMETA_LANES == 0;
}
static int good_count(uint64_t n) { return n >= 1 && n <= WORDS; }
static int good_tensor(uint64_t channels, uint64_t plane)
{
    return channels >= 1 && channels <= LIMIT && good_count(plane);
}

/* The functions below give the words of every operand; bytes of those that are packed. */

/* Strips of `rows` rows from row `first` on, one a round: the last may reach below the image. */
static int good_rows(uint64_t rows, uint64_t first, uint64_t rounds)
{
    return rows <= SIDE && first <= SIDE && first + rows * rounds <= 2 * SIDE;
}

/* Rows of the input that so many rows of output read. */
static uint64_t held_rows(const pmeta_geom *g, uint64_t rows)
{
    return (rows - 1) * (uint64_t)g->sh + (uint64_t)g->dh * (g->kh - 1) + 1;
}

/* Words of weights, or bytes where they are packed. */
static uint64_t weight_size(const pmeta_instr *i, uint64_t count)
{
    return i->flags & PMETA_FLAG_HALF ? 2 * count : count;
}

static uint64_t scale_words(const pmeta_instr *i, uint64_t rows)
{
    return i->flags & PMETA_FLAG_BYTE ? rows : 0;
}

static int conv(pmeta_sizes *n, const pmeta_instr *i, const pmeta_geom *g, uint32_t rounds)
{
    const uint64_t part = i->p.conv.channels, strip = i->p.conv.strip, rows = i->p.conv.rows;
    const int window = (i->flags & PMETA_FLAG_WINDOW) != 0,
              whole = (i->flags & PMETA_FLAG_WHOLE) != 0;
    if (!g || !good_strip(strip) || part < 1 || !good_rows(rows, i->p.conv.first, rounds)) return 0;
    if (i->p.conv.channel + part * (rows ? 1 : rounds) > (uint64_t)g->c_out) return 0;
    if (!rows && (window || whole || i->p.conv.first)) return 0;
    const uint64_t held = held_rows(g, rows);
    n->conv.y = part * (rows && !whole ? rows * (uint64_t)g->wo : plane_out(g));
    n->conv.x = (uint64_t)g->c_in * (window ? held * (uint64_t)g->w : plane_in(g));
    n->conv.w = weight_size(i, part * depth(g));
    n->conv.bias = part;
    n->conv.patches = depth(g) * (i->flags & PMETA_PACKED ? strip + 4 : strip);
    n->conv.scale = scale_words(i, part);
    return 1;
}

/* `channels` of output in a round, 0: all in one. Only a conv of one group has parts. */
static uint64_t backward_part(const pmeta_geom *g, uint64_t channels, uint32_t rounds)
{
    if (!g || (channels ? g->groups > 1 || channels * rounds > (uint64_t)g->c_out : rounds > 1))
        return 0;
    return channels ? channels : (uint64_t)g->c_out;
}

static int conv_bw_w(pmeta_sizes *n, const pmeta_instr *i, const pmeta_geom *g, uint32_t rounds)
{
    const uint64_t stored = i->p.conv_bw_w.stored, strip = i->p.conv_bw_w.strip,
                   rows = i->p.conv_bw_w.rows,
                   part = backward_part(g, i->p.conv_bw_w.channels, rows ? 1 : rounds);
    if (!part || !good_strip(strip) || stored > (uint64_t)g->c_in) return 0;
    if (!good_rows(rows, i->p.conv_bw_w.first, rounds)) return 0;
    if (rows ? g->groups > 1 || stored || i->p.conv_bw_w.channels ||
                   PMETA_SPACE(i->at.conv_bw_w.x) == PMETA_INPUT
             : i->p.conv_bw_w.first)
        return 0;
    if (stored &&
        (i->at.conv_bw_w.gamma_fw == PMETA_NONE || PMETA_SPACE(i->at.conv_bw_w.x) == PMETA_INPUT))
        return 0;
    const uint64_t each = part / (uint64_t)g->groups,
                   lanes = (each + PMETA_LANES - 1) / PMETA_LANES * PMETA_LANES;
    n->conv_bw_w.acc = (uint64_t)g->c_out * depth(g);
    n->conv_bw_w.gy = part * plane_out(g);
    n->conv_bw_w.x = (stored ? stored : (uint64_t)g->c_in) *
                     (rows ? held_rows(g, rows) * (uint64_t)g->w : plane_in(g));
    n->conv_bw_w.gamma_fw = (uint64_t)g->c_in;
    n->conv_bw_w.gamma_bw = part;
    n->conv_bw_w.patches = (depth(g) + lanes) * strip;
    return 1;
}

static int conv_bw_x(pmeta_sizes *n, const pmeta_instr *i, const pmeta_geom *g, uint32_t rounds)
{
    const uint64_t strip = i->p.conv_bw_x.strip,
                   part = backward_part(g, i->p.conv_bw_x.channels, rounds);
    if (!part || !good_strip(strip)) return 0;
    n->conv_bw_x.gx = (uint64_t)g->c_in * plane_in(g);
    n->conv_bw_x.gy = part * plane_out(g);
    n->conv_bw_x.w = weight_size(i, part * depth(g));
    n->conv_bw_x.scale = scale_words(i, part);
    n->conv_bw_x.patches = part / (uint64_t)g->groups * taps(g) * (strip + 4);
    return 1;
}

/* Half a window of padding at most, so that every window holds a pixel. */
static int good_window(const pmeta_geom *g, uint64_t channels)
{
    return g && channels >= 1 && channels <= LIMIT && g->ph * 2 <= g->kh && g->pw * 2 <= g->kw;
}

static uint64_t index_bytes(const pmeta_geom *g, uint64_t channels)
{
    const uint64_t out = channels * plane_out(g);
    return taps(g) <= 4 ? (out + 3) / 4 : out;
}

static int maxpool_bw(pmeta_sizes *n, const pmeta_geom *g, uint64_t channels)
{
    if (!good_window(g, channels) || taps(g) > 256) return 0;
    n->maxpool_bw.gx = channels * plane_in(g);
    n->maxpool_bw.gy = channels * plane_out(g);
    n->maxpool_bw.index = index_bytes(g, channels);
    return 1;
}

/* Strips of rows need windows that do not reach into the next one. */
static int maxpool(pmeta_sizes *n, const pmeta_instr *i, const pmeta_geom *g, uint32_t rounds)
{
    const uint64_t channels = i->p.maxpool.channels, rows = i->p.maxpool.rows,
                   window = i->p.maxpool.window, place = i->p.maxpool.place;
    if (!good_window(g, channels) || taps(g) > 256) return 0;
    if (!good_rows(rows, i->p.maxpool.first, rounds) || window > 2 * SIDE) return 0;
    if (rows && (g->ph || g->dh * (g->kh - 1) >= g->sh || i->at.maxpool.index != PMETA_NONE))
        return 0;
    if (rows ? window && place + rows > window : window || place || i->p.maxpool.first) return 0;
    n->maxpool.y = channels * (window ? window * (uint64_t)g->wo : plane_out(g));
    n->maxpool.x = channels * (rows ? rows * (uint64_t)g->sh * (uint64_t)g->w : plane_in(g));
    n->maxpool.index = index_bytes(g, channels);
    n->maxpool.w = channels;
    return 1;
}

static int avgpool(pmeta_sizes *n, const pmeta_geom *g, uint64_t channels, int forward)
{
    if (!good_window(g, channels) || g->dh != 1 || g->dw != 1) return 0;
    n->avgpool.y = channels * (forward ? plane_out(g) : plane_in(g)); /* backward: gx */
    n->avgpool.x = channels * (forward ? plane_in(g) : plane_out(g)); /* gy */
    return 1;
}

static int norm(pmeta_sizes *n, const pmeta_instr *i)
{
    const uint64_t c = i->p.norm.channels, plane = i->p.norm.plane, per_group = i->p.norm.per_group;
    if (!good_tensor(c, plane) || per_group < 1 || c % per_group) return 0;
    n->norm.xhat = n->norm.y = c * plane;
    n->norm.w = n->norm.bias = c;
    n->norm.rstd = c / per_group;
    return 1;
}

static int norm_bw(pmeta_sizes *n, const pmeta_instr *i)
{
    const uint64_t c = i->p.norm_bw.channels, plane = i->p.norm_bw.plane,
                   per_group = i->p.norm_bw.per_group;
    if (!good_tensor(c, plane) || per_group < 1 || c % per_group) return 0;
    n->norm_bw.xhat = n->norm_bw.gy = c * plane;
    n->norm_bw.w = n->norm_bw.mean = n->norm_bw.products = c;
    n->norm_bw.rstd = c / per_group;
    return (i->flags & PMETA_FLAG_NO_DX) || i->at.norm_bw.rstd != PMETA_NONE;
}

static int good_groups(uint64_t c, uint64_t per_group)
{
    return c >= 1 && c <= LIMIT && per_group >= 1 && c % per_group == 0;
}

static int moments(pmeta_sizes *n, const pmeta_instr *i, uint32_t rounds)
{
    const uint64_t c = i->p.moments.channels, plane = i->p.moments.plane,
                   width = i->p.moments.width, rows = i->p.moments.rows,
                   first = i->p.moments.first, window = i->p.moments.window;
    if (window && (!rows || rows > window || window > 2 * SIDE)) return 0;
    if (!good_tensor(c, plane) || !good_rows(rows, first, rounds)) return 0;
    if (rows ? width < 1 || width > SIDE : first > 0) return 0;
    n->moments.stat = i->flags & PMETA_FLAG_MEANS ? c : 2 * c;
    n->moments.x = c * (rows ? rows * width : plane);
    if (window) n->moments.x += (c - 1) * (window - rows) * width;
    return 1;
}

static int group_stat(pmeta_sizes *n, const pmeta_instr *i)
{
    const uint64_t c = i->p.group_stat.channels, per_group = i->p.group_stat.per_group;
    if (!good_groups(c, per_group) || !good_count(i->p.group_stat.count)) return 0;
    n->group_stat.stat = 2 * c;
    n->group_stat.means = c;
    n->group_stat.rstd = c / per_group;
    return 1;
}

/* (channels, window, width) numbers, of them `rows` rows from row `place` on. */
static int normalise(pmeta_sizes *n, const pmeta_instr *i)
{
    const uint64_t c = i->p.normalise.channels, width = i->p.normalise.width,
                   rows = i->p.normalise.rows, window = i->p.normalise.window;
    if (c < 1 || c > LIMIT || width < 1 || rows < 1 || window > WORDS) return 0;
    if (i->p.normalise.place + rows > window || !good_count(width * window)) return 0;
    n->normalise.xhat = n->normalise.y = c * window * width;
    n->normalise.stat = 2 * c;
    n->normalise.w = n->normalise.bias = c;
    return 1;
}

static int shift(pmeta_sizes *n, const pmeta_instr *i)
{
    const uint64_t c = i->p.shift.channels, width = i->p.shift.width, window = i->p.shift.window;
    if (c < 1 || c > LIMIT || width < 1 || window > WORDS || i->p.shift.keep > window) return 0;
    n->shift.x = c * window * width;
    return good_count(width * window);
}

static int norm_coef(pmeta_sizes *n, const pmeta_instr *i)
{
    const uint64_t c = i->p.norm_coef.channels;
    if (!good_groups(c, i->p.norm_coef.per_group)) return 0;
    if (!good_count(i->p.norm_coef.plane) || !good_count(i->p.norm_coef.pooled)) return 0;
    n->norm_coef.coef = 4 * c;
    n->norm_coef.stat = 2 * c;
    n->norm_coef.means = n->norm_coef.w = n->norm_coef.mean = n->norm_coef.products = c;
    return 1;
}

static int norm_pool_bw(pmeta_sizes *n, const pmeta_instr *i, const pmeta_geom *g)
{
    const uint64_t c = i->p.norm_pool_bw.channels, stride = i->p.norm_pool_bw.stride;
    if (!good_window(g, c) || taps(g) > 256 || stride > LIMIT) return 0;
    n->norm_pool_bw.x = c * plane_in(g);
    n->norm_pool_bw.gy = c * plane_out(g);
    n->norm_pool_bw.index = index_bytes(g, c);
    n->norm_pool_bw.coef = c + 3 * stride;
    return 1;
}

static int norm_acc(pmeta_sizes *n, const pmeta_instr *i)
{
    const uint64_t c = i->p.norm_acc.channels;
    for (int s = 0; s < PMETA_SLOTS; s++) n->slot[s] = c;
    return c <= LIMIT && i->p.norm_acc.plane <= WORDS;
}

static int good_fc(uint64_t outputs, uint64_t inputs, uint64_t rows)
{
    return outputs >= 1 && outputs <= WIDE && inputs >= 1 && inputs <= WIDE && rows >= 1 &&
           rows <= LIMIT;
}

static int fc(pmeta_sizes *n, const pmeta_instr *i)
{
    const uint64_t outputs = i->p.fc.outputs, inputs = i->p.fc.inputs, rows = i->p.fc.rows;
    n->fc.y = rows * outputs;
    n->fc.x = rows * inputs;
    n->fc.w = weight_size(i, outputs * inputs);
    n->fc.scale = scale_words(i, outputs);
    n->fc.bias = outputs;
    return good_fc(outputs, inputs, rows);
}

static int fc_bw_w(pmeta_sizes *n, const pmeta_instr *i)
{
    const uint64_t outputs = i->p.fc_bw_w.outputs, inputs = i->p.fc_bw_w.inputs,
                   rows = i->p.fc_bw_w.rows, stored = i->p.fc_bw_w.stored;
    if (stored > inputs || (stored && i->at.fc_bw_w.gamma_fw == PMETA_NONE)) return 0;
    n->fc_bw_w.acc = outputs * inputs;
    n->fc_bw_w.gy = rows * outputs;
    n->fc_bw_w.x = rows * (stored ? stored : inputs);
    n->fc_bw_w.gamma_fw = inputs;
    n->fc_bw_w.gamma_bw = outputs;
    return good_fc(outputs, inputs, rows);
}

static int fc_bw_x(pmeta_sizes *n, const pmeta_instr *i)
{
    const uint64_t outputs = i->p.fc_bw_x.outputs, inputs = i->p.fc_bw_x.inputs,
                   rows = i->p.fc_bw_x.rows;
    n->fc_bw_x.gx = rows * inputs;
    n->fc_bw_x.gy = rows * outputs;
    n->fc_bw_x.w = weight_size(i, outputs * inputs);
    n->fc_bw_x.scale = scale_words(i, outputs);
    return good_fc(outputs, inputs, rows);
}

static int bias_bw(pmeta_sizes *n, const pmeta_instr *i)
{
    const uint64_t c = i->p.bias_bw.channels, plane = i->p.bias_bw.plane;
    n->bias_bw.acc = n->bias_bw.gamma_bw = c;
    n->bias_bw.gy = c * plane;
    return c >= 1 && c <= WIDE && good_count(plane);
}

/* The (groups, depth, filters) words of a weight; 0 where they are none or too many to be one. */
static uint64_t weight_words(uint64_t groups, uint64_t rows, uint64_t columns)
{
    return groups > LIMIT || rows * columns > 1u << 30
               ? 0
               : groups * rows * columns; /* both are below 2^32 */
}

static int update(pmeta_sizes *n, const pmeta_model *m, const pmeta_instr *i)
{
    n->update.w = n->update.acc =
        weight_words(i->p.update.groups, i->p.update.depth, i->p.update.filters);
    return n->update.w > 0 && i->p.update.layer < pmeta_head(m)->layers;
}

static int prototypes(pmeta_sizes *n, const pmeta_instr *i, uint32_t rounds)
{
    const uint64_t outputs = i->p.prototypes.outputs, inputs = i->p.prototypes.inputs;
    if (rounds > 1 || outputs < 1 || outputs > WIDE || inputs < 1 || inputs > WIDE) return 0;
    n->prototypes.w = n->prototypes.acc = outputs * inputs;
    n->prototypes.bias = n->prototypes.count = outputs;
    return 1;
}

static int merge(pmeta_sizes *n, const pmeta_instr *i)
{
    const uint64_t groups = i->p.merge.groups, rows = i->p.merge.depth,
                   columns = i->p.merge.filters, each = i->p.merge.taps;
    n->merge.acc = n->merge.part = weight_words(groups, rows, columns);
    if (n->merge.acc == 0 || each < 1 || rows % each) return 0;
    n->merge.row = groups * (rows / each);
    n->merge.column = groups * columns;
    return 1;
}

static int good_threshold(float threshold) { return threshold >= 0.0f && threshold < 1.0f; }

/* Two matrices and two biases; bytes have a scale for each row. */
static uint64_t module_words(const pmeta_instr *i, uint64_t c)
{
    if (i->flags & PMETA_FLAG_HALF) return 2 * c + c * c;
    return i->flags & PMETA_FLAG_BYTE ? 4 * c + (2 * c * c + 3) / 4 : 2 * c + 2 * c * c;
}

/* score and score_sum, which only call their output by another name */
static int score(pmeta_sizes *n, const pmeta_instr *i)
{
    const uint64_t c = i->p.score.channels, plane = i->p.score.plane;
    n->score.gamma = c;
    n->score.x = c * plane;
    n->score.module = module_words(i, c);
    n->score.scratch = 3 * c;
    return good_tensor(c, plane) && good_threshold(i->p.score.threshold);
}

static int score_mean(pmeta_sizes *n, const pmeta_instr *i)
{
    n->score_mean.gamma = n->score_mean.sum = n->score_mean.order = i->p.score_mean.channels;
    return good_tensor(i->p.score_mean.channels, i->p.score_mean.plane) &&
           good_threshold(i->p.score_mean.threshold);
}

static int compact(pmeta_sizes *n, const pmeta_instr *i)
{
    const uint64_t c = i->p.compact.channels, plane = i->p.compact.plane;
    n->compact.x = c * plane;
    n->compact.gamma = c;
    return good_tensor(c, plane) && i->p.compact.stored >= 1 && i->p.compact.stored <= c;
}

static int act(pmeta_sizes *n, const pmeta_instr *i)
{
    n->act.x = i->p.act.count; /* backward: g */
    n->act.mask = (n->act.x + 7) / 8;
    return good_count(n->act.x) && i->p.act.kind <= PMETA_HARDSIGMOID;
}

static int curve(pmeta_sizes *n, const pmeta_instr *i)
{
    n->curve.x = n->curve.kept = i->p.curve.count; /* backward: g */
    return good_count(n->curve.x) && i->p.curve.kind <= PMETA_HARDSWISH;
}

/* mul and mul_bw, whose gs is s */
static int mul(pmeta_sizes *n, const pmeta_instr *i, int forward)
{
    const uint64_t factors = i->p.mul.factors, all = factors * i->p.mul.each;
    n->mul.y = forward ? all : factors;
    n->mul.x = all;
    n->mul.s = forward ? factors : all;
    return good_count(factors) && good_count(i->p.mul.each) && good_count(all);
}

static int layer_norm(pmeta_sizes *n, const pmeta_instr *i)
{
    const uint64_t c = i->p.layer_norm.channels, rows = i->p.layer_norm.rows;
    n->layer_norm.xhat = n->layer_norm.y = c * rows;
    n->layer_norm.w = n->layer_norm.bias = c;
    n->layer_norm.rstd = rows;
    return good_tensor(c, rows) && rows <= LIMIT;
}

static int layer_norm_bw(pmeta_sizes *n, const pmeta_instr *i)
{
    const uint64_t c = i->p.layer_norm_bw.channels, rows = i->p.layer_norm_bw.rows;
    n->layer_norm_bw.xhat = n->layer_norm_bw.gy = c * rows;
    n->layer_norm_bw.w = n->layer_norm_bw.mean = n->layer_norm_bw.products = c;
    n->layer_norm_bw.rstd = rows;
    if (!(i->flags & PMETA_FLAG_NO_DX) && i->at.layer_norm_bw.rstd == PMETA_NONE) return 0;
    return good_tensor(c, rows) && rows <= LIMIT;
}

static int same_size(pmeta_sizes *n, uint64_t count)
{
    n->add.y = n->add.x = count;
    return good_count(count);
}

static const pmeta_geom *geometry(const pmeta_model *m, uint32_t number, int tap)
{
    return number < pmeta_head(m)->geoms && good_geom(pmeta_geoms(m) + number, tap)
               ? pmeta_geoms(m) + number
               : NULL;
}

static int words(pmeta_sizes *n, const pmeta_model *m, const pmeta_instr *i, uint32_t rounds)
{
    const pmeta_parameters *p = &i->p;
    switch (i->op) {
    case PMETA_OP_CONV: return conv(n, i, geometry(m, p->conv.geom, TAP), rounds);
    case PMETA_OP_CONV_BW_W: return conv_bw_w(n, i, geometry(m, p->conv_bw_w.geom, TAP), rounds);
    case PMETA_OP_CONV_BW_X: return conv_bw_x(n, i, geometry(m, p->conv_bw_x.geom, TAP), rounds);
    case PMETA_OP_MAXPOOL:
        return maxpool(n, i, geometry(m, p->maxpool.geom, SIDE), rounds);
    case PMETA_OP_MAXPOOL_BW:
        return maxpool_bw(n, geometry(m, p->maxpool_bw.geom, SIDE), p->maxpool_bw.channels);
    case PMETA_OP_AVGPOOL:
        return avgpool(n, geometry(m, p->avgpool.geom, SIDE), p->avgpool.channels, 1);
    case PMETA_OP_AVGPOOL_BW:
        return avgpool(n, geometry(m, p->avgpool_bw.geom, SIDE), p->avgpool_bw.channels, 0);
    case PMETA_OP_MOMENTS: return moments(n, i, rounds);
    case PMETA_OP_GROUP_STAT: return group_stat(n, i);
    case PMETA_OP_NORMALISE: return normalise(n, i);
    case PMETA_OP_SHIFT: return shift(n, i);
    case PMETA_OP_NORM_COEF: return norm_coef(n, i);
    case PMETA_OP_NORM_POOL_BW:
        return norm_pool_bw(n, i, geometry(m, p->norm_pool_bw.geom, SIDE));
    case PMETA_OP_NORM: return norm(n, i);
    case PMETA_OP_NORM_BW: return norm_bw(n, i);
    case PMETA_OP_NORM_ACC: return norm_acc(n, i);
    case PMETA_OP_FC: return fc(n, i);
    case PMETA_OP_FC_BW_W: return fc_bw_w(n, i);
    case PMETA_OP_FC_BW_X: return fc_bw_x(n, i);
    case PMETA_OP_BIAS_BW: return bias_bw(n, i);
    case PMETA_OP_SCORE:
    case PMETA_OP_SCORE_SUM: return score(n, i);
    case PMETA_OP_SCORE_MEAN: return score_mean(n, i);
    case PMETA_OP_COMPACT: return compact(n, i);
    case PMETA_OP_UPDATE: return update(n, m, i);
    case PMETA_OP_PROTOTYPES: return prototypes(n, i, rounds);
    case PMETA_OP_MERGE: return merge(n, i);
    case PMETA_OP_ACT:
    case PMETA_OP_ACT_BW: return act(n, i);
    case PMETA_OP_CURVE:
    case PMETA_OP_CURVE_BW: return curve(n, i);
    case PMETA_OP_MUL: return mul(n, i, 1);
    case PMETA_OP_MUL_BW: return mul(n, i, 0);
    case PMETA_OP_LAYER_NORM: return layer_norm(n, i);
    case PMETA_OP_LAYER_NORM_BW: return layer_norm_bw(n, i);
    case PMETA_OP_ADD: return same_size(n, p->add.count);
    case PMETA_OP_COPY: return same_size(n, p->copy.count);
    default: return 0;
    }
}

/* The bit of the operand that is bytes without alignment once weights are packed. */
static uint8_t weights_slot(uint32_t op)
{
    switch (op) {
    case PMETA_OP_CONV:
    case PMETA_OP_FC:
    case PMETA_OP_CONV_BW_X:
    case PMETA_OP_FC_BW_X: return 1u << 2;
    default: return 0;
    }
}

int pmeta_describe(pmeta_operands *o, const pmeta_model *m, const pmeta_instr *i, uint32_t rounds)
{
    static const pmeta_marks marks[] = {PMETA_MARKS};
    memset(o, 0, sizeof *o);
    if (!words(&o->bytes, m, i, rounds)) return 0;
    o->marks = marks[i->op];
    if ((i->flags & PMETA_PACKED) == PMETA_PACKED) return 0;
    if (i->flags & PMETA_PACKED) o->marks.packed |= weights_slot(i->op);
    for (int s = 0; s < PMETA_SLOTS; s++)
        if (!(o->marks.packed >> s & 1)) o->bytes.slot[s] *= sizeof(float);
    return 1;
}
