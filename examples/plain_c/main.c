/* Adapt a model and classify with it, in plain C: no operating system is needed but to read files.
 *
 *     ./adapt model.pmeta support.bin query.bin
 *
 * support.bin holds samples one after the other, each a label (uint32) and m.input_bytes of data;
 * query.bin holds samples without labels. One class is printed for each query.
 * On a microcontroller the model lies in flash and the arena is a static array. */
#include <stdio.h>
#include <stdlib.h>

#include "pmeta.h"

typedef struct {
    unsigned char *data;
    size_t bytes;
} file;

static file read_file(const char *path) {
    file f = {NULL, 0};
    FILE *in = fopen(path, "rb");
    long size = -1;
    if (in && fseek(in, 0, SEEK_END) == 0) size = ftell(in);
    if (size > 0 && fseek(in, 0, SEEK_SET) == 0) f.data = malloc((size_t)size);
    if (f.data) f.bytes = fread(f.data, 1, (size_t)size, in);
    if (in) fclose(in);
    if (!f.data || f.bytes != (size_t)size) {
        fprintf(stderr, "%s cannot be read or is empty\n", path);
        exit(2);
    }
    return f;
}

static void check(pmeta_status status) {
    if (status == PMETA_OK) return;
    fprintf(stderr, "%s\n", pmeta_message(status));
    exit(1);
}

static void adapt(pmeta_model *m, const file *support) {
    const size_t each = sizeof(uint32_t) + m->input_bytes; /* 4-byte aligned, as samples must be */
    const uint32_t n = (uint32_t)(support->bytes / each);
    float loss, total;
    uint32_t i, k;
    check(pmeta_begin(m, n));
    for (k = 0; k < m->steps; k++) {
        for (i = 0, total = 0; i < n; i++) {
            const unsigned char *sample = support->data + i * each;
            const uint32_t label = *(const uint32_t *)(const void *)sample;
            check(pmeta_feed(m, sample + sizeof(uint32_t), label, &loss));
            total += loss / (float)n;
        }
        check(pmeta_step(m));
        fprintf(stderr, "step %u: loss %.3f\n", (unsigned)k + 1, (double)total);
    }
}

static uint32_t classify(pmeta_model *m, const void *sample, float *scores) {
    uint32_t best = 0, c;
    check(pmeta_infer(m, sample, scores));
    for (c = 1; c < m->classes; c++)
        if (scores[c] > scores[best]) best = c;
    return best;
}

int main(int argc, char **argv) {
    pmeta_model m;
    file model, support, query;
    float *scores;
    void *arena;
    size_t at;
    if (argc != 4) {
        fprintf(stderr, "usage: %s model.pmeta support.bin query.bin\n", argv[0]);
        return 2;
    }
    model = read_file(argv[1]), support = read_file(argv[2]), query = read_file(argv[3]);
    check(pmeta_open(&m, model.data, model.bytes));
    arena = malloc(m.arena_bytes);
    scores = malloc(m.outputs * sizeof *scores);
    if (!arena || !scores) return 1;
    check(pmeta_start(&m, arena, m.arena_bytes));
    fprintf(stderr, "%lu bytes to adapt\n", (unsigned long)m.arena_bytes);
    adapt(&m, &support);
    for (at = 0; at + m.input_bytes <= query.bytes; at += m.input_bytes)
        printf("%u\n", (unsigned)classify(&m, query.data + at, scores));
    free(scores), free(arena), free(query.data), free(support.data), free(model.data);
    return 0;
}
