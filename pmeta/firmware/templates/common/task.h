/* What the model learns: one step on all support samples, and the use of the result. */
#ifndef TASK_H
#define TASK_H
#include "pmeta.h"

/* Each returns 0 after an error, which it has printed. */
int task_begin(pmeta_model *m);
int task_feed(pmeta_model *m, float *loss); /* every support sample, once in each step */
int task_end(pmeta_model *m);
int task_use(pmeta_model *m);

#endif
