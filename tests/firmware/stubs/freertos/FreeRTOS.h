#include <stdint.h>
#define CONFIG_ESP_MAIN_TASK_STACK_SIZE 8192
typedef uint32_t TickType_t;
typedef unsigned UBaseType_t;
typedef void *TaskHandle_t;
