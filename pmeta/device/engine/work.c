/* How much work an instruction is: a file may not ask for more than the engine's limit. */
#include "format.h"

static uint64_t taps(const pmeta_geom *g) { return (uint64_t)g->kh * g->kw; }
static uint64_t depth(const pmeta_geom *g)
{
    return (uint64_t)(g->c_in / g->groups) * taps(g);
}

/* Of a whole image, so many rows; 0: all. */
static float part_of_rows(const pmeta_geom *g, uint32_t rows)
{
    return rows && rows < (uint32_t)g->ho ? (float)rows / (float)g->ho : 1.0f;
}

/* An upper bound of the multiplications, additions and comparisons of one round, and of the words
 * that it moves. In float, which no product of the numbers of a file overflows. */
float pmeta_work(const pmeta_model *m, const pmeta_instr *i, const pmeta_operands *o)
{
    const pmeta_parameters *p = &i->p;
    const pmeta_geom *g = pmeta_geoms(m);
    float words = 0.0f, each = 0.0f, times = 0.0f;
    for (int s = 0; s < PMETA_SLOTS; s++) words += (float)o->bytes.slot[s] / 4.0f;
    switch (i->op) {
    case PMETA_OP_CONV:
        each = (float)o->bytes.conv.y, times = (float)depth(g + p->conv.geom);
        each *= part_of_rows(g + p->conv.geom, i->flags & PMETA_FLAG_WHOLE ? p->conv.rows : 0);
        each *= i->flags & PMETA_PACKED ? 2.0f : 1.0f;
        break;
    case PMETA_OP_CONV_BW_W:
        each = (float)o->bytes.conv_bw_w.gy, times = (float)depth(g + p->conv_bw_w.geom);
        each *= part_of_rows(g + p->conv_bw_w.geom, p->conv_bw_w.rows);
        break;
    case PMETA_OP_CONV_BW_X: /* every input pixel looks at all taps of all filters of its group */
        each = (float)o->bytes.conv_bw_x.gx;
        g += p->conv_bw_x.geom;
        times = (float)taps(g) * (float)(g->c_out / g->groups);
        break;
    case PMETA_OP_MAXPOOL:
        each = (float)o->bytes.maxpool.y, times = (float)taps(g + p->maxpool.geom);
        break;
    case PMETA_OP_AVGPOOL:
        each = (float)o->bytes.avgpool.y, times = (float)taps(g + p->avgpool.geom);
        break;
    case PMETA_OP_AVGPOOL_BW:
        each = (float)o->bytes.avgpool_bw.gy, times = (float)taps(g + p->avgpool_bw.geom);
        break;
    case PMETA_OP_FC:
        each = (float)o->bytes.fc.y, times = (float)p->fc.inputs;
        break;
    case PMETA_OP_FC_BW_W: each = (float)o->bytes.fc_bw_w.acc, times = (float)p->fc_bw_w.rows; break;
    case PMETA_OP_FC_BW_X:
        each = (float)o->bytes.fc_bw_x.gx, times = (float)p->fc_bw_x.outputs;
        break;
    }
    return words + each / 4.0f * times;
}
