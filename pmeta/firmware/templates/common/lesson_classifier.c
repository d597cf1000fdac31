/* A classifier: support samples have labels, queries get one. */
#include "lesson.h"
#include "board.h"
#include "model.h"
#include "samples.h"
#include "text.h"

/* Outputs that were meta-trained together share the softmax of the loss; where there are more of
 * them than were meta-trained (MODEL_REPEATED), only the classes of this task do. */
int lesson_begin(pmeta_model *m)
{
    const uint32_t classes = MODEL_REPEATED ? SAMPLES_CLASSES : m->outputs;
    return text_good(pmeta_classes(m, classes), "pmeta_classes") &&
           text_good(pmeta_begin(m, SAMPLES_SUPPORT), "pmeta_begin");
}

int lesson_end(pmeta_model *m)
{
    return text_good(pmeta_classes(m, SAMPLES_CLASSES), "pmeta_classes");
}

int lesson_feed(pmeta_model *m, float *loss)
{
    *loss = 0.0f;
    for (uint32_t i = 0; i < SAMPLES_SUPPORT; i++) {
        float one;
        if (!text_good(pmeta_feed(m, samples_support(i), samples_label(i), &one), "pmeta_feed"))
            return 0;
        *loss += one / SAMPLES_SUPPORT;
    }
    return 1;
}

int lesson_use(pmeta_model *m)
{
    static float scores[MODEL_OUTPUTS];
    for (uint32_t i = 0; i < SAMPLES_QUERY; i++) {
        if (!text_good(pmeta_infer(m, samples_query(i), scores), "pmeta_infer")) return 0;
        uint32_t best = 0;
        for (uint32_t c = 1; c < m->classes; c++)
            if (scores[c] > scores[best]) best = c;
        text_number("query ", i);
        text_number(": class ", best);
        text_decimal(", score ", scores[best]);
        board_print("\n");
    }
    return 1;
}
