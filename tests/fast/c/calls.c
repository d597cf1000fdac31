/* Reads calls of kernels from the standard input and writes what their arguments are after each.
 *
 * A call is: which kernel, its five sizes, how many arguments; of each argument its bytes and then them. No bytes are a null pointer. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int32_t of[5];
} sizes;

extern void cv_winograd_4(const sizes *, void *, void *, int32_t, void *, void *), cv_winograd_weight_4(const sizes *, void *, void *, void *, void *);
extern void cv_thin_4(const sizes *, void *, void *, void *, void *), cv_thin_weight_4(const sizes *, void *, void *, void *, void *);
extern void np_forward_4(const sizes *, void *, void *, float, void *, void *, void *, void *, void *);
extern void np_backward_4(const sizes *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *);
extern void np_twice_4(const sizes *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *);
extern void np_sums_4(const sizes *, void *, void *, void *, void *);
extern int32_t most_lanes(void), convs_run_here(void);

enum { MOST = 12 };

static void need(int holds) {
    if (!holds) {
        fprintf(stderr, "calls.c cannot read its input or write its output\n");
        exit(1);
    }
}

static int read_call(int32_t *kernel, sizes *s, void **a, int32_t *bytes, int32_t *count) {
    if (fread(kernel, 4, 1, stdin) != 1) return 0;
    need(fread(s, sizeof *s, 1, stdin) == 1 && fread(count, 4, 1, stdin) == 1 && *count <= MOST);
    for (int i = 0; i < *count; i++) {
        need(fread(bytes + i, 4, 1, stdin) == 1);
        a[i] = bytes[i] ? malloc((size_t)bytes[i]) : NULL;
        need(!bytes[i] || (a[i] && fread(a[i], (size_t)bytes[i], 1, stdin) == 1));
    }
    return 1;
}

int main(void) {
    int32_t kernel, count, bytes[MOST];
    sizes s;
    void *a[MOST];
    if (most_lanes() != 4 || !convs_run_here()) return 2;
    while (read_call(&kernel, &s, a, bytes, &count)) {
        int32_t turned = 0;
        float eps = 0;
        if (kernel == 0) memcpy(&turned, a[2], 4), cv_winograd_4(&s, a[0], a[1], turned, a[3], a[4]);
        if (kernel == 1) cv_winograd_weight_4(&s, a[0], a[1], a[2], a[3]);
        if (kernel == 2) cv_thin_4(&s, a[0], a[1], a[2], a[3]);
        if (kernel == 3) cv_thin_weight_4(&s, a[0], a[1], a[2], a[3]);
        if (kernel == 4) memcpy(&eps, a[2], 4), np_forward_4(&s, a[0], a[1], eps, a[3], a[4], a[5], a[6], a[7]);
        if (kernel == 5) np_backward_4(&s, a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10]);
        if (kernel == 6) np_twice_4(&s, a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10]);
        if (kernel == 7) np_sums_4(&s, a[0], a[1], a[2], a[3]);
        for (int i = 0; i < count; i++) {
            need(!bytes[i] || fwrite(a[i], (size_t)bytes[i], 1, stdout) == 1);
            free(a[i]);
        }
    }
    return fflush(stdout) != 0;
}
