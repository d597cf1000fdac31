/* In place of example.c: an adaptation on one support sample under QEMU's -icount, where a
 * nanosecond is an instruction. Prints the ticks of each call. */
#include "example.h"
#include "board.h"
#include "model.h"
#include "samples.h"
#include "text.h"

static uint32_t arena[(MODEL_ARENA_BYTES + 3) / 4];
static pmeta_model model;
static float output[MODEL_OUTPUTS];

static int feed(pmeta_model *m)
{
#ifdef SAMPLES_CLASSES
    return text_good(pmeta_feed(m, samples_support(0), samples_label(0), NULL), "pmeta_feed");
#else
    if (!text_good(pmeta_forward(m, samples_support(0), output), "pmeta_forward")) return 0;
    return text_good(pmeta_backward(m, samples_wanted(0)), "pmeta_backward");
#endif
}

static void show(const char *name, uint64_t start)
{
    text_number(name, (uint32_t)(board_ticks() - start));
    board_print("\n");
}

/* A head from prototypes needs a sample of each class: with one sample there is one class. */
static void fit_classes(pmeta_model *m)
{
    if (m->rows != 1 || pmeta_begin(m, 1) || !feed(m)) return;
    const pmeta_status status = pmeta_step(m);
    pmeta_reset(m);
    if (status == PMETA_LABEL) text_good(pmeta_classes(m, 1), "pmeta_classes");
}

static int measure(pmeta_model *m)
{
    pmeta_reset(m);
    if (!text_good(pmeta_begin(m, 1), "pmeta_begin")) return 0;
    for (uint32_t k = 0; k < m->steps; k++) {
        uint64_t start = board_ticks();
        if (!feed(m)) return 0;
        show("feed ", start);
        start = board_ticks();
        if (!text_good(pmeta_step(m), "pmeta_step")) return 0;
        show("step ", start);
    }
    const uint64_t start = board_ticks();
    if (!text_good(pmeta_infer(m, samples_query(0), output), "pmeta_infer")) return 0;
    show("infer ", start);
    return 1;
}

int example(void)
{
    pmeta_model *m = &model;
    const uint64_t start = board_ticks();
    int good = text_good(pmeta_open(m, model_file, MODEL_BYTES), "pmeta_open");
    text_number("open ", (uint32_t)(board_ticks() - start));
    board_print("\n");
    good = good && text_good(pmeta_start(m, arena, sizeof arena), "pmeta_start");
    if (good) fit_classes(m);
    good = good && measure(m);
    text_number("stack ", (uint32_t)board_stack_used());
    board_print(good ? "\ndone\n" : "\nfailed\n");
    return !good;
}
