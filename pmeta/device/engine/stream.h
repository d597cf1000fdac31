/* Windows of a stream of readings, cut on the device as `pmeta adapt` cuts them from a recording.
 *
 *     static float memory[PMETA_STREAM_FLOATS(6, 64, 1)];
 *     pmeta_stream s;
 *     pmeta_stream_start(&s, &m, 32, 1.0, memory, sizeof memory);
 *     for (;;) {
 *         read_sensor(readings);
 *         if (pmeta_stream_push(&s, readings)) pmeta_infer(&m, s.window, scores);
 *     }
 *
 * A sensor of another rate than the model's is resampled: `ratio` readings come for each row that
 * the network sees, less than 1 of a slower sensor. A window begins `stride` rows behind the one
 * before it, and one reading completes at most one: stride * ratio is at least 1. */
#ifndef PMETA_STREAM_H
#define PMETA_STREAM_H
#include "pmeta.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Memory of a stream: one window, the readings that are averaged, and two rows. */
#define PMETA_STREAM_FLOATS(channels, length, averaged) \
    ((channels) * ((length) + (averaged) + 2))

typedef struct pmeta_stream {
    const float *window; /* (channels, length) scaled rows: a sample of the model */
    /* The stream's own. */
    const pmeta_model *m;
    float *rows, *recent, *last, *now;
    uint32_t channels, length, stride;
    uint32_t averaged, seen; /* readings in a mean; that came */
    uint32_t filled, skip;   /* rows of the window; that are passed over before the next */
    double ratio, place;     /* of the next row, in means behind `last` */
} pmeta_stream;

/* Begin with an empty window. The model reads float32 samples of (channels, length); scale and
 * shift of each channel are in its file. `memory` has 4-byte alignment and at least
 * PMETA_STREAM_FLOATS(channels, length, n) floats, where n is `ratio` rounded, at least 1. */
pmeta_status pmeta_stream_start(pmeta_stream *s, const pmeta_model *m, uint32_t stride,
                                double ratio, void *memory, size_t bytes);

/* Take one reading of each channel. Returns 1 when s->window is complete; it stays as it is until
 * the next call. Readings that are not finite are for pmeta_infer to refuse. */
int pmeta_stream_push(pmeta_stream *s, const float *readings);

#ifdef __cplusplus
}
#endif
#endif
