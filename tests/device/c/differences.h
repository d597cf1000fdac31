/* What checks of gradients share: random numbers, directions, and the comparison. */
#ifndef DIFFERENCES_H
#define DIFFERENCES_H
#include "kernels.h"
#include <math.h>
#include <stdio.h>

static unsigned long long seed = 88172645463325252ull;
static int failures, checks;

static inline float uniform(void) /* (-1, 1) */
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (float)((double)(seed >> 11) / 4503599627370496.0 - 1.0);
}

static inline void fill(float *x, int n)
{
    for (int i = 0; i < n; i++) x[i] = uniform();
}

/* Distinct multiples of 0.01 in random order, none within 0.005 of 0 or 6. */
static inline void fill_apart(float *x, int n, float from)
{
    for (int i = 0; i < n; i++) x[i] = from + 0.01f * (float)i + 0.005f;
    for (int i = n - 1; i > 0; i--) {
        const int j = (int)(fabsf(uniform()) * (float)i);
        const float t = x[i];
        x[i] = x[j];
        x[j] = t;
    }
}

static inline double dot(const float *a, const float *b, int n)
{
    double s = 0.0;
    for (int i = 0; i < n; i++) s += (double)a[i] * b[i];
    return s;
}

static inline void expect(const char *what, double numeric, double analytic, double size, double tolerance)
{
    checks++;
    if (fabs(numeric - analytic) <= tolerance * (fabs(numeric) + size)) return;
    failures++;
    printf("%s: finite difference %.7g, kernel %.7g\n", what, numeric, analytic);
}

static inline void moved(float *to, const float *x, const float *v, float h, int n)
{
    for (int i = 0; i < n; i++) to[i] = x[i] + h * v[i];
}

static inline pmeta_geom geometry(int c_in, int h, int w, int c_out, int kh, int kw, int s, int p, int d,
                           int groups)
{
    pmeta_geom g = {c_in, h, w, c_out, 0, 0, kh, kw, s, s, p, p, d, d, groups, 0};
    g.ho = (h + 2 * p - d * (kh - 1) - 1) / s + 1;
    g.wo = (w + 2 * p - d * (kw - 1) - 1) / s + 1;
    return g;
}

#endif
