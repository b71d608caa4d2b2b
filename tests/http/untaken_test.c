/* Answers that nobody takes: bounded in bytes. */
#include "tests/http/caller.h"
#include "tests/http/has.h"
#include "tests/http/http_suites.h"

static struct site site;

static void set_up(void)
{
    site_make(&site);
}

static void tear_down(void)
{
    site_free(&site);
}

#define CALLERS 24
/* 64,560 bytes are kept of it. */
#define LONG_ANSWER "{\"prompt\":\"A\",\"max_tokens\":1000,\"logprobs\":5}"

static void step_many(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        world_step(&site.world, 100);
        site_turn(&site);
    }
}

/* Whole answers that nobody takes count, first as numbers and then as text, and keep further ones
 * from being computed; others are answered meanwhile. */
START_TEST(answers_that_are_not_taken_are_bounded_in_bytes)
{
    static struct caller callers[CALLERS];
    struct caller other;
    const struct exchange_peer peer = {.user = 2000};
    const struct exchange_head head = {
        .method = "POST", .path = "/v1/completions", .content_type = "application/json"};
    world_set(&site.world, "results-max", "1MiB");
    const struct server *server = &site.world.server;
    for (uint32_t i = 0; i < CALLERS; i++)
        call(&site, &callers[i], "/v1/completions", LONG_ANSWER);
    step_many(50);
    uint64_t sent = site.world.replica.sent_total;
    ck_assert_uint_gt(sent, 2);
    ck_assert_uint_lt(sent, CALLERS / 2);
    ck_assert_uint_gt(server->load.results, 0);
    ck_assert_uint_eq(site.world.replica.count, 0);
    uint64_t held = 0;
    for (uint32_t i = 0; i < CALLERS; i++)
        held += out_left(&callers[i].exchange->out);
    ck_assert_uint_le(held, server->load.results); /* all of the texts count */
    if (_i == 1) {
        for (uint32_t i = 0; i < CALLERS; i++)
            caller_free(&callers[i]); /* and go with whom they were for */
        ck_assert_uint_eq(server->load.results, 0);
        return;
    }
    world_set(&site.world, "results-max", "4MiB"); /* the texts took more than half of 1 MiB */
    call_as(&site, &other, &peer, &head, LONG_ANSWER);
    step_many(20);
    ck_assert(other.exchange->finished);
    caller_free(&other);
    for (uint32_t i = 0; i < CALLERS; i++) {
        step_many(20);
        caller_read(&callers[i]);
        ck_assert(callers[i].ended);
        ck_assert_uint_eq(callers[i].exchange->status, 200);
        caller_free(&callers[i]);
    }
    ck_assert_uint_eq(server->load.results, 0);
}
END_TEST

/* An answer of several results is kept until the last is there: it has room as a whole, or waits as
 * a whole. Else halves of answers would wait for each other. */
START_TEST(an_answer_of_several_results_has_room_as_a_whole)
{
    static struct caller callers[6];
    world_set(&site.world, "results-max", "4MiB");
    site.world.replica.room = 2;
    for (uint32_t i = 0; i < 6; i++)
        call(&site, &callers[i], "/v1/completions",
             "{\"prompt\":\"A\",\"max_tokens\":1000,\"logprobs\":5,\"n\":12}");
    for (uint32_t i = 0; i < 6; i++) {
        for (uint32_t round = 0; round < 200 && !callers[i].exchange->finished; round++)
            step_many(5);
        caller_read(&callers[i]);
        ck_assert(callers[i].ended);
        ck_assert_uint_eq(callers[i].exchange->status, 200);
        caller_free(&callers[i]);
    }
    struct caller large;
    call(&site, &large, "/v1/completions",
         "{\"prompt\":\"A\",\"max_tokens\":1000,\"logprobs\":5,\"n\":20}");
    ck_assert_uint_eq(large.exchange->status, 400);
    has(caller_read(&large), "results-max");
    caller_free(&large);
    ck_assert_uint_eq(site.world.server.load.results, 0);
}
END_TEST

Suite *untaken_suite(void)
{
    Suite *suite = suite_create("untaken");
    TCase *tests = tcase_create("untaken");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_loop_test(tests, answers_that_are_not_taken_are_bounded_in_bytes, 0, 2);
    tcase_add_test(tests, an_answer_of_several_results_has_room_as_a_whole);
    suite_add_tcase(suite, tests);
    return suite;
}
