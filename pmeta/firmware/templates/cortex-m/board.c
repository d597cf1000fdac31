/* The board that QEMU emulates: text and files by semihosting, time by SysTick, the stack. */
#include "board.h"
#include <string.h>

#define SYST_CSR (*(volatile uint32_t *)0xE000E010u)
#define SYST_RVR (*(volatile uint32_t *)0xE000E014u)
#define SYST_CVR (*(volatile uint32_t *)0xE000E018u)
#define SYST_RANGE 0x1000000u

static volatile uint32_t wraps;
extern uint32_t stack_limit, stack_top;
void tick(void);

static int semihosting(int operation, const void *argument)
{
    register int r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

void board_start(void)
{
    SYST_RVR = SYST_RANGE - 1;
    SYST_CVR = 0;
    SYST_CSR = 7; /* the clock of the core, an interrupt when it wraps */
    while (!SYST_CVR) {
    }
}

void tick(void) { wraps++; }

uint64_t board_ticks(void)
{
    uint32_t high, low;
    do {
        high = wraps;
        low = SYST_RANGE - 1 - SYST_CVR;
    } while (high != wraps);
    return (uint64_t)high * SYST_RANGE + low;
}

void board_print(const char *text) { semihosting(4, text); } /* SYS_WRITE0 */

void board_exit(void)
{
    for (;;) semihosting(0x18, (const void *)0x20026); /* SYS_EXIT: the application is done */
}

size_t board_stack_used(void)
{
    const uint32_t *p = &stack_limit;
    while (p < &stack_top && *p == BOARD_PAINT) p++;
    return (size_t)(&stack_top - p) * sizeof *p;
}

int board_poll(void *context)
{
    (void)context;
    return 0;
}

#ifdef BOARD_SLOT_BYTES
/* QEMU has no flash that a program could write, so the slots are RAM here and live as long as the
 * emulation. On a part of yours these three call its flash driver. */
static unsigned char slot_memory[2][BOARD_SLOT_BYTES];

static int slot_erase(void *context, int slot)
{
    (void)context;
    memset(slot_memory[slot], 0xFF, BOARD_SLOT_BYTES);
    return 0;
}

static int slot_write(void *context, int slot, size_t at, const void *data, size_t bytes)
{
    (void)context;
    memcpy(slot_memory[slot] + at, data, bytes);
    return 0;
}

static int slot_read(void *context, int slot, size_t at, void *data, size_t bytes)
{
    (void)context;
    memcpy(data, slot_memory[slot] + at, bytes);
    return 0;
}

const pmeta_slots *board_slots(void)
{
    static const pmeta_slots slots = {NULL, BOARD_SLOT_BYTES, slot_erase, slot_write, slot_read};
    return &slots;
}
#else
const pmeta_slots *board_slots(void) { return NULL; }
#endif
