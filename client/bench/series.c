#include "client/bench/series.h"

#include <math.h>
#include <stdlib.h>

#include "client/bench/percentile.h"

#define WIDTH_LEAST_US 100000u

const char *const series_names[SERIES_COLUMNS] = {
    "arrivals_over_time", "sent_over_time",     "completed_over_time",
    "failed_over_time",   "tokens_over_time",   "ttft_p50_over_time",
    "ttft_p99_over_time", "e2el_p50_over_time", "e2el_p99_over_time"};

static uint64_t last_us(const struct workload *workload, const struct recorder *recorder)
{
    uint64_t last = 0;
    for (uint32_t i = 0; i < workload->count; i++) {
        const struct record *record = &recorder->records[i];
        last = record->end_us > last ? record->end_us : last;
        last = record->due_us > last ? record->due_us : last;
    }
    return last;
}

static uint64_t choose_width(uint64_t last)
{
    static const uint32_t steps[] = {1, 2, 5};
    for (uint64_t power = WIDTH_LEAST_US;; power *= 10)
        for (int i = 0; i < 3; i++)
            if (last / (power * steps[i]) < SERIES_MAX)
                return power * steps[i];
}

static void count_events(const struct workload *workload, const struct recorder *recorder,
                         uint64_t width, double **values)
{
    for (uint32_t i = 0; i < workload->count; i++) {
        const struct record *record = &recorder->records[i];
        if (record->outcome == OUTCOME_UNSENT)
            continue;
        values[SERIES_ARRIVALS][record->due_us / width]++;
        values[SERIES_SENT][record->sent_us / width]++;
        values[SERIES_COMPLETED][record->end_us / width] += record->outcome == OUTCOME_OK;
        values[SERIES_FAILED][record->end_us / width] += record->outcome == OUTCOME_FAILED;
    }
    for (size_t i = 0; i < recorder->chunk_count; i++)
        values[SERIES_TOKENS][recorder->chunks[i].at_us / width] += recorder->chunks[i].tokens;
}

static bool is_answered(const struct record *record)
{
    return record->outcome == OUTCOME_OK && record->chunks > 0;
}

static void put_percentiles(double **values, size_t span, double *ttft, double *e2el, size_t count)
{
    percentile_sort(ttft, count);
    percentile_sort(e2el, count);
    values[SERIES_TTFT_P50][span] = percentile_of(ttft, count, 50);
    values[SERIES_TTFT_P99][span] = percentile_of(ttft, count, 99);
    values[SERIES_E2EL_P50][span] = percentile_of(e2el, count, 50);
    values[SERIES_E2EL_P99][span] = percentile_of(e2el, count, 99);
}

/* Those of requests that came due within each span; where none was answered there is a gap, and no
 * latency of zero. ends: zeroed, one for each span. */
static void find_latencies(const struct workload *workload, const struct recorder *recorder,
                           struct series *series, uint64_t width, size_t *ends, double *room)
{
    double *ttft = room, *e2el = room + workload->count;
    size_t all = 0;
    for (uint32_t i = 0; i < workload->count; i++)
        if (is_answered(&recorder->records[i]))
            ends[recorder->records[i].due_us / width]++;
    for (uint32_t span = 0; span < series->count; span++) { /* where each begins, ... */
        size_t count = ends[span];
        ends[span] = all;
        all += count;
    }
    for (uint32_t i = 0; i < workload->count; i++) { /* ... and ends, once it is filled */
        const struct record *record = &recorder->records[i];
        if (!is_answered(record))
            continue;
        size_t at = ends[record->due_us / width]++;
        ttft[at] = (double)(record->first_us - record->due_us) / 1000;
        e2el[at] = (double)(record->last_us - record->due_us) / 1000;
    }
    for (uint32_t span = 0; span < series->count; span++) {
        size_t from = span > 0 ? ends[span - 1] : 0;
        if (ends[span] > from)
            put_percentiles(series->values, span, ttft + from, e2el + from, ends[span] - from);
    }
}

int series_make(const struct workload *workload, const struct recorder *recorder,
                struct series *ret_series, struct error *error)
{
    uint64_t last = last_us(workload, recorder), width = choose_width(last);
    struct series series = {.count = (uint32_t)(last / width) + 1, .width_s = (double)width / 1e6};
    double *room = malloc(2 * (size_t)workload->count * sizeof(*room));
    size_t *ends = calloc(series.count, sizeof(*ends));
    bool fits = room != NULL && ends != NULL;
    for (int i = 0; i < SERIES_COLUMNS; i++) {
        series.values[i] = calloc(series.count, sizeof(double));
        fits = fits && series.values[i];
    }
    if (fits) {
        for (int c = SERIES_TTFT_P50; c <= SERIES_E2EL_P99; c++)
            for (uint32_t i = 0; i < series.count; i++)
                series.values[c][i] = NAN;
        count_events(workload, recorder, width, series.values);
        find_latencies(workload, recorder, &series, width, ends, room);
        for (int c = SERIES_ARRIVALS; c <= SERIES_TOKENS; c++)
            for (uint32_t i = 0; i < series.count; i++)
                series.values[c][i] /= series.width_s;
        *ret_series = series;
    } else {
        series_free(&series);
    }
    free(room);
    free(ends);
    return fits ? 0 : error_set(error, ERR_NO_MEMORY, "no memory for the page");
}

void series_free(struct series *series)
{
    for (int i = 0; i < SERIES_COLUMNS; i++)
        free(series->values[i]);
    *series = (struct series){0};
}
