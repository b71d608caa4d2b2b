/* Sessions: turns that follow the answer before, on a virtual clock, and prompts that grow by what
 * was asked and answered. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/bench/summary.h"
#include "tests/loadgen/loadgen_suites.h"
#include "tests/loadgen/virtual.h"

#define SESSIONS 40u
#define TURNS 5u
#define COUNT (SESSIONS * TURNS)
#define VOCABULARY 1000u
#define ANSWER 5000 /* above it: an answer's tokens are known from numbers */

static struct bench_options options;
static struct workload workload;
static struct virtual_server server;
static struct driver drivers[3];
static struct driver_live live;
static struct record *records;
static void **calls;

static void set_up(void)
{
    bench_options_init(&options);
    options.num_prompts = SESSIONS;
    options.request_rate = 20;
    options.turns = TURNS;
    options.think_s = 0.5;
    options.prefix_len = 100;
    options.input_len = 20;
    options.output_len = 8;
    options.range_ratio = 0.5;
    options.seed = 7;
    server = (struct virtual_server){.room = 0};
}

static void make(uint32_t threads)
{
    struct error error;
    ck_assert_int_eq(workload_make(&options, &workload, &error), 0);
    workload.vocabulary = VOCABULARY;
    virtual_init(&server, workload.count);
    server.first_delay_us = 7000;
    server.gap_us = 2000;
    server.answers_from = ANSWER;
    records = calloc(workload.count, sizeof(*records));
    calls = calloc(workload.count, sizeof(*calls));
    live = (struct driver_live){0};
    for (uint32_t i = 0; i < threads; i++) {
        driver_init(&drivers[i], &workload, records, calls, &server.transport, &live);
        drivers[i].stride = threads;
        driver_start(&drivers[i], i, VIRTUAL_START);
    }
}

static void unmake(uint32_t threads)
{
    for (uint32_t i = 0; i < threads; i++)
        driver_free(&drivers[i]);
    virtual_free(&server);
    workload_free(&workload);
    free(records);
    free(calls);
}

START_TEST(a_turn_is_due_when_the_answer_before_was_thought_over)
{
    double thought = 0;
    make(1);
    virtual_run(&server, &drivers[0], 0, 0);
    ck_assert(driver_done(&drivers[0]));
    for (uint32_t i = 0; i < COUNT; i++) {
        ck_assert_int_eq(records[i].outcome, OUTCOME_OK);
        uint64_t due = i % TURNS ? records[i - 1].end_us + workload.item_turns[i].think_us
                                 : workload.items[i].due_us;
        ck_assert_uint_eq(records[i].due_us, due);
        ck_assert_uint_eq(records[i].sent_us, due);
        thought += i % TURNS ? (double)workload.item_turns[i].think_us / 1e6 : 0;
    }
    ck_assert_double_eq_tol(thought / (COUNT - SESSIONS), 0.5, 0.15);
    /* All sessions are on at once, none waits for another. */
    ck_assert_uint_lt(records[(SESSIONS - 1) * TURNS].sent_us,
                      records[TURNS - 1].sent_us + 2000000);
    unmake(1);
}
END_TEST

/* The next prompt has the one before for its beginning, then the answer, then what is asked. */
START_TEST(a_prompt_has_all_that_was_said_before)
{
    int32_t before[2000], prompt[2000];
    make(1);
    virtual_run(&server, &drivers[0], 0, 0);
    for (uint32_t i = 0; i < COUNT; i++) {
        const struct item *item = &workload.items[i];
        workload_prompt(&workload, i, prompt);
        uint32_t said = i % TURNS ? item[-1].prompt_tokens : 100;
        ck_assert(i == 0 || memcmp(prompt, before, said * sizeof(*prompt)) == 0);
        for (uint32_t t = 0; i % TURNS && t < item[-1].output_tokens; t++)
            ck_assert_int_eq(prompt[said++], ANSWER + (int32_t)t);
        ck_assert_uint_ge(item->prompt_tokens - said, 10);
        ck_assert_uint_le(item->prompt_tokens - said, 30);
        for (uint32_t t = said; t < item->prompt_tokens; t++)
            ck_assert_int_lt(prompt[t], VOCABULARY);
        memcpy(before, prompt, item->prompt_tokens * sizeof(*prompt));
    }
    unmake(1);
}
END_TEST

START_TEST(the_same_seed_gives_the_same_sessions)
{
    int32_t first[2000], second[2000];
    struct workload again;
    struct error error;
    make(1);
    ck_assert_int_eq(workload_make(&options, &again, &error), 0);
    again.vocabulary = VOCABULARY;
    ck_assert_uint_eq(again.count, COUNT);
    ck_assert_mem_eq(again.items, workload.items, COUNT * sizeof(*again.items));
    ck_assert_mem_eq(again.item_turns, workload.item_turns, COUNT * sizeof(*again.item_turns));
    for (uint32_t i = 0; i < COUNT; i++) { /* answers of which nothing is known are as long */
        workload_prompt(&workload, i, first);
        workload_prompt(&again, i, second);
        ck_assert_mem_eq(first, second, workload.items[i].prompt_tokens * sizeof(*first));
    }
    workload_free(&again);
    options.seed = 8;
    ck_assert_int_eq(workload_make(&options, &again, &error), 0);
    ck_assert_int_ne(
        memcmp(again.item_turns, workload.item_turns, COUNT * sizeof(*again.item_turns)), 0);
    workload_free(&again);
    unmake(1);
}
END_TEST

START_TEST(hit_rates_are_those_of_the_answers)
{
    struct bench_goals goals;
    struct summary summary;
    struct error error;
    uint64_t input = 0, later = 0, cached = 0;
    make(1);
    virtual_run(&server, &drivers[0], 0, 0);
    for (uint32_t i = 0; i < COUNT; i++) {
        input += workload.items[i].prompt_tokens;
        later += i % TURNS ? workload.items[i].prompt_tokens : 0;
        cached += i % TURNS ? workload.items[i - 1].prompt_tokens : 0;
    }
    bench_parse_goals(NULL, &goals, &error);
    ck_assert_int_eq(summary_make(&workload, &drivers[0].recorder, &goals, &summary, &error), 0);
    ck_assert_uint_eq(summary.completed, COUNT);
    ck_assert_uint_eq(summary.input_tokens, input);
    ck_assert_uint_eq(summary.cached_tokens, cached);
    ck_assert_uint_eq(summary.cached, COUNT - SESSIONS);
    ck_assert_uint_eq(summary.later_input_tokens, later);
    ck_assert_uint_eq(summary.later_cached_tokens, cached);
    summary_free(&summary);
    unmake(1);
}
END_TEST

START_TEST(a_session_ends_with_what_fails)
{
    make(1);
    server.fail_from = 2 * TURNS + 2; /* the third turn of the third session */
    server.fail_until = server.fail_from + 1;
    virtual_run(&server, &drivers[0], 0, 0);
    ck_assert(driver_done(&drivers[0]));
    for (uint32_t i = 0; i < COUNT; i++) {
        bool of_it = i / TURNS == 2;
        ck_assert_int_eq(records[i].outcome, !of_it || i % TURNS < 2 ? OUTCOME_OK
                                             : i % TURNS == 2        ? OUTCOME_FAILED
                                                                     : OUTCOME_UNSENT);
    }
    unmake(1);
}
END_TEST

START_TEST(nothing_follows_once_it_is_stopped_or_the_time_is_up)
{
    make(1);
    if (_i == 0)
        drivers[0].until_us = 1500000;
    while (server.now_us < VIRTUAL_START + 1500000) {
        time_us next = driver_next_us(&drivers[0]);
        ck_assert_uint_ne(next, 0);
        server.now_us = next > server.now_us ? next : server.now_us + 1;
        if (server.now_us >= VIRTUAL_START + 1500000)
            break;
        driver_send(&drivers[0], server.now_us);
    }
    if (_i == 1)
        driver_stop(&drivers[0]);
    virtual_run(&server, &drivers[0], 0, 0);
    ck_assert(driver_done(&drivers[0]));
    uint32_t unsent = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        ck_assert_uint_le(records[i].sent_us, 1500000);
        ck_assert_int_ne(records[i].outcome, OUTCOME_OPEN);
        unsent += records[i].outcome == OUTCOME_UNSENT;
    }
    ck_assert_uint_gt(unsent, COUNT / 2);
    unmake(1);
}
END_TEST

/* Each thread has sessions of its own, whole ones. */
START_TEST(threads_share_sessions_and_no_session_is_shared)
{
    make(3);
    for (uint32_t i = 0; i < 3; i++) {
        server.now_us = VIRTUAL_START;
        virtual_run(&server, &drivers[i], 0, 0);
        ck_assert(driver_done(&drivers[i]));
        for (uint32_t at = 0; at < COUNT; at++)
            ck_assert_int_eq(records[at].outcome == OUTCOME_OK, at / TURNS % 3 <= i);
    }
    unmake(3);
}
END_TEST

START_TEST(a_limit_on_concurrency_holds_for_turns_as_well)
{
    make(1);
    drivers[0].open_max = 2;
    virtual_run(&server, &drivers[0], 0, 0);
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t open = 0;
        for (uint32_t at = 0; at < COUNT; at++)
            open += records[at].sent_us <= records[i].sent_us &&
                    records[at].end_us > records[i].sent_us;
        ck_assert_uint_le(open, 2);
    }
    unmake(1);
}
END_TEST

START_TEST(a_workload_says_what_is_not_given)
{
    struct bench_options given, settled;
    struct error error;
    bench_options_init(&given);
    ck_assert_int_eq(bench_options_settle(&given, &settled, &error), 0);
    ck_assert_int_eq(settled.turns, 1);
    ck_assert_int_eq(settled.input_len, 1024);
    given.workload = "conversations";
    given.input_len = 300;
    ck_assert_int_eq(bench_options_settle(&given, &settled, &error), 0);
    ck_assert_int_eq(settled.turns, 10);
    ck_assert_int_eq(settled.prefix_len, 1000);
    ck_assert_int_eq(settled.input_len, 300);
    given.workload = "agents";
    given.turns = 100000;
    ck_assert_int_eq(bench_options_settle(&given, &settled, &error), 0);
    ck_assert_int_eq(workload_make(&given, &workload, &error), -ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(error.text, "tokens"));
    given.trace = "file";
    ck_assert_int_eq(workload_make(&given, &workload, &error), -ERR_USAGE);
    given = (struct bench_options){.workload = "chats"};
    ck_assert_int_eq(workload_make(&given, &workload, &error), -ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(error.text, "chats is not one of"));
}
END_TEST

Suite *session_suite(void)
{
    Suite *suite = suite_create("sessions");
    TCase *tests = tcase_create("virtual");
    tcase_add_checked_fixture(tests, set_up, NULL);
    tcase_add_test(tests, a_turn_is_due_when_the_answer_before_was_thought_over);
    tcase_add_test(tests, a_prompt_has_all_that_was_said_before);
    tcase_add_test(tests, the_same_seed_gives_the_same_sessions);
    tcase_add_test(tests, hit_rates_are_those_of_the_answers);
    tcase_add_test(tests, a_session_ends_with_what_fails);
    tcase_add_loop_test(tests, nothing_follows_once_it_is_stopped_or_the_time_is_up, 0, 2);
    tcase_add_test(tests, threads_share_sessions_and_no_session_is_shared);
    tcase_add_test(tests, a_limit_on_concurrency_holds_for_turns_as_well);
    tcase_add_test(tests, a_workload_says_what_is_not_given);
    suite_add_tcase(suite, tests);
    return suite;
}
