/* fuzz MODEL COUNT SECONDS SEED: open mutated copies of a model, and run those that still open,
 * until COUNT files or SECONDS.
 *
 * Compile with -fsanitize=address,undefined: whatever reads or writes out of bounds stops the
 * program with a report. File, arena and sample are allocations of exactly the size that the
 * engine was told. */
#include "format.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ARENA_LIMIT (1u << 20)

static uint64_t state;
static double
    work_limit; /* a hostile file may ask for years of work: it gets twice the model's own */

static uint32_t draw(uint32_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 16) % below;
}

/* Words that tend to break things. */
static uint32_t nasty(uint32_t old)
{
    static const uint32_t odd[] = {
        0,          1,          2,          3,          4,          15,         16,
        17,         255,        256,        4096,       0x7FFFFFFF, 0x80000000, 0xFFFFFFFF,
        0x3FFFFFFF, 0x40000000, 0x40000080, 0x80000004, 0xFFFFFFFC, 65535,      65536,
        32767,      32768,      0x7F800000, 0x7FC00000, 0xFF800000};
    switch (draw(6)) {
    case 0: return odd[draw(sizeof odd / sizeof *odd)];
    case 1: return old + 1 + draw(16);
    case 2: return old - 1 - draw(16);
    case 3: return old ^ 1u << draw(32);
    case 4: return old * (2 + draw(3));
    default: return draw(0xFFFFFFFF);
    }
}

static void mutate(uint32_t *words, const pmeta_header *h, size_t count)
{
    /* Mostly the tables, where every word means something; sometimes anywhere. */
    const uint32_t from[] = {h->at_programs, h->at_instrs, h->at_geoms, h->at_copies, h->at_steps};
    const uint32_t size[] = {h->programs * (uint32_t)sizeof(pmeta_program),
                             h->instrs * (uint32_t)sizeof(pmeta_instr),
                             h->geoms * (uint32_t)sizeof(pmeta_geom),
                             h->copies * (uint32_t)sizeof(pmeta_copy), h->steps * 4};
    for (uint32_t n = 1 + draw(4); n > 0; n--) {
        const uint32_t kind = draw(10), t = kind < 5 ? 1 : draw(5);
        size_t at = draw((uint32_t)count);
        if (kind < 8 && size[t])
            at = from[t] / 4 + draw(size[t] / 4);
        else if (kind == 8)
            at = 2 + draw(30);
        if (at < count) words[at] = nasty(words[at]);
    }
}

/* Multiplications, roughly and from above. */
static double work(const pmeta_model *m)
{
    const pmeta_header *h = pmeta_head(m);
    double total = 0.0, rounds = 1.0;
    uint32_t body = 0;
    for (uint32_t i = 0; i < h->instrs; i++) {
        const pmeta_instr *in = pmeta_instrs(m) + i;
        pmeta_operands o;
        if (in->op == PMETA_OP_LOOP) {
            rounds = in->p.loop.rounds;
            body = in->p.loop.body;
            continue;
        }
        if (pmeta_describe(&o, m, in, 1)) {
            double words = 0.0;
            for (int s = 0; s < PMETA_SLOTS; s++) words += (double)o.bytes.slot[s] / 4;
            const int conv = in->op >= PMETA_OP_CONV && in->op <= PMETA_OP_CONV_BW_X;
            const int pool = in->op >= PMETA_OP_MAXPOOL && in->op <= PMETA_OP_AVGPOOL_BW;
            const pmeta_geom *g = pmeta_geoms(m) + (conv || pool ? in->p.conv.geom : 0);
            if (conv || pool) words *= (double)g->kh * g->kw;
            if (conv) words *= (double)(g->c_in + g->c_out);
            if (in->op >= PMETA_OP_FC && in->op <= PMETA_OP_FC_BW_X) words *= in->p.fc.rows;
            total += words * (body ? rounds : 1.0);
        }
        if (body) body--;
    }
    return total * (3 * h->steps + 1);
}

static int run(const void *file, size_t bytes, uint32_t *ran)
{
    pmeta_model m;
    if (pmeta_open(&m, file, bytes) != PMETA_OK) return 0;
    if (work_limit == 0.0) work_limit = 2 * work(&m); /* the first file is the model itself */
    if (m.arena_bytes > ARENA_LIMIT || m.input_bytes > ARENA_LIMIT || m.outputs > ARENA_LIMIT ||
        m.steps > 16 || work(&m) > work_limit)
        return 1;
    unsigned char *arena = malloc(m.arena_bytes ? m.arena_bytes : 1), *x = malloc(m.input_bytes);
    float *out = malloc(m.outputs * sizeof(float)), loss;
    if (!arena || !x || !out) exit(10);
    memset(arena, 0xFF, m.arena_bytes);
    memset(x, 0x3F, m.input_bytes);
    if (pmeta_start(&m, arena, m.arena_bytes) == PMETA_OK) {
        pmeta_infer(&m, x, out);
        if (draw(2)) pmeta_classes(&m, draw(m.outputs + 1)); /* 0 is refused */
        if (pmeta_begin(&m, 3) == PMETA_OK)
            for (uint32_t k = 0; k < m.steps; k++) {
                for (int i = 0; i < 3; i++)
                    if (pmeta_feed(&m, x, 0, &loss) != PMETA_OK &&
                        pmeta_forward(&m, x, out) == PMETA_OK)
                        pmeta_backward(&m, out);
                pmeta_step(&m);
            }
        pmeta_infer(&m, x, out);
    }
    if (pmeta_high_water(&m) > m.arena_bytes) abort();
    ++*ran;
    free(arena), free(x), free(out);
    return 1;
}

int main(int argc, char **argv)
{
    if (argc != 5) return 12;
    FILE *f = fopen(argv[1], "rb");
    if (!f || fseek(f, 0, SEEK_END)) return 10;
    const size_t bytes = (size_t)ftell(f);
    rewind(f);
    unsigned char *model = malloc(bytes);
    if (!model || fread(model, 1, bytes, f) != bytes) return 10;
    fclose(f);
    const unsigned long count = strtoul(argv[2], NULL, 10);
    const time_t end = time(NULL) + (time_t)strtoul(argv[3], NULL, 10);
    state = strtoull(argv[4], NULL, 10) * 2654435761u + 88172645463325252ull;
    unsigned long files = 0, opened = 0;
    uint32_t ran = 0;
    if (!run(model, bytes, &ran) || ran != 1) return 13; /* the model itself must run */
    for (; files < count && time(NULL) < end; files++) {
        const size_t size = draw(20) ? bytes : draw((uint32_t)bytes + 1);
        uint32_t *copy = malloc(size ? size : 1);
        if (!copy) return 10;
        memcpy(copy, model, size);
        if (size == bytes)
            mutate(copy, (const pmeta_header *)(const void *)model, bytes / 4);
        else if (size >= 24 && draw(2))
            copy[4] = (uint32_t)size; /* truncated, and honest about it */
        if (size >= 24 && copy[4] <= size && copy[4] > PMETA_CRC_FROM && draw(50))
            copy[5] = pmeta_crc32((unsigned char *)copy + PMETA_CRC_FROM, copy[4] - PMETA_CRC_FROM);
        opened += (unsigned long)run(copy, size, &ran);
        free(copy);
    }
    printf("%lu files, %lu opened, %u ran, nothing found\n", files, opened, ran);
    free(model);
    return 0;
}
