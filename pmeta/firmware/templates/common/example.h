#ifndef EXAMPLE_H
#define EXAMPLE_H
#ifdef __cplusplus
extern "C" {
#endif

/* Adapt, save and use the model; prints what it does and, at the end, "done" or "failed". */
int example(void);

#ifdef __cplusplus
}
#endif
#endif
