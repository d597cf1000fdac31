/* Adapted weights that outlive a power cut. Two slots take turns: the slot that is written never
 * holds the newest whole state, and its header, the last page that is written, makes it count. */
#include "format.h"
#include <string.h>

#define PAGE PMETA_PAGE_BYTES
#define SLOT_VERSION 1u
#define UNREAD (-2)

static const unsigned char MAGIC[8] = {'p', 'm', 's', 'l', 'o', 't', '\r', '\n'};

typedef struct {
    unsigned char magic[8];
    uint32_t version, sequence;
    uint32_t model; /* the checksum of the file that the weights belong to */
    uint32_t state_bytes, classes, support;
    uint32_t state_crc;
    uint32_t crc; /* of the bytes before it */
} slot_header;

static size_t pages(size_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

size_t pmeta_slot_bytes(const pmeta_model *m) { return m ? PAGE + pages(m->state_bytes) : 0; }

static uint32_t header_crc(const slot_header *h)
{
    return pmeta_crc32(h, offsetof(slot_header, crc));
}

static int reads(const pmeta_slots *s, int slot, size_t at, void *data, size_t bytes)
{
    return s->read(s->context, slot, at, data, bytes) == 0;
}

static int good_header(const pmeta_model *m, const slot_header *h)
{
    return !memcmp(h->magic, MAGIC, sizeof MAGIC) && h->version == SLOT_VERSION &&
           h->crc == header_crc(h) && h->model == pmeta_head(m)->crc &&
           h->state_bytes == m->state_bytes && h->classes >= 1 && h->classes <= m->outputs / m->rows;
}

/* Whether a slot holds a whole state of this model, UNREAD where that cannot be known; it is read in
 * pages, so that the arena stays as it is. */
static int good_slot(const pmeta_model *m, const pmeta_slots *s, int slot, slot_header *h)
{
    unsigned char page[PAGE];
    uint32_t crc = 0;
    if (!reads(s, slot, 0, h, sizeof *h)) return UNREAD;
    if (!good_header(m, h)) return 0;
    for (size_t at = 0; at < m->state_bytes; at += PAGE) {
        const size_t bytes = m->state_bytes - at < PAGE ? m->state_bytes - at : PAGE;
        if (!reads(s, slot, PAGE + at, page, bytes)) return UNREAD;
        crc = pmeta_crc32_on(crc, page, bytes);
    }
    return crc == h->state_crc;
}

/* The slot with the newest whole state, -1 where there is none; sequence numbers may wrap. Where a
 * slot cannot be read, the other one may be older: UNREAD. */
static int newest(const pmeta_model *m, const pmeta_slots *s, slot_header *h)
{
    slot_header both[2];
    const int first = good_slot(m, s, 0, &both[0]), second = good_slot(m, s, 1, &both[1]);
    if (first == UNREAD || second == UNREAD) return UNREAD;
    if (!first && !second) return -1;
    const uint32_t ahead = both[1].sequence - both[0].sequence;
    const int slot = !first || (second && ahead > 0 && ahead < 0x80000000u);
    *h = both[slot];
    return slot;
}

static int good_slots(const pmeta_model *m, const pmeta_slots *s)
{
    return m && s && s->read && s->write && m->file && s->slot_bytes >= pmeta_slot_bytes(m);
}

static int writes(const pmeta_slots *s, int slot, size_t at, const void *data, size_t bytes)
{
    return s->write(s->context, slot, at, data, bytes) == 0;
}

/* The weights, in whole pages; what is left of the last one stays as an erased flash has it. */
static int write_weights(const pmeta_model *m, const pmeta_slots *s, int slot)
{
    unsigned char page[PAGE];
    const size_t whole = m->state_bytes / PAGE * PAGE, rest = m->state_bytes - whole;
    if (whole && !writes(s, slot, PAGE, m->arena, whole)) return 0;
    if (!rest) return 1;
    memset(page, 0xFF, sizeof page);
    memcpy(page, m->arena + whole, rest);
    return writes(s, slot, PAGE + whole, page, sizeof page);
}

static int write_header(const pmeta_model *m, const pmeta_slots *s, int slot, uint32_t sequence)
{
    unsigned char page[PAGE];
    slot_header h;
    memcpy(h.magic, MAGIC, sizeof MAGIC);
    h.version = SLOT_VERSION;
    h.sequence = sequence;
    h.model = pmeta_head(m)->crc;
    h.state_bytes = (uint32_t)m->state_bytes;
    h.classes = m->classes;
    h.support = m->support;
    h.state_crc = pmeta_crc32(m->arena, m->state_bytes);
    h.crc = header_crc(&h);
    memset(page, 0xFF, sizeof page);
    memcpy(page, &h, sizeof h);
    return writes(s, slot, 0, page, sizeof page);
}

pmeta_status pmeta_save_state(const pmeta_model *m, const pmeta_slots *s)
{
    if (!good_slots(m, s)) return PMETA_ARGUMENT;
    if (!pmeta_is_still(m)) return PMETA_ORDER;
    slot_header h;
    memset(&h, 0, sizeof h);
    const int last = newest(m, s, &h);
    if (last == UNREAD) return PMETA_STORAGE;
    const int slot = last == 0; /* the other one */
    if (s->erase && s->erase(s->context, slot)) return PMETA_STORAGE;
    if (!write_weights(m, s, slot) || !write_header(m, s, slot, h.sequence + 1))
        return PMETA_STORAGE;
    return good_slot(m, s, slot, &h) == 1 ? PMETA_OK : PMETA_STORAGE;
}

pmeta_status pmeta_load_state(pmeta_model *m, const pmeta_slots *s)
{
    slot_header h;
    if (!good_slots(m, s)) return PMETA_ARGUMENT;
    if (!pmeta_is_still(m)) return PMETA_ORDER;
    const int slot = newest(m, s, &h);
    if (slot == UNREAD) return PMETA_STORAGE;
    if (slot < 0) return PMETA_NO_STATE;
    /* beside the weights of now, which stay where a read fails; without room for that they are lost */
    const int beside = m->arena_given / 2 >= m->state_bytes;
    unsigned char *to = beside ? m->arena + m->state_bytes : m->arena;
    if (!reads(s, slot, PAGE, to, m->state_bytes) ||
        pmeta_crc32(to, m->state_bytes) != h.state_crc) {
        if (!beside) pmeta_reset(m);
        return PMETA_STORAGE;
    }
    if (beside) memcpy(m->arena, to, m->state_bytes);
    m->classes = h.classes;
    m->support = h.support;
    return PMETA_OK;
}
