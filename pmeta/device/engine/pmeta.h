/* pmeta: adapt a p-Meta model on a device. Strict C99, no malloc, no stdio; needs string.h and libm.
 *
 *     pm_model m;
 *     pm_open(&m, file, file_bytes);              the file may stay in flash: it is read in place, never written
 *     pm_start(&m, arena, m.arena_bytes);         one block of the caller's memory, 4-byte aligned
 *     pm_begin(&m, n_support);
 *     for (k = 0; k < m.steps; k++) {
 *         for (i = 0; i < n_support; i++) pm_feed(&m, x[i], label[i], &loss);
 *         pm_step(&m);
 *     }
 *     pm_infer(&m, query, scores);                with the adapted weights
 *
 * Every call returns PM_OK or a status that pm_message explains. A sample is m.input_bytes of uint8 or float32
 * (m.input_type), channel by channel; it is read in place and must stay valid during the call only (from pm_forward on until
 * pm_backward has returned). float32 samples are 4-byte aligned. */
#ifndef PMETA_H
#define PMETA_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    PM_OK = 0,
    PM_NOT_A_MODEL,      /* the magic bytes are not ours */
    PM_FOREIGN_ENDIAN,   /* this machine stores numbers in the other byte order */
    PM_VERSION,          /* written by a newer or older format */
    PM_TRUNCATED,        /* fewer bytes than the header promises */
    PM_CHECKSUM,         /* the bytes were changed on the way */
    PM_CORRUPT,          /* an offset, a size or an instruction does not fit */
    PM_ALIGNMENT,        /* file, arena or float32 sample is not 4-byte aligned */
    PM_ARENA_TOO_SMALL,  /* fewer than m.arena_bytes (infer_bytes, to infer only) */
    PM_ORDER,            /* a call out of order: open, start, begin, feed, step */
    PM_LABEL,            /* a label, or a number of classes, is beyond the model's; or the model is no classifier (rows > 1) */
    PM_ARGUMENT          /* a null pointer, or a size that does not fit */
} pm_status;

enum { PM_FLOAT32 = 0, PM_UINT8 = 1 };

typedef struct pm_model {
    /* Set by pm_open, for the caller to read. */
    size_t arena_bytes;      /* to adapt; weights under adaptation included */
    size_t infer_bytes;      /* to infer only; weights under adaptation included */
    size_t state_bytes;      /* the weights under adaptation: the first bytes of the arena */
    size_t input_bytes;      /* one sample */
    uint32_t input_type;     /* PM_FLOAT32 or PM_UINT8 */
    uint32_t outputs;        /* words of output */
    uint32_t rows;           /* output rows: 1 for a classifier, T for an episode of T observations */
    uint32_t steps;          /* K */
    uint32_t batch;          /* samples, fed one after the other, that share their scores; 0: the whole support set */
    uint32_t classes;        /* the first outputs, those that pm_feed's softmax runs over; set by pm_classes */
    /* The engine's own. */
    const unsigned char *file;
    unsigned char *arena;
    size_t file_bytes, arena_given, high_water;
    uint32_t support, fed, in_batch, step, phase;
    const void *x;
} pm_model;

pm_status pm_open(pm_model *m, const void *file, size_t file_bytes);
pm_status pm_start(pm_model *m, void *arena, size_t arena_bytes);
pm_status pm_infer(pm_model *m, const void *x, float *output);

/* Tell n classes apart, 1 to m.outputs: the softmax of pm_feed runs over the first n outputs and leaves the others as they are;
 * of the scores of pm_infer the first n count. Not within an adaptation. Before the first call m.classes is what the file says. */
pm_status pm_classes(pm_model *m, uint32_t n);

/* One adaptation: n_support samples are fed in each of m.steps steps. It goes on from the weights that are there; call pm_reset
 * first to begin at the meta-trained ones again. */
pm_status pm_begin(pm_model *m, uint32_t n_support);
pm_status pm_feed(pm_model *m, const void *x, uint32_t label, float *loss);
pm_status pm_step(pm_model *m);

/* pm_feed in two halves, for a loss of the caller's own: g_output is d loss / d output, already divided by the support size. */
pm_status pm_forward(pm_model *m, const void *x, float *output);
pm_status pm_backward(pm_model *m, const float *g_output);

/* The adapted weights, m.state_bytes of them: back to the meta-trained ones, out, and in again. */
pm_status pm_reset(pm_model *m);
pm_status pm_read_state(const pm_model *m, void *state, size_t bytes);
pm_status pm_write_state(pm_model *m, const void *state, size_t bytes);

size_t pm_high_water(const pm_model *m); /* arena bytes that instructions have reached so far */
uint32_t pm_crc32(const void *data, size_t bytes);
const char *pm_message(pm_status status);

#ifdef __cplusplus
}
#endif
#endif
