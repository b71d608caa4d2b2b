#include "daemon/worker/trace.h"

#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "protocol/base/hist.h"

struct trace_rank {
    int device;
    uint32_t count;
    struct gpu_profile *steps; /* [trace->steps_max] */
};

struct trace {
    uint32_t replica, steps_max, rank_count;
    atomic_bool closed;
    struct trace_rank ranks[GPU_DEVICES_MAX];
};

int trace_make(uint32_t steps, uint32_t ranks, struct trace **ret_trace, struct error *error)
{
    assert(steps > 0 && steps <= TRACE_STEPS_MAX && ranks > 0 && ranks <= GPU_DEVICES_MAX);
    struct trace *trace = calloc(1, sizeof(*trace));
    bool made = trace != NULL;
    for (uint32_t i = 0; made && i < ranks; i++) {
        trace->ranks[i].steps = calloc(steps, sizeof(*trace->ranks[i].steps));
        made = trace->ranks[i].steps != NULL;
    }
    if (!made) {
        trace_free(trace);
        return error_set(error, ERR_NO_MEMORY, "no memory to profile %u steps", steps);
    }
    trace->steps_max = steps;
    trace->rank_count = ranks;
    *ret_trace = trace;
    return 0;
}

void trace_free(struct trace *trace)
{
    if (!trace)
        return;
    for (uint32_t i = 0; i < GPU_DEVICES_MAX; i++)
        free(trace->ranks[i].steps);
    free(trace);
}

void trace_name(struct trace *trace, uint32_t replica, const int *devices)
{
    trace->replica = replica;
    for (uint32_t i = 0; i < trace->rank_count; i++)
        trace->ranks[i].device = devices[i];
}

void trace_take(struct trace *trace, uint32_t rank, const struct gpu_profile *profile)
{
    struct trace_rank *taken = &trace->ranks[rank];
    assert(rank < trace->rank_count);
    if (taken->count < trace->steps_max)
        taken->steps[taken->count++] = *profile;
}

bool trace_full(const struct trace *trace)
{
    for (uint32_t i = 0; i < trace->rank_count; i++)
        if (trace->ranks[i].count < trace->steps_max)
            return false;
    return true;
}

void trace_close(struct trace *trace)
{
    /* Release: who sees it may read the steps. */
    atomic_store_explicit(&trace->closed, true, memory_order_release);
}

bool trace_closed(const struct trace *trace)
{
    return atomic_load_explicit(&trace->closed, memory_order_acquire);
}

/* ---- one clock ---------------------------------------------------------------------------------
 */

/* What is to be added to the device's clock: between the two bounds, that nothing begins before it
 * is enqueued and nothing is told before it has ended. An event that was recorded late can make
 * them contradict each other; the first holds then, and span_of() sees to the other. Both clocks
 * wrap around alike, so the difference is right whatever the two started from. */
static uint64_t clock_offset(const struct trace_rank *rank)
{
    int64_t low = INT64_MIN, high = INT64_MAX;
    for (uint32_t i = 0; i < rank->count; i++) {
        const struct gpu_profile *step = &rank->steps[i];
        int64_t after = (int64_t)(step->enqueue.begin_ns - step->lanes[GPU_COPY_IN].begin_ns);
        int64_t before = (int64_t)(step->told_ns - step->lanes[GPU_COPY_OUT].end_ns);
        low = after > low ? after : low;
        high = before < high ? before : high;
    }
    return (uint64_t)low + (low < high ? ((uint64_t)high - (uint64_t)low) / 2 : 0);
}

/* A lane's part of a step, on the host's clock. */
static struct gpu_span span_of(const struct gpu_profile *step, enum gpu_lane lane, uint64_t offset)
{
    const struct gpu_span *own = &step->lanes[lane == GPU_NOTIFY ? GPU_COPY_OUT : lane];
    struct gpu_span span = {own->begin_ns + offset, own->end_ns + offset};
    if (lane == GPU_NOTIFY) {
        /* From the results being there until they were told. */
        span.begin_ns = span.end_ns < step->told_ns ? span.end_ns : step->told_ns;
        span.end_ns = step->told_ns;
    } else if (own->begin_ns == 0 && own->end_ns == 0) {
        span = (struct gpu_span){0, 0};
    }
    return span;
}

/* ---- in figures --------------------------------------------------------------------------------
 */

static void sum_gaps(const struct trace_rank *rank, uint64_t offset, struct trace_summary *sum)
{
    struct hist hist;
    hist_clear(&hist); /* of nanoseconds: it counts whatever it is given */
    for (uint32_t i = 1; i < rank->count; i++) {
        uint64_t end_ns = rank->steps[i - 1].lanes[GPU_COMPUTE].end_ns;
        uint64_t begin_ns = rank->steps[i].lanes[GPU_COMPUTE].begin_ns;
        if (rank->steps[i].enqueue.end_ns < end_ns + offset)
            hist_add(&hist, begin_ns > end_ns ? begin_ns - end_ns : 0);
    }
    sum->gaps = hist.count;
    sum->gap_p50_ns = hist_percentile(&hist, 0.5);
    sum->gap_p99_ns = hist_percentile(&hist, 0.99);
    sum->gap_max_ns = hist.max_us;
}

bool trace_summarise(const struct trace *trace, uint32_t number, struct trace_summary *ret)
{
    const struct trace_rank *rank = &trace->ranks[number];
    uint64_t offset = clock_offset(rank), all_ns = 0;
    *ret = (struct trace_summary){.steps = rank->count};
    if (rank->count == 0)
        return false;
    for (uint32_t i = 0; i < rank->count; i++) {
        for (int lane = 0; lane < GPU_LANES; lane++) {
            struct gpu_span span = span_of(&rank->steps[i], (enum gpu_lane)lane, offset);
            ret->busy_ns[lane] += span.end_ns - span.begin_ns;
        }
    }
    for (int lane = 0; lane < GPU_LANES; lane++)
        all_ns += ret->busy_ns[lane];
    ret->elapsed_ns = rank->steps[rank->count - 1].told_ns -
                      span_of(&rank->steps[0], GPU_COPY_IN, offset).begin_ns;
    ret->overlap = ret->elapsed_ns > 0 ? (double)all_ns / (double)ret->elapsed_ns : 0;
    sum_gaps(rank, offset, ret);
    return true;
}

static const char *const lane_names[] = {"compute",  "copy_in", "copy_out", "bulk_in",
                                         "bulk_out", "peer",    "notify"};
_Static_assert(sizeof(lane_names) / sizeof(lane_names[0]) == GPU_LANES, "one name for each lane");

void trace_print(const struct trace *trace, FILE *file)
{
    for (uint32_t i = 0; i < trace->rank_count; i++) {
        struct trace_summary sum;
        if (!trace_summarise(trace, i, &sum)) {
            fprintf(file, "profile: replica %u, device %d: no steps\n", trace->replica,
                    trace->ranks[i].device);
            continue;
        }
        fprintf(file, "profile: replica %u, device %d: %" PRIu64 " steps in %.6f s\n",
                trace->replica, trace->ranks[i].device, sum.steps, (double)sum.elapsed_ns / 1e9);
        for (int lane = 0; lane < GPU_LANES; lane++)
            fprintf(file, "  %-8s busy %.6f s, %.2f %%\n", lane_names[lane],
                    (double)sum.busy_ns[lane] / 1e9,
                    100 * (double)sum.busy_ns[lane] / (double)sum.elapsed_ns);
        fprintf(file, "  overlap  %.3f, the sum of these over elapsed time\n", sum.overlap);
        fprintf(file,
                "  gaps     on compute %.1f us p50, %.1f us p99, %.1f us at most, before %" PRIu64
                " steps enqueued ahead\n",
                (double)sum.gap_p50_ns / 1e3, (double)sum.gap_p99_ns / 1e3,
                (double)sum.gap_max_ns / 1e3, sum.gaps);
    }
    fflush(file);
}

/* ---- as a file ---------------------------------------------------------------------------------
 */

#define THREAD_SUBMIT GPU_LANES /* after the lanes */

static uint64_t first_ns(struct trace *const *traces, uint32_t count)
{
    uint64_t first = UINT64_MAX;
    for (uint32_t t = 0; t < count; t++) {
        for (uint32_t i = 0; i < traces[t]->rank_count; i++) {
            const struct trace_rank *rank = &traces[t]->ranks[i];
            if (rank->count > 0 && rank->steps[0].enqueue.begin_ns < first)
                first = rank->steps[0].enqueue.begin_ns;
        }
    }
    return first;
}

static void write_names(const struct trace *trace, uint32_t rank, uint32_t process, FILE *file)
{
    fprintf(file,
            "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%u,\"args\":{\"name\":"
            "\"replica %u, rank %u, device %d\"}},\n",
            process, trace->replica, rank, trace->ranks[rank].device);
    for (int thread = 0; thread <= THREAD_SUBMIT; thread++) {
        fprintf(file,
                "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%u,\"tid\":%d,\"args\":{\"name\":"
                "\"%s\"}},\n",
                process, thread, thread == THREAD_SUBMIT ? "submit" : lane_names[thread]);
        fprintf(file,
                "{\"name\":\"thread_sort_index\",\"ph\":\"M\",\"pid\":%u,\"tid\":%d,\"args\":{"
                "\"sort_index\":%d}},\n",
                process, thread, thread);
    }
}

struct event {
    uint32_t process, step;
    int thread;
    struct gpu_span span;
};

/* Times in microseconds from the trace's first. */
static void write_event(const struct event *event, uint64_t zero_ns, const struct gpu_profile *step,
                        FILE *file)
{
    double begin_us = (double)(int64_t)(event->span.begin_ns - zero_ns) / 1e3;
    double length_us = (double)(event->span.end_ns - event->span.begin_ns) / 1e3;
    fprintf(file,
            "{\"name\":\"step %u\",\"cat\":\"step\",\"ph\":\"X\",\"pid\":%u,\"tid\":%d,"
            "\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"step\":%u,\"rows\":%u,\"tokens\":%u,"
            "\"slabs\":%u}},\n",
            event->step, event->process, event->thread, begin_us, length_us, event->step,
            step->rows, step->tokens, step->slabs);
}

static void write_rank(const struct trace_rank *rank, uint32_t process, uint64_t zero_ns,
                       FILE *file)
{
    uint64_t offset = clock_offset(rank);
    for (uint32_t i = 0; i < rank->count; i++) {
        const struct gpu_profile *step = &rank->steps[i];
        struct event event = {.process = process, .step = i + 1};
        for (event.thread = 0; event.thread <= THREAD_SUBMIT; event.thread++) {
            event.span = event.thread == THREAD_SUBMIT
                             ? step->enqueue
                             : span_of(step, (enum gpu_lane)event.thread, offset);
            if (event.span.end_ns > 0)
                write_event(&event, zero_ns, step, file);
        }
    }
}

void trace_write(struct trace *const *traces, uint32_t count, FILE *file)
{
    uint64_t zero_ns = first_ns(traces, count);
    uint32_t process = 0;
    fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n", file);
    for (uint32_t t = 0; t < count; t++) {
        for (uint32_t i = 0; i < traces[t]->rank_count; i++, process++) {
            write_names(traces[t], i, process, file);
            write_rank(&traces[t]->ranks[i], process, zero_ns, file);
        }
    }
    /* The events end with commas; this one does not. */
    fputs("{\"name\":\"end\",\"ph\":\"M\",\"pid\":0,\"args\":{}}\n]}\n", file);
}
