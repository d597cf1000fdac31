/* replay MODEL SAMPLES LABELS STATE SCORES CLASSES: adapt on all samples, write the adapted
 * weights and then the scores of the samples.
 *
 * The arena starts full of NaN between guard bytes, and file, arena and sample are allocations
 * of exactly the bytes they need, so that a sanitizer sees one byte too far. The exit code says
 * what broke. */
#include "pmeta.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD 64

static void *read_all(const char *path, size_t *bytes)
{
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END)) exit(10);
    *bytes = (size_t)ftell(f);
    rewind(f);
    void *data = malloc(*bytes ? *bytes : 1);
    if (!data || fread(data, 1, *bytes, f) != *bytes) exit(10);
    fclose(f);
    return data;
}

static void must(pmeta_status status, const char *what)
{
    if (status == PMETA_OK) return;
    fprintf(stderr, "%s: %s\n", what, pmeta_message(status));
    exit(11);
}

static int guarded(const unsigned char *p)
{
    for (int i = 0; i < GUARD; i++)
        if (p[i] != 0xA5) return 0;
    return 1;
}

int main(int argc, char **argv)
{
    if (argc != 7) return 12;
    size_t file_bytes, sample_bytes, label_bytes;
    void *file = read_all(argv[1], &file_bytes);
    unsigned char *samples = read_all(argv[2], &sample_bytes),
                  *labels = read_all(argv[3], &label_bytes);
    unsigned char *copy = malloc(file_bytes);
    if (!copy) return 10;
    memcpy(copy, file, file_bytes);

    pmeta_model m;
    must(pmeta_open(&m, file, file_bytes), "open");
    const uint32_t n = (uint32_t)label_bytes;
    if (sample_bytes != n * m.input_bytes) return 13;
    unsigned char *block = malloc(m.arena_bytes + 2 * GUARD), *arena = block + GUARD,
                  *sample = malloc(m.input_bytes);
    float *scores = malloc(m.outputs * sizeof(float));
    void *state = malloc(m.state_bytes ? m.state_bytes : 1);
    if (!block || !sample || !scores || !state) return 10;
    memset(block, 0xA5, m.arena_bytes + 2 * GUARD);
    memset(arena, 0xFF, m.arena_bytes); /* NaN */
    must(pmeta_start(&m, arena, m.arena_bytes), "start");
    must(pmeta_classes(&m, (uint32_t)strtoul(argv[6], NULL, 10)), "classes");
    must(pmeta_begin(&m, n), "begin");
    for (uint32_t k = 0; k < m.steps; k++) {
        for (uint32_t i = 0; i < n; i++) {
            float loss;
            memcpy(sample, samples + i * m.input_bytes, m.input_bytes);
            must(pmeta_feed(&m, sample, labels[i], &loss), "feed");
            if (!(loss >= 0.0f)) return 14;
        }
        must(pmeta_step(&m), "step");
    }
    must(pmeta_read_state(&m, state, m.state_bytes), "read state");
    memset(arena + m.state_bytes, 0xFF, m.arena_bytes - m.state_bytes);
    FILE *out = fopen(argv[5], "wb");
    if (!out) return 10;
    for (uint32_t i = 0; i < n; i++) {
        memcpy(sample, samples + i * m.input_bytes, m.input_bytes);
        must(pmeta_infer(&m, sample, scores), "infer");
        fwrite(scores, sizeof(float), m.outputs, out);
    }
    fclose(out);
    out = fopen(argv[4], "wb");
    if (!out) return 10;
    fwrite(state, 1, m.state_bytes, out);
    fclose(out);

    if (!guarded(block) || !guarded(arena + m.arena_bytes)) return 15;
    if (pmeta_high_water(&m) > m.arena_bytes) return 16;
    if (memcmp(copy, file, file_bytes)) return 17; /* the file is flash: never written */
    free(file), free(samples), free(labels), free(copy), free(block), free(sample), free(scores),
        free(state);
    return 0;
}
