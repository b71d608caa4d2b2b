/* What `sluice top` draws of requests. */
#include <stdlib.h>
#include <string.h>

#include "client/top/screen.h"
#include "protocol/base/error.h"
#include "tests/loadgen/loadgen_suites.h"

#define STATS                                                                                      \
    "{\"requests\":["                                                                              \
    "{\"request\":7,\"user\":\"key/a-customer-of-ours\",\"job\":\"generate\",\"priority\":0,"      \
    "\"sequences\":3,\"waiting\":1,\"running\":2,\"tokens\":40,\"age_us\":1500000},"               \
    "{\"request\":5,\"user\":\"1000\",\"uid\":1000,\"job\":\"embed\",\"priority\":-1,"             \
    "\"sequences\":1,\"waiting\":0,\"running\":1,\"tokens\":0,\"age_us\":2500000,"                 \
    "\"adapter\":\"poet\"},"                                                                       \
    "{\"request\":9,\"user\":\"key/a-customer-of-ours\",\"job\":\"score\",\"priority\":0,"         \
    "\"sequences\":1,\"waiting\":0,\"running\":1,\"tokens\":0,\"age_us\":500000}],"                \
    "\"formats\":{\"weights\":{\"e4m3\":7516192768,\"bf16\":1050673152},\"kv\":\"fp8\","           \
    "\"kv_token_bytes\":67584},"                                                                   \
    "\"models\":[{\"name\":\"big\",\"running\":2,\"waiting\":1},"                                  \
    "{\"name\":\"small\",\"running\":3,\"waiting\":0}]}"

static struct screen screen;

static const char *line_with(const char *part)
{
    for (int i = 0; i < screen.used; i++)
        if (strstr(screen.lines[i], part))
            return screen.lines[i];
    return "";
}

static void draw(int columns)
{
    struct screen_request requests[8];
    char formats[160], models[128];
    struct history history;
    struct error error;
    const struct json_bounds bounds = {.bytes_max = 4096, .depth_max = 8};
    json *stats;
    ck_assert_int_eq(json_parse(STATS, strlen(STATS), bounds, &stats, &error), 0);
    ck_assert_int_eq(history_init(&history), 0);
    for (uint64_t second = 0; second < 11; second++) {
        struct sample *sample = history_next(&history);
        *sample = (struct sample){.gauges[GAUGE_KV_CACHED] = 12,
                                  .counters[COUNTER_CACHE_HITS] = 5 * second,
                                  .counters[COUNTER_CACHED_TOKENS] = 300 * second,
                                  .counters[COUNTER_PROMPT_TOKENS] = 100 * second};
        sample->at_us = second * 1000000;
        history_push(&history);
    }
    screen_read_formats(stats, formats, sizeof formats);
    screen_read_models(stats, models, sizeof models);
    struct screen_state state = {.model = "m",
                                 .formats = formats,
                                 .models = models,
                                 .device = "d",
                                 .status = "ok",
                                 .history = &history,
                                 .requests = requests,
                                 .request_count = screen_read_requests(stats, requests, 8)};
    ck_assert_uint_eq(state.request_count, 3);
    memset(&screen, 0, sizeof(screen));
    screen.columns = columns;
    screen.rows = 40;
    screen.ascii = true;
    screen_draw(&screen, &state);
    history_free(&history);
    json_free(stats);
}

START_TEST(users_of_keys_have_their_names)
{
    draw(120);
    ck_assert_str_ne(line_with(" key/a-customer-of-ours 75% (3 running, 1 waiting) 1000 25%"), "");
    ck_assert_str_ne(line_with("> 5            1000"), "");
    ck_assert_str_ne(line_with("  7            key/a-customer-of-ours           generate"), "");
    ck_assert_str_ne(line_with("formats    weights e4m3 7168 MiB, bf16 1002 MiB; KV fp8, 67584 "
                               "bytes a token"),
                     "");
    ck_assert_str_ne(
        line_with("models     big (2 running, 1 waiting), small (3 running, 0 waiting)"), "");
}
END_TEST

START_TEST(adapters_stand_behind_their_requests)
{
    draw(120);
    const char *line = line_with("> 5            1000");
    ck_assert_msg(strstr(line, "   2.5 poet"), "%s", line);
    line = line_with("  7            key/a-customer-of-ours");
    ck_assert_str_eq(line + strlen(line) - 3, "1.5");
}
END_TEST

START_TEST(what_the_cache_saves_is_told)
{
    draw(120);
    ck_assert_str_ne(line_with("12 blocks, 75 % of 10 s of prompts found; 50 hits, 0 misses"), "");
}
END_TEST

START_TEST(eighty_columns_hold_all_of_a_request)
{
    draw(80);
    for (int i = 0; i < screen.used; i++)
        ck_assert_uint_le(strlen(screen.lines[i]), 80);
    ck_assert_str_ne(line_with("REQUEST      USER       JOB"), "");
    const char *line = line_with("  7            key/a-cust generate");
    ck_assert_uint_gt(strlen(line), 3);
    ck_assert_str_eq(line + strlen(line) - 3, "1.5");
}
END_TEST

Suite *screen_suite(void)
{
    Suite *suite = suite_create("screen");
    TCase *tcase = tcase_create("screen");
    tcase_add_test(tcase, users_of_keys_have_their_names);
    tcase_add_test(tcase, adapters_stand_behind_their_requests);
    tcase_add_test(tcase, what_the_cache_saves_is_told);
    tcase_add_test(tcase, eighty_columns_hold_all_of_a_request);
    suite_add_tcase(suite, tcase);
    return suite;
}
