/* Meta attention (Sec. 3.3): scores of the channels, Alg. 1, and the sparse tensor that is
 * stored; the loss of a classifier. */
#include "kernels.h"
#include <math.h>

#ifdef PMETA_NO_DOUBLE
typedef float wide; /* in eight sums, which lose three bits less than one */
#define SUMS 8
#else
typedef double wide; /* what the spatial mean deserves */
#define SUMS 1
#endif

static wide sum(const float *x, size_t n, size_t step)
{
    wide s[SUMS] = {0}, total = 0;
    size_t i = 0;
    for (; i + SUMS <= n; i += SUMS)
        for (size_t j = 0; j < SUMS; j++, x += step) s[j] += (wide)*x;
    for (size_t j = 0; j < SUMS; j++)
        if (i + j < n) s[j] += (wide)x[j * step];
    for (size_t j = 0; j < SUMS; j++) total += s[j];
    return total;
}

static wide sum_u8(const unsigned char *x, size_t n, size_t step)
{
    uint64_t total = 0;
    for (size_t i = 0; i < n; i++, x += step) total += *x;
    return (wide)total;
}

/* v[c] = mean of channel c. rows: x is (n, c), not (c, n). */
static void channel_means(float *v, const pmeta_source *x, int c, int n, int rows)
{
    for (int i = 0; i < c; i++) {
        const size_t start = rows ? (size_t)i : (size_t)i * n, step = rows ? (size_t)c : 1;
        const wide total = x->u8 ? sum_u8((const unsigned char *)x->data + start, (size_t)n, step)
                                 : sum((const float *)x->data + start, (size_t)n, step);
        v[i] = (float)(total / (wide)n) * (x->scale ? x->scale[i] : 1.0f) +
               (x->shift ? x->shift[i] : 0.0f);
    }
}

static void unit_rms(float *v, int c)
{
    float s = 0.0f;
    for (int i = 0; i < c; i++) s += v[i] * v[i];
    s = 1.0f / sqrtf(s / (float)c + 1e-20f);
    for (int i = 0; i < c; i++) v[i] *= s;
}

static void softmax(float *z, int n)
{
    float top = z[0], total = 0.0f;
    for (int i = 1; i < n; i++) top = z[i] > top ? z[i] : top;
    for (int i = 0; i < n; i++) total += z[i] = expf(z[i] - top);
    for (int i = 0; i < n; i++) z[i] /= total;
}

/* Stable: equal scores keep the order of the channels. */
static void sort_ascending(uint32_t *order, const float *value, int n)
{
    for (int i = 0; i < n; i++) {
        int j = i;
        for (; j > 0 && value[order[j - 1]] > value[i]; j--) order[j] = order[j - 1];
        order[j] = (uint32_t)i;
    }
}

/* Alg. 1: zero the smallest scores that sum to rho, never all; rescale the rest to sum to C. The
 * sum runs in double and is compared in float, as PyTorch's does: it decides which channels are
 * kept. threshold: rho - 1e-6, or 0 to drop none. */
void pmeta_clip(float *gamma, uint32_t *order, int c, float threshold)
{
    int zeros = 0;
    float left = 0.0f;
    if (threshold > 0.0f) {
        double head = 0.0;
        sort_ascending(order, gamma, c);
        while (zeros < c - 1) {
            head += (double)gamma[order[zeros]];
            gamma[order[zeros++]] = 0.0f;
            if ((float)head >= threshold) break;
        }
    }
    for (int i = 0; i < c; i++) left += gamma[i];
    for (int i = 0; i < c; i++) gamma[i] = gamma[i] / left * (float)c;
}

/* z = W2 relu(W1 v + b1) + b2 of one sample; scratch: 2 c words. */
static void attend(float *z, const pmeta_source *x, const pmeta_attention *params, float *scratch,
                   int c, int n, int rows, int backward)
{
    float *v = scratch, *hidden = scratch + c;
    channel_means(v, x, c, n, rows);
    if (backward) unit_rms(v, c);
    pmeta_fc(hidden, v, &params->w1, params->b1, c, c, 1);
    for (int i = 0; i < c; i++) hidden[i] = hidden[i] > 0.0f ? hidden[i] : 0.0f;
    pmeta_fc(z, hidden, &params->w2, params->b2, c, c, 1);
}

/* scratch: 3 c words. */
void pmeta_score(float *gamma, const pmeta_source *x, const pmeta_attention *params,
                 float *scratch, int c, int n, int rows, float threshold, int backward)
{
    attend(gamma, x, params, scratch, c, n, rows, backward);
    softmax(gamma, c);
    pmeta_clip(gamma, (uint32_t *)(void *)(scratch + 2 * (size_t)c), c, threshold);
}

void pmeta_score_sum(float *sum, const pmeta_source *x, const pmeta_attention *params,
                     float *scratch, int c, int n, int rows, int backward)
{
    float *z = scratch + 2 * (size_t)c;
    attend(z, x, params, scratch, c, n, rows, backward);
    for (int i = 0; i < c; i++) sum[i] += z[i];
}

void pmeta_score_mean(float *gamma, float *sum, uint32_t *order, int c, float threshold,
                      uint32_t samples)
{
    for (int i = 0; i < c; i++) {
        gamma[i] = sum[i] / (float)samples;
        sum[i] = 0.0f;
    }
    softmax(gamma, c);
    pmeta_clip(gamma, order, c, threshold);
}

void pmeta_merge(float *acc, float *part, const float *row, const float *column, size_t groups,
                 size_t depth, size_t filters, size_t taps)
{
    for (size_t k = 0; k < groups * depth; k++) {
        const float *by = column ? column + k / depth * filters : NULL;
        const float r = row ? row[k / taps] : 1.0f;
        for (size_t f = 0; f < filters; f++, acc++, part++) {
            *acc += r * (by ? by[f] : 1.0f) * *part;
            *part = 0.0f;
        }
    }
}

/* Eq. 14's stored tensor: gamma x, the channels with gamma != 0 only, moved to the front in
 * place. */
void pmeta_compact(float *x, const float *gamma, int c, int n, int cap, int rows)
{
    float *to = x;
    if (rows) {
        for (int r = 0; r < n; r++)
            for (int i = 0, kept = 0; i < c; i++)
                if (gamma[i] != 0.0f && kept++ < cap) *to++ = gamma[i] * x[(size_t)r * c + i];
        return;
    }
    for (int i = 0, kept = 0; i < c; i++)
        if (gamma[i] != 0.0f && kept++ < cap)
            for (int j = 0; j < n; j++) *to++ = gamma[i] * x[(size_t)i * n + j];
}

/* loss and g = scale (softmax(z) - onehot) */
float pmeta_cross_entropy(float *g, const float *z, int n, int label, float scale)
{
    float top = z[0], total = 0.0f;
    for (int i = 1; i < n; i++) top = z[i] > top ? z[i] : top;
    for (int i = 0; i < n; i++) total += expf(z[i] - top);
    const float loss = logf(total) - (z[label] - top);
    for (int i = 0; i < n; i++)
        g[i] = scale * (expf(z[i] - top) / total - (i == label ? 1.0f : 0.0f));
    return loss;
}
