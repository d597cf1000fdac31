/* pmeta: adapt a p-Meta model on a device. Strict C99 without malloc or stdio, with string.h, libm.
 * int has 32 bits or more. There are no global variables: tasks and interrupts may each have a
 * model of their own at the same time, but one pmeta_model belongs to one of them at a time.
 *
 *     pmeta_model m;
 *     pmeta_open(&m, file, file_bytes);         it may stay in flash: read in place, never written
 *     pmeta_start(&m, arena, m.arena_bytes);    one block of the caller's memory, 4-byte aligned
 *     pmeta_begin(&m, n_support);
 *     for (k = 0; k < m.steps; k++) {
 *         for (i = 0; i < n_support; i++) pmeta_feed(&m, x[i], label[i], &loss);
 *         pmeta_step(&m);
 *     }
 *     pmeta_infer(&m, query, scores);           with the adapted weights
 *
 * Every call returns PMETA_OK or a status that pmeta_message explains. A sample is m.input_bytes
 * of uint8 or float32 (m.input_type), channel by channel; it is read in place and must stay
 * valid during the call only (from pmeta_forward on until pmeta_backward has returned). float32
 * samples are 4-byte aligned.
 *
 * Numbers are checked: a sample or a gradient that is not finite is refused, and nothing has
 * happened. Where an output, a loss or a weight would not be finite, the call ends with
 * PMETA_NOT_FINITE; an adaptation is over then, with the weights of its last step. */
#ifndef PMETA_H
#define PMETA_H
#include <stddef.h>
#include <stdint.h>

#define PMETA_VERSION_MAJOR 0 /* of the package that this engine came with */
#define PMETA_VERSION_MINOR 1
#define PMETA_VERSION_PATCH 0
#define PMETA_VERSION_STRING "0.1.0"
#define PMETA_VERSION \
    (PMETA_VERSION_MAJOR * 10000 + PMETA_VERSION_MINOR * 100 + PMETA_VERSION_PATCH)

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    PMETA_OK = 0,
    PMETA_NOT_A_MODEL,     /* the magic bytes are not ours */
    PMETA_FOREIGN_ENDIAN,  /* this machine stores numbers in the other byte order */
    PMETA_OTHER_VERSION,   /* written by a newer or older format */
    PMETA_TRUNCATED,       /* fewer bytes than the header promises */
    PMETA_CHECKSUM,        /* the bytes were changed on the way */
    PMETA_CORRUPT,         /* an offset, a size or an instruction does not fit */
    PMETA_ALIGNMENT,       /* file, arena or float32 sample is not 4-byte aligned */
    PMETA_ARENA_TOO_SMALL, /* fewer than m.arena_bytes (infer_bytes, to infer only) */
    PMETA_ORDER,           /* a call out of order: open, start, begin, feed, step */
    PMETA_LABEL,           /* a label or a number of classes beyond the model's; or rows > 1 */
    PMETA_ARGUMENT,        /* a null pointer, or a size that does not fit */
    PMETA_NOT_FINITE,      /* a sample, a gradient, a loss or a weight is NaN or infinite */
    PMETA_STOPPED,         /* the function of pmeta_on_yield asked for it */
    PMETA_NO_STATE,        /* neither slot holds a whole state of this model */
    PMETA_STORAGE,         /* a slot could not be erased, written or read back */
    PMETA_TOO_MUCH_WORK    /* a program of the file computes more than PMETA_MOST_WORK */
} pmeta_status;

/* Operations and words moved for one sample: a file that asks for more is not opened, since a few
 * bytes can ask for years. Compile with a smaller limit where a watchdog waits. */
#ifndef PMETA_MOST_WORK
#define PMETA_MOST_WORK 1e12f
#endif

enum { PMETA_FLOAT32 = 0, PMETA_UINT8 = 1 };

typedef struct pmeta_model {
    /* Set by pmeta_open, for the caller to read. */
    size_t arena_bytes;  /* to adapt; weights under adaptation included */
    size_t infer_bytes;  /* to infer only; weights under adaptation included */
    size_t state_bytes;  /* the weights under adaptation: the first bytes of the arena */
    size_t input_bytes;  /* one sample */
    uint32_t input_type; /* PMETA_FLOAT32 or PMETA_UINT8 */
    uint32_t outputs;    /* words of output */
    uint32_t rows;       /* output rows: 1 for a classifier, T for an episode of T observations */
    uint32_t steps;      /* K; one more where a first pass makes the head from prototypes */
    uint32_t batch;      /* samples in a row that share their scores; 0: the whole support set */
    uint32_t classes;    /* the first outputs, which the softmax of pmeta_feed runs over */
    /* The engine's own. */
    const unsigned char *file;
    unsigned char *arena;
    size_t file_bytes, arena_given, high_water;
    uint32_t support, fed, in_batch, step, phase;
    const void *x;
    int (*yield)(void *context);
    void *context;
    uint32_t instruction;   /* the last one that ran */
    uint32_t trial, finite; /* an update only looks whether the weights would be finite; were */
    float work; /* for the caller to read: operations and words moved for one sample, at most */
} pmeta_model;

pmeta_status pmeta_open(pmeta_model *m, const void *file, size_t file_bytes);
pmeta_status pmeta_start(pmeta_model *m, void *arena, size_t arena_bytes);
pmeta_status pmeta_infer(pmeta_model *m, const void *x, float *output);

/* Tell n classes apart, 1 to m.outputs: the softmax of pmeta_feed runs over the first n outputs
 * and leaves the others as they are; of the scores of pmeta_infer the first n count. Not within
 * an adaptation. Before the first call m.classes is what the file says. */
pmeta_status pmeta_classes(pmeta_model *m, uint32_t n);

/* One adaptation: n_support samples are fed in each of m.steps steps. It goes on from the
 * weights that are there; call pmeta_reset first to begin at the meta-trained ones again.
 * Where the head is made from prototypes, the first step gathers them (its loss is 0): the head
 * then tells m.classes classes apart, each of which needs a sample. */
pmeta_status pmeta_begin(pmeta_model *m, uint32_t n_support);
pmeta_status pmeta_feed(pmeta_model *m, const void *x, uint32_t label, float *loss);
pmeta_status pmeta_step(pmeta_model *m);

/* pmeta_feed in two halves, for a loss of the caller's own: g_output is d loss / d output,
 * already divided by the support size. */
pmeta_status pmeta_forward(pmeta_model *m, const void *x, float *output);
pmeta_status pmeta_backward(pmeta_model *m, const float *g_output);

/* Call f(context) again and again while a call of the engine runs, after each part of the work (a
 * convolution of one group of channels, say): to feed a watchdog, to let other tasks run, to poll.
 * The result is the same with it. Where f returns anything but 0, infer, feed, forward and backward
 * end with PMETA_STOPPED; an adaptation is over then, with the weights of its last step (a step
 * itself is short and is not stopped). f must not call the engine with this model. NULL: no f. */
pmeta_status pmeta_on_yield(pmeta_model *m, int (*f)(void *context), void *context);

/* The adapted weights, m.state_bytes of them: back to the meta-trained ones, out, and in again.
 * Weights that are not finite are not taken in. */
pmeta_status pmeta_reset(pmeta_model *m);
pmeta_status pmeta_read_state(const pmeta_model *m, void *state, size_t bytes);
pmeta_status pmeta_write_state(pmeta_model *m, const void *state, size_t bytes);

/* How sure the model is: the softmax over the first m.classes scores, divided by a temperature
 * that meta-training fitted for so many support samples of a class (1 where the file has none).
 * p has room for m.classes numbers and may be `scores` itself. */
pmeta_status pmeta_probabilities(const pmeta_model *m, const float *scores, float *p);
float pmeta_temperature(const pmeta_model *m);

/* The adapted weights in two slots of flash, EEPROM or a file, pmeta_slot_bytes(m) or more each.
 * A power cut at any moment leaves the state that was saved before, or the new one, whole.
 *
 * The callbacks return 0 when they are done. `erase` makes a whole slot writable again; NULL where
 * writing needs no erasing. Between two erasures each page of a slot is written once at most:
 * offsets and lengths of a write are multiples of PMETA_PAGE_BYTES. Reads may begin anywhere; one
 * fails where the memory does, and not because of what it holds, erased or half written. */
#define PMETA_PAGE_BYTES 256

typedef struct pmeta_slots {
    void *context;     /* the caller's own, passed on */
    size_t slot_bytes; /* room in each of the slots 0 and 1 */
    int (*erase)(void *context, int slot);
    int (*write)(void *context, int slot, size_t at, const void *data, size_t bytes);
    int (*read)(void *context, int slot, size_t at, void *data, size_t bytes);
} pmeta_slots;

size_t pmeta_slot_bytes(const pmeta_model *m);

/* Not within an adaptation. Saving takes the slot without the newest state and reads it back;
 * loading takes the newest whole state, and leaves the weights as they are where there is none.
 * A read that fails is PMETA_STORAGE: no slot is erased and the weights stay, but for a read while
 * they are taken over in an arena below twice m.state_bytes, which gives the meta-trained ones.
 * The number of classes is saved with the weights. A slot knows its model by the checksum of the
 * file: another model's state is no state. */
pmeta_status pmeta_save_state(const pmeta_model *m, const pmeta_slots *slots);
pmeta_status pmeta_load_state(pmeta_model *m, const pmeta_slots *slots);

/* Arena bytes that instructions have reached so far; 0 where the engine was compiled with
 * PMETA_NO_HIGH_WATER, which leaves the counting out. */
size_t pmeta_high_water(const pmeta_model *m);
uint32_t pmeta_crc32(const void *data, size_t bytes);
const char *pmeta_message(pmeta_status status);

#ifdef __cplusplus
}
#endif
#endif
