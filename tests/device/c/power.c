/* power MODEL: the power fails at every byte of a save, while erasing and while writing, on a flash
 * that must be erased and on a memory that need not; after 0, 1, 2 and 3 earlier saves.
 *
 * The byte at which it fails is left half written. When the power is back, the newest state is
 * the one from before or the new one, whole, and the next save works. The exit code says what
 * broke; the program prints how many cuts there were.
 *
 * Then one read fails, each in turn: nothing is loaded, erased or lost, and the next call works. */
#include "pmeta.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STATES = 5 };

typedef struct {
    unsigned char *slot[2];
    size_t slot_bytes, left; /* bytes until the power fails */
    int flash, off;
    size_t reads, bad_read; /* how many there were, and the one that fails */
} memory;

static void fail(int code, size_t cut)
{
    fprintf(stderr, "cut at byte %zu: check %d failed\n", cut, code);
    exit(code);
}

/* One byte of an erasure or a write; the last one before the power fails stays half done. */
static int put(memory *m, unsigned char *to, unsigned char value)
{
    if (m->off) return 1;
    if (m->left-- == 0) {
        *to = (unsigned char)((*to & 0x0F) | (value & 0xF0));
        m->off = 1;
        return 1;
    }
    *to = value;
    return 0;
}

static int erase(void *context, int slot)
{
    memory *m = context;
    for (size_t i = 0; i < m->slot_bytes; i++)
        if (put(m, m->slot[slot] + i, 0xFF)) return 1;
    return 0;
}

static int write(void *context, int slot, size_t at, const void *data, size_t bytes)
{
    memory *m = context;
    if (at % PMETA_PAGE_BYTES || bytes % PMETA_PAGE_BYTES || at + bytes > m->slot_bytes) exit(20);
    for (size_t i = 0; m->flash && i < bytes; i++)
        if (m->slot[slot][at + i] != 0xFF) exit(21); /* a page is written once between erasures */
    for (size_t i = 0; i < bytes; i++)
        if (put(m, m->slot[slot] + at + i, ((const unsigned char *)data)[i])) return 1;
    return 0;
}

static int read(void *context, int slot, size_t at, void *data, size_t bytes)
{
    memory *m = context;
    if (m->off || at + bytes > m->slot_bytes || m->reads++ == m->bad_read) return 1;
    memcpy(data, m->slot[slot] + at, bytes);
    return 0;
}

static void *file;
static size_t file_bytes;

/* A device that was just switched on. */
static void boot(pmeta_model *m, void *arena, memory *mem)
{
    mem->off = 0;
    mem->left = mem->bad_read = (size_t)-1;
    memset(arena, 0xA5, 1 << 16);
    if (pmeta_open(m, file, file_bytes) || m->arena_bytes > 1 << 16) exit(22);
    if (pmeta_start(m, arena, m->arena_bytes)) exit(22);
}

static void save(pmeta_model *m, const pmeta_slots *s, const unsigned char *state, uint32_t number)
{
    if (pmeta_write_state(m, state, m->state_bytes) || pmeta_classes(m, number + 1)) exit(23);
    if (pmeta_save_state(m, s) != PMETA_OK) exit(24);
}

static int holds(const pmeta_model *m, const unsigned char *arena, const unsigned char *state,
                 uint32_t number)
{
    return !memcmp(arena, state, m->state_bytes) && m->classes == number + 1;
}

/* One cut; 0 when the save was over before it. */
static int cut_at(size_t cut, uint32_t saved, memory *mem, const pmeta_slots *s, void *arena,
                  unsigned char *const *state)
{
    pmeta_model m;
    memset(mem->slot[0], 0x5A, mem->slot_bytes);
    memset(mem->slot[1], 0xFF, mem->slot_bytes);
    boot(&m, arena, mem);
    for (uint32_t i = 0; i < saved; i++) save(&m, s, state[i], i);

    pmeta_write_state(&m, state[saved], m.state_bytes);
    pmeta_classes(&m, saved + 1);
    mem->left = cut;
    const pmeta_status told = pmeta_save_state(&m, s);
    const int over = !mem->off;
    if (over != (told == PMETA_OK)) fail(30, cut);
    if (!over && told != PMETA_STORAGE) fail(31, cut);

    boot(&m, arena, mem);
    const pmeta_status found = pmeta_load_state(&m, s);
    const int is_new = found == PMETA_OK && holds(&m, arena, state[saved], saved);
    const int is_old = saved ? found == PMETA_OK && holds(&m, arena, state[saved - 1], saved - 1)
                             : found == PMETA_NO_STATE;
    if (over ? !is_new : !is_old && !is_new) fail(32, cut);

    save(&m, s, state[saved + 1], saved + 1);
    boot(&m, arena, mem);
    if (pmeta_load_state(&m, s) != PMETA_OK || !holds(&m, arena, state[saved + 1], saved + 1))
        fail(33, cut);
    return !over;
}

/* Both slots hold a state, and the model another one. Read number `bad` of loading or saving fails;
 * 0 when there were not so many. */
static int unread_at(size_t bad, int saving, memory *mem, const pmeta_slots *s, void *arena,
                     unsigned char *const *state)
{
    pmeta_model m;
    unsigned char *before[2];
    memset(mem->slot[0], 0xFF, mem->slot_bytes);
    memset(mem->slot[1], 0xFF, mem->slot_bytes);
    boot(&m, arena, mem);
    save(&m, s, state[0], 0);
    save(&m, s, state[1], 1);
    for (int i = 0; i < 2; i++) {
        before[i] = malloc(mem->slot_bytes);
        memcpy(before[i], mem->slot[i], mem->slot_bytes);
    }
    pmeta_write_state(&m, state[2], m.state_bytes);
    pmeta_classes(&m, 3);
    mem->reads = 0;
    mem->bad_read = bad;
    const pmeta_status told = saving ? pmeta_save_state(&m, s) : pmeta_load_state(&m, s);
    const int failed = mem->reads > bad;
    mem->bad_read = (size_t)-1;
    if (told != (failed ? PMETA_STORAGE : PMETA_OK)) fail(40, bad);
    if (failed && !holds(&m, arena, state[2], 2)) fail(41, bad);
    /* the slot with the newest state, the second, is never touched */
    if (memcmp(before[1], mem->slot[1], mem->slot_bytes)) fail(42, bad);
    const int wrote = memcmp(before[0], mem->slot[0], mem->slot_bytes) != 0;
    if (wrote && !saving) fail(43, bad);
    if (pmeta_load_state(&m, s) != PMETA_OK || !holds(&m, arena, state[1 + wrote], 1 + wrote))
        fail(44, bad);
    free(before[0]);
    free(before[1]);
    return failed;
}

int main(int argc, char **argv)
{
    FILE *f = argc == 2 ? fopen(argv[1], "rb") : NULL;
    file = malloc(1 << 16);
    if (!f || !file) return 10;
    file_bytes = fread(file, 1, 1 << 16, f);
    fclose(f);
    void *arena = malloc(1 << 16);
    pmeta_model m;
    memory mem = {{NULL, NULL}, 0, 0, 0, 0, 0, 0};
    boot(&m, arena, &mem);
    mem.slot_bytes = pmeta_slot_bytes(&m);
    for (int i = 0; i < 2; i++) mem.slot[i] = malloc(mem.slot_bytes);
    unsigned char *state[STATES];
    for (int i = 0; i < STATES; i++) {
        state[i] = malloc(m.state_bytes);
        for (size_t b = 0; b < m.state_bytes; b += sizeof(float)) {
            const float w = (float)(b * 7 + (size_t)i) / 3.0f;
            memcpy(state[i] + b, &w, sizeof w);
        }
    }
    size_t cuts = 0;
    for (int flash = 0; flash < 2; flash++) {
        const pmeta_slots s = {&mem, mem.slot_bytes, flash ? erase : NULL, write, read};
        mem.flash = flash;
        for (uint32_t saved = 0; saved < STATES - 1; saved++)
            for (size_t cut = 0; cut_at(cut, saved, &mem, &s, arena, state); cut++) cuts++;
    }
    size_t unread = 0;
    const pmeta_slots s = {&mem, mem.slot_bytes, erase, write, read};
    mem.flash = 1;
    for (int saving = 0; saving < 2; saving++)
        for (size_t bad = 0; unread_at(bad, saving, &mem, &s, arena, state); bad++) unread++;
    printf("%zu cuts, %zu reads\n", cuts, unread);
    for (int i = 0; i < STATES; i++) free(state[i]);
    free(mem.slot[0]);
    free(mem.slot[1]);
    free(arena);
    free(file);
    return 0;
}
