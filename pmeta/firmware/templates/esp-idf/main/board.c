/* ESP-IDF: text by stdio, time by esp_timer, other tasks run in between. */
#include "board.h"
#include "esp_timer.h"
#include "freertos/FreeRTOS.h"
#include "freertos/task.h"
#include <stdio.h>

void board_start(void) {}
void board_print(const char *text) { fputs(text, stdout); }
void board_exit(void) { fflush(stdout); }
uint64_t board_ticks(void) { return (uint64_t)esp_timer_get_time(); }
const pmeta_slots *board_slots(void) { return NULL; } /* e.g. a partition: esp_partition_write */

size_t board_stack_used(void)
{
    return (size_t)CONFIG_ESP_MAIN_TASK_STACK_SIZE - uxTaskGetStackHighWaterMark(NULL);
}

/* A tick of rest at most ten times a second, in which the idle task feeds the watchdog. */
int board_poll(void *context)
{
    static int64_t last;
    (void)context;
    if (esp_timer_get_time() - last > 100000) {
        vTaskDelay(1);
        last = esp_timer_get_time();
    }
    return 0;
}
