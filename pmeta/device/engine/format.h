/* The file as the engine sees it, docs/reference/format.md in C. All fields are little-endian
 * 32-bit words. */
#ifndef PMETA_FORMAT_H
#define PMETA_FORMAT_H
#include "instructions.h"
#include "kernels.h"
#include "pmeta.h"

#define PMETA_FORMAT_VERSION 2u
#define PMETA_ENDIAN_MARK 0x01020304u
#define PMETA_CRC_FROM 24u /* the checksum covers every byte behind itself */

typedef struct {
    unsigned char magic[8];
    uint32_t version, endian, file_bytes, crc;
    uint32_t arena_bytes, infer_bytes, state_bytes;
    uint32_t input_type;
    uint32_t input_channels, input_plane; /* the shape of a sample */
    uint32_t outputs, rows, steps, layers;
    uint32_t programs, instrs, geoms, copies;
    uint32_t at_scale, at_alpha, at_steps, at_programs, at_instrs, at_geoms, at_copies;
    uint32_t at_facts, facts_bytes;
    uint32_t batch;   /* samples that share their scores, 0: the whole support set */
    uint32_t classes; /* outputs that are classes, the first ones; 0: all */
    uint32_t at_temperatures; /* 0: none */
} pmeta_header;

/* Forward, backward, update and merge instructions follow one another from `first`; merging ends
 * a micro-batch. */
typedef struct {
    uint32_t first, forward, backward, update;
    uint32_t output, g_output; /* addresses */
    uint32_t acc, acc_bytes;   /* arena offset of the gradient accumulators */
    uint32_t arena_bytes, merge;
} pmeta_program;

/* A weight that some step updates: copied to the arena on start. */
typedef struct {
    uint32_t file_offset, arena_offset, bytes;
} pmeta_copy;

/* Addresses, sizes or pointers of the operands: at.conv.x, or at.slot[1] for any operation. */
typedef void *pmeta_pointer;
typedef union {
    PMETA_OPERANDS(uint32_t)
} pmeta_addresses;
typedef union {
    PMETA_OPERANDS(uint64_t)
} pmeta_sizes;
typedef union {
    PMETA_OPERANDS(pmeta_pointer)
} pmeta_pointers;

typedef struct {
    uint32_t op, flags;
    pmeta_addresses at, step; /* step: bytes that an address moves on in each round of a loop */
    pmeta_parameters p;
} pmeta_instr;

/* An address: two bits of space, thirty of byte offset. */
enum { PMETA_ARENA = 0, PMETA_FILE = 1, PMETA_INPUT = 2 };
#define PMETA_NONE 0xFFFFFFFFu
#define PMETA_SPACE(at) ((at) >> 30)
#define PMETA_OFFSET(at) ((at) & 0x3FFFFFFFu)

/* It ends a step, when the sample may be gone. */
static inline int pmeta_ends_step(uint32_t op)
{
    return op == PMETA_OP_UPDATE || op == PMETA_OP_PROTOTYPES;
}

/* What an instruction touches: bytes of each operand, 0 where there is none. */
typedef struct {
    pmeta_sizes bytes;
    pmeta_marks marks;
} pmeta_operands;

static inline const pmeta_header *pmeta_head(const pmeta_model *m)
{
    return (const pmeta_header *)(const void *)m->file;
}
static inline const pmeta_geom *pmeta_geoms(const pmeta_model *m)
{
    return (const pmeta_geom *)(const void *)(m->file + pmeta_head(m)->at_geoms);
}
static inline const pmeta_instr *pmeta_instrs(const pmeta_model *m)
{
    return (const pmeta_instr *)(const void *)(m->file + pmeta_head(m)->at_instrs);
}
static inline const pmeta_program *pmeta_programs(const pmeta_model *m)
{
    return (const pmeta_program *)(const void *)(m->file + pmeta_head(m)->at_programs);
}

/* Go on from the checksum of the bytes before; 0 where there are none. */
uint32_t pmeta_crc32_on(uint32_t crc, const void *data, size_t bytes);

/* Flags of weights that are not float32. */
#define PMETA_PACKED ((uint32_t)(PMETA_FLAG_HALF | PMETA_FLAG_BYTE))

/* Where the operands of an instruction lie, NULL for those that are not there. */
pmeta_pointers pmeta_reach(pmeta_model *m, const pmeta_instr *i, uint32_t round);
void pmeta_execute(pmeta_model *m, const pmeta_instr *i, uint32_t round);
/* By the bits: it holds under -ffast-math, too, and needs no alignment. */
int pmeta_all_finite(const void *data, size_t n);

/* No adaptation is under way, so the weights are whole. */
int pmeta_is_still(const pmeta_model *m);

/* 0: no such instruction, or its numbers do not fit together */
int pmeta_describe(pmeta_operands *o, const pmeta_model *m, const pmeta_instr *i, uint32_t rounds);
float pmeta_work(const pmeta_model *m, const pmeta_instr *i, const pmeta_operands *o);

#endif
