/* Bodies that are long: read off the loop, and refused where they are too long or wrong. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

START_TEST(long_texts_are_tokenized_off_the_loop)
{
    struct caller caller;
    size_t length = 9000;
    char *body = malloc(length + 100);
    world_set(&site.world, "context-max", "16384");
    site.world.server.models[0].context_max = 16384;
    int used = sprintf(body, "{\"max_tokens\":1,\"prompt\":\"");
    memset(body + used, 'A', length);
    strcpy(body + used + length, "\"}");
    site.hold = true;
    call(&site, &caller, "/v1/completions", body);
    ck_assert_uint_eq(site.held_count, 1);
    ck_assert_uint_eq(site.world.server.encodings, 1);
    ck_assert(!server_idle(&site.world.server));
    if (_i == 0) {
        site_work(&site);
        site_turn(&site);
        site_finish(&site);
        has(caller_read(&caller), "\"text\":\"B\"");
        caller_free(&caller);
    } else {
        caller_free(&caller); /* while the other thread reads the text */
        ck_assert_uint_eq(site.http.exchanges, 1);
        site_work(&site);
    }
    ck_assert_uint_eq(site.http.exchanges, 0);
    free(body);
}
END_TEST

/* A list of so many tokens, in an allocation of its own. */
static char *long_list(size_t count)
{
    char *body = malloc(count * 3 + 64);
    size_t used = (size_t)sprintf(body, "{\"max_tokens\":1,\"prompt\":[65");
    for (size_t i = 1; i < count; i++)
        used += (size_t)sprintf(body + used, ",65");
    strcpy(body + used, "]}");
    return body;
}

START_TEST(long_bodies_are_read_off_the_loop)
{
    struct caller caller;
    char *body = long_list(12000);
    site.world.server.models[0].context_max = 16384;
    world_set(&site.world, "queue-tokens", "65536");
    site.hold = true;
    call(&site, &caller, "/v1/completions", body);
    free(body);
    ck_assert_uint_eq(site.held_count, 1);
    ck_assert(!exchange_ready(caller.exchange));
    ck_assert(!server_idle(&site.world.server));
    if (_i == 0) {
        site_work(&site);
        ck_assert_uint_eq(site.world.server.load.input, 0);
        site_turn(&site);
        site_finish(&site);
        has(caller_read(&caller), "\"text\":\"B\"");
        has(caller_read(&caller), "\"prompt_tokens\":12000");
        caller_free(&caller);
    } else {
        caller_free(&caller); /* while the other thread reads it */
        ck_assert_uint_eq(site.http.exchanges, 1);
        site_work(&site);
    }
    ck_assert_uint_eq(site.http.exchanges, 0);
    ck_assert_uint_eq(site.world.server.load.input, 0);
}
END_TEST

START_TEST(a_long_body_that_is_wrong_is_refused_all_the_same)
{
    struct caller caller;
    char *body = long_list(12000);
    strcpy(body + strlen(body) - 3, "500]}"); /* out of the vocabulary */
    call(&site, &caller, "/v1/completions", body);
    site_turn(&site);
    ck_assert_uint_eq(caller.exchange->status, 400);
    has(caller_read(&caller), "\"param\":\"prompt\"");
    has(caller_read(&caller), "\"code\":\"bad_token\"");
    caller_free(&caller);
    free(body);
    body = long_list(QUERY_VALUES_MAX);
    call(&site, &caller, "/v1/completions", body);
    site_turn(&site);
    ck_assert_uint_eq(caller.exchange->status, 400);
    has(caller_read(&caller), "more than 1048576 values");
    caller_free(&caller);
    free(body);
}
END_TEST

START_TEST(a_body_over_the_limit_is_413)
{
    const struct exchange_peer peer = {.user = 1};
    struct exchange_head head = {
        .method = "POST", .path = "/v1/completions", .content_type = "application/json"};
    struct caller caller;
    static char body[8192];
    world_set(&site.world, "frame-max", "4096");
    memset(body, ' ', sizeof(body) - 1);
    head.content_length = _i == 0 ? sizeof(body) - 1 : 0; /* said, or found out */
    call_as(&site, &caller, &peer, &head, body);
    ck_assert_uint_eq(caller.exchange->status, 413);
    has(caller_read(&caller), "frame-max");
    caller_free(&caller);
}
END_TEST

Suite *bodies_suite(void)
{
    Suite *suite = suite_create("bodies");
    TCase *tests = tcase_create("bodies");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_loop_test(tests, long_texts_are_tokenized_off_the_loop, 0, 2);
    tcase_add_loop_test(tests, long_bodies_are_read_off_the_loop, 0, 2);
    tcase_add_test(tests, a_long_body_that_is_wrong_is_refused_all_the_same);
    tcase_add_loop_test(tests, a_body_over_the_limit_is_413, 0, 2);
    suite_add_tcase(suite, tests);
    return suite;
}
