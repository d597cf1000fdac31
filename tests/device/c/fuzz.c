/* fuzz MODEL COUNT SECONDS SEED: open mutated copies of a model, and call the engine with those
 * that still open, in any order, until COUNT files or SECONDS.
 *
 * Compile with -fsanitize=address,undefined: whatever reads or writes out of bounds stops the
 * program with a report. File, arena, samples, outputs and states are allocations of exactly the
 * size that the engine was told. */
#include "mutate.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST (1u << 20)
#define CALLS 24

static float most_work;

static void *exact(size_t bytes, int fill)
{
    void *p = malloc(bytes ? bytes : 1);
    if (!p) exit(10);
    memset(p, fill, bytes);
    return p;
}

static int stops_sometimes(void *context)
{
    (void)context;
    return draw(40) == 0;
}

/* One call, right or wrong at this point. */
static void call(pmeta_model *m, const void *x, float *out, void *state)
{
    float loss;
    switch (draw(12)) {
    case 0: pmeta_infer(m, x, out); break;
    case 1: pmeta_begin(m, draw(4)); break;
    case 2:
    case 3:
    case 4: pmeta_feed(m, x, draw(3) ? 0 : draw(m->outputs + 2), draw(2) ? &loss : NULL); break;
    case 5: pmeta_step(m); break;
    case 6: pmeta_forward(m, x, draw(2) ? out : NULL); break;
    case 7: pmeta_backward(m, out); break;
    case 8: pmeta_classes(m, draw(m->outputs + 2)); break;
    case 9: draw(2) ? pmeta_reset(m) : pmeta_read_state(m, state, m->state_bytes); break;
    case 10: pmeta_write_state(m, state, m->state_bytes - (draw(8) == 0)); break;
    default: pmeta_on_yield(m, draw(2) ? stops_sometimes : NULL, NULL); break;
    }
}

/* A whole adaptation, so that every program runs, then calls in any order. */
static void use(pmeta_model *m, const void *x, float *out, void *state)
{
    pmeta_infer(m, x, out);
    if (draw(2)) pmeta_classes(m, draw(m->outputs + 1));
    if (pmeta_begin(m, 2) == PMETA_OK)
        for (uint32_t k = 0; k < m->steps; k++) {
            for (int i = 0; i < 2; i++)
                if (pmeta_feed(m, x, 0, NULL) != PMETA_OK && pmeta_forward(m, x, out) == PMETA_OK)
                    pmeta_backward(m, out);
            pmeta_step(m);
        }
    for (int i = 0; i < CALLS; i++) call(m, x, out, state);
}

static int run(const void *file, size_t bytes, uint32_t *ran)
{
    pmeta_model m;
    if (pmeta_open(&m, file, bytes) != PMETA_OK) return 0;
    if (most_work == 0.0f) most_work = 4 * m.work + 1e5f; /* the first file is the model itself */
    if (m.arena_bytes > MOST || m.input_bytes > MOST || m.outputs > MOST || m.steps > 8 ||
        m.work > most_work)
        return 1;
    /* enough to adapt, or to infer only, or a little too small */
    const size_t sizes[] = {m.arena_bytes, m.arena_bytes, m.infer_bytes, m.infer_bytes - 1};
    const size_t given = sizes[m.infer_bytes ? draw(4) : draw(3)];
    unsigned char *arena = exact(given, 0xFF), *x = exact(m.input_bytes, 0x3F);
    float *out = exact(m.outputs * sizeof(float), 0);
    void *state = exact(m.state_bytes, 0);
    if (pmeta_start(&m, arena, given) == PMETA_OK) use(&m, x, out, state);
    if (pmeta_high_water(&m) > m.arena_bytes) abort();
    ++*ran;
    free(arena), free(x), free(out), free(state);
    return 1;
}

int main(int argc, char **argv)
{
    if (argc != 5) return 12;
    FILE *f = fopen(argv[1], "rb");
    if (!f || fseek(f, 0, SEEK_END)) return 10;
    const size_t bytes = (size_t)ftell(f);
    rewind(f);
    unsigned char *model = exact(bytes, 0);
    if (fread(model, 1, bytes, f) != bytes) return 10;
    fclose(f);
    const unsigned long count = strtoul(argv[2], NULL, 10);
    const time_t end = time(NULL) + (time_t)strtoul(argv[3], NULL, 10);
    drawn = strtoull(argv[4], NULL, 10) * 2654435761u + 88172645463325252ull;
    unsigned long files = 0, opened = 0;
    uint32_t ran = 0;
    pmeta_model whole;
    if (pmeta_open(&whole, model, bytes) != PMETA_OK) return 13; /* the model itself must run */
    if (!run(model, bytes, &ran) || ran != 1) return 13;
    for (; files < count && time(NULL) < end; files++) {
        const size_t size = draw(40) ? bytes : draw((uint32_t)bytes + 1);
        unsigned char *copy = exact(size, 0);
        uint32_t *head = (uint32_t *)(void *)copy;
        memcpy(copy, model, size);
        if (size == bytes)
            mutate(copy, bytes, &whole);
        else if (size >= 24 && draw(2))
            head[4] = (uint32_t)size; /* truncated, and honest about it */
        if (size >= 24 && head[4] <= size && head[4] > PMETA_CRC_FROM && draw(50))
            head[5] = pmeta_crc32(copy + PMETA_CRC_FROM, head[4] - PMETA_CRC_FROM);
        opened += (unsigned long)run(copy, size, &ran);
        free(copy);
    }
    printf("%lu files, %lu opened, %u ran, nothing found\n", files, opened, ran);
    free(model);
    return 0;
}
