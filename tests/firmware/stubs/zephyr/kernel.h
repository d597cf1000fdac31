#include <stddef.h>
#include <stdint.h>
#define CONFIG_MAIN_STACK_SIZE 4096
typedef struct k_thread *k_tid_t;
k_tid_t k_current_get(void);
int64_t k_uptime_ticks(void);
void k_yield(void);
int k_thread_stack_space_get(const struct k_thread *thread, size_t *unused);
