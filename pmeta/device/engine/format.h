/* The file as the engine sees it, docs/reference/format.md in C. All fields are little-endian 32-bit words. */
#ifndef PMETA_FORMAT_H
#define PMETA_FORMAT_H
#include "kernels.h"
#include "pmeta.h"

#define PMETA_FORMAT_VERSION 1u
#define PMETA_ENDIAN_MARK 0x01020304u
#define PMETA_CRC_FROM 24u /* the checksum covers every byte behind itself */

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
} pmeta_header;

/* Forward, backward, update and merge instructions follow one another from `first`; merging ends a micro-batch. */
typedef struct {
    uint32_t first, forward, backward, update;
    uint32_t output, g_output;     /* addresses */
    uint32_t acc, acc_bytes;       /* arena offset of the gradient accumulators */
    uint32_t arena_bytes, merge;
} pmeta_program;

typedef struct {
    uint32_t file_offset, arena_offset, bytes; /* a weight that some step updates: copied to the arena on start */
} pmeta_copy;

#define PMETA_SLOTS 6
typedef struct {
    uint32_t op, flags;
    uint32_t at[PMETA_SLOTS];   /* addresses of the operands */
    uint32_t step[PMETA_SLOTS]; /* bytes that an address moves on in each round of a loop */
    uint32_t p[4];
} pmeta_instr;

/* An address: two bits of space, thirty of byte offset. */
enum { PMETA_ARENA = 0, PMETA_FILE = 1, PMETA_INPUT = 2 };
#define PMETA_NONE 0xFFFFFFFFu
#define PMETA_SPACE(at) ((at) >> 30)
#define PMETA_OFFSET(at) ((at) & 0x3FFFFFFFu)

enum {
    PMETA_OP_LOOP = 1, PMETA_OP_CONV, PMETA_OP_CONV_BW_W, PMETA_OP_CONV_BW_X, PMETA_OP_BIAS_BW, PMETA_OP_NORM, PMETA_OP_NORM_BW, PMETA_OP_NORM_ACC,
    PMETA_OP_ACT, PMETA_OP_ACT_BW, PMETA_OP_MAXPOOL, PMETA_OP_MAXPOOL_BW, PMETA_OP_AVGPOOL, PMETA_OP_AVGPOOL_BW, PMETA_OP_ADD, PMETA_OP_COPY,
    PMETA_OP_FC, PMETA_OP_FC_BW_W, PMETA_OP_FC_BW_X, PMETA_OP_SCORE, PMETA_OP_COMPACT, PMETA_OP_UPDATE, PMETA_OP_SCORE_SUM, PMETA_OP_SCORE_MEAN,
    PMETA_OP_MERGE
};
enum { PMETA_FLAG_ADD = 1, PMETA_FLAG_NO_DX = 2, PMETA_FLAG_ROWS = 4, PMETA_FLAG_BACKWARD = 8, PMETA_FLAG_COUNT_PAD = 16 };

/* What an instruction touches: bytes a slot, 0 for a slot that is not used. */
typedef struct {
    uint64_t bytes[PMETA_SLOTS];
    unsigned writes, optional, packed, input; /* slots as bits: written; may be PMETA_NONE; need no alignment; may be a uint8 sample */
} pmeta_operands;

static inline const pmeta_header *pmeta_head(const pmeta_model *m) { return (const pmeta_header *)(const void *)m->file; }
static inline const pmeta_geom *pmeta_geoms(const pmeta_model *m) { return (const pmeta_geom *)(const void *)(m->file + pmeta_head(m)->at_geoms); }
static inline const pmeta_instr *pmeta_instrs(const pmeta_model *m)
{
    return (const pmeta_instr *)(const void *)(m->file + pmeta_head(m)->at_instrs);
}
static inline const pmeta_program *pmeta_programs(const pmeta_model *m)
{
    return (const pmeta_program *)(const void *)(m->file + pmeta_head(m)->at_programs);
}

int pmeta_describe(pmeta_operands *o, const pmeta_model *m, const pmeta_instr *i, uint32_t rounds); /* 0: no such instruction */
float pmeta_float(uint32_t bits);

#endif
