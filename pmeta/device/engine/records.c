/* What is kept from forward to backward in two bytes or one: records of a channel or a row. */
#include "kernels.h"
#include <string.h>

#define LEVELS 255.0f
#define TINY 1e-30f /* a step below it counts as none */
#define LARGEST 0x477FE000u /* 65504 */

/* The nearest half, of two the even one; what is too large, or no number, becomes the largest. */
static uint16_t half_of(float v)
{
    uint32_t bits, half;
    memcpy(&bits, &v, sizeof bits);
    const uint32_t sign = bits >> 16 & 0x8000u;
    bits &= 0x7FFFFFFFu;
    if (bits >= 0x38800000u) {
        if (bits > LARGEST) bits = LARGEST;
        bits -= 0x38000000u;
        half = (bits + 0xFFFu + (bits >> 13 & 1u)) >> 13;
    } else { /* below 2^-14: as many steps of 2^-24, which the sum is rounded to */
        float sum;
        memcpy(&sum, &bits, sizeof sum);
        sum += 0.5f;
        memcpy(&half, &sum, sizeof half);
        half -= 0x3F000000u;
    }
    return (uint16_t)(sign | half);
}

/* Steps of 1 / inverse above lo, 0 to 255; what is not a number becomes 0. */
static unsigned char byte_of(float v, float lo, float inverse)
{
    const float q = (v - lo) * inverse + 0.5f;
    return q > 0.0f ? (unsigned char)(q < LEVELS ? q : LEVELS) : 0;
}

typedef struct {
    float scale, shift;
} head;

/* The range of n numbers in 255 steps; of halves nothing. */
static head head_of(const float *x, size_t n, int type)
{
    head h = {1.0f, 0.0f};
    if (type == PMETA_HALF) return h;
    float lo = x[0], hi = x[0];
    for (size_t i = 1; i < n; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
    }
    h.scale = (hi - lo) / LEVELS;
    h.shift = lo;
    return h;
}

/* One record from the numbers of x, of those where `keep` is not 0 only, at most cap. The numbers
 * come first, none of them over what is not read yet where y is x; then they make room for the
 * head. */
static void pack_record(unsigned char *y, const float *x, const float *keep, float factor, size_t n,
                        size_t cap, int type)
{
    head h = head_of(x, n, type);
    const float inverse = h.scale > TINY ? 1.0f / h.scale : 0.0f;
    size_t kept = 0;
    for (size_t i = 0; i < n && kept < cap; i++) {
        if (keep && keep[i] == 0.0f) continue;
        if (type == PMETA_HALF) {
            const uint16_t half = half_of(x[i]);
            memcpy(y + 2 * kept++, &half, sizeof half);
        } else {
            y[kept++] = byte_of(x[i], h.shift, inverse);
        }
    }
    memmove(y + PMETA_RECORD_HEAD, y, type == PMETA_HALF ? 2 * kept : kept);
    h.scale *= factor;
    h.shift *= factor;
    memcpy(y, &h, sizeof h);
}

void pmeta_pack(unsigned char *y, const float *x, const float *gamma, size_t c, size_t n,
                size_t stored, int rows, int type)
{
    const size_t cap = stored ? stored : c,
                 bytes = (size_t)pmeta_record_bytes(rows ? cap : n, type);
    for (size_t r = 0; rows && r < n; r++, x += c, y += bytes)
        pack_record(y, x, stored ? gamma : NULL, 1.0f, c, cap, type);
    for (size_t i = 0, kept = 0; !rows && i < c && kept < cap; i++, x += n) {
        const float factor = stored ? gamma[i] : 1.0f;
        if (factor == 0.0f) continue;
        pack_record(y, x, NULL, factor, n, n, type);
        y += bytes;
        kept++;
    }
}

PMETA_FAST static void bytes_to_floats(float *y, const unsigned char *q, float scale, float shift,
                                       size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = (float)q[i] * scale + shift;
}

void pmeta_unpack_record(float *y, const unsigned char *records, size_t i, size_t n, size_t first,
                         size_t count, int type)
{
    const unsigned char *record = records + i * (size_t)pmeta_record_bytes(n, type),
                        *q = record + PMETA_RECORD_HEAD;
    head h;
    memcpy(&h, record, sizeof h);
    if (type == PMETA_BYTE) {
        bytes_to_floats(y, q + first, h.scale, h.shift, count);
        return;
    }
    const pmeta_weights halves = {q, NULL, PMETA_HALF};
    pmeta_unpack(y, &halves, 0, n, first, count);
    for (size_t j = 0; h.scale != 1.0f && j < count; j++) y[j] *= h.scale;
}
