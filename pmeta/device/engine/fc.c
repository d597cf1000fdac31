/* Fully connected layers on t rows, and biases. Rows are (t, c) in and (t, f) out. */
#include "kernels.h"

#define SOME 32 /* packed weights that are read at a time */
#define SUMS 8 /* partial sums of a dot product, in one fixed order on every machine */

PMETA_FAST static float dot(const float *a, const float *b, int n)
{
    float s[SUMS] = {0}, total = 0.0f;
    int i = 0;
    for (; i + SUMS <= n; i += SUMS)
        for (int j = 0; j < SUMS; j++) s[j] += a[i + j] * b[i + j];
    for (int j = 0; j < SUMS; j++)
        if (i + j < n) s[j] += a[i + j] * b[i + j];
    for (int j = 0; j < SUMS; j++) total += s[j];
    return total;
}

PMETA_FAST static void add_scaled(float *y, const float *x, float s, int n)
{
    for (int i = 0; i < n; i++) y[i] += s * x[i];
}

/* Row i of the weights times x; packed ones are unpacked a few at a time. */
static float row_times(const pmeta_weights *w, int i, const float *x, int c)
{
    float some[SOME], total = 0.0f;
    if (w->type == PMETA_WORD) return dot((const float *)w->data + (size_t)i * c, x, c);
    for (int j = 0; j < c; j += SOME) {
        const int n = c - j < SOME ? c - j : SOME;
        pmeta_unpack(some, w, (size_t)i, (size_t)c, (size_t)j, (size_t)n);
        total += dot(some, x + j, n);
    }
    return total;
}

static void add_row(float *y, const pmeta_weights *w, int i, float s, int c)
{
    float some[SOME];
    if (w->type == PMETA_WORD) {
        add_scaled(y, (const float *)w->data + (size_t)i * c, s, c);
        return;
    }
    for (int j = 0; j < c; j += SOME) {
        const int n = c - j < SOME ? c - j : SOME;
        pmeta_unpack(some, w, (size_t)i, (size_t)c, (size_t)j, (size_t)n);
        add_scaled(y + j, some, s, n);
    }
}

void pmeta_fc(float *y, const float *x, const pmeta_weights *w, const float *bias, int f, int c,
              int t)
{
    for (int r = 0; r < t; r++)
        for (int i = 0; i < f; i++)
            y[(size_t)r * f + i] =
                row_times(w, i, x + (size_t)r * c, c) + (bias ? bias[i] : 0.0f);
}

/* cap > 0: x is compact, gamma_fw != 0 says which columns it holds, and gamma_fw is already
 * multiplied in. */
void pmeta_fc_bw_w(float *acc, const float *gy, const float *x, const float *gamma_fw,
                   const float *gamma_bw, int f, int c, int t, int cap)
{
    int kept = 0;
    for (int j = 0; cap > 0 && j < c; j++) kept += gamma_fw[j] != 0.0f && kept < cap;
    for (int r = 0; r < t; r++)
        for (int i = 0; i < f; i++) {
            const float s = gy[(size_t)r * f + i] * (gamma_bw ? gamma_bw[i] : 1.0f);
            float *to = acc + (size_t)i * c;
            if (cap > 0) {
                const float *row = x + (size_t)r * kept;
                for (int j = 0, n = 0; j < c && n < kept; j++)
                    if (gamma_fw[j] != 0.0f) to[j] += s * row[n++];
            } else if (gamma_fw) {
                for (int j = 0; j < c; j++) to[j] += s * (gamma_fw[j] * x[(size_t)r * c + j]);
            } else {
                add_scaled(to, x + (size_t)r * c, s, c);
            }
        }
}

void pmeta_fc_bw_x(float *gx, const float *gy, const pmeta_weights *w, int f, int c, int t,
                   int add)
{
    for (int r = 0; r < t; r++) {
        float *to = gx + (size_t)r * c;
        if (!add)
            for (int j = 0; j < c; j++) to[j] = 0.0f;
        for (int i = 0; i < f; i++) add_row(to, w, i, gy[(size_t)r * f + i], c);
    }
}

/* acc[c] += gamma_bw[c] sum_n gy: rows = 0 for (c, n), 1 for (n, c). */
void pmeta_bias_bw(float *acc, const float *gy, const float *gamma_bw, int c, int n, int rows)
{
    for (int i = 0; i < c; i++) {
        float s = 0.0f;
        for (int j = 0; j < n; j++) s += rows ? gy[(size_t)j * c + i] : gy[(size_t)i * n + j];
        acc[i] += gamma_bw ? gamma_bw[i] * s : s;
    }
}
