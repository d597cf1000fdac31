/* What the example asks of a board. A new board is a new board.c. */
#ifndef BOARD_H
#define BOARD_H
#include "pmeta.h"

#define BOARD_PAINT 0xA5A5A5A5u /* of a stack that nothing has touched yet */

#ifdef __cplusplus
extern "C" {
#endif

void board_start(void);
void board_print(const char *text);

/* Called by the engine after each instruction: feed the watchdog, read a sensor, let others run.
 * Anything but 0 stops the adaptation. */
int board_poll(void *context);

uint64_t board_ticks(void);     /* a clock that only grows; 0 where there is none */
size_t board_stack_used(void);  /* bytes, at the deepest point so far; 0: not known */
void board_exit(void);          /* comes back on boards that never end */

/* Two slots for adapted weights, pmeta_slot_bytes(&model) or more each; NULL: they are not kept. */
const pmeta_slots *board_slots(void);

#ifdef __cplusplus
}
#endif
#endif
