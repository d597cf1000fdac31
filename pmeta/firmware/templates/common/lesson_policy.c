/* A policy: a sample is an episode of observations, and the loss is yours. Here the actions of a
 * teacher are imitated, the mean squared error; a policy gradient would set g otherwise. */
#include "lesson.h"
#include "board.h"
#include "model.h"
#include "samples.h"
#include "text.h"

static float output[MODEL_OUTPUTS]; /* (rows, actions) */

int lesson_begin(pmeta_model *m)
{
    return text_good(pmeta_begin(m, SAMPLES_SUPPORT), "pmeta_begin");
}

int lesson_end(pmeta_model *m)
{
    (void)m;
    return 1;
}

int lesson_feed(pmeta_model *m, float *loss)
{
    *loss = 0.0f;
    for (uint32_t i = 0; i < SAMPLES_SUPPORT; i++) {
        if (!text_good(pmeta_forward(m, samples_support(i), output), "pmeta_forward")) return 0;
        const float *wanted = samples_wanted(i);
        for (uint32_t j = 0; j < MODEL_OUTPUTS; j++) {
            const float error = output[j] - wanted[j];
            *loss += error * error / (MODEL_OUTPUTS * SAMPLES_SUPPORT);
            output[j] = 2.0f * error / (MODEL_OUTPUTS * SAMPLES_SUPPORT); /* d loss / d output */
        }
        if (!text_good(pmeta_backward(m, output), "pmeta_backward")) return 0;
    }
    return 1;
}

int lesson_use(pmeta_model *m)
{
    for (uint32_t i = 0; i < SAMPLES_QUERY; i++) {
        if (!text_good(pmeta_infer(m, samples_query(i), output), "pmeta_infer")) return 0;
        text_number("query ", i);
        text_decimal(": first action ", output[0]);
        board_print("\n");
    }
    return 1;
}
