/* What the model learns: one step on all support samples, and the use of the result. */
#ifndef LESSON_H
#define LESSON_H
#include "pmeta.h"

/* Each returns 0 after an error, which it has printed. */
int lesson_begin(pmeta_model *m);
int lesson_feed(pmeta_model *m, float *loss); /* every support sample, once in each step */
int lesson_end(pmeta_model *m);
int lesson_use(pmeta_model *m);

#endif
