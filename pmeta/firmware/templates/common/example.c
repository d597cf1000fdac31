/* The whole life of a model on a device: open it in flash, take up the weights of last time or
 * adapt to the support samples and save, then use it. What is yours to change: samples.c (where
 * samples come from), lesson.c (what is learned from them) and board.c. */
#include "example.h"
#include "board.h"
#include "model.h"
#include "lesson.h"
#include "text.h"

static uint32_t arena[(MODEL_ARENA_BYTES + 3) / 4]; /* all memory that the model takes */
static pmeta_model model;

static int adapt(pmeta_model *m)
{
    if (!lesson_begin(m)) return 0;
    for (uint32_t k = 0; k < m->steps; k++) {
        float loss;
        if (!lesson_feed(m, &loss) || !text_good(pmeta_step(m), "pmeta_step")) return 0;
        text_number("step ", k + 1);
        text_decimal(": loss ", loss);
        board_print("\n");
    }
    return lesson_end(m);
}

/* With slots of your flash (board.c), adapted weights outlive the power; without, they do not. */
static int adapt_or_load(pmeta_model *m)
{
    const pmeta_slots *slots = board_slots();
    if (slots && pmeta_load_state(m, slots) == PMETA_OK) {
        board_print("weights of last time\n");
        return 1;
    }
    if (!adapt(m)) return 0;
    if (!slots) return 1;
    if (!text_good(pmeta_save_state(m, slots), "pmeta_save_state")) return 0;
    board_print("saved\n");
    return 1;
}

static int run(pmeta_model *m)
{
    board_print("pmeta " PMETA_VERSION_STRING ", " MODEL_NAME "\n");
    if (!text_good(pmeta_open(m, model_file, MODEL_BYTES), "pmeta_open") ||
        !text_good(pmeta_start(m, arena, sizeof arena), "pmeta_start") ||
        !text_good(pmeta_on_yield(m, board_poll, NULL), "pmeta_on_yield"))
        return 0;
    if (!adapt_or_load(m) || !lesson_use(m)) return 0;
    text_number("arena ", (uint32_t)m->arena_bytes);
    text_number(" bytes, reached ", (uint32_t)pmeta_high_water(m));
    text_number("; stack ", (uint32_t)board_stack_used());
    board_print(" bytes\n");
#ifdef EXAMPLE_PRINT_STATE
    text_words("state ", arena, m->state_bytes);
#endif
    return 1;
}

int example(void)
{
    const int good = run(&model);
    board_print(good ? "done\n" : "failed\n");
    return good ? 0 : 1;
}
