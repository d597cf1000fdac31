/* What every instruction reads and writes, from its parameters alone. Opening a file checks it; running adds up the high water. */
#include "format.h"
#include <string.h>

#define LIMIT 65535u /* channels, rounds, strips */
#define SIDE 32767   /* image sides */
#define TAP 255      /* kernel sides, strides, paddings, dilations of a convolution; pooling windows may be as large as an image */

float pmeta_float(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static int between(int32_t v, int32_t lo, int32_t hi) { return v >= lo && v <= hi; }

static int output_side(int in, int k, int s, int p, int d) { return (in + 2 * p - d * (k - 1) - 1) / s + 1; }

static int good_geom(const pmeta_geom *g, int tap)
{
    if (!between(g->c_in, 1, LIMIT) || !between(g->c_out, 1, LIMIT) || !between(g->h, 1, SIDE) || !between(g->w, 1, SIDE)) return 0;
    if (!between(g->kh, 1, tap) || !between(g->kw, 1, tap) || !between(g->sh, 1, tap) || !between(g->sw, 1, tap)) return 0;
    if (!between(g->ph, 0, tap) || !between(g->pw, 0, tap) || !between(g->dh, 1, TAP) || !between(g->dw, 1, TAP)) return 0;
    if (!between(g->groups, 1, LIMIT) || g->c_in % g->groups || g->c_out % g->groups) return 0;
    if (!between(g->ho, 1, SIDE) || !between(g->wo, 1, SIDE)) return 0;
    if (g->h + 2 * g->ph < g->dh * (g->kh - 1) + 1 || g->w + 2 * g->pw < g->dw * (g->kw - 1) + 1) return 0;
    return g->ho == output_side(g->h, g->kh, g->sh, g->ph, g->dh) && g->wo == output_side(g->w, g->kw, g->sw, g->pw, g->dw);
}

static void slots(pmeta_operands *o, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f)
{
    const uint64_t words[PMETA_SLOTS] = {a, b, c, d, e, f};
    for (int s = 0; s < PMETA_SLOTS; s++) o->bytes[s] = words[s] * 4;
}

#define SLOT(s) (1u << (s))

static int describe_conv(pmeta_operands *o, const pmeta_instr *i, const pmeta_geom *g, uint32_t rounds)
{
    const uint64_t x = (uint64_t)g->c_in * g->h * g->w, y = (uint64_t)g->c_out * g->ho * g->wo, strip = i->p[2];
    const uint64_t taps = (uint64_t)g->kh * g->kw, c = g->c_in / g->groups, f = g->c_out / g->groups, w = c * g->c_out * taps;
    if (strip < PMETA_LANES || strip > LIMIT || strip % PMETA_LANES) return 0;
    o->writes = SLOT(0);
    if (i->op == PMETA_OP_CONV) {
        const uint64_t part = i->p[1];
        if (part < 1 || part * rounds > (uint64_t)g->c_out) return 0;
        slots(o, part * g->ho * g->wo, x, part * c * taps, part, c * taps * strip, 0);
        o->writes |= SLOT(4);
        o->optional = SLOT(3);
        o->input = SLOT(1);
    } else if (i->op == PMETA_OP_CONV_BW_W) {
        const uint64_t cap = i->p[1], lanes = (f + PMETA_LANES - 1) / PMETA_LANES * PMETA_LANES;
        if (rounds > 1 || cap > (uint64_t)g->c_in || (cap && i->at[3] == PMETA_NONE)) return 0;
        if (cap && PMETA_SPACE(i->at[2]) == PMETA_INPUT) return 0;
        slots(o, w, y, (cap ? cap : (uint64_t)g->c_in) * g->h * g->w, g->c_in, g->c_out, (c * taps + lanes) * strip);
        o->writes |= SLOT(5);
        o->optional = SLOT(3) | SLOT(4);
        o->input = SLOT(2);
    } else {
        slots(o, x, y, w, f * taps * (strip + 4), 0, 0);
        o->writes |= SLOT(3);
        return rounds == 1;
    }
    return 1;
}

static int describe_pool(pmeta_operands *o, const pmeta_instr *i, const pmeta_geom *g)
{
    const uint64_t c = i->p[1], x = c * g->h * g->w, y = c * g->ho * g->wo;
    const int forward = i->op == PMETA_OP_MAXPOOL || i->op == PMETA_OP_AVGPOOL, max = i->op == PMETA_OP_MAXPOOL || i->op == PMETA_OP_MAXPOOL_BW;
    if (c < 1 || c > LIMIT || (max && g->kh * g->kw > 256)) return 0;
    if (!max && (g->dh != 1 || g->dw != 1)) return 0;
    if (g->ph * 2 > g->kh || g->pw * 2 > g->kw) return 0; /* so that every window holds a pixel */
    slots(o, forward ? y : x, forward ? x : y, 0, 0, 0, 0);
    o->writes = SLOT(0) | (forward ? SLOT(2) : 0);
    if (max) {
        o->bytes[2] = g->kh * g->kw <= 4 ? (y + 3) / 4 : y;
        o->packed = SLOT(2);
        o->optional = forward ? SLOT(2) : 0;
    }
    return 1;
}

static int describe_norm(pmeta_operands *o, const pmeta_instr *i)
{
    const uint64_t c = i->p[0], n = i->p[1], per_group = i->p[2];
    if (i->op == PMETA_OP_NORM_ACC) {
        if (c > LIMIT || n > 0x3FFFFFFF) return 0;
        slots(o, c, c, c, c, c, c);
        o->writes = SLOT(0) | SLOT(1);
        o->optional = SLOT(4) | SLOT(5);
        return 1;
    }
    if (c < 1 || c > LIMIT || n < 1 || n > 0x3FFFFFFF || per_group < 1 || c % per_group) return 0;
    if (i->op == PMETA_OP_NORM) {
        slots(o, c * n, c * n, c, c, c / per_group, 0);
        o->writes = SLOT(0) | SLOT(1) | SLOT(4);
        o->optional = SLOT(2) | SLOT(3) | SLOT(4);
    } else {
        slots(o, c * n, c * n, c, c / per_group, c, c);
        o->writes = SLOT(0) | SLOT(4) | SLOT(5);
        o->optional = SLOT(2) | SLOT(4) | SLOT(5);
    }
    return 1;
}

static int describe_fc(pmeta_operands *o, const pmeta_instr *i)
{
    const uint64_t f = i->p[0], c = i->p[1], t = i->p[2];
    if (f < 1 || f > 0xFFFFFF || c < 1 || c > 0xFFFFFF || t < 1 || t > LIMIT) return 0;
    o->writes = SLOT(0);
    if (i->op == PMETA_OP_FC) {
        slots(o, t * f, t * c, f * c, f, 0, 0);
        o->optional = SLOT(3);
    } else if (i->op == PMETA_OP_FC_BW_W) {
        const uint64_t cap = i->p[3];
        if (cap > c || (cap && i->at[3] == PMETA_NONE)) return 0;
        slots(o, f * c, t * f, t * (cap ? cap : c), c, f, 0);
        o->optional = SLOT(3) | SLOT(4);
    } else {
        slots(o, t * c, t * f, f * c, 0, 0, 0);
    }
    return 1;
}

/* The (groups, depth, filters) words of a weight; 0 where they are none or too many to be one. */
static uint64_t weight_words(uint64_t groups, uint64_t depth, uint64_t filters)
{
    return groups > LIMIT || depth * filters > 1u << 30 ? 0 : groups * depth * filters; /* depth and filters are below 2^32 */
}

static int describe_accumulated(pmeta_operands *o, const pmeta_model *m, const pmeta_instr *i)
{
    o->writes = SLOT(0);
    if (i->op == PMETA_OP_UPDATE) {
        const uint64_t words = weight_words(i->p[1], i->p[2], i->p[3]);
        slots(o, words, words, 0, 0, 0, 0);
        return words > 0 && i->p[0] < pmeta_head(m)->layers;
    }
    const uint64_t groups = i->p[0], depth = i->p[1], filters = i->p[2], taps = i->p[3];
    const uint64_t words = weight_words(groups, depth, filters);
    if (words == 0 || taps < 1 || depth % taps) return 0;
    slots(o, words, words, groups * (depth / taps), groups * filters, 0, 0);
    o->writes |= SLOT(1);
    o->optional = SLOT(2) | SLOT(3);
    return 1;
}

static int describe_attention(pmeta_operands *o, const pmeta_instr *i)
{
    const uint64_t c = i->p[0], n = i->p[1];
    const float threshold = pmeta_float(i->p[2]);
    if (c < 1 || c > LIMIT || n < 1 || n > 0x3FFFFFFF) return 0;
    if (i->op == PMETA_OP_SCORE || i->op == PMETA_OP_SCORE_SUM) {
        if (!(threshold >= 0.0f && threshold < 1.0f)) return 0;
        slots(o, c, c * n, 2 * c * c + 2 * c, 3 * c, 0, 0);
        o->writes = SLOT(0) | SLOT(3);
        o->input = SLOT(1);
        return 1;
    }
    if (i->op == PMETA_OP_SCORE_MEAN) {
        slots(o, c, c, c, 0, 0, 0);
        o->writes = SLOT(0) | SLOT(1) | SLOT(2);
        return threshold >= 0.0f && threshold < 1.0f;
    }
    if (i->p[2] < 1 || i->p[2] > c) return 0;
    slots(o, c * n, c, 0, 0, 0, 0); /* compact */
    o->writes = SLOT(0);
    return 1;
}

static int describe_plain(pmeta_operands *o, const pmeta_instr *i)
{
    const uint64_t n = i->p[0];
    if (n < 1 || n > 0x3FFFFFFF) return 0;
    o->writes = SLOT(0);
    switch (i->op) {
    case PMETA_OP_BIAS_BW:
        if (n > 0xFFFFFF || i->p[1] < 1 || i->p[1] > 0x3FFFFFFF) return 0;
        slots(o, n, n * i->p[1], n, 0, 0, 0);
        o->optional = SLOT(2);
        return 1;
    case PMETA_OP_ACT:
    case PMETA_OP_ACT_BW:
        if (i->p[1] > PMETA_RELU6) return 0;
        slots(o, n, 0, 0, 0, 0, 0);
        o->bytes[1] = (n + 7) / 8;
        o->packed = SLOT(1);
        if (i->op == PMETA_OP_ACT) {
            o->writes |= SLOT(1);
            o->optional = SLOT(1);
        }
        return 1;
    default: /* add, copy */
        slots(o, n, n, 0, 0, 0, 0);
        o->input = i->op == PMETA_OP_COPY ? SLOT(1) : 0;
        return 1;
    }
}

int pmeta_describe(pmeta_operands *o, const pmeta_model *m, const pmeta_instr *i, uint32_t rounds)
{
    const pmeta_geom *g = pmeta_geoms(m) + (i->p[0] < pmeta_head(m)->geoms ? i->p[0] : 0);
    memset(o, 0, sizeof *o);
    switch (i->op) {
    case PMETA_OP_CONV:
    case PMETA_OP_CONV_BW_W:
    case PMETA_OP_CONV_BW_X:
        return i->p[0] < pmeta_head(m)->geoms && good_geom(g, TAP) && describe_conv(o, i, g, rounds);
    case PMETA_OP_MAXPOOL:
    case PMETA_OP_MAXPOOL_BW:
    case PMETA_OP_AVGPOOL:
    case PMETA_OP_AVGPOOL_BW:
        return i->p[0] < pmeta_head(m)->geoms && good_geom(g, SIDE) && describe_pool(o, i, g);
    case PMETA_OP_NORM:
    case PMETA_OP_NORM_BW:
    case PMETA_OP_NORM_ACC:
        return describe_norm(o, i);
    case PMETA_OP_FC:
    case PMETA_OP_FC_BW_W:
    case PMETA_OP_FC_BW_X:
        return describe_fc(o, i);
    case PMETA_OP_SCORE:
    case PMETA_OP_SCORE_SUM:
    case PMETA_OP_SCORE_MEAN:
    case PMETA_OP_COMPACT:
        return describe_attention(o, i);
    case PMETA_OP_UPDATE:
    case PMETA_OP_MERGE:
        return describe_accumulated(o, m, i);
    case PMETA_OP_BIAS_BW:
    case PMETA_OP_ACT:
    case PMETA_OP_ACT_BW:
    case PMETA_OP_ADD:
    case PMETA_OP_COPY:
        return describe_plain(o, i);
    default:
        return 0;
    }
}
