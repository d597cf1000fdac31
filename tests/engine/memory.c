/* memory MODEL SAMPLES LABELS: adapt with the model mapped read-only, as from flash, and print what the operating system counted:
 * anonymous memory at the peak minus that before the arena was allocated, in bytes, then arena and sample bytes. Linux only. */
#define _DEFAULT_SOURCE
#include "pmeta.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static long anonymous_bytes(void)
{
    char text[4096];
    const int f = open("/proc/self/status", O_RDONLY);
    const ssize_t n = read(f, text, sizeof text - 1);
    close(f);
    if (n <= 0) exit(10);
    text[n] = 0;
    const char *line = strstr(text, "RssAnon:");
    return line ? strtol(line + 8, NULL, 10) * 1024 : -1;
}

int main(int argc, char **argv)
{
    if (argc != 4) return 12;
    struct stat info;
    const int model = open(argv[1], O_RDONLY), samples = open(argv[2], O_RDONLY), labels = open(argv[3], O_RDONLY);
    if (model < 0 || samples < 0 || labels < 0 || fstat(model, &info)) return 10;
    const void *file = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, model, 0);
    if (file == MAP_FAILED) return 10;

    pm_model m;
    if (pm_open(&m, file, (size_t)info.st_size) != PM_OK) return 11;
    unsigned char label[256];
    const ssize_t n = read(labels, label, sizeof label);
    const long before = anonymous_bytes();
    const size_t page = 4096, arena_size = (m.arena_bytes + page - 1) / page * page, sample_size = (m.input_bytes + page - 1) / page * page;
    void *arena = mmap(NULL, arena_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *sample = mmap(NULL, sample_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (arena == MAP_FAILED || sample == MAP_FAILED || pm_start(&m, arena, m.arena_bytes) != PM_OK) return 11;
    if (n < 1 || pm_begin(&m, (uint32_t)n) != PM_OK) return 11;
    for (uint32_t k = 0; k < m.steps; k++) {
        for (ssize_t i = 0; i < n; i++) {
            if (pread(samples, sample, m.input_bytes, (off_t)(i * (ssize_t)m.input_bytes)) != (ssize_t)m.input_bytes) return 10;
            if (pm_feed(&m, sample, label[i], NULL) != PM_OK) return 11;
        }
        if (pm_step(&m) != PM_OK) return 11;
    }
    printf("%ld %zu %zu\n", anonymous_bytes() - before, m.arena_bytes, m.input_bytes);
    return 0;
}
