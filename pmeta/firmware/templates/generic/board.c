/* A machine with a C library: text by stdio. Change it for yours. */
#include "board.h"
#include <stdio.h>

void board_start(void) {}
void board_print(const char *text) { fputs(text, stdout); }
void board_exit(void) { fflush(stdout); }
uint64_t board_ticks(void) { return 0; }
size_t board_stack_used(void) { return 0; }
const pmeta_slots *board_slots(void) { return NULL; }

int board_poll(void *context)
{
    (void)context;
    return 0;
}
