/* Running a model: start, infer, feed, step. */
#include "format.h"
#include <math.h>
#include <string.h>

enum { OPENED = 1, STARTED = 2, FEEDING = 3, HALFWAY = 4 };

/* 0: the caller's function asked to stop. */
static int done(pmeta_model *m, const pmeta_instr *i, uint32_t round)
{
    pmeta_execute(m, i, round);
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
    const pmeta_pointers to = pmeta_reach(m, i, 0);
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
        if (!pmeta_all_finite((const unsigned char *)state + c[i].arena_offset,
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
    return pmeta_all_finite(x, m->input_bytes / sizeof(float)) ? PMETA_OK : PMETA_NOT_FINITE;
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
    return pmeta_all_finite(output, m->outputs) ? PMETA_OK : PMETA_NOT_FINITE;
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
    if (!pmeta_all_finite(m->arena + p->output, m->outputs)) return give_up(m, PMETA_NOT_FINITE);
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
    if (!pmeta_all_finite(g_output, m->outputs)) return PMETA_NOT_FINITE;
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
    if (!pmeta_all_finite(&value, 1)) return give_up(m, PMETA_NOT_FINITE);
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
