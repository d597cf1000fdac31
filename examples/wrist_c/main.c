/* Personalise an activity recogniser from a live stream of readings, in plain C and static memory.
 *
 *     ./wrist har.pmeta STRIDE RATIO < readings.csv
 *
 * A line is one reading of each channel, and behind them the number of the activity while the
 * wearer says it: x,y,z or x,y,z,2. RATIO readings come for each row that the model sees. A window
 * with a label is kept; at the first one without, the model adapts to all that were kept, and from
 * then on each window gives a line: the reading that ended it, its activity, how sure the model is.
 * On a microcontroller readings come from the sensor and the model lies in flash. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pmeta.h"
#include "stream.h"

enum { CHANNELS = 6, LENGTH = 64, AVERAGED = 4, KEPT = 50, CLASSES = 16, NONE = -1 };
enum { READINGS = LENGTH * AVERAGED, MODEL_BYTES = 64000, ARENA_BYTES = 48000 };

static uint32_t model[MODEL_BYTES / 4], arena[ARENA_BYTES / 4];
static float memory[PMETA_STREAM_FLOATS(CHANNELS, LENGTH, AVERAGED)];
static float kept[KEPT][CHANNELS * LENGTH];
static uint32_t kept_label[KEPT];
static int recent[READINGS]; /* the labels of the last readings, in a ring */

static void check(pmeta_status status)
{
    if (status == PMETA_OK) return;
    fprintf(stderr, "%s\n", pmeta_message(status));
    exit(1);
}

static void refuse(const char *why, unsigned long line)
{
    fprintf(stderr, "line %lu: %s\n", line, why);
    exit(2);
}

static void open_model(pmeta_model *m, const char *path)
{
    FILE *in = fopen(path, "rb");
    size_t bytes = in ? fread(model, 1, sizeof model, in) : 0;
    if (in) fclose(in);
    check(pmeta_open(m, model, bytes));
    if (m->input_bytes != sizeof kept[0] || m->classes > CLASSES) {
        fprintf(stderr, "the model reads other windows than this program was built for\n");
        exit(2);
    }
    check(pmeta_start(m, arena, sizeof arena));
}

/* One line: the readings, and their label or NONE. */
static int parse(const char *text, float *readings, uint32_t classes, unsigned long line)
{
    char *end;
    long label;
    for (int c = 0; c < CHANNELS; c++, text = end) {
        text += c && *text == ',';
        readings[c] = strtof(text, &end);
        if (end == text) refuse("a reading has a number for each channel", line);
    }
    if (*text != ',') return NONE;
    label = strtol(text + 1, &end, 10);
    if (end == text + 1) return NONE;
    if (label < 0 || label >= (long)classes) refuse("no such activity", line);
    return (int)label;
}

/* The label that at least three quarters of the last n readings have, or NONE. */
static int label_of_window(uint32_t n)
{
    int count[CLASSES] = {0};
    for (uint32_t i = 0; i < n; i++)
        if (recent[i] != NONE && ++count[recent[i]] * 4 >= (int)n * 3) return recent[i];
    return NONE;
}

/* From the meta-trained weights to this wearer's. */
static void adapt(pmeta_model *m, uint32_t n)
{
    float loss;
    check(pmeta_reset(m));
    check(pmeta_begin(m, n));
    for (uint32_t k = 0; k < m->steps; k++) {
        for (uint32_t i = 0; i < n; i++) check(pmeta_feed(m, kept[i], kept_label[i], &loss));
        check(pmeta_step(m));
    }
    fprintf(stderr, "adapted to %u windows\n", (unsigned)n);
}

static void classify(pmeta_model *m, const float *window, unsigned long line)
{
    float p[CLASSES];
    uint32_t best = 0;
    check(pmeta_infer(m, window, p));
    check(pmeta_probabilities(m, p, p));
    for (uint32_t c = 1; c < m->classes; c++)
        if (p[c] > p[best]) best = c;
    printf("%lu %u %.3f\n", line, (unsigned)best, (double)p[best]);
}

int main(int argc, char **argv)
{
    static char text[512];
    pmeta_model m;
    pmeta_stream s;
    float readings[CHANNELS];
    uint32_t n_kept = 0, adapted = 0, n, place = 0;
    unsigned long line = 0;
    if (argc != 4) {
        fprintf(stderr, "usage: %s har.pmeta STRIDE RATIO < readings.csv\n", argv[0]);
        return 2;
    }
    open_model(&m, argv[1]);
    check(pmeta_stream_start(&s, &m, (uint32_t)atoi(argv[2]), atof(argv[3]), memory, sizeof memory));
    n = (uint32_t)(LENGTH * s.ratio + 0.5);
    n = n < 1 ? 1 : n > READINGS ? READINGS : n;
    for (uint32_t i = 0; i < n; i++) recent[i] = NONE;
    while (fgets(text, sizeof text, stdin)) {
        recent[place] = parse(text, readings, m.classes, ++line);
        place = (place + 1) % n;
        if (!pmeta_stream_push(&s, readings)) continue;
        const int label = label_of_window(n);
        if (label != NONE && n_kept < KEPT) {
            memcpy(kept[n_kept], s.window, sizeof kept[0]);
            kept_label[n_kept++] = (uint32_t)label;
        } else if (label == NONE) {
            if (n_kept > adapted) adapt(&m, adapted = n_kept);
            classify(&m, s.window, line);
        }
    }
    return 0;
}
