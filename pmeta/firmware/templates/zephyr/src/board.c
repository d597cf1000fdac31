/* Zephyr: text by printk, time by the kernel's cycles, other threads run in between. */
#include "board.h"
#include <zephyr/kernel.h>
#include <zephyr/sys/printk.h>

void board_start(void) {}
void board_print(const char *text) { printk("%s", text); }
void board_exit(void) {}
uint64_t board_ticks(void) { return (uint64_t)k_uptime_ticks(); }
const pmeta_slots *board_slots(void) { return NULL; } /* e.g. two flash areas: flash_area_write */

size_t board_stack_used(void)
{
    size_t unused = 0;
    return k_thread_stack_space_get(k_current_get(), &unused) ? 0
                                                              : CONFIG_MAIN_STACK_SIZE - unused;
}

int board_poll(void *context)
{
    (void)context;
    k_yield();
    return 0;
}
