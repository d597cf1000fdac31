/* The file as the engine sees it, docs/format.md in C. All fields are little-endian 32-bit words. */
#ifndef PM_FORMAT_H
#define PM_FORMAT_H
#include "kernels.h"
#include "pmeta.h"

#define PM_FORMAT_VERSION 1u
#define PM_ENDIAN_MARK 0x01020304u
#define PM_CRC_FROM 24u /* the checksum covers every byte behind itself */

typedef struct {
    unsigned char magic[8];
    uint32_t version, endian, file_bytes, crc;
    uint32_t arena_bytes, infer_bytes, state_bytes;
    uint32_t input_type, input_channels, input_plane; /* a sample is (input_channels, input_plane) */
    uint32_t outputs, rows, steps, layers;
    uint32_t programs, instrs, geoms, copies;
    uint32_t at_scale, at_alpha, at_steps, at_programs, at_instrs, at_geoms, at_copies, at_meta, meta_bytes;
    uint32_t batch; /* samples that share their scores, 0: the whole support set */
    uint32_t classes; /* outputs that are classes, the first ones; 0: all */
    uint32_t reserved;
} pm_header;

/* Forward, backward, update and merge instructions follow one another from `first`; merging ends a micro-batch. */
typedef struct {
    uint32_t first, forward, backward, update;
    uint32_t output, g_output;     /* addresses */
    uint32_t acc, acc_bytes;       /* arena offset of the gradient accumulators */
    uint32_t arena_bytes, merge;
} pm_program;

typedef struct {
    uint32_t file_offset, arena_offset, bytes; /* a weight that some step updates: copied to the arena on start */
} pm_copy;

#define PM_SLOTS 6
typedef struct {
    uint32_t op, flags;
    uint32_t at[PM_SLOTS];   /* addresses of the operands */
    uint32_t step[PM_SLOTS]; /* bytes that an address moves on in each round of a loop */
    uint32_t p[4];
} pm_instr;

/* An address: two bits of space, thirty of byte offset. */
enum { PM_ARENA = 0, PM_FILE = 1, PM_INPUT = 2 };
#define PM_NONE 0xFFFFFFFFu
#define PM_SPACE(at) ((at) >> 30)
#define PM_OFFSET(at) ((at) & 0x3FFFFFFFu)

enum {
    PM_OP_LOOP = 1, PM_OP_CONV, PM_OP_CONV_BW_W, PM_OP_CONV_BW_X, PM_OP_BIAS_BW, PM_OP_NORM, PM_OP_NORM_BW, PM_OP_NORM_ACC,
    PM_OP_ACT, PM_OP_ACT_BW, PM_OP_MAXPOOL, PM_OP_MAXPOOL_BW, PM_OP_AVGPOOL, PM_OP_AVGPOOL_BW, PM_OP_ADD, PM_OP_COPY,
    PM_OP_FC, PM_OP_FC_BW_W, PM_OP_FC_BW_X, PM_OP_SCORE, PM_OP_COMPACT, PM_OP_UPDATE, PM_OP_SCORE_SUM, PM_OP_SCORE_MEAN,
    PM_OP_MERGE
};
enum { PM_FLAG_ADD = 1, PM_FLAG_NO_DX = 2, PM_FLAG_ROWS = 4, PM_FLAG_BACKWARD = 8, PM_FLAG_COUNT_PAD = 16 };

/* What an instruction touches: bytes a slot, 0 for a slot that is not used. */
typedef struct {
    uint64_t bytes[PM_SLOTS];
    unsigned writes, optional, packed, input; /* slots as bits: written; may be PM_NONE; need no alignment; may be a uint8 sample */
} pm_operands;

static inline const pm_header *pm_head(const pm_model *m) { return (const pm_header *)(const void *)m->file; }
static inline const pm_geom *pm_geoms(const pm_model *m) { return (const pm_geom *)(const void *)(m->file + pm_head(m)->at_geoms); }
static inline const pm_instr *pm_instrs(const pm_model *m)
{
    return (const pm_instr *)(const void *)(m->file + pm_head(m)->at_instrs);
}
static inline const pm_program *pm_programs(const pm_model *m)
{
    return (const pm_program *)(const void *)(m->file + pm_head(m)->at_programs);
}

int pm_describe(pm_operands *o, const pm_model *m, const pm_instr *i, uint32_t rounds); /* 0: no such instruction */
float pm_float(uint32_t bits);

#endif
