/* Arrivals and lengths: the distributions that were asked for, and the same ones from the same
 * seed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/bench/schedule.h"
#include "client/bench/workload.h"
#include "tests/loadgen/loadgen_suites.h"

#define MANY 20000

static uint64_t arrivals[MANY];
static double gaps[MANY];

static void draw(double rate, double burstiness, uint64_t seed)
{
    struct schedule_rule rule = {.rate = rate, .burstiness = burstiness};
    struct random random;
    random_init(&random, seed, 0);
    schedule_draw(&rule, &random, arrivals, MANY);
    for (int i = 0; i < MANY; i++)
        gaps[i] = (double)(arrivals[i] - (i ? arrivals[i - 1] : 0)) / 1e6;
}

static int ascending(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void moments(double *mean, double *variance)
{
    *mean = *variance = 0;
    for (int i = 0; i < MANY; i++)
        *mean += gaps[i] / MANY;
    for (int i = 0; i < MANY; i++)
        *variance += (gaps[i] - *mean) * (gaps[i] - *mean) / MANY;
}

/* Kolmogorov and Smirnov's distance against the exponential distribution. */
START_TEST(gaps_of_burstiness_1_are_exponential)
{
    double distance = 0;
    draw(50, 1, (uint64_t)_i);
    qsort(gaps, MANY, sizeof(*gaps), ascending);
    for (int i = 0; i < MANY; i++) {
        double expected = 1 - exp(-50 * gaps[i]);
        distance = fmax(distance,
                        fmax(fabs((i + 1.0) / MANY - expected), fabs((double)i / MANY - expected)));
    }
    /* 1.95 / sqrt(n): passed by one seed in a thousand, and these seeds are fixed. */
    ck_assert_double_lt(distance, 1.95 / sqrt(MANY));
}
END_TEST

START_TEST(arrivals_of_a_poisson_process_are_uniform_in_time)
{
    int counts[100] = {0};
    double square = 0;
    draw(50, 1, (uint64_t)_i);
    for (int i = 0; i < MANY; i++)
        counts[(int)fmin(99, (double)arrivals[i] / 1e6 / ((double)MANY / 50) * 100)]++;
    for (int i = 0; i < 100; i++)
        square += (counts[i] - MANY / 100.0) * (counts[i] - MANY / 100.0) / (MANY / 100.0);
    ck_assert_double_lt(square, 148.2); /* chi-square of 99 degrees at 0.999 */
}
END_TEST

START_TEST(burstiness_sets_the_variance_of_the_gaps_and_not_their_mean)
{
    static const double shapes[] = {0.25, 0.5, 1, 2, 10};
    double mean, variance;
    draw(50, shapes[_i], 7);
    moments(&mean, &variance);
    ck_assert_double_eq_tol(mean, 1.0 / 50, 1e-6);
    ck_assert_double_eq_tol(variance * shapes[_i] * 50 * 50, 1, 0.1);
}
END_TEST

START_TEST(infinite_burstiness_gives_even_gaps)
{
    draw(200, INFINITY, 1);
    for (int i = 0; i < MANY; i++)
        ck_assert_uint_eq(arrivals[i], (uint64_t)(i + 1) * 5000);
}
END_TEST

START_TEST(the_last_of_a_fixed_number_arrives_at_number_over_rate)
{
    draw(80, 1, (uint64_t)_i);
    ck_assert_uint_eq(arrivals[MANY - 1], MANY / 80 * 1000000u);
}
END_TEST

START_TEST(an_infinite_rate_sends_all_at_once)
{
    draw(INFINITY, 1, 3);
    ck_assert_uint_eq(arrivals[MANY - 1], 0);
}
END_TEST

START_TEST(the_same_seed_gives_the_same_schedule_and_another_another)
{
    static uint64_t first[MANY];
    int same = 0;
    draw(50, 0.7, 42);
    for (int i = 0; i < MANY; i++)
        first[i] = arrivals[i];
    draw(50, 0.7, 42);
    for (int i = 0; i < MANY; i++)
        ck_assert_uint_eq(arrivals[i], first[i]);
    draw(50, 0.7, 43);
    for (int i = 0; i < MANY; i++)
        same += arrivals[i] == first[i];
    ck_assert_int_lt(same, MANY / 100);
}
END_TEST

START_TEST(a_ramp_goes_from_its_first_rate_to_its_last)
{
    struct schedule_rule rule = {.burstiness = INFINITY,
                                 .ramp = _i ? RAMP_EXPONENTIAL : RAMP_LINEAR,
                                 .ramp_start = 10,
                                 .ramp_end = 1000};
    struct random random;
    random_init(&random, 1, 0);
    schedule_draw(&rule, &random, arrivals, 1001);
    ck_assert_uint_eq(arrivals[0], 100000);
    ck_assert_uint_eq(arrivals[1000] - arrivals[999], 1000);
    uint64_t middle = arrivals[500] - arrivals[499];
    ck_assert_uint_eq(middle, _i ? 10000 : 1980);
}
END_TEST

START_TEST(a_span_holds_what_arrives_within_it)
{
    struct bench_options options;
    struct workload workload;
    struct error error;
    bench_options_init(&options);
    options.request_rate = 100;
    options.duration_s = 50;
    ck_assert_int_eq(workload_make(&options, &workload, &error), 0);
    ck_assert_uint_le(workload.items[workload.count - 1].due_us, 50000000);
    ck_assert_uint_gt(workload.count, 4700); /* 5000, give or take four standard deviations */
    ck_assert_uint_lt(workload.count, 5300);
    workload_free(&workload);
}
END_TEST

START_TEST(lengths_keep_to_vllms_rule)
{
    struct bench_options options;
    struct workload workload;
    struct error error;
    uint32_t least = UINT32_MAX, most = 0;
    bench_options_init(&options);
    options.num_prompts = 5000;
    options.input_len = 15;
    options.output_len = 1;
    options.range_ratio = 0.5;
    options.prefix_len = 100;
    ck_assert_int_eq(workload_make(&options, &workload, &error), 0);
    for (uint32_t i = 0; i < workload.count; i++) {
        const struct item *item = &workload.items[i];
        least = item->prompt_tokens < least ? item->prompt_tokens : least;
        most = item->prompt_tokens > most ? item->prompt_tokens : most;
        ck_assert_uint_ge(item->output_tokens, 1); /* the floor of 0.5 would be none */
        ck_assert_uint_le(item->output_tokens, 2);
    }
    ck_assert_uint_eq(least, 107); /* floor of 7.5, and the prefix */
    ck_assert_uint_eq(most, 123);  /* ceiling of 22.5 */
    workload_free(&workload);
}
END_TEST

START_TEST(prompts_are_below_the_vocabulary_and_share_the_prefix_alone)
{
    struct bench_options options;
    struct workload workload;
    struct error error;
    int32_t one[40], other[40];
    bench_options_init(&options);
    options.num_prompts = 100;
    options.input_len = 32;
    options.prefix_len = 8;
    ck_assert_int_eq(workload_make(&options, &workload, &error), 0);
    workload.vocabulary = 1000;
    workload_prompt(&workload, 0, one);
    for (uint32_t i = 1; i < workload.count; i++) {
        workload_prompt(&workload, i, other);
        for (int t = 0; t < 40; t++) {
            ck_assert_int_ge(other[t], 0);
            ck_assert_int_lt(other[t], 1000);
            if (t < 8)
                ck_assert_int_eq(other[t], one[t]);
        }
    }
    workload_free(&workload);
}
END_TEST

START_TEST(an_option_leaves_the_draws_of_others_alone)
{
    struct bench_options options;
    struct workload plain, loaded;
    struct error error;
    bench_options_init(&options);
    options.request_rate = 10;
    options.num_prompts = 500;
    options.range_ratio = 0.3;
    ck_assert_int_eq(workload_make(&options, &plain, &error), 0);
    options.cancel_rate = 0.5;
    options.priority_mix = "0:1,5:3";
    ck_assert_int_eq(workload_make(&options, &loaded, &error), 0);
    uint32_t cancelled = 0, high = 0;
    for (uint32_t i = 0; i < 500; i++) {
        ck_assert_uint_eq(plain.items[i].due_us, loaded.items[i].due_us);
        ck_assert_uint_eq(plain.items[i].prompt_tokens, loaded.items[i].prompt_tokens);
        ck_assert_uint_eq(plain.items[i].start, loaded.items[i].start);
        cancelled += loaded.items[i].cancel_after != WORKLOAD_NO_CANCEL;
        high += loaded.items[i].priority == 5;
        ck_assert(loaded.items[i].priority == 5 || loaded.items[i].priority == 0);
    }
    ck_assert_uint_gt(cancelled, 200);
    ck_assert_uint_lt(cancelled, 300);
    ck_assert_uint_gt(high, 325);
    ck_assert_uint_lt(high, 425);
    workload_free(&plain);
    workload_free(&loaded);
}
END_TEST

static int read_trace(const char *text, struct workload *workload, struct error *error)
{
    char path[] = "/tmp/sluice-trace-XXXXXX";
    struct bench_options options;
    int fd = mkstemp(path);
    FILE *file = fdopen(fd, "w");
    fputs(text, file);
    fclose(file);
    bench_options_init(&options);
    options.trace = path;
    int rc = workload_make(&options, workload, error);
    unlink(path);
    return rc;
}

START_TEST(a_trace_says_arrivals_and_lengths)
{
    struct workload workload;
    struct error error;
    ck_assert_int_eq(read_trace("{\"timestamp\":2000.5,\"input_length\":7,\"output_length\":3}\n\n"
                                "{\"timestamp\":1000,\"input_length\":5,\"output_length\":2,"
                                "\"hash_ids\":[1],\"priority\":4}\n",
                                &workload, &error),
                     0);
    ck_assert_uint_eq(workload.count, 2);
    ck_assert_uint_eq(workload.items[0].due_us, 0);
    ck_assert_int_eq(workload.items[0].priority, 4);
    ck_assert_uint_eq(workload.items[1].due_us, 1000500);
    ck_assert_uint_eq(workload.items[1].prompt_tokens, 7);
    ck_assert_uint_eq(workload.items[1].output_tokens, 3);
    workload_free(&workload);
}
END_TEST

START_TEST(a_bad_trace_is_refused_with_its_line)
{
    static const char *const texts[] = {
        "{\"timestamp\":1,\"input_length\":0,\"output_length\":3}\n",
        "{\"timestamp\":-1,\"input_length\":4,\"output_length\":3}\n",
        "{\"timestamp\":1,\"input_length\":4}\n",
        "{\"timestamp\":1,\n",
        "[1,2]\n",
    };
    struct workload workload;
    struct error error;
    ck_assert_int_eq(read_trace(texts[_i], &workload, &error), -ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(error.text, ":1: "));
    ck_assert_int_eq(read_trace("", &workload, &error), -ERR_USAGE);
}
END_TEST

START_TEST(small_languages_are_read_or_refused)
{
    static const char *const bad[] = {"ttft", "ttft:", "ttft:x", "itl:5", "ttft:-1", ":5"};
    static const char *const bad_mixes[] = {"8:1", "-9:1", "0:-1", "a:1", "0", "0:0"};
    static const char *const bad_ramps[] = {"linear",    "linear:1",    "linear:0:5",
                                            "cubic:1:5", "linear:1:5x", "exponential:1:inf"};
    struct bench_goals goals;
    struct schedule_rule rule = {0};
    double weights[BENCH_PRIORITIES];
    struct error error;
    ck_assert_int_eq(bench_parse_goals(bad[_i], &goals, &error), -ERR_USAGE);
    ck_assert_int_eq(bench_parse_priorities(bad_mixes[_i], weights, &error), -ERR_USAGE);
    ck_assert_int_eq(bench_parse_ramp(bad_ramps[_i], &rule, &error), -ERR_USAGE);
    ck_assert_int_eq(bench_parse_goals("ttft:200,e2el:3e3", &goals, &error), 0);
    ck_assert_double_eq(goals.limit_ms[GOAL_TTFT], 200);
    ck_assert_double_eq(goals.limit_ms[GOAL_E2EL], 3000);
    ck_assert(isinf(goals.limit_ms[GOAL_TPOT]));
    ck_assert_int_eq(bench_parse_priorities("-8:1,7:3", weights, &error), 0);
    ck_assert_double_eq(weights[15], 3);
}
END_TEST

Suite *schedule_suite(void)
{
    Suite *suite = suite_create("schedule");
    TCase *cases = tcase_create("schedule");
    tcase_add_loop_test(cases, gaps_of_burstiness_1_are_exponential, 1, 4);
    tcase_add_loop_test(cases, arrivals_of_a_poisson_process_are_uniform_in_time, 1, 4);
    tcase_add_loop_test(cases, burstiness_sets_the_variance_of_the_gaps_and_not_their_mean, 0, 5);
    tcase_add_test(cases, infinite_burstiness_gives_even_gaps);
    tcase_add_loop_test(cases, the_last_of_a_fixed_number_arrives_at_number_over_rate, 0, 3);
    tcase_add_test(cases, an_infinite_rate_sends_all_at_once);
    tcase_add_test(cases, the_same_seed_gives_the_same_schedule_and_another_another);
    tcase_add_loop_test(cases, a_ramp_goes_from_its_first_rate_to_its_last, 0, 2);
    tcase_add_test(cases, a_span_holds_what_arrives_within_it);
    tcase_add_test(cases, lengths_keep_to_vllms_rule);
    tcase_add_test(cases, prompts_are_below_the_vocabulary_and_share_the_prefix_alone);
    tcase_add_test(cases, an_option_leaves_the_draws_of_others_alone);
    tcase_add_test(cases, a_trace_says_arrivals_and_lengths);
    tcase_add_loop_test(cases, a_bad_trace_is_refused_with_its_line, 0, 5);
    tcase_add_loop_test(cases, small_languages_are_read_or_refused, 0, 6);
    suite_add_tcase(suite, cases);
    return suite;
}
