/* Activations, in place. Where the derivative has two values one bit is kept of each number
 * (act); otherwise the number itself (curve). */
#include "kernels.h"
#include <math.h>

/* Bit 1: the derivative is 1, of hardsigmoid 1/6. Otherwise it is 0, or the slope (leaky). */
static void put_mask(unsigned char *mask, const float *x, size_t n, int kind)
{
    const float from = kind == PMETA_HARDSIGMOID ? -3.0f : 0.0f,
                to = kind == PMETA_RELU6         ? 6.0f
                     : kind == PMETA_HARDSIGMOID ? 3.0f
                                                 : INFINITY;
    for (size_t i = 0; i < n; i += 8) {
        unsigned bits = 0;
        for (size_t j = 0; j < 8 && i + j < n; j++)
            bits |= (unsigned)(x[i + j] > from && x[i + j] < to) << j;
        mask[i / 8] = (unsigned char)bits;
    }
}

static float between(float x, float low, float high)
{
    const float a = x < low ? low : x; /* NaN stays NaN */
    return a > high ? high : a;
}

PMETA_FAST void pmeta_act(float *x, unsigned char *mask, size_t n, int kind, float slope)
{
    if (mask) put_mask(mask, x, n, kind);
    switch (kind) {
    case PMETA_RELU6:
        for (size_t i = 0; i < n; i++) x[i] = between(x[i], 0.0f, 6.0f);
        break;
    case PMETA_HARDSIGMOID:
        for (size_t i = 0; i < n; i++) x[i] = between(x[i] + 3.0f, 0.0f, 6.0f) / 6.0f;
        break;
    case PMETA_LEAKY:
        for (size_t i = 0; i < n; i++) x[i] = x[i] < 0.0f ? slope * x[i] : x[i];
        break;
    default:
        for (size_t i = 0; i < n; i++) x[i] = x[i] < 0.0f ? 0.0f : x[i];
    }
}

void pmeta_act_bw(float *g, const unsigned char *mask, size_t n, int kind, float slope)
{
    const float high = kind == PMETA_HARDSIGMOID ? 1.0f / 6.0f : 1.0f,
                low = kind == PMETA_LEAKY ? slope : 0.0f;
    for (size_t i = 0; i < n; i++) g[i] *= mask[i / 8] >> (i % 8) & 1 ? high : low;
}

static float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

/* kept: the output of a sigmoid, the input of the others */
void pmeta_curve(float *x, float *kept, size_t n, int kind)
{
    for (size_t i = 0; i < n; i++) {
        const float in = x[i];
        if (kind == PMETA_SIGMOID)
            x[i] = sigmoid(in);
        else if (kind == PMETA_SILU)
            x[i] = in * sigmoid(in);
        else
            x[i] = in * between(in + 3.0f, 0.0f, 6.0f) / 6.0f;
        if (kept) kept[i] = kind == PMETA_SIGMOID ? x[i] : in;
    }
}

static float slope_at(float kept, int kind)
{
    if (kind == PMETA_SIGMOID) return kept * (1.0f - kept);
    if (kind == PMETA_HARDSWISH)
        return kept < -3.0f ? 0.0f : kept > 3.0f ? 1.0f : kept / 3.0f + 0.5f;
    const float s = sigmoid(kept);
    return s * (1.0f + kept * (1.0f - s));
}

void pmeta_curve_bw(float *g, const float *kept, size_t n, int kind)
{
    for (size_t i = 0; i < n; i++) g[i] *= slope_at(kept[i], kind);
}
