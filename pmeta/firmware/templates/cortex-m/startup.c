/* From reset to main on a Cortex-M: vectors, FPU, .data, .bss, and a painted stack. */
#include "board.h"

extern uint32_t stack_limit, stack_top, data_start, data_end, data_load, bss_start, bss_end;

int main(void);
void reset(void);
void fault(void);
void tick(void); /* in board.c */

/* 16 vectors of the core; the example uses no interrupt of a device. */
__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {
    &stack_top, (void *)reset, (void *)fault, (void *)fault, (void *)fault, (void *)fault,
    (void *)fault, 0, 0, 0, 0, (void *)fault, (void *)fault, 0, (void *)fault, (void *)tick};

static void paint_stack(void)
{
    uint32_t *here;
    __asm__ volatile("mov %0, sp" : "=r"(here));
    for (uint32_t *p = &stack_limit; p < here - 16; p++) *p = BOARD_PAINT;
}

void reset(void)
{
#if defined(__ARM_FP) || defined(__ARM_FEATURE_MVE)
    *(volatile uint32_t *)0xE000ED88u |= 0xFu << 20; /* CPACR: the FPU is on */
    __asm__ volatile("dsb\n isb");
#endif
    for (uint32_t *to = &data_start, *from = &data_load; to < &data_end;) *to++ = *from++;
    for (uint32_t *to = &bss_start; to < &bss_end;) *to++ = 0;
    paint_stack();
    main();
    board_exit();
}

void fault(void)
{
    board_print("fault\n");
    board_exit();
}
