/* Opening a file: nothing in it is believed. Whatever passes here runs without another check and
 * stays inside its memory. */
#include "format.h"
#include <string.h>

static const unsigned char MAGIC[8] = {'p', 'm', 'e', 't', 'a', '\r', '\n', 0x1a};

uint32_t pmeta_crc32_on(uint32_t crc, const void *data, size_t bytes)
{
    static const uint32_t table[16] = {0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac,
                                       0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
                                       0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
                                       0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
    const unsigned char *p = data;
    crc = ~crc;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= p[i];
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    return ~crc;
}

uint32_t pmeta_crc32(const void *data, size_t bytes) { return pmeta_crc32_on(0, data, bytes); }

/* count items of `item` bytes at `at` lie in the file, aligned */
static int in_file(const pmeta_header *h, uint32_t at, uint64_t count, uint64_t item)
{
    return at % 4 == 0 && at >= sizeof(pmeta_header) && at + count * item <= h->file_bytes;
}

static int good_temperatures(const pmeta_header *h)
{
    if (!h->at_temperatures) return 1;
    if (!in_file(h, h->at_temperatures, 1, 4)) return 0;
    const uint32_t *n = (const uint32_t *)(const void *)((const char *)h + h->at_temperatures);
    const float *t = (const float *)(const void *)(n + 1);
    if (*n < 1 || !in_file(h, h->at_temperatures, (uint64_t)*n + 1, 4)) return 0;
    for (uint32_t i = 0; i < *n; i++)
        if (!(t[i] >= 1e-3f && t[i] <= 1e3f)) return 0;
    return 1;
}

static int good_tables(const pmeta_header *h)
{
    return good_temperatures(h) &&
           in_file(h, h->at_scale, (uint64_t)h->input_channels * 2, 4) &&
           in_file(h, h->at_alpha, (uint64_t)h->steps * h->layers, 4) &&
           in_file(h, h->at_steps, h->steps, 4) &&
           in_file(h, h->at_programs, h->programs, sizeof(pmeta_program)) &&
           in_file(h, h->at_instrs, h->instrs, sizeof(pmeta_instr)) &&
           in_file(h, h->at_geoms, h->geoms, sizeof(pmeta_geom)) &&
           in_file(h, h->at_copies, h->copies, sizeof(pmeta_copy)) &&
           in_file(h, h->at_facts, h->facts_bytes, 1);
}

static int good_sizes(const pmeta_header *h)
{
    const uint64_t words = (uint64_t)h->input_channels * h->input_plane;
    return h->arena_bytes < 1u << 30 && h->infer_bytes <= h->arena_bytes &&
           h->state_bytes <= h->infer_bytes && h->input_type <= PMETA_UINT8 &&
           h->input_channels > 0 && words > 0 && words < 1u << 28 && h->programs > 0 &&
           h->rows > 0 && h->outputs > 0 && h->outputs < 1u << 24 && h->outputs % h->rows == 0 &&
           h->classes <= h->outputs / h->rows && h->steps > 0 && h->steps < 1u << 16 && h->layers < 1u << 16;
}

static uint64_t space_bytes(const pmeta_model *m, const pmeta_program *p, unsigned space)
{
    return space == PMETA_ARENA   ? p->arena_bytes
           : space == PMETA_FILE  ? pmeta_head(m)->file_bytes
           : space == PMETA_INPUT ? m->input_bytes
                                  : 0;
}

/* A sample of (channels, plane) numbers is the one that the header says. */
static int is_sample(const pmeta_header *h, uint32_t channels, uint64_t plane)
{
    return channels == h->input_channels && plane == h->input_plane;
}

static int geometry_is_sample(const pmeta_model *m, uint32_t number)
{
    const pmeta_geom *g = pmeta_geoms(m) + number;
    return is_sample(pmeta_head(m), (uint32_t)g->c_in, (uint64_t)g->h * (uint64_t)g->w);
}

/* A uint8 sample is read with a scale for each channel, so its shape must be the one that the
 * header says. */
static int good_input(const pmeta_model *m, const pmeta_instr *i, const pmeta_operands *o, int slot)
{
    const pmeta_header *h = pmeta_head(m);
    if (pmeta_ends_step(i->op)) return 0;
    if (h->input_type == PMETA_FLOAT32) return 1;
    if (!(o->marks.input >> slot & 1)) return 0;
    if (i->op == PMETA_OP_COPY) return i->p.copy.plane == h->input_plane;
    if (PMETA_OFFSET(i->at.slot[slot]) || i->step.slot[slot]) return 0;
    if (i->op == PMETA_OP_CONV) return geometry_is_sample(m, i->p.conv.geom);
    if (i->op == PMETA_OP_CONV_BW_W) return geometry_is_sample(m, i->p.conv_bw_w.geom);
    if (i->flags & PMETA_FLAG_ROWS_FIRST) return 0;
    return i->op == PMETA_OP_SCORE ? is_sample(h, i->p.score.channels, i->p.score.plane)
                                   : is_sample(h, i->p.score_sum.channels, i->p.score_sum.plane);
}

static int good_operand(const pmeta_model *m, const pmeta_program *p, const pmeta_instr *i,
                        const pmeta_operands *o, int slot, uint32_t rounds)
{
    const uint32_t at = i->at.slot[slot], step = i->step.slot[slot], space = PMETA_SPACE(at);
    if (!o->bytes.slot[slot]) return 1;
    if (at == PMETA_NONE) return o->marks.optional >> slot & 1;
    if ((o->marks.writes >> slot & 1) && space != PMETA_ARENA) return 0;
    if (space == PMETA_INPUT && !good_input(m, i, o, slot)) return 0;
    const int raw = space == PMETA_INPUT && pmeta_head(m)->input_type == PMETA_UINT8;
    const uint64_t bytes = raw ? o->bytes.slot[slot] / 4 : o->bytes.slot[slot];
    if (PMETA_OFFSET(at) + (uint64_t)step * (rounds - 1) + bytes > space_bytes(m, p, space))
        return 0;
    return raw || (o->marks.packed >> slot & 1) || (at % 4 == 0 && step % 4 == 0);
}

static int good_instr(const pmeta_model *m, const pmeta_program *p, const pmeta_instr *i,
                      uint32_t rounds)
{
    pmeta_operands o;
    if (!pmeta_describe(&o, m, i, rounds)) return 0;
    for (int s = 0; s < PMETA_SLOTS; s++)
        if (!good_operand(m, p, i, &o, s, rounds)) return 0;
    return 1;
}

/* Updates have a section to themselves: elsewhere there may be no step whose sizes they could
 * take. */
static int good_section(const pmeta_model *m, const pmeta_program *p, uint32_t first,
                        uint32_t count, int updates)
{
    const pmeta_instr *all = pmeta_instrs(m);
    for (uint32_t i = first; i < first + count; i++) {
        uint32_t rounds = 1, body = 1;
        if (all[i].op == PMETA_OP_LOOP) {
            rounds = all[i].p.loop.rounds;
            body = all[i].p.loop.body;
            if (rounds < 1 || rounds > 65535 || body < 1 || body >= first + count - i) return 0;
            i++;
        }
        for (uint32_t j = i; j < i + body; j++)
            if (pmeta_ends_step(all[j].op) != updates || !good_instr(m, p, &all[j], rounds))
                return 0;
        i += body - 1;
    }
    return 1;
}

static int in_arena(const pmeta_program *p, uint32_t at, uint64_t bytes)
{
    return PMETA_SPACE(at) == PMETA_ARENA && at % 4 == 0 && at + bytes <= p->arena_bytes;
}

static uint64_t end(const pmeta_program *p)
{
    return (uint64_t)p->first + p->forward + p->backward + p->update + p->merge;
}

static int good_program(const pmeta_model *m, const pmeta_program *p)
{
    const pmeta_header *h = pmeta_head(m);
    const uint64_t out = (uint64_t)h->outputs * 4;
    if (end(p) > h->instrs || p->arena_bytes > h->arena_bytes) return 0;
    if (!in_arena(p, p->output, out) || !in_arena(p, p->acc, p->acc_bytes)) return 0;
    if (p->backward && !in_arena(p, p->g_output, out)) return 0;
    return good_section(m, p, p->first, p->forward, 0) &&
           good_section(m, p, p->first + p->forward, p->backward, 0) &&
           good_section(m, p, p->first + p->forward + p->backward, p->update, 1) &&
           good_section(m, p, p->first + p->forward + p->backward + p->update, p->merge, 0);
}

static int good_contents(const pmeta_model *m)
{
    const pmeta_header *h = pmeta_head(m);
    const pmeta_copy *copy = (const pmeta_copy *)(const void *)(m->file + h->at_copies);
    const uint32_t *step = (const uint32_t *)(const void *)(m->file + h->at_steps);
    for (uint32_t i = 0; i < h->copies; i++)
        if (!in_file(h, copy[i].file_offset, copy[i].bytes, 1) ||
            (uint64_t)copy[i].arena_offset + copy[i].bytes > h->state_bytes)
            return 0;
    for (uint32_t k = 0; k < h->steps; k++)
        if (step[k] >= h->programs) return 0;
    if (pmeta_programs(m)[0].arena_bytes > h->infer_bytes || pmeta_programs(m)[0].backward ||
        pmeta_programs(m)[0].update)
        return 0;
    for (uint32_t i = 0; i < h->programs; i++) {
        const pmeta_program *p = pmeta_programs(m) + i;
        if (i && p->first < end(p - 1))
            return 0; /* no instruction is in two, so that each is checked once */
        if (!good_program(m, p)) return 0;
    }
    return 1;
}

/* Of one sample, and the step behind it: all sections of a program. */
static float work_of(const pmeta_model *m, const pmeta_program *p)
{
    const pmeta_instr *all = pmeta_instrs(m);
    float work = 0.0f;
    for (uint32_t i = p->first; i < end(p); i++) {
        uint32_t rounds = 1, body = 1;
        if (all[i].op == PMETA_OP_LOOP) {
            rounds = all[i].p.loop.rounds;
            body = all[i].p.loop.body;
            i++;
        }
        for (uint32_t j = i; j < i + body; j++) {
            pmeta_operands o;
            pmeta_describe(&o, m, &all[j], rounds);
            work += (float)rounds * pmeta_work(m, &all[j], &o);
        }
        i += body - 1;
    }
    return work;
}

static float most_work(const pmeta_model *m)
{
    float most = 0.0f;
    for (uint32_t i = 0; i < pmeta_head(m)->programs; i++) {
        const float work = work_of(m, pmeta_programs(m) + i);
        most = work > most ? work : most;
    }
    return most;
}

pmeta_status pmeta_open(pmeta_model *m, const void *file, size_t file_bytes)
{
    if (!m) return PMETA_ARGUMENT;
    memset(m, 0, sizeof *m);
    if (!file) return PMETA_ARGUMENT;
    if ((uintptr_t)file % 4) return PMETA_ALIGNMENT;
    if (file_bytes < sizeof MAGIC) return PMETA_TRUNCATED;
    if (memcmp(file, MAGIC, sizeof MAGIC)) return PMETA_NOT_A_MODEL;
    if (file_bytes < sizeof(pmeta_header)) return PMETA_TRUNCATED;
    const pmeta_header *h = file;
    if (h->endian != PMETA_ENDIAN_MARK) return PMETA_FOREIGN_ENDIAN;
    if (h->version != PMETA_FORMAT_VERSION) return PMETA_OTHER_VERSION;
    if (h->file_bytes > file_bytes) return PMETA_TRUNCATED;
    if (h->file_bytes < sizeof *h || h->file_bytes >= 1u << 30) return PMETA_CORRUPT;
    if (pmeta_crc32((const unsigned char *)file + PMETA_CRC_FROM, h->file_bytes - PMETA_CRC_FROM) !=
        h->crc)
        return PMETA_CHECKSUM;
    m->file = file;
    m->file_bytes = h->file_bytes;
    m->input_bytes =
        (size_t)h->input_channels * h->input_plane * (h->input_type == PMETA_UINT8 ? 1 : 4);
    if (!good_sizes(h) || !good_tables(h) || !good_contents(m)) {
        memset(m, 0, sizeof *m);
        return PMETA_CORRUPT;
    }
    const float work = most_work(m);
    if (work > PMETA_MOST_WORK) {
        memset(m, 0, sizeof *m);
        return PMETA_TOO_MUCH_WORK;
    }
    m->work = work;
    m->arena_bytes = h->arena_bytes;
    m->infer_bytes = h->infer_bytes;
    m->state_bytes = h->state_bytes;
    m->input_type = h->input_type;
    m->outputs = h->outputs;
    m->rows = h->rows;
    m->steps = h->steps;
    m->batch = h->batch;
    m->classes = h->classes ? h->classes : h->outputs / h->rows;
    m->phase = 1;
    return PMETA_OK;
}
