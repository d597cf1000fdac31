/* Mutations that know the structure of a file: most results still open, and lie at its limits. */
#ifndef PMETA_MUTATE_H
#define PMETA_MUTATE_H
#include "format.h"

static uint64_t drawn;

static uint32_t draw(uint32_t below)
{
    drawn ^= drawn << 13;
    drawn ^= drawn >> 7;
    drawn ^= drawn << 17;
    return (uint32_t)(drawn >> 16) % below;
}

static const pmeta_marks MARKS[] = {PMETA_MARKS}; /* one for each operation, whatever there is */
#define OPERATIONS ((uint32_t)(sizeof MARKS / sizeof *MARKS))

/* Words that tend to break things. */
static uint32_t nasty(uint32_t old)
{
    static const uint32_t odd[] = {
        0,          1,          2,          3,          4,          15,         16,
        17,         255,        256,        4096,       0x7FFFFFFF, 0x80000000, 0xFFFFFFFF,
        0x3FFFFFFF, 0x40000000, 0x40000080, 0x80000004, 0xFFFFFFFC, 65535,      65536,
        32767,      32768,      0x7F800000, 0x7FC00000, 0xFF800000};
    switch (draw(7)) {
    case 0: return odd[draw(sizeof odd / sizeof *odd)];
    case 1: return old + 1 + draw(16);
    case 2: return old - 1 - draw(16);
    case 3: return old ^ 1u << draw(32);
    case 4: return old * (2 + draw(3));
    case 5: return draw(9);
    default: return draw(0xFFFFFFFF);
    }
}

/* The tables of a copy that is being changed; the model itself has opened, so they are inside. */
typedef struct {
    pmeta_model m; /* of the copy, as if it had opened */
    pmeta_header *h;
    pmeta_instr *instrs;
    pmeta_program *programs;
    pmeta_geom *geoms;
    pmeta_copy *copies;
} tables;

static tables tables_of(unsigned char *copy, const pmeta_model *model)
{
    tables t;
    t.m = *model;
    t.m.file = copy;
    t.h = (pmeta_header *)(void *)copy;
    t.instrs = (pmeta_instr *)(void *)(copy + t.h->at_instrs);
    t.programs = (pmeta_program *)(void *)(copy + t.h->at_programs);
    t.geoms = (pmeta_geom *)(void *)(copy + t.h->at_geoms);
    t.copies = (pmeta_copy *)(void *)(copy + t.h->at_copies);
    return t;
}

static const pmeta_program *owner(const tables *t, uint32_t i)
{
    for (uint32_t k = t->h->programs; k-- > 0;)
        if (t->programs[k].first <= i) return t->programs + k;
    return t->programs;
}

static uint32_t rounds_at(const tables *t, uint32_t i)
{
    for (uint32_t k = i; k-- > 0 && i - k < 64;)
        if (t->instrs[k].op == PMETA_OP_LOOP)
            return i - k <= t->instrs[k].p.loop.body ? t->instrs[k].p.loop.rounds : 1;
    return 1;
}

/* An operand so far back that it ends with its space, or a little further. */
static void to_the_end(tables *t, uint32_t i)
{
    static const uint32_t over[] = {0, 0, 0, 4, 1, 64};
    pmeta_instr *in = t->instrs + i;
    const uint32_t s = draw(PMETA_SLOTS), at = in->at.slot[s], rounds = rounds_at(t, i);
    pmeta_operands o;
    if (at == PMETA_NONE || !pmeta_describe(&o, &t->m, in, rounds)) return;
    if (draw(3) == 0) in->step.slot[s] = 4 * draw(64);
    const uint64_t space = PMETA_SPACE(at) == PMETA_ARENA  ? owner(t, i)->arena_bytes
                           : PMETA_SPACE(at) == PMETA_FILE ? t->h->file_bytes
                                                           : t->m.input_bytes;
    const uint64_t bytes = o.bytes.slot[s] + (uint64_t)in->step.slot[s] * (rounds - 1);
    if (bytes <= space)
        in->at.slot[s] = PMETA_SPACE(at) << 30 | (uint32_t)(space - bytes + over[draw(6)]);
}

/* A geometry whose sizes fit together, or nearly. */
static void geometry(tables *t)
{
    if (!t->h->geoms) return;
    pmeta_geom *g = t->geoms + draw(t->h->geoms);
    int32_t *word = &g->c_in + draw(15);
    *word = draw(3) ? (int32_t)draw(9) : (int32_t)nasty((uint32_t)*word);
    if (g->sh < 1 || g->sw < 1 || g->sh > 999 || g->sw > 999 || !draw(8)) return;
    const int64_t h = (int64_t)g->h + 2 * (int64_t)g->ph - (int64_t)g->dh * ((int64_t)g->kh - 1) - 1;
    const int64_t w = (int64_t)g->w + 2 * (int64_t)g->pw - (int64_t)g->dw * ((int64_t)g->kw - 1) - 1;
    g->ho = (int32_t)(h / g->sh + 1 + (draw(8) == 0));
    g->wo = (int32_t)(w / g->sw + 1);
}

/* Another operation in the place of one, with operands in the arena and small numbers. */
static void replaced(tables *t, uint32_t i)
{
    pmeta_instr *in = t->instrs + i;
    if (in->op == PMETA_OP_LOOP || in->op == PMETA_OP_UPDATE) return;
    in->op = 2 + draw(OPERATIONS - 2);
    in->flags = draw(4) ? 0 : draw(256);
    for (int s = 0; s < PMETA_SLOTS; s++) {
        in->at.slot[s] = 4 * draw(owner(t, i)->arena_bytes / 4 + 1);
        if (!draw(6)) in->at.slot[s] = PMETA_NONE;
        if (!draw(8)) in->at.slot[s] = (1 + draw(2)) << 30 | 4 * draw(64);
        in->step.slot[s] = draw(4) ? 0 : 4 * draw(8);
    }
    for (int k = 0; k < 6; k++) in->p.word[k] = draw(8) ? draw(20) : nasty(in->p.word[k]);
}

static void loop(tables *t, uint32_t i)
{
    pmeta_instr *in = t->instrs + i;
    if (in->op == PMETA_OP_LOOP)
        in->p.loop.rounds = draw(2) ? 1 + draw(4 * in->p.loop.rounds) : nasty(in->p.loop.rounds);
    else
        in->p.word[draw(6)] = draw(2) ? draw(40) : nasty(in->p.word[0]);
}

static void sizes(tables *t)
{
    uint32_t *field[] = {&t->h->arena_bytes, &t->h->infer_bytes, &t->h->state_bytes,
                         &t->h->outputs,     &t->h->rows,        &t->h->steps,
                         &t->h->batch,       &t->h->classes,     &t->h->input_plane,
                         &t->h->input_type,  &t->h->layers,      &t->h->input_channels};
    uint32_t *word = field[draw(sizeof field / sizeof *field)];
    *word = draw(2) ? nasty(*word) : *word + 4 * draw(65) - 128;
    if (!draw(3)) t->h->infer_bytes = t->h->state_bytes;
    if (t->h->copies && !draw(3)) {
        pmeta_copy *c = t->copies + draw(t->h->copies);
        c->arena_offset = t->h->state_bytes - c->bytes + (draw(2) ? 0 : 4 * draw(64));
    }
}

static void program(tables *t)
{
    uint32_t *p = (uint32_t *)(t->programs + draw(t->h->programs));
    const uint32_t k = draw(sizeof(pmeta_program) / 4);
    p[k] = draw(2) ? nasty(p[k]) : p[k] + 4 * draw(33) - 64;
}

static void mutate(unsigned char *copy, size_t bytes, const pmeta_model *model)
{
    tables t = tables_of(copy, model);
    for (uint32_t n = 1 + draw(3); n > 0; n--) {
        const uint32_t i = draw(t.h->instrs);
        switch (draw(9)) {
        case 0:
        case 1: to_the_end(&t, i); break;
        case 2: geometry(&t); break;
        case 3: replaced(&t, i); break;
        case 4: loop(&t, i); break;
        case 5: sizes(&t); return; /* the tables may have moved */
        case 6: program(&t); break;
        case 7: {
            uint32_t *word = (uint32_t *)(t.instrs + i) + draw(sizeof(pmeta_instr) / 4);
            *word = nasty(*word);
            break;
        }
        default: {
            uint32_t *word = (uint32_t *)(void *)copy + 2 + draw((uint32_t)bytes / 4 - 2);
            *word = nasty(*word);
            return;
        }
        }
    }
}

#endif
