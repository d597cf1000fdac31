/* Weights that do not change may lie in the file as halves, or as bytes with a scale for each row:
 * they become float32 where they are read. */
#include "kernels.h"
#include <string.h>

PMETA_FAST static void from_halves(float *y, const unsigned char *in, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t half;
        uint32_t bits;
        memcpy(&half, in + 2 * i, sizeof half);
        bits = (uint32_t)(half & 0x7FFFu) << 13; /* too small by 2^112: the exponents differ */
        memcpy(y + i, &bits, sizeof bits);
        y[i] *= half & 0x8000u ? -5.192296858534828e33f : 5.192296858534828e33f;
    }
}

PMETA_FAST static void from_bytes(float *y, const unsigned char *in, float scale, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = (float)(in[i] < 128 ? in[i] : in[i] - 256) * scale;
}

void pmeta_unpack(float *y, const pmeta_weights *w, size_t row, size_t width, size_t first,
                  size_t n)
{
    const unsigned char *in = w->data;
    const size_t at = row * width + first;
    if (w->type == PMETA_HALF)
        from_halves(y, in + 2 * at, n);
    else if (w->type == PMETA_BYTE)
        from_bytes(y, in + at, w->scale[row], n);
    else
        memmove(y, in + sizeof(float) * at, n * sizeof(float));
}
