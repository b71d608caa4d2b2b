#include "client/bench/report.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/bench/percentile.h"
#include "protocol/base/json.h"

#define WIDTH 64

const struct metric_name report_metrics[METRICS] = {
    [METRIC_TTFT] = {"ttft", "TTFT", "Time to First Token"},
    [METRIC_TPOT] = {"tpot", "TPOT", "Time per Output Token (excl. 1st token)"},
    [METRIC_ITL] = {"itl", "ITL", "Inter-token Latency"},
    [METRIC_E2EL] = {"e2el", "E2EL", "End-to-end Latency"},
    [METRIC_TTFT_DUE] = {"ttft_including_client_queue", "TTFT",
                         "Time to First Token from the scheduled arrival"},
    [METRIC_E2EL_DUE] = {"e2el_including_client_queue", "E2EL",
                         "End-to-end Latency from the scheduled arrival"},
};

static const struct {
    double percent;
    const char *title, *key;
} percentiles[] = {
    {50, "P50", "p50"}, {90, "P90", "p90"}, {99, "P99", "p99"}, {99.9, "P99.9", "p99.9"}};

#define PERCENTILES (sizeof(percentiles) / sizeof(percentiles[0]))

static double percentile(const struct metric *metric, double percent)
{
    return percentile_of(metric->sorted, metric->count, percent);
}

/* ---- the block ---------------------------------------------------------------------------------
 */

static void rule(FILE *file, const char *heading, char line)
{
    int length = (int)strlen(heading), left = (WIDTH - length) / 2;
    for (int i = 0; i < left; i++)
        fputc(line, file);
    fputs(heading, file);
    for (int i = left + length; i < WIDTH; i++)
        fputc(line, file);
    fputc('\n', file);
}

static void count(FILE *file, const char *name, uint64_t value)
{
    fprintf(file, "%-48s %-15" PRIu64 "\n", name, value);
}

static void number(FILE *file, const char *name, double value)
{
    fprintf(file, "%-48s %-15.2f\n", name, value);
}

static void print_metric(FILE *file, const struct metric *metric, const struct metric_name *name)
{
    char label[64];
    if (metric->count == 0)
        return;
    rule(file, name->heading, '-');
    snprintf(label, sizeof(label), "Mean %s (ms):", name->title);
    number(file, label, metric->mean);
    snprintf(label, sizeof(label), "Median %s (ms):", name->title);
    number(file, label, percentile(metric, 50));
    for (size_t i = 1; i < PERCENTILES; i++) { /* the first one is the median */
        snprintf(label, sizeof(label), "%s %s (ms):", percentiles[i].title, name->title);
        number(file, label, percentile(metric, percentiles[i].percent));
    }
}

/* What makes all below it doubtful comes first. */
static void print_doubts(FILE *file, const struct summary *summary)
{
    if (summary_is_late(summary))
        fprintf(file,
                "WARNING: the generator itself sent late: p99 %.2f ms, at most %.2f ms.\n"
                "         Believe the latencies from the scheduled arrival.\n",
                percentile(&summary->lateness, 99), percentile(&summary->lateness, 100));
    if (summary_is_short(summary))
        fprintf(file, "WARNING: %.2f requests/s were to be sent, %.2f were.\n",
                summary->offered_rate, summary->sent_rate);
    if (summary->chunks_lost)
        fprintf(file, "WARNING: no memory for %zu chunks: ITL is without them.\n",
                summary->chunks_lost);
}

static void print_failures(FILE *file, const struct recorder *recorder)
{
    for (uint32_t i = 0; i < recorder->failure_count; i++) {
        const struct failure *failure = &recorder->failures[i];
        fprintf(file, "  %u x %s: %s\n", failure->count, error_name(failure->code), failure->text);
    }
}

static double percent_of(uint64_t part, uint64_t all)
{
    return all > 0 ? 100 * (double)part / (double)all : 0;
}

/* As far as the server tells them. */
static void print_hits(FILE *file, const struct summary *summary, bool sessions)
{
    if (summary->cached == 0 && !sessions)
        return;
    count(file, "Input tokens found in the cache:", summary->cached_tokens);
    number(file, "Cache hit rate, of input tokens (%):",
           percent_of(summary->cached_tokens, summary->input_tokens));
    number(file,
           "Cache hit rate, of requests (%):", percent_of(summary->cached, summary->completed));
    if (sessions)
        number(file, "Cache hit rate, tokens of further turns (%):",
               percent_of(summary->later_cached_tokens, summary->later_input_tokens));
}

static void print_counts(FILE *file, const struct result *result)
{
    const struct summary *summary = &result->summary;
    const struct bench_options *options = result->options;
    count(file, "Successful requests:", summary->completed);
    count(file, "Failed requests:", summary->failed);
    print_failures(file, result->records);
    if (summary->cancelled)
        count(file, "Cancelled requests:", summary->cancelled);
    if (summary->unsent)
        count(file, "Requests not sent:", summary->unsent);
    if (options->max_concurrency > 0)
        count(file, "Maximum request concurrency:", (uint64_t)options->max_concurrency);
    if (!isinf(options->request_rate))
        number(file, "Request rate configured (RPS):", options->request_rate);
    if (summary->offered_rate > 0) {
        number(file, "Request rate offered (RPS):", summary->offered_rate);
        number(file, "Request rate sent (RPS):", summary->sent_rate);
    }
    count(file, "Seed:", result->load->seed);
    if (result->load->turns > 1) {
        count(file, "Sessions:", result->load->count / result->load->turns);
        count(file, "Turns of each:", result->load->turns);
    }
    number(file, "Benchmark duration (s):", summary->duration_s);
    count(file, "Total input tokens:", summary->input_tokens);
    print_hits(file, summary, result->load->turns > 1);
    count(file, "Total generated tokens:", summary->output_tokens);
    number(file, "Request throughput (req/s):", summary->request_throughput);
    if (result->goals->given)
        number(file, "Request goodput (req/s):", summary->request_goodput);
    number(file, "Output token throughput (tok/s):", summary->output_throughput);
    number(file, "Peak output token throughput (tok/s):", summary->peak_output_throughput);
    count(file, "Peak concurrent requests:", summary->peak_concurrent);
    number(file, "Total token throughput (tok/s):", summary->total_throughput);
    number(file, "Sent late by the generator, P99 (ms):", percentile(&summary->lateness, 99));
}

void report_print(FILE *file, const struct result *result)
{
    static const struct metric_name probe = {"", "probe TTFT",
                                             "Probes: one token, beside the load"};
    print_doubts(file, &result->summary);
    rule(file, " Serving Benchmark Result ", '=');
    print_counts(file, result);
    for (int i = 0; i < METRICS; i++)
        print_metric(file, &result->summary.metrics[i], &report_metrics[i]);
    if (result->probes) {
        print_metric(file, &result->probe_summary.metrics[METRIC_TTFT_DUE], &probe);
        if (result->probe_summary.failed)
            count(file, "Failed probes:", result->probe_summary.failed);
    }
    rule(file, "", '=');
}

/* ---- JSON --------------------------------------------------------------------------------------
 */

static void put_metric(struct json_writer *writer, const struct metric *metric, const char *name)
{
    char key[64];
    snprintf(key, sizeof(key), "mean_%s_ms", name);
    json_put_double(writer, key, metric->mean);
    snprintf(key, sizeof(key), "median_%s_ms", name);
    json_put_double(writer, key, percentile(metric, 50));
    snprintf(key, sizeof(key), "std_%s_ms", name);
    json_put_double(writer, key, metric->std);
    for (size_t i = 0; i < PERCENTILES; i++) {
        snprintf(key, sizeof(key), "%s_%s_ms", percentiles[i].key, name);
        json_put_double(writer, key, percentile(metric, percentiles[i].percent));
    }
}

static void put_settings(struct json_writer *writer, const struct result *result)
{
    const struct bench_options *options = result->options;
    json_put_text(writer, "backend", result->backend);
    json_put_text(writer, "model_id", result->info.model);
    json_put_uint(writer, "num_prompts", result->load->count);
    if (isinf(options->request_rate))
        json_put_text(writer, "request_rate", "inf");
    else
        json_put_double(writer, "request_rate", options->request_rate);
    if (isinf(options->burstiness))
        json_put_text(writer, "burstiness", "inf");
    else
        json_put_double(writer, "burstiness", options->burstiness);
    if (options->max_concurrency > 0)
        json_put_int(writer, "max_concurrency", options->max_concurrency);
    else
        json_put_null(writer, "max_concurrency");
    json_put_uint(writer, "seed", result->load->seed);
    json_put_uint(writer, "turns", result->load->turns);
}

static void put_counts(struct json_writer *writer, const struct result *result)
{
    const struct summary *summary = &result->summary;
    json_put_double(writer, "duration", summary->duration_s);
    json_put_uint(writer, "completed", summary->completed);
    json_put_uint(writer, "failed", summary->failed);
    json_put_uint(writer, "cancelled", summary->cancelled);
    json_put_uint(writer, "unsent", summary->unsent);
    json_put_uint(writer, "total_input_tokens", summary->input_tokens);
    json_put_uint(writer, "total_output_tokens", summary->output_tokens);
    json_put_uint(writer, "total_cached_tokens", summary->cached_tokens);
    json_put_uint(writer, "requests_cached", summary->cached);
    json_put_uint(writer, "later_input_tokens", summary->later_input_tokens);
    json_put_uint(writer, "later_cached_tokens", summary->later_cached_tokens);
    json_put_double(writer, "request_throughput", summary->request_throughput);
    if (result->goals->given)
        json_put_double(writer, "request_goodput", summary->request_goodput);
    else
        json_put_null(writer, "request_goodput");
    json_put_double(writer, "output_throughput", summary->output_throughput);
    json_put_double(writer, "total_token_throughput", summary->total_throughput);
    json_put_double(writer, "max_output_tokens_per_s", summary->peak_output_throughput);
    json_put_uint(writer, "max_concurrent_requests", summary->peak_concurrent);
    json_put_double(writer, "offered_rate", summary->offered_rate);
    json_put_double(writer, "sent_rate", summary->sent_rate);
}

static double seconds(uint64_t from_us, uint64_t to_us)
{
    return ((double)to_us - (double)from_us) / 1e6;
}

/* A turn that follows is due by the answer before it, or never. */
static uint64_t due_of(const struct result *result, uint32_t index)
{
    const struct record *record = &result->records->records[index];
    return record->outcome != OUTCOME_UNSENT ? record->due_us : result->load->items[index].due_us;
}

/* Of every request, in the order of arrival; times in seconds. Without tokens they are 0, as vLLM
 * has them. */
static void put_column(struct json_writer *writer, const struct result *result, const char *name)
{
    json_open(writer, name, '[');
    for (uint32_t i = 0; i < result->load->count; i++) {
        const struct record *record = &result->records->records[i];
        bool tokens = record->chunks > 0;
        if (!strcmp(name, "input_lens"))
            json_put_uint(writer, NULL, result->load->items[i].prompt_tokens);
        else if (!strcmp(name, "output_lens"))
            json_put_uint(writer, NULL, record->output_tokens);
        else if (!strcmp(name, "ttfts"))
            json_put_double(writer, NULL, tokens ? seconds(record->sent_us, record->first_us) : 0);
        else if (!strcmp(name, "latencies"))
            json_put_double(writer, NULL, tokens ? seconds(record->sent_us, record->last_us) : 0);
        else if (!strcmp(name, "start_times"))
            json_put_double(writer, NULL, seconds(0, record->sent_us));
        else if (!strcmp(name, "queue_times"))
            json_put_double(writer, NULL, seconds(record->due_us, record->sent_us));
        else if (!strcmp(name, "arrival_times"))
            json_put_double(writer, NULL, seconds(0, due_of(result, i)));
        else
            json_put_text(writer, NULL,
                          record->outcome == OUTCOME_FAILED ? error_name(record->failure) : "");
    }
    json_close(writer, ']');
}

static int put_gaps(struct json_writer *writer, const struct result *result, struct error *error)
{
    double *gaps;
    size_t *first;
    int rc = summary_gaps(result->load, result->records, &gaps, &first, error);
    if (rc)
        return rc;
    json_open(writer, "itls", '[');
    for (uint32_t i = 0; i < result->load->count; i++) {
        json_open(writer, NULL, '[');
        for (size_t g = first[i]; g < first[i + 1]; g++)
            json_put_double(writer, NULL, gaps[g] / 1000);
        json_close(writer, ']');
    }
    json_close(writer, ']');
    free(gaps);
    free(first);
    return 0;
}

static int put_result(struct json_writer *writer, const struct result *result, struct error *error)
{
    static const char *const columns[] = {"input_lens",    "output_lens", "ttfts",
                                          "latencies",     "start_times", "queue_times",
                                          "arrival_times", "errors"};
    int rc = 0;
    json_open(writer, NULL, '{');
    put_settings(writer, result);
    put_counts(writer, result);
    for (int i = 0; i < METRICS; i++)
        put_metric(writer, &result->summary.metrics[i], report_metrics[i].key);
    put_metric(writer, &result->summary.lateness, "lateness");
    if (result->probes)
        put_metric(writer, &result->probe_summary.metrics[METRIC_TTFT_DUE], "probe_ttft");
    if (result->options->save_detailed) {
        for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++)
            put_column(writer, result, columns[i]);
        rc = put_gaps(writer, result, error);
    }
    json_close(writer, '}');
    return rc;
}

int report_json(const char *path, const struct result *result, struct error *error)
{
    struct json_writer writer;
    json_writer_init(&writer, NULL, 0);
    int rc = put_result(&writer, result, error);
    if (rc)
        return rc;
    size_t length = writer.used;
    char *text = malloc(length + 1);
    if (!text)
        return error_set(error, ERR_NO_MEMORY, "no memory for %s", path);
    json_writer_init(&writer, text, length);
    rc = put_result(&writer, result, error);
    text[length] = '\n';
    FILE *file = rc ? NULL : fopen(path, "we");
    if (!rc && (!file || fwrite(text, 1, length + 1, file) != length + 1))
        rc = error_set(error, ERR_IO, "%s: %s", path, strerrordesc_np(errno));
    if (file && fclose(file) && !rc)
        rc = error_set(error, ERR_IO, "%s: %s", path, strerrordesc_np(errno));
    free(text);
    return rc;
}
