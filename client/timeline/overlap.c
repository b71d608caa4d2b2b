#include "client/timeline/overlap.h"

#include <stdlib.h>

double overlap_model(const double times[STAGES], uint64_t batches)
{
    double free_at[STAGES] = {0};
    for (uint64_t batch = 0; batch < batches; batch++) {
        double ready = 0;
        for (int stage = 0; stage < STAGES; stage++) {
            ready = (ready > free_at[stage] ? ready : free_at[stage]) + times[stage];
            free_at[stage] = ready;
        }
    }
    return free_at[STAGES - 1];
}

static int by_begin(const void *left, const void *right)
{
    const struct stage_span *a = left, *b = right;
    return (a->begin_ns > b->begin_ns) - (a->begin_ns < b->begin_ns);
}

/* How long at least one of them runs; sorts them. */
static uint64_t united_ns(struct stage_span *spans, size_t count)
{
    uint64_t all_ns = 0, end_ns = 0;
    qsort(spans, count, sizeof(*spans), by_begin);
    for (size_t i = 0; i < count; i++) {
        uint64_t begin_ns = spans[i].begin_ns > end_ns ? spans[i].begin_ns : end_ns;
        all_ns += spans[i].end_ns > begin_ns ? spans[i].end_ns - begin_ns : 0;
        end_ns = spans[i].end_ns > end_ns ? spans[i].end_ns : end_ns;
    }
    return all_ns;
}

int overlap_measure(const struct chunk_list *list, struct overlap *ret_overlap, struct error *error)
{
    struct overlap overlap = {.span_ns = 0};
    struct stage_span *spans = calloc(list->count, sizeof(*spans));
    double times[STAGES];
    if (!spans)
        return error_set(error, ERR_NO_MEMORY, "no memory for %zu chunks", list->count);
    for (int stage = 0; stage < STAGES; stage++) {
        for (size_t i = 0; i < list->count; i++)
            spans[i] = list->chunks[i].stages[stage];
        overlap.busy_ns[stage] = united_ns(spans, list->count);
        overlap.sum_ns += overlap.busy_ns[stage];
        times[stage] = (double)overlap.busy_ns[stage] / (double)list->count;
    }
    for (size_t i = 0; i < list->count; i++) {
        const struct timed_chunk *chunk = &list->chunks[i];
        const uint64_t end_ns = chunk->stages[STAGE_OUT].end_ns;
        spans[i] = (struct stage_span){chunk->stages[STAGE_IN].begin_ns, end_ns};
        overlap.span_ns = end_ns > overlap.span_ns ? end_ns : overlap.span_ns;
        overlap.bytes[STAGE_IN] += chunk->bytes_in;
        overlap.bytes[STAGE_OUT] += chunk->bytes_out;
    }
    overlap.elapsed_ns = united_ns(spans, list->count);
    free(spans);
    overlap.model_ns = overlap_model(times, list->count);
    if (overlap.elapsed_ns > 0)
        overlap.at_once = (double)overlap.sum_ns / (double)overlap.elapsed_ns;
    if (overlap.model_ns > 0)
        overlap.model_once = (double)overlap.sum_ns / overlap.model_ns;
    *ret_overlap = overlap;
    return 0;
}
