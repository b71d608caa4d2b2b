#include "gpu/lanes/lane_times.h"

#include <assert.h>
#include <math.h>

#include "gpu/base/cuda_error.h"

#define CLOCK_START_NS 1000000000u /* chunks of other lanes may have begun before the first taken */

static int make(cudaEvent_t *event, struct error *error)
{
    CUDA_TRY(cudaEventCreateWithFlags(event, cudaEventDefault), error);
    return 0;
}

static void drop(cudaEvent_t *event)
{
    if (*event)
        (void)cudaEventDestroy(*event);
    *event = NULL;
}

int lane_clock_open(struct lane_clock *clock, struct error *error)
{
    *clock = (struct lane_clock){.renew_ms = LANE_CLOCK_RENEW_MS};
    return make(&clock->origin, error);
}

void lane_clock_close(struct lane_clock *clock)
{
    drop(&clock->origin);
}

int lane_times_open(struct lane_times *times, uint32_t streams, struct error *error)
{
    cudaEvent_t *const events[] = {&times->in_first, &times->in_last, &times->out_first,
                                   &times->out_last};
    int rc = 0;
    times->streams = streams;
    for (int i = 0; !rc && i < 4; i++)
        rc = make(events[i], error);
    for (uint32_t i = 0; !rc && i < streams; i++)
        rc = make(&times->begun[i], error);
    for (uint32_t i = 0; !rc && i < streams; i++)
        rc = make(&times->through[i], error);
    return rc;
}

void lane_times_close(struct lane_times *times)
{
    drop(&times->in_first);
    drop(&times->in_last);
    drop(&times->out_first);
    drop(&times->out_last);
    for (uint32_t i = 0; i < SLUICE_STREAMS_MAX; i++) {
        drop(&times->begun[i]);
        drop(&times->through[i]);
    }
}

/* The first event of this chunk is the origin from now on, and the old one is the slot's. */
static void renew(struct lane_times *times, struct lane_clock *clock, uint64_t at_ns)
{
    cudaEvent_t old = clock->origin;
    clock->origin = times->in_first;
    clock->origin_ns = at_ns;
    times->in_first = old;
}

/* Where the event passed, `base` having passed at `base_ns`. */
static int place(cudaEvent_t base, uint64_t base_ns, cudaEvent_t event, uint64_t *ret_ns,
                 struct error *error)
{
    float ms = 0;
    CUDA_TRY(cudaEventElapsedTime(&ms, base, event), error);
    int64_t at_ns = (int64_t)base_ns + llround((double)ms * 1e6);
    *ret_ns = at_ns > 0 ? (uint64_t)at_ns : 0;
    return 0;
}

/* From the first stream that began to the last that was through. */
static int place_kernels(const struct lane_times *times, uint64_t base_ns, uint32_t streams,
                         struct gpu_span *ret_span, struct error *error)
{
    struct gpu_span span = {.begin_ns = UINT64_MAX};
    int rc = 0;
    for (uint32_t i = 0; !rc && i < streams; i++) {
        uint64_t begin_ns = 0, end_ns = 0;
        rc = place(times->in_first, base_ns, times->begun[i], &begin_ns, error);
        if (!rc)
            rc = place(times->in_first, base_ns, times->through[i], &end_ns, error);
        span.begin_ns = begin_ns < span.begin_ns ? begin_ns : span.begin_ns;
        span.end_ns = end_ns > span.end_ns ? end_ns : span.end_ns;
    }
    *ret_span = span;
    return rc;
}

int lane_times_read(struct lane_times *times, struct lane_clock *clock, uint32_t streams,
                    struct gpu_chunk_times *ret_times, struct error *error)
{
    struct gpu_chunk_times read = {.in.begin_ns = CLOCK_START_NS};
    float ms = 0;
    int rc = 0;
    assert(streams > 0 && streams <= times->streams);
    if (clock->origin_ns > 0) {
        CUDA_TRY(cudaEventElapsedTime(&ms, clock->origin, times->in_first), error);
        rc = place(clock->origin, clock->origin_ns, times->in_first, &read.in.begin_ns, error);
    }
    const uint64_t base_ns = read.in.begin_ns;
    if (!rc)
        rc = place(times->in_first, base_ns, times->in_last, &read.in.end_ns, error);
    if (!rc)
        rc = place_kernels(times, base_ns, streams, &read.kernels, error);
    if (!rc)
        rc = place(times->in_first, base_ns, times->out_first, &read.out.begin_ns, error);
    if (!rc)
        rc = place(times->in_first, base_ns, times->out_last, &read.out.end_ns, error);
    if (rc)
        return rc;
    if (clock->origin_ns == 0 || ms >= clock->renew_ms)
        renew(times, clock, base_ns);
    *ret_times = read;
    return 0;
}
