/* The open loop on a virtual clock, against a server whose delays are known to the microsecond. */
#include <math.h>
#include <stdlib.h>

#include "client/bench/percentile.h"
#include "client/bench/summary.h"
#include "tests/loadgen/loadgen_suites.h"
#include "tests/loadgen/virtual.h"

#define COUNT 400u
#define RATE 100 /* per second, evenly */

static struct workload workload;
static struct virtual_server server;
static struct driver driver;
static struct driver_live live;
static struct record *records;
static void **calls;

static void set_up(void)
{
    struct bench_options options;
    struct error error;
    bench_options_init(&options);
    options.num_prompts = COUNT;
    options.request_rate = RATE;
    options.burstiness = INFINITY;
    options.output_len = 5;
    ck_assert_int_eq(workload_make(&options, &workload, &error), 0);
    virtual_init(&server, COUNT);
    server.first_delay_us = 7000;
    server.gap_us = 2000;
    records = calloc(COUNT, sizeof(*records));
    calls = calloc(COUNT, sizeof(*calls));
    live = (struct driver_live){0};
    driver_init(&driver, &workload, records, calls, &server.transport, &live);
    driver_start(&driver, 0, VIRTUAL_START);
}

static void tear_down(void)
{
    driver_free(&driver);
    virtual_free(&server);
    workload_free(&workload);
    free(records);
    free(calls);
}

static struct summary summarize(void)
{
    struct bench_goals goals;
    struct summary summary;
    struct error error;
    bench_parse_goals(NULL, &goals, &error);
    ck_assert(driver_done(&driver));
    ck_assert_int_eq(summary_make(&workload, &driver.recorder, &goals, &summary, &error), 0);
    return summary;
}

static double least(const struct metric *metric)
{
    return percentile_of(metric->sorted, metric->count, 0);
}

static double most(const struct metric *metric)
{
    return percentile_of(metric->sorted, metric->count, 100);
}

static void check_all(const struct metric *metric, size_t count, double value)
{
    ck_assert_uint_eq(metric->count, count);
    ck_assert_double_eq(least(metric), value);
    ck_assert_double_eq(most(metric), value);
    ck_assert_double_eq(metric->mean, value);
    ck_assert_double_eq(metric->std, 0);
}

START_TEST(known_delays_are_the_latencies_exactly)
{
    virtual_run(&server, &driver, 0, 0);
    struct summary summary = summarize();
    check_all(&summary.metrics[METRIC_TTFT], COUNT, 7);
    check_all(&summary.metrics[METRIC_TPOT], COUNT, 2);
    check_all(&summary.metrics[METRIC_ITL], COUNT * 4, 2);
    check_all(&summary.metrics[METRIC_E2EL], COUNT, 15);
    check_all(&summary.metrics[METRIC_TTFT_DUE], COUNT, 7);
    check_all(&summary.metrics[METRIC_E2EL_DUE], COUNT, 15);
    check_all(&summary.lateness, COUNT, 0);
    ck_assert_uint_eq(summary.completed, COUNT);
    ck_assert_uint_eq(summary.output_tokens, COUNT * 5);
    ck_assert_uint_eq(summary.input_tokens, COUNT * 1024);
    /* The first is sent at 10 ms, the last one ends at 4 s and 15 ms. */
    ck_assert_double_eq_tol(summary.duration_s, 4.005, 1e-9);
    ck_assert_double_eq_tol(summary.request_throughput, COUNT / 4.005, 1e-9);
    ck_assert_double_eq_tol(summary.offered_rate, RATE, 1e-9);
    ck_assert_double_eq_tol(summary.sent_rate, RATE, 1e-9);
    ck_assert_uint_eq(summary.peak_concurrent, 2);
    ck_assert_double_eq(summary.peak_output_throughput, 500);
    ck_assert(!summary_is_late(&summary) && !summary_is_short(&summary));
    summary_free(&summary);
}
END_TEST

/* A closed loop would send nothing while the server stands still, and miss all of this. */
START_TEST(a_stall_of_the_server_is_in_the_latency_of_all_that_arrived_in_it)
{
    server.stall_from_us = 1000000;
    server.stall_until_us = 3000000;
    virtual_run(&server, &driver, 0, 0);
    struct summary summary = summarize();
    check_all(&summary.lateness, COUNT, 0);
    for (uint32_t i = 0; i < COUNT; i++) {
        uint64_t due = (uint64_t)(i + 1) * 10000, answer = due + 7000;
        if (answer >= 1000000 && answer < 3000000)
            answer = 3000000;
        ck_assert_uint_eq(records[i].sent_us, due);
        ck_assert_uint_eq(records[i].first_us, answer);
    }
    ck_assert_double_eq(most(&summary.metrics[METRIC_TTFT]), 2000);
    /* The 200 of 400 that came in the stall waited evenly between 0 and 2 seconds. */
    ck_assert_double_eq_tol(percentile_of(summary.metrics[METRIC_TTFT_DUE].sorted, COUNT, 75), 1000,
                            15);
    ck_assert_uint_ge(summary.peak_concurrent, 200);
    summary_free(&summary);
}
END_TEST

START_TEST(a_stall_of_the_generator_is_told_and_counted_from_the_scheduled_arrival)
{
    virtual_run(&server, &driver, 1000000, 3000000);
    struct summary summary = summarize();
    check_all(&summary.metrics[METRIC_TTFT], COUNT, 7);
    ck_assert_double_eq(most(&summary.metrics[METRIC_TTFT_DUE]), 2007);
    ck_assert_double_eq(most(&summary.lateness), 2000);
    ck_assert(summary_is_late(&summary));
    summary_free(&summary);
}
END_TEST

START_TEST(a_limit_on_concurrency_is_kept_and_its_wait_is_not_the_generators_lateness)
{
    driver.open_max = 1; /* 15 ms each, one every 10 ms: the queue grows by 5 ms per request */
    virtual_run(&server, &driver, 0, 0);
    struct summary summary = summarize();
    ck_assert_uint_eq(summary.peak_concurrent, 1);
    check_all(&summary.lateness, COUNT, 0);
    check_all(&summary.metrics[METRIC_E2EL], COUNT, 15);
    for (uint32_t i = 0; i < COUNT; i++)
        ck_assert_uint_eq(records[i].sent_us - records[i].due_us, (uint64_t)i * 5000);
    ck_assert_double_eq(most(&summary.metrics[METRIC_E2EL_DUE]), 15 + (COUNT - 1) * 5.0);
    ck_assert(summary_is_short(&summary));
    summary_free(&summary);
}
END_TEST

START_TEST(refused_requests_are_failures_and_no_latencies)
{
    server.fail_from = 10;
    server.fail_until = 110;
    virtual_run(&server, &driver, 0, 0);
    struct summary summary = summarize();
    ck_assert_uint_eq(summary.failed, 100);
    ck_assert_uint_eq(summary.completed, COUNT - 100);
    check_all(&summary.metrics[METRIC_TTFT], COUNT - 100, 7);
    ck_assert_uint_eq(driver.recorder.failure_count, 1);
    ck_assert_uint_eq(driver.recorder.failures[0].count, 100);
    ck_assert_int_eq(driver.recorder.failures[0].code, ERR_BUSY);
    ck_assert_uint_eq(atomic_load(&live.failed), 100);
    ck_assert_uint_eq(atomic_load(&live.running), 0);
    summary_free(&summary);
}
END_TEST

START_TEST(a_request_is_cancelled_after_its_number_of_tokens)
{
    for (uint32_t i = 0; i < COUNT; i += 4)
        workload.items[i].cancel_after = i / 4 % 5;
    virtual_run(&server, &driver, 0, 0);
    struct summary summary = summarize();
    ck_assert_uint_eq(summary.cancelled, COUNT / 4);
    ck_assert_uint_eq(summary.completed, COUNT / 4 * 3);
    for (uint32_t i = 0; i < COUNT; i += 4)
        ck_assert_uint_eq(records[i].chunks, i / 4 % 5);
    check_all(&summary.metrics[METRIC_E2EL], COUNT / 4 * 3, 15);
    summary_free(&summary);
}
END_TEST

START_TEST(what_is_refused_before_its_cancel_comes_has_failed)
{
    struct error busy;
    const struct driver_end refused = {.error = &busy, .output_tokens = UINT32_MAX};
    error_set(&busy, ERR_BUSY, "no room");
    workload.items[0].cancel_after = 0;
    ck_assert(driver_send(&driver, VIRTUAL_START + 10000));
    ck_assert_int_eq(records[0].outcome, OUTCOME_CANCELLED);
    driver_end(&driver, 0, &refused, VIRTUAL_START + 11000);
    driver_stop(&driver);
    struct summary summary = summarize();
    ck_assert_uint_eq(summary.failed, 1);
    ck_assert_uint_eq(summary.completed, 0);
    ck_assert_uint_eq(summary.cancelled, 0);
    ck_assert_int_eq(records[0].failure, ERR_BUSY);
    summary_free(&summary);
}
END_TEST

START_TEST(nothing_is_sent_after_the_time_is_up)
{
    driver.until_us = 2000000;
    driver.open_max = _i ? 1 : 0;
    virtual_run(&server, &driver, 0, 0);
    struct summary summary = summarize();
    ck_assert_uint_eq(summary.completed + summary.unsent, COUNT);
    ck_assert_uint_eq(summary.completed, _i ? 133 : 200);
    summary_free(&summary);
}
END_TEST

START_TEST(stopping_cancels_what_is_open_and_sends_nothing_more)
{
    for (uint32_t i = 0; i < 3; i++)
        ck_assert(driver_send(&driver, VIRTUAL_START + (i + 1) * 10000));
    driver_stop(&driver);
    ck_assert_uint_eq(driver_next_us(&driver), 0);
    ck_assert(!driver_send(&driver, VIRTUAL_START + 1000000));
    virtual_run(&server, &driver, 0, 0);
    struct summary summary = summarize();
    ck_assert_uint_eq(summary.cancelled, 3);
    ck_assert_uint_eq(summary.unsent, COUNT - 3);
    summary_free(&summary);
}
END_TEST

START_TEST(nothing_is_sent_before_the_start)
{
    workload.items[0].due_us = 0;
    ck_assert(!driver_send(&driver, VIRTUAL_START - 1));
    ck_assert_uint_eq(driver_next_us(&driver), VIRTUAL_START);
    ck_assert(driver_send(&driver, VIRTUAL_START));
    driver_stop(&driver);
    virtual_run(&server, &driver, 0, 0);
}
END_TEST

START_TEST(drivers_share_a_workload_by_turns)
{
    struct driver second;
    driver_init(&second, &workload, records, calls, &server.transport, &live);
    second.stride = driver.stride = 2;
    driver_start(&second, 1, VIRTUAL_START);
    virtual_run(&server, &driver, 0, 0);
    for (uint32_t i = 0; i < COUNT; i++)
        ck_assert_int_eq(records[i].outcome, i % 2 ? OUTCOME_UNSENT : OUTCOME_OK);
    server.now_us = VIRTUAL_START;
    virtual_run(&server, &second, 0, 0);
    ck_assert_int_eq(recorder_join(&driver.recorder, &second.recorder), 0);
    struct summary summary = summarize();
    ck_assert_uint_eq(summary.completed, COUNT);
    check_all(&summary.metrics[METRIC_ITL], COUNT * 4, 2);
    driver_free(&second);
    summary_free(&summary);
}
END_TEST

Suite *driver_suite(void)
{
    Suite *suite = suite_create("driver");
    TCase *cases = tcase_create("driver");
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_test(cases, known_delays_are_the_latencies_exactly);
    tcase_add_test(cases, a_stall_of_the_server_is_in_the_latency_of_all_that_arrived_in_it);
    tcase_add_test(cases, a_stall_of_the_generator_is_told_and_counted_from_the_scheduled_arrival);
    tcase_add_test(cases,
                   a_limit_on_concurrency_is_kept_and_its_wait_is_not_the_generators_lateness);
    tcase_add_test(cases, refused_requests_are_failures_and_no_latencies);
    tcase_add_test(cases, a_request_is_cancelled_after_its_number_of_tokens);
    tcase_add_test(cases, what_is_refused_before_its_cancel_comes_has_failed);
    tcase_add_loop_test(cases, nothing_is_sent_after_the_time_is_up, 0, 2);
    tcase_add_test(cases, stopping_cancels_what_is_open_and_sends_nothing_more);
    tcase_add_test(cases, nothing_is_sent_before_the_start);
    tcase_add_test(cases, drivers_share_a_workload_by_turns);
    suite_add_tcase(suite, cases);
    return suite;
}
