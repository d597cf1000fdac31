/* Any Arduino: text by Serial, time by micros(). */
#include "board.h"
#include <Arduino.h>

void board_start(void) {}
void board_print(const char *text) { Serial.print(text); }
void board_exit(void) { Serial.flush(); }
uint64_t board_ticks(void) { return micros(); }
size_t board_stack_used(void) { return 0; }
const pmeta_slots *board_slots(void) { return NULL; }

int board_poll(void *context)
{
    (void)context;
    yield(); /* lets the core's own work run */
    return 0;
}
