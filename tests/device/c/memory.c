/* memory MODEL SAMPLES LABELS: adapt with the model mapped read-only, as from flash, on a stack
 * of its own, and print
 *
 *     bytes that the whole process grew by, as Linux counts them; then what was promised:
 *     arena, model file, sample, stack.
 *
 * Code and libraries are made resident before the first count, so that the growth is data alone.
 * Exit code 77: the limit on locked memory (ulimit -l) does not allow that. Linux only. */
#define _GNU_SOURCE
#include "pmeta.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <ucontext.h>
#include <unistd.h>

#define PAGE 4096
#define STACK (16 * PAGE)

/* Resident bytes of the process, counted page by page (the sums in /proc/self/status lag
 * behind). */
static long resident_bytes(void)
{
    static char text[4096];
    const int f = open("/proc/self/smaps_rollup", O_RDONLY);
    const ssize_t n = read(f, text, sizeof text - 1);
    close(f);
    if (n <= 0) exit(10);
    text[n] = 0;
    const char *line = strstr(text, "Rss:");
    return line ? strtol(line + 4, NULL, 10) * 1024 : -1;
}

static unsigned char *pages(size_t bytes)
{
    void *p = mmap(NULL, (bytes + PAGE - 1) / PAGE * PAGE, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) exit(10);
    return p;
}

static const char *model_path;
static int samples, failed = 1;
static unsigned char label[256], *sample;
static uint32_t n_support;
static pmeta_model m;
static ucontext_t outside, inside;

/* All that runs on the device. */
static void adapt(void)
{
    struct stat info;
    const int model = open(model_path, O_RDONLY);
    if (model < 0 || fstat(model, &info)) return;
    const void *file = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, model, 0);
    if (file == MAP_FAILED || pmeta_open(&m, file, (size_t)info.st_size) != PMETA_OK) return;
    sample = pages(m.input_bytes);
    if (pmeta_start(&m, pages(m.arena_bytes), m.arena_bytes) != PMETA_OK ||
        pmeta_begin(&m, n_support) != PMETA_OK)
        return;
    for (uint32_t k = 0; k < m.steps; k++) {
        for (uint32_t i = 0; i < n_support; i++) {
            const ssize_t want = (ssize_t)m.input_bytes;
            if (pread(samples, sample, m.input_bytes, (off_t)i * want) != want) return;
            if (pmeta_feed(&m, sample, label[i], NULL) != PMETA_OK) return;
        }
        if (pmeta_step(&m) != PMETA_OK) return;
    }
    failed = 0;
}

int main(int argc, char **argv)
{
    if (argc != 4) return 12;
    const int labels = open(argv[3], O_RDONLY);
    model_path = argv[1];
    samples = open(argv[2], O_RDONLY);
    const ssize_t n = read(labels, label, sizeof label);
    if (samples < 0 || n < 1) return 10;
    n_support = (uint32_t)n;
    if (mlockall(MCL_CURRENT) || munlockall()) return 77;
    resident_bytes(); /* its own pages */
    const long before = resident_bytes();

    unsigned char *stack = pages(STACK);
    getcontext(&inside);
    inside.uc_stack.ss_sp = stack;
    inside.uc_stack.ss_size = STACK;
    inside.uc_link = &outside;
    makecontext(&inside, adapt, 0);
    swapcontext(&outside, &inside);
    const long grown = resident_bytes() - before;
    if (failed) return 11;
    /* The stack grows down through zeros. A look at them makes no page resident that counts. */
    size_t unused = 0;
    while (unused < STACK && !stack[unused]) unused++;
    struct stat info;
    if (stat(model_path, &info)) return 10;
    printf("%ld %zu %ld %zu %zu\n", grown, m.arena_bytes, (long)info.st_size, m.input_bytes,
           STACK - unused);
    return 0;
}
