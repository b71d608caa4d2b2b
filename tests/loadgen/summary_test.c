/* Figures from raw records, and what is told of them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/bench/html.h"
#include "client/bench/percentile.h"
#include "client/bench/random.h"
#include "client/bench/report.h"
#include "client/bench/series.h"
#include "protocol/base/json.h"
#include "tests/loadgen/loadgen_suites.h"

#define COUNT 500u

static struct workload workload;
static struct recorder recorder;
static struct record records[COUNT];
static struct bench_options options;
static struct bench_goals goals;
static struct result result;

/* A run out of thin air: random stamps, chunks of all requests mixed, some failed and cancelled. */
static void set_up(void)
{
    struct random random;
    struct error error;
    random_init(&random, 11, 0);
    bench_options_init(&options);
    options.num_prompts = COUNT;
    options.request_rate = 100;
    options.save_detailed = 1;
    ck_assert_int_eq(workload_make(&options, &workload, &error), 0);
    bench_parse_goals("ttft:200,tpot:20", &goals, &error);
    memset(records, 0, sizeof(records));
    recorder_init(&recorder, records);
    for (uint32_t i = 0; i < COUNT; i++) {
        uint64_t due = workload.items[i].due_us;
        uint64_t sent = due + random_below(&random, 900);
        records[i] = (struct record){.due_us = due,
                                     .ready_us = due,
                                     .sent_us = sent,
                                     .end_us = sent,
                                     .prompt_tokens = workload.items[i].prompt_tokens,
                                     .outcome = OUTCOME_OK};
    }
    for (uint32_t round = 0; round < 20; round++) {
        for (uint32_t i = 0; i < COUNT; i++) {
            if (round >= 1 + i % 20)
                continue;
            uint64_t at = records[i].end_us + 1 + random_below(&random, round ? 40000 : 400000);
            recorder_chunk(&recorder, i, 1 + i % 3, at);
            records[i].output_tokens += 1 + i % 3;
            records[i].end_us = at;
        }
    }
    error_set(&error, ERR_BUSY, "no <room>");
    for (uint32_t i = 0; i < COUNT; i += 50)
        recorder_fail(&recorder, i, &error);
    records[7].outcome = OUTCOME_CANCELLED;
    result = (struct result){.options = &options,
                             .goals = &goals,
                             .backend = "sluice",
                             .info = {.model = "synthetic:<null>"},
                             .load = &workload,
                             .records = &recorder};
    ck_assert_int_eq(summary_make(&workload, &recorder, &goals, &result.summary, &error), 0);
}

static void tear_down(void)
{
    summary_free(&result.summary);
    recorder_free(&recorder);
    workload_free(&workload);
}

/* The value by another way than the product's: counted, not sorted. */
static double by_counting(const double *values, size_t count, double percent)
{
    double rank = percent / 100 * (double)(count - 1), low = 0, high = INFINITY;
    size_t wanted = (size_t)floor(rank);
    for (size_t i = 0; i < count; i++) {
        size_t below = 0, equal = 0;
        for (size_t j = 0; j < count; j++) {
            below += values[j] < values[i];
            equal += values[j] == values[i];
        }
        if (below <= wanted && wanted < below + equal)
            low = values[i];
        if (below <= wanted + 1 && wanted + 1 < below + equal)
            high = values[i];
    }
    return isinf(high) ? low : low + (high - low) * (rank - floor(rank));
}

static void check_metric(enum metric_kind kind, const double *raw, size_t count)
{
    static const double percents[] = {0, 1, 50, 90, 99, 99.9, 100};
    const struct metric *metric = &result.summary.metrics[kind];
    double sum = 0;
    ck_assert_uint_eq(metric->count, count);
    for (size_t i = 0; i < count; i++)
        sum += raw[i];
    ck_assert_double_eq_tol(metric->mean, sum / (double)count, 1e-9);
    for (size_t i = 0; i < sizeof(percents) / sizeof(percents[0]); i++)
        ck_assert_double_eq(percentile_of(metric->sorted, count, percents[i]),
                            by_counting(raw, count, percents[i]));
}

START_TEST(percentiles_equal_those_from_the_raw_records)
{
    static double ttft[COUNT], e2el[COUNT], tpot[COUNT], itl[COUNT * 20], e2el_due[COUNT];
    size_t count = 0, tpots = 0, gaps = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        const struct record *record = &records[i];
        uint64_t before = 0;
        if (record->outcome != OUTCOME_OK)
            continue;
        ttft[count] = (double)(record->first_us - record->sent_us) / 1000;
        e2el_due[count] = (double)(record->last_us - record->due_us) / 1000;
        e2el[count++] = (double)(record->last_us - record->sent_us) / 1000;
        if (record->output_tokens > 1)
            tpot[tpots++] =
                (double)(record->last_us - record->first_us) / 1000 / (record->output_tokens - 1);
        for (size_t c = 0; c < recorder.chunk_count; c++) {
            if (recorder.chunks[c].request != i)
                continue;
            if (before)
                itl[gaps++] = (double)(recorder.chunks[c].at_us - before) / 1000;
            before = recorder.chunks[c].at_us;
        }
    }
    ck_assert_uint_eq(count, COUNT - 11);
    check_metric(METRIC_TTFT, ttft, count);
    check_metric(METRIC_E2EL, e2el, count);
    check_metric(METRIC_E2EL_DUE, e2el_due, count);
    check_metric(METRIC_TPOT, tpot, tpots);
    check_metric(METRIC_ITL, itl, gaps);
}
END_TEST

START_TEST(percentiles_are_numpys)
{
    /* numpy.percentile([1, 2, 4, 8], [0, 25, 50, 90, 99, 100]) */
    static const double values[] = {1, 2, 4, 8};
    static const double expected[][2] = {{0, 1},    {25, 1.75}, {50, 3},
                                         {90, 6.8}, {99, 7.88}, {100, 8}};
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++)
        ck_assert_double_eq_tol(percentile_of(values, 4, expected[i][0]), expected[i][1], 1e-12);
    ck_assert_double_eq(percentile_of(values, 1, 99), 1);
    ck_assert_double_eq(percentile_of(values, 0, 99), 0);
}
END_TEST

START_TEST(goodput_counts_what_keeps_every_goal)
{
    uint32_t good = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        const struct record *record = &records[i];
        bool slow = record->output_tokens > 1 && (double)(record->last_us - record->first_us) >
                                                     20000.0 * (record->output_tokens - 1);
        good +=
            record->outcome == OUTCOME_OK && record->first_us - record->sent_us <= 200000 && !slow;
    }
    ck_assert_uint_gt(good, 0);
    ck_assert_uint_lt(good, COUNT - 11);
    ck_assert_double_eq_tol(result.summary.request_goodput * result.summary.duration_s, good, 1e-6);
}
END_TEST

static char *read_back(const char *path)
{
    static char text[8 << 20];
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = 0;
    fclose(file);
    unlink(path);
    return text;
}

static char *make_path(void)
{
    static char path[64];
    snprintf(path, sizeof(path), "/tmp/sluice-result-XXXXXX");
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
    return path;
}

START_TEST(the_json_file_has_vllms_keys_and_the_raw_times)
{
    static const char *const keys[] = {"duration",
                                       "completed",
                                       "failed",
                                       "total_input_tokens",
                                       "total_output_tokens",
                                       "request_throughput",
                                       "request_goodput",
                                       "output_throughput",
                                       "total_token_throughput",
                                       "max_output_tokens_per_s",
                                       "max_concurrent_requests",
                                       "mean_ttft_ms",
                                       "median_tpot_ms",
                                       "std_itl_ms",
                                       "p99_e2el_ms",
                                       "p99.9_ttft_ms",
                                       "mean_e2el_including_client_queue_ms",
                                       "input_lens",
                                       "output_lens",
                                       "ttfts",
                                       "itls",
                                       "latencies",
                                       "start_times",
                                       "queue_times",
                                       "errors",
                                       "request_rate",
                                       "seed",
                                       "backend",
                                       "model_id"};
    static const struct json_bounds bounds = {.bytes_max = 8 << 20, .depth_max = 8};
    struct error error;
    json *document;
    const char *path = make_path();
    ck_assert_int_eq(report_json(path, &result, &error), 0);
    const char *text = read_back(path);
    ck_assert_int_eq(json_parse(text, strlen(text), bounds, &document, &error), 0);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        ck_assert_msg(json_get(document, keys[i]) != NULL, "no %s", keys[i]);
    const struct metric *metric = &result.summary.metrics[METRIC_TTFT];
    ck_assert_double_eq_tol(json_number(json_get(document, "p99_ttft_ms")),
                            percentile_of(metric->sorted, metric->count, 99), 1e-5);
    const json *ttft = json_child(json_get(document, "ttfts"));
    const json *gaps = json_child(json_get(document, "itls"));
    for (uint32_t i = 0; i < COUNT; i++, ttft = json_next(ttft), gaps = json_next(gaps)) {
        double sum = 0;
        ck_assert_double_eq_tol(json_number(ttft),
                                (double)(records[i].first_us - records[i].sent_us) / 1e6, 1e-8);
        ck_assert_uint_eq(json_count(gaps), records[i].chunks - 1);
        for (const json *gap = json_child(gaps); gap; gap = json_next(gap))
            sum += json_number(gap);
        ck_assert_double_eq_tol(sum, (double)(records[i].last_us - records[i].first_us) / 1e6,
                                1e-6);
    }
    json_free(document);
}
END_TEST

START_TEST(the_block_reads_as_vllms)
{
    static const char *const lines[] = {"= Serving Benchmark Result =",
                                        "Successful requests:                             489",
                                        "Failed requests:                                 10",
                                        "  10 x busy: no <room>",
                                        "Cancelled requests:                              1",
                                        "Request rate configured (RPS):                   100.00",
                                        "Request throughput (req/s):",
                                        "Request goodput (req/s):",
                                        "Output token throughput (tok/s):",
                                        "Peak concurrent requests:",
                                        "Total token throughput (tok/s):",
                                        "-Time to First Token-",
                                        "Mean TTFT (ms):",
                                        "-Time per Output Token (excl. 1st token)-",
                                        "P99.9 TPOT (ms):",
                                        "-Inter-token Latency-",
                                        "Median ITL (ms):",
                                        "-End-to-end Latency-",
                                        "P99 E2EL (ms):",
                                        "-Time to First Token from the scheduled arrival-"};
    char *text = NULL;
    size_t length;
    FILE *file = open_memstream(&text, &length);
    report_print(file, &result);
    fclose(file);
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        ck_assert_msg(strstr(text, lines[i]) != NULL, "no \"%s\" in\n%s", lines[i], text);
    ck_assert_ptr_null(strstr(text, "WARNING"));
    free(text);
}
END_TEST

static double attribute(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    ck_assert_ptr_nonnull(at);
    return strtod(at + strlen(name), NULL);
}

/* The y of each point of a curve; x must not go back. */
static int read_curve(const char *page, const char *name, double *x, double *y, int max)
{
    char find[96];
    int count = 0;
    snprintf(find, sizeof(find), "data-metric=\"%s\"", name);
    const char *at = strstr(page, find);
    ck_assert_msg(at != NULL, "no %s", find);
    at = strstr(at, "points=\"") + 8;
    for (; *at != '"' && count < max; count++) {
        char *end;
        x[count] = strtod(at, &end);
        ck_assert_int_eq(*end, ',');
        y[count] = strtod(end + 1, &end);
        ck_assert_int_eq(*end, ' ');
        at = end + 1;
        if (count > 0)
            ck_assert_double_ge(x[count], x[count - 1]);
    }
    return count;
}

/* Some spans have no arrival: no latency is told of them, above all not zero. */
START_TEST(where_nothing_came_the_page_has_a_gap)
{
    static double x[1000], y[1000];
    struct error error;
    struct series series;
    const char *path = make_path();
    uint32_t empty = 0, points = 0, lines = 0;
    for (uint32_t i = 100; i < 200; i++)
        records[i].outcome = OUTCOME_FAILED;
    ck_assert_int_eq(series_make(&workload, &recorder, &series, &error), 0);
    for (uint32_t i = 0; i < series.count; i++)
        empty += isnan(series.values[SERIES_TTFT_P50][i]) != 0;
    ck_assert_uint_gt(empty, 5);
    ck_assert_int_eq(html_write(path, &result, &error), 0);
    const char *page = read_back(path);
    while ((page = strstr(page, "data-metric=\"ttft_p50_over_time\""))) {
        int count = read_curve(page, "ttft_p50_over_time", x, y, 1000);
        for (int i = 0; i < count; i++)
            ck_assert_double_lt(y[i], 210);
        points += (uint32_t)(count == 2 && x[0] == x[1] ? 1 : count); /* a dot is told twice */
        lines++;
        page++;
    }
    ck_assert_uint_gt(lines, 1);
    ck_assert_uint_eq(points, series.count - empty);
    series_free(&series);
}
END_TEST

START_TEST(the_page_stands_alone_and_its_curves_are_the_data)
{
    static double x[1000], y[1000];
    struct error error;
    const char *path = make_path();
    ck_assert_int_eq(html_write(path, &result, &error), 0);
    const char *page = read_back(path);
    ck_assert_ptr_null(strstr(page, "http"));
    ck_assert_ptr_null(strstr(page, "src="));
    ck_assert_ptr_null(strstr(page, "<null>"));
    ck_assert_ptr_nonnull(strstr(page, "synthetic:&lt;null>"));
    ck_assert_ptr_nonnull(strstr(page, "no &lt;room>"));
    int count = read_curve(page, "ttft", x, y, 1000);
    ck_assert_int_eq(count, 400);
    const struct metric *metric = &result.summary.metrics[METRIC_TTFT];
    double least = x[0] - 60, most = x[count - 1] - 60; /* where the axis begins */
    ck_assert_double_eq_tol(least / most,
                            percentile_of(metric->sorted, metric->count, 0) /
                                percentile_of(metric->sorted, metric->count, 99.9),
                            1e-3);
    for (int i = 1; i < count; i++)
        ck_assert_double_lt(y[i], y[i - 1]); /* down the page is down the axis */
    count = read_curve(page, "sent_over_time", x, y, 1000);
    double sum = 0, width = 0,
           tall = attribute(strstr(page, "Requests per second"), "data-y-max=\"");
    double wide = attribute(strstr(page, "Requests per second"), "data-x-max=\"");
    width = wide / count;
    for (int i = 0; i < count; i++)
        sum += (210 - y[i]) / 200 * tall * width;
    ck_assert_double_eq_tol(sum, COUNT, 1);
}
END_TEST

Suite *summary_suite(void)
{
    Suite *suite = suite_create("summary");
    TCase *cases = tcase_create("summary");
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_test(cases, percentiles_equal_those_from_the_raw_records);
    tcase_add_test(cases, percentiles_are_numpys);
    tcase_add_test(cases, goodput_counts_what_keeps_every_goal);
    tcase_add_test(cases, the_json_file_has_vllms_keys_and_the_raw_times);
    tcase_add_test(cases, the_block_reads_as_vllms);
    tcase_add_test(cases, the_page_stands_alone_and_its_curves_are_the_data);
    tcase_add_test(cases, where_nothing_came_the_page_has_a_gap);
    suite_add_tcase(suite, cases);
    return suite;
}
