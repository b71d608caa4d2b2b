#include "client/bench/summary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/bench/percentile.h"

static double ms(uint64_t from_us, uint64_t to_us)
{
    return ((double)to_us - (double)from_us) / 1000;
}

static double part(double amount, double seconds)
{
    return seconds > 0 ? amount / seconds : 0;
}

/* ---- one metric --------------------------------------------------------------------------------
 */

static void finish_metric(struct metric *metric)
{
    double sum = 0, square = 0;
    for (size_t i = 0; i < metric->count; i++)
        sum += metric->sorted[i];
    metric->mean = metric->count ? sum / (double)metric->count : 0;
    for (size_t i = 0; i < metric->count; i++)
        square += (metric->sorted[i] - metric->mean) * (metric->sorted[i] - metric->mean);
    metric->std = metric->count ? sqrt(square / (double)metric->count) : 0;
    percentile_sort(metric->sorted, metric->count);
}

static double tpot_ms(const struct record *record)
{
    return ms(record->first_us, record->last_us) / (double)(record->output_tokens - 1);
}

static bool has_tpot(const struct record *record)
{
    return record->outcome == OUTCOME_OK && record->output_tokens > 1 && record->chunks > 0;
}

static void add_value(struct metric *metric, double value)
{
    metric->sorted[metric->count++] = value;
}

static void add_record(struct summary *summary, const struct record *record)
{
    struct metric *metrics = summary->metrics;
    if (record->outcome != OUTCOME_UNSENT)
        add_value(&summary->lateness, ms(record->ready_us, record->sent_us));
    if (record->outcome != OUTCOME_OK || record->chunks == 0)
        return;
    add_value(&metrics[METRIC_TTFT], ms(record->sent_us, record->first_us));
    add_value(&metrics[METRIC_E2EL], ms(record->sent_us, record->last_us));
    add_value(&metrics[METRIC_TTFT_DUE], ms(record->due_us, record->first_us));
    add_value(&metrics[METRIC_E2EL_DUE], ms(record->due_us, record->last_us));
    if (has_tpot(record))
        add_value(&metrics[METRIC_TPOT], tpot_ms(record));
}

static int make_metrics(const struct workload *workload, const struct recorder *recorder,
                        struct summary *summary, struct error *error)
{
    size_t *first;
    for (int i = 0; i <= METRICS; i++) {
        struct metric *metric = i < METRICS ? &summary->metrics[i] : &summary->lateness;
        if (i == METRIC_ITL)
            continue;
        metric->sorted = malloc(workload->count * sizeof(double));
        if (!metric->sorted)
            return error_set(error, ERR_NO_MEMORY, "no memory for the results");
    }
    struct metric *itl = &summary->metrics[METRIC_ITL];
    int rc = summary_gaps(workload, recorder, &itl->sorted, &first, error);
    if (rc)
        return rc;
    /* Only completed requests count; theirs are moved to the front. */
    for (uint32_t i = 0; i < workload->count; i++)
        for (size_t g = first[i]; g < first[i + 1]; g++)
            if (recorder->records[i].outcome == OUTCOME_OK)
                add_value(itl, itl->sorted[g]);
    free(first);
    for (uint32_t i = 0; i < workload->count; i++)
        add_record(summary, &recorder->records[i]);
    for (int i = 0; i < METRICS; i++)
        finish_metric(&summary->metrics[i]);
    finish_metric(&summary->lateness);
    return 0;
}

int summary_gaps(const struct workload *workload, const struct recorder *recorder,
                 double **ret_gaps, size_t **ret_first, struct error *error)
{
    size_t count = workload->count;
    size_t *first = calloc(count + 1, sizeof(*first)), *at = calloc(count, sizeof(*at));
    uint64_t *before = calloc(count, sizeof(*before)); /* a request's last chunk, plus 1 */
    double *gaps = malloc((recorder->chunk_count + 1) * sizeof(*gaps));
    if (!first || !at || !before || !gaps) {
        free(first);
        free(gaps);
        first = NULL;
    }
    for (size_t i = 0; first && i < recorder->chunk_count; i++)
        if (before[recorder->chunks[i].request]++ > 0)
            first[recorder->chunks[i].request + 1]++;
    for (size_t i = 0; first && i < count; i++) {
        at[i] = first[i];
        first[i + 1] += first[i];
        before[i] = 0;
    }
    for (size_t i = 0; first && i < recorder->chunk_count; i++) {
        const struct chunk *chunk = &recorder->chunks[i];
        if (before[chunk->request] > 0)
            gaps[at[chunk->request]++] = ms(before[chunk->request] - 1, chunk->at_us);
        before[chunk->request] = chunk->at_us + 1;
    }
    free(at);
    free(before);
    if (!first)
        return error_set(error, ERR_NO_MEMORY, "no memory for the results");
    *ret_gaps = gaps;
    *ret_first = first;
    return 0;
}

/* ---- counts and rates --------------------------------------------------------------------------
 */

static bool is_good(const struct record *record, const struct bench_goals *goals)
{
    const double values[GOALS] = {
        [GOAL_TTFT] = ms(record->sent_us, record->first_us),
        [GOAL_TPOT] = has_tpot(record) ? tpot_ms(record) : 0,
        [GOAL_E2EL] = ms(record->sent_us, record->last_us),
    };
    for (int i = 0; i < GOALS; i++)
        if (values[i] > goals->limit_ms[i])
            return false;
    return true;
}

struct span {
    uint64_t due_first, due_last, sent_first, sent_last, end_last;
    uint32_t sent, good;
};

static void count_record(struct summary *summary, const struct record *record,
                         const struct bench_goals *goals, struct span *span)
{
    if (record->outcome == OUTCOME_UNSENT) {
        summary->unsent++;
        return;
    }
    if (span->sent++ == 0) {
        span->due_first = record->due_us;
        span->sent_first = record->sent_us;
    }
    span->due_last = record->due_us > span->due_last ? record->due_us : span->due_last;
    span->sent_first = record->sent_us < span->sent_first ? record->sent_us : span->sent_first;
    span->sent_last = record->sent_us > span->sent_last ? record->sent_us : span->sent_last;
    span->end_last = record->end_us > span->end_last ? record->end_us : span->end_last;
    summary->failed += record->outcome == OUTCOME_FAILED;
    summary->cancelled += record->outcome == OUTCOME_CANCELLED || record->outcome == OUTCOME_OPEN;
    if (record->outcome != OUTCOME_OK)
        return;
    summary->completed++;
    summary->input_tokens += record->prompt_tokens;
    summary->output_tokens += record->output_tokens;
    summary->cached_tokens += record->cached_tokens;
    summary->cached += record->cached_tokens > 0;
    span->good += goals->given && is_good(record, goals);
}

static void count_further(struct summary *summary, const struct record *record)
{
    if (record->outcome != OUTCOME_OK)
        return;
    summary->later_input_tokens += record->prompt_tokens;
    summary->later_cached_tokens += record->cached_tokens;
}

static void count_all(const struct workload *workload, const struct recorder *recorder,
                      const struct bench_goals *goals, struct summary *summary)
{
    struct span span = {0};
    for (uint32_t i = 0; i < workload->count; i++) {
        count_record(summary, &recorder->records[i], goals, &span);
        if (i % workload->turns > 0)
            count_further(summary, &recorder->records[i]);
    }
    double seconds = summary->duration_s = (double)(span.end_last - span.sent_first) / 1e6;
    double between = span.sent > 0 ? span.sent - 1 : 0;
    summary->request_throughput = part(summary->completed, seconds);
    summary->request_goodput = part(span.good, seconds);
    summary->output_throughput = part((double)summary->output_tokens, seconds);
    summary->total_throughput =
        part((double)(summary->input_tokens + summary->output_tokens), seconds);
    summary->offered_rate = part(between, (double)(span.due_last - span.due_first) / 1e6);
    if (summary->offered_rate > 0)
        summary->sent_rate = part(between, (double)(span.sent_last - span.sent_first) / 1e6);
}

/* ---- peaks -------------------------------------------------------------------------------------
 */

static int find_peak_tokens(const struct recorder *recorder, struct summary *summary,
                            struct error *error)
{
    uint64_t seconds = 0, most = 0;
    for (size_t i = 0; i < recorder->chunk_count; i++)
        if (recorder->chunks[i].at_us / 1000000 > seconds)
            seconds = recorder->chunks[i].at_us / 1000000;
    uint64_t *tokens = calloc(seconds + 1, sizeof(*tokens));
    if (!tokens)
        return error_set(error, ERR_NO_MEMORY, "no memory for the results");
    for (size_t i = 0; i < recorder->chunk_count; i++)
        tokens[recorder->chunks[i].at_us / 1000000] += recorder->chunks[i].tokens;
    for (uint64_t i = 0; i <= seconds; i++)
        most = tokens[i] > most ? tokens[i] : most;
    free(tokens);
    summary->peak_output_throughput = (double)most;
    return 0;
}

static int find_peak_open(const struct workload *workload, const struct recorder *recorder,
                          struct summary *summary, struct error *error)
{
    double *begins = malloc(workload->count * sizeof(*begins));
    double *ends = malloc(workload->count * sizeof(*ends));
    size_t count = 0, ended = 0;
    for (uint32_t i = 0; begins && ends && i < workload->count; i++) {
        const struct record *record = &recorder->records[i];
        if (record->outcome == OUTCOME_UNSENT || record->outcome == OUTCOME_OPEN)
            continue;
        begins[count] = (double)record->sent_us;
        ends[count++] = (double)record->end_us;
    }
    if (begins && ends) {
        percentile_sort(begins, count);
        percentile_sort(ends, count);
        for (size_t i = 0; i < count; i++) {
            while (ends[ended] <= begins[i] && ended < i)
                ended++;
            if (i + 1 - ended > summary->peak_concurrent)
                summary->peak_concurrent = (uint32_t)(i + 1 - ended);
        }
    }
    int rc = begins && ends ? 0 : error_set(error, ERR_NO_MEMORY, "no memory for the results");
    free(begins);
    free(ends);
    return rc;
}

int summary_make(const struct workload *workload, const struct recorder *recorder,
                 const struct bench_goals *goals, struct summary *ret_summary, struct error *error)
{
    struct summary summary = {.chunks_lost = recorder->chunks_lost};
    count_all(workload, recorder, goals, &summary);
    int rc = make_metrics(workload, recorder, &summary, error);
    if (!rc)
        rc = find_peak_tokens(recorder, &summary, error);
    if (!rc)
        rc = find_peak_open(workload, recorder, &summary, error);
    if (rc) {
        summary_free(&summary);
        return rc;
    }
    *ret_summary = summary;
    return 0;
}

void summary_free(struct summary *summary)
{
    for (int i = 0; i < METRICS; i++)
        free(summary->metrics[i].sorted);
    free(summary->lateness.sorted);
    *summary = (struct summary){0};
}

bool summary_is_late(const struct summary *summary)
{
    return percentile_of(summary->lateness.sorted, summary->lateness.count, 99) >
           SUMMARY_LATENESS_MS;
}

bool summary_is_short(const struct summary *summary)
{
    return summary->offered_rate > 0 &&
           summary->sent_rate < SUMMARY_RATE_SHORT * summary->offered_rate;
}
