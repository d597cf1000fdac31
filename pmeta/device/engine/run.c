/* Running a model: start, infer, feed, step; and the interpreter of its instructions. */
#include "format.h"
#include <string.h>

enum { OPENED = 1, STARTED = 2, FEEDING = 3, HALFWAY = 4 };

static void *address(const pmeta_model *m, const pmeta_instr *i, int slot, uint32_t round)
{
    if (i->at[slot] == PMETA_NONE) return NULL;
    const size_t offset = PMETA_OFFSET(i->at[slot]) + (size_t)round * i->step[slot];
    /* Only arena addresses are ever written: pmeta_open has seen to it. */
    const unsigned char *base = PMETA_SPACE(i->at[slot]) == PMETA_ARENA ? m->arena : PMETA_SPACE(i->at[slot]) == PMETA_FILE ? m->file : m->x;
    return (void *)(uintptr_t)(base + offset);
}

/* The operand that may be the sample itself, with the scores of its channels. */
static pmeta_source source(const pmeta_model *m, const pmeta_instr *i, int slot, uint32_t round, const float *gamma, uint32_t cap)
{
    const pmeta_header *h = pmeta_head(m);
    const float *scale = (const float *)(const void *)(m->file + h->at_scale);
    const int u8 = PMETA_SPACE(i->at[slot]) == PMETA_INPUT && h->input_type == PMETA_UINT8;
    const pmeta_source s = {address(m, i, slot, round), u8 ? scale : NULL, u8 ? scale + h->input_channels : NULL, gamma, u8, cap > 0, (int)cap};
    return s;
}

static void copy(float *y, const pmeta_model *m, const pmeta_instr *i, uint32_t round)
{
    const pmeta_source s = source(m, i, 1, round, NULL, 0);
    if (!s.u8) {
        memmove(y, s.data, (size_t)i->p[0] * sizeof(float));
        return;
    }
    const size_t start = PMETA_OFFSET(i->at[1]) + (size_t)round * i->step[1];
    const unsigned char *x = s.data;
    for (size_t j = 0; j < i->p[0]; j++) {
        const size_t c = (start + j) / i->p[1];
        y[j] = (float)x[j] * s.scale[c] + s.shift[c];
    }
}

/* Eq. 14: w <- w - alpha_l^k acc, where acc is (groups, depth, filters) and w is (groups, filters, depth). */
static void update(float *w, const float *acc, float alpha, uint32_t groups, uint32_t depth, uint32_t filters)
{
    for (size_t g = 0; g < groups; g++, w += (size_t)filters * depth, acc += (size_t)filters * depth)
        for (size_t f = 0; f < filters; f++)
            for (size_t k = 0; k < depth; k++) w[f * depth + k] -= alpha * acc[k * filters + f];
}

static float step_size(const pmeta_model *m, uint32_t layer)
{
    const pmeta_header *h = pmeta_head(m);
    return ((const float *)(const void *)(m->file + h->at_alpha))[(size_t)m->step * h->layers + layer];
}

static void reach(pmeta_model *m, const pmeta_instr *i, uint32_t round)
{
    pmeta_operands o;
    pmeta_describe(&o, m, i, 1);
    for (int s = 0; s < PMETA_SLOTS; s++) {
        if (!o.bytes[s] || PMETA_SPACE(i->at[s]) != PMETA_ARENA) continue;
        const size_t end = PMETA_OFFSET(i->at[s]) + (size_t)round * i->step[s] + (size_t)o.bytes[s];
        if (end > m->high_water) m->high_water = end;
    }
}

#define AT(slot) address(m, i, slot, round)

static void execute(pmeta_model *m, const pmeta_instr *i, uint32_t round)
{
    const uint32_t *p = i->p;
    const pmeta_geom *g = pmeta_geoms(m) + (p[0] < pmeta_head(m)->geoms ? p[0] : 0);
    const int a = (int)p[0], b = (int)p[1], c = (int)p[2], d = (int)p[3];
    pmeta_source x;
    reach(m, i, round);
    switch (i->op) {
    case PMETA_OP_CONV:
        x = source(m, i, 1, round, NULL, 0);
        pmeta_conv(AT(0), &x, AT(2), AT(3), AT(4), g, (int)round * b, b, c);
        break;
    case PMETA_OP_CONV_BW_W:
        x = source(m, i, 2, round, AT(3), p[1]);
        pmeta_conv_bw_w(AT(0), AT(1), &x, AT(4), AT(5), g, c);
        break;
    case PMETA_OP_CONV_BW_X: pmeta_conv_bw_x(AT(0), AT(1), AT(2), AT(3), g, c, i->flags & PMETA_FLAG_ADD); break;
    case PMETA_OP_BIAS_BW: pmeta_bias_bw(AT(0), AT(1), AT(2), a, b, i->flags & PMETA_FLAG_ROWS); break;
    case PMETA_OP_NORM: pmeta_norm(AT(0), AT(1), AT(2), AT(3), AT(4), a, b, c, pmeta_float(p[3])); break;
    case PMETA_OP_NORM_BW: pmeta_norm_bw(AT(0), AT(1), AT(2), AT(3), AT(4), AT(5), a, b, c, !(i->flags & PMETA_FLAG_NO_DX)); break;
    case PMETA_OP_NORM_ACC: pmeta_norm_acc(AT(0), AT(1), AT(2), AT(3), AT(4), AT(5), a, b); break;
    case PMETA_OP_ACT: pmeta_act(AT(0), AT(1), p[0], b, pmeta_float(p[2])); break;
    case PMETA_OP_ACT_BW: pmeta_act_bw(AT(0), AT(1), p[0], b, pmeta_float(p[2])); break;
    case PMETA_OP_MAXPOOL: pmeta_maxpool(AT(0), AT(1), AT(2), g, b); break;
    case PMETA_OP_MAXPOOL_BW: pmeta_maxpool_bw(AT(0), AT(1), AT(2), g, b); break;
    case PMETA_OP_AVGPOOL: pmeta_avgpool(AT(0), AT(1), g, b, i->flags & PMETA_FLAG_COUNT_PAD); break;
    case PMETA_OP_AVGPOOL_BW: pmeta_avgpool_bw(AT(0), AT(1), g, b, i->flags & PMETA_FLAG_COUNT_PAD); break;
    case PMETA_OP_ADD: pmeta_add(AT(0), AT(1), p[0]); break;
    case PMETA_OP_COPY: copy(AT(0), m, i, round); break;
    case PMETA_OP_FC: pmeta_fc(AT(0), AT(1), AT(2), AT(3), a, b, c); break;
    case PMETA_OP_FC_BW_W: pmeta_fc_bw_w(AT(0), AT(1), AT(2), AT(3), AT(4), a, b, c, d); break;
    case PMETA_OP_FC_BW_X: pmeta_fc_bw_x(AT(0), AT(1), AT(2), a, b, c, i->flags & PMETA_FLAG_ADD); break;
    case PMETA_OP_SCORE:
        x = source(m, i, 1, round, NULL, 0);
        pmeta_score(AT(0), &x, AT(2), AT(3), a, b, i->flags & PMETA_FLAG_ROWS, pmeta_float(p[2]), i->flags & PMETA_FLAG_BACKWARD);
        break;
    case PMETA_OP_COMPACT: pmeta_compact(AT(0), AT(1), a, b, c, i->flags & PMETA_FLAG_ROWS); break;
    case PMETA_OP_SCORE_SUM:
        x = source(m, i, 1, round, NULL, 0);
        pmeta_score_sum(AT(0), &x, AT(2), AT(3), a, b, i->flags & PMETA_FLAG_ROWS, i->flags & PMETA_FLAG_BACKWARD);
        break;
    case PMETA_OP_SCORE_MEAN: pmeta_score_mean(AT(0), AT(1), AT(2), a, pmeta_float(p[2]), m->in_batch); break;
    case PMETA_OP_MERGE: pmeta_merge(AT(0), AT(1), AT(2), AT(3), p[0], p[1], p[2], p[3]); break;
    default: update(AT(0), AT(1), step_size(m, p[0]), p[1], p[2], p[3]); break;
    }
}

static void run(pmeta_model *m, uint32_t first, uint32_t count)
{
    const pmeta_instr *all = pmeta_instrs(m);
    for (uint32_t i = first; i < first + count; i++) {
        uint32_t rounds = 1, body = 1;
        if (all[i].op == PMETA_OP_LOOP) {
            rounds = all[i].p[0];
            body = all[i].p[1];
            i++;
        }
        for (uint32_t r = 0; r < rounds; r++)
            for (uint32_t j = i; j < i + body; j++) execute(m, &all[j], r);
        i += body - 1;
    }
}

static const pmeta_program *current(const pmeta_model *m)
{
    return pmeta_programs(m) + ((const uint32_t *)(const void *)(m->file + pmeta_head(m)->at_steps))[m->step];
}

pmeta_status pmeta_start(pmeta_model *m, void *arena, size_t arena_bytes)
{
    if (!m || !arena) return PMETA_ARGUMENT;
    if (m->phase < OPENED) return PMETA_ORDER;
    if ((uintptr_t)arena % 4) return PMETA_ALIGNMENT;
    if (arena_bytes < m->infer_bytes) return PMETA_ARENA_TOO_SMALL;
    m->arena = arena;
    m->arena_given = arena_bytes;
    m->high_water = m->state_bytes;
    m->phase = STARTED;
    return pmeta_reset(m);
}

pmeta_status pmeta_reset(pmeta_model *m)
{
    if (!m) return PMETA_ARGUMENT;
    if (m->phase < STARTED) return PMETA_ORDER;
    const pmeta_copy *c = (const pmeta_copy *)(const void *)(m->file + pmeta_head(m)->at_copies);
    for (uint32_t i = 0; i < pmeta_head(m)->copies; i++) memcpy(m->arena + c[i].arena_offset, m->file + c[i].file_offset, c[i].bytes);
    m->phase = STARTED;
    return PMETA_OK;
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
    memcpy(m->arena, state, bytes);
    m->phase = STARTED;
    return PMETA_OK;
}

static int aligned(const pmeta_model *m, const void *x) { return m->input_type == PMETA_UINT8 || (uintptr_t)x % 4 == 0; }

/* Between the samples of a step the accumulators hold their sum, and inference would run over them. */
pmeta_status pmeta_infer(pmeta_model *m, const void *x, float *output)
{
    if (!m || !x || !output) return PMETA_ARGUMENT;
    if (m->phase < STARTED || m->phase == HALFWAY || (m->phase == FEEDING && m->fed > 0)) return PMETA_ORDER;
    if (!aligned(m, x)) return PMETA_ALIGNMENT;
    m->x = x;
    run(m, pmeta_programs(m)->first, pmeta_programs(m)->forward);
    memcpy(output, m->arena + pmeta_programs(m)->output, (size_t)m->outputs * sizeof(float));
    return PMETA_OK;
}

pmeta_status pmeta_classes(pmeta_model *m, uint32_t n)
{
    if (!m || n < 1) return PMETA_ARGUMENT;
    if (m->phase < OPENED || m->phase == HALFWAY || (m->phase == FEEDING && m->step < m->steps)) return PMETA_ORDER;
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
    if (!aligned(m, x)) return PMETA_ALIGNMENT;
    const pmeta_program *p = current(m);
    if (m->fed == 0) memset(m->arena + p->acc, 0, p->acc_bytes);
    if (m->fed == 0 && p->acc + (size_t)p->acc_bytes > m->high_water) m->high_water = p->acc + (size_t)p->acc_bytes;
    m->x = x;
    run(m, p->first, p->forward);
    if (output) memcpy(output, m->arena + p->output, (size_t)m->outputs * sizeof(float));
    m->phase = HALFWAY;
    return PMETA_OK;
}

/* The second half of a sample; the last of a micro-batch gives them all their scores (Sec. 3.5.1). */
static void finish(pmeta_model *m, const pmeta_program *p)
{
    run(m, p->first + p->forward, p->backward);
    m->fed++;
    m->in_batch++;
    m->phase = FEEDING;
    if (m->in_batch != m->batch && m->fed != m->support) return;
    run(m, p->first + p->forward + p->backward + p->update, p->merge);
    m->in_batch = 0;
}

pmeta_status pmeta_backward(pmeta_model *m, const float *g_output)
{
    if (!m || !g_output) return PMETA_ARGUMENT;
    if (m->phase != HALFWAY) return PMETA_ORDER;
    const pmeta_program *p = current(m);
    if (p->backward) memcpy(m->arena + p->g_output, g_output, (size_t)m->outputs * sizeof(float));
    finish(m, p);
    return PMETA_OK;
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
    const float value = pmeta_cross_entropy(g, z, (int)m->classes, (int)label, 1.0f / (float)m->support);
    for (uint32_t i = m->classes; i < m->outputs; i++) g[i] = 0.0f;
    if (loss) *loss = value;
    finish(m, p);
    return PMETA_OK;
}

pmeta_status pmeta_step(pmeta_model *m)
{
    if (!m) return PMETA_ARGUMENT;
    if (m->phase != FEEDING || m->step >= m->steps || m->fed != m->support) return PMETA_ORDER;
    const pmeta_program *p = current(m);
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
    case PMETA_VERSION: return "the file has another format version than this engine: export it again with the same release";
    case PMETA_TRUNCATED: return "the file ends before the length in its header: copy it again";
    case PMETA_CHECKSUM: return "the checksum does not fit: the file was changed or damaged, copy it again";
    case PMETA_CORRUPT: return "the file holds an offset, a size or an instruction that does not fit: export it again";
    case PMETA_ALIGNMENT: return "file, arena and float32 samples must start at addresses that 4 divides";
    case PMETA_ARENA_TOO_SMALL: return "the arena is smaller than the model needs: give it arena_bytes (infer_bytes to infer only)";
    case PMETA_ORDER: return "call out of order: open, start, begin, then in each step feed every support sample and step";
    case PMETA_LABEL: return "labels are 0 to classes - 1, and classes at most as many as outputs; a model with many rows takes pmeta_forward and pmeta_backward";
    case PMETA_ARGUMENT: return "an argument is null, or a size is not the one that the model has";
    }
    return "unknown status";
}
