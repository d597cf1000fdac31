/* Windows of a stream: the mean of some readings, a straight line between means, scale, window. */
#include "stream.h"

#include <string.h>

#include "format.h"

pmeta_status pmeta_stream_start(pmeta_stream *s, const pmeta_model *m, uint32_t stride,
                                double ratio, void *memory, size_t bytes)
{
    if (!s || !m || !memory || !(ratio > 0 && ratio < 1e6)) return PMETA_ARGUMENT;
    if (stride < 1 || stride * ratio < 1 - 1e-9) return PMETA_ARGUMENT;
    if (m->phase == 0) return PMETA_ORDER;
    if (m->input_type != PMETA_FLOAT32) return PMETA_ARGUMENT;
    if ((uintptr_t)memory % 4) return PMETA_ALIGNMENT;
    const pmeta_header *h = pmeta_head(m);
    memset(s, 0, sizeof *s);
    s->averaged = ratio < 1.5 ? 1 : (uint32_t)(ratio + 0.5);
    uint64_t channels = h->input_channels, length = h->input_plane;
    if (channels * (length + s->averaged + 2) > bytes / sizeof(float)) return PMETA_ARENA_TOO_SMALL;
    s->m = m;
    s->channels = h->input_channels;
    s->length = h->input_plane;
    s->stride = stride;
    s->ratio = ratio;
    s->rows = memory;
    s->window = s->rows;
    s->recent = s->rows + s->channels * s->length;
    s->last = s->recent + s->channels * s->averaged;
    s->now = s->last + s->channels;
    return PMETA_OK;
}

/* The mean of the last readings, when there are enough of them. */
static int mean_of_recent(pmeta_stream *s, const float *readings)
{
    uint32_t at = s->seen % s->averaged;
    memcpy(s->recent + at * s->channels, readings, s->channels * sizeof(float));
    s->seen = s->seen < 2 * s->averaged - 1 ? s->seen + 1 : s->averaged;
    if (s->seen < s->averaged) return 0;
    memcpy(s->last, s->now, s->channels * sizeof(float));
    for (uint32_t c = 0; c < s->channels; c++) {
        float sum = 0;
        for (uint32_t i = 0; i < s->averaged; i++) sum += s->recent[i * s->channels + c];
        s->now[c] = sum / (float)s->averaged;
    }
    return 1;
}

/* One row of the network into the window; 1 when that is full. */
static int append(pmeta_stream *s, double part)
{
    const float *scale = (const float *)(const void *)(s->m->file + pmeta_head(s->m)->at_scale);
    const float *shift = scale + s->channels;
    if (s->skip) {
        s->skip--;
        return 0;
    }
    for (uint32_t c = 0; c < s->channels; c++) {
        float row = (float)(s->last[c] * (1 - part) + s->now[c] * part);
        s->rows[c * s->length + s->filled] = row * scale[c] + shift[c];
    }
    return ++s->filled == s->length;
}

/* Make room: the next window keeps the rows that it shares with this one. */
static void move_on(pmeta_stream *s)
{
    uint32_t kept = s->stride < s->length ? s->length - s->stride : 0;
    for (uint32_t c = 0; c < s->channels; c++) {
        float *row = s->rows + c * s->length;
        memmove(row, row + (s->length - kept), kept * sizeof(float));
    }
    s->skip = s->stride > s->length ? s->stride - s->length : 0;
    s->filled = kept;
}

/* The rows between the last mean and this one, until the window is full. */
static int append_between(pmeta_stream *s)
{
    int ready = 0;
    while (!ready && s->place <= 1 + 1e-9) {
        ready = append(s, s->place);
        s->place += s->ratio;
    }
    return ready;
}

int pmeta_stream_push(pmeta_stream *s, const float *readings)
{
    if (s->filled == s->length) {
        move_on(s);
        append_between(s); /* what a slow sensor's last reading had more: less than a stride */
    }
    if (s->seen < s->averaged) {
        if (!mean_of_recent(s, readings)) return 0;
        memcpy(s->last, s->now, s->channels * sizeof(float)); /* the first stands for itself */
        s->place = s->ratio + 1;
        return append(s, 1);
    }
    mean_of_recent(s, readings);
    s->place -= 1;
    return append_between(s);
}
