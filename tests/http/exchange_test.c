/* Requests and their answers, whole and in streams. */
#include <stdio.h>
#include <string.h>

#include "tests/http/caller.h"
#include "tests/http/has.h"
#include "tests/http/http_suites.h"

static struct site site;
static char answer[1 << 16];

static void set_up(void)
{
    site_make(&site);
}

static void tear_down(void)
{
    site_free(&site);
}

struct example {
    const char *path, *body;
    unsigned status;
    const char *part; /* of the answer */
};

static const struct example examples[] = {
    {"/v1/completions", "{\"prompt\":\"A\",\"max_tokens\":3}", 200, "\"text\":\"BCD\""},
    {"/v1/completions", "{\"prompt\":[\"A\",\"K\"],\"max_tokens\":2}", 200,
     "\"index\":1,\"text\":\"LM\""},
    {"/v1/completions", "{\"prompt\":[65,66],\"max_tokens\":1}", 200, "\"text\":\"B\""},
    {"/v1/completions", "{\"prompt\":[[65],[75,1]],\"max_tokens\":1}", 200,
     "\"index\":1,\"text\":\"L\""},
    {"/v1/completions", "{\"prompt\":\"A\"}", 200, "\"completion_tokens\":16"},
    {"/v1/completions", "{\"prompt\":\"A\",\"max_tokens\":9,\"stop\":\"EF\"}", 200,
     "\"text\":\"BCD\",\"logprobs\":null,\"finish_reason\":\"stop\""},
    {"/v1/completions", "{\"prompt\":\"A\",\"max_tokens\":9,\"stop\":[\"x\",\"D\"]}", 200,
     "\"text\":\"BC\""},
    {"/v1/completions",
     "{\"prompt\":\"A\",\"max_tokens\":9,\"min_tokens\":4,\"stop\":[\"D\",\"G\"]}", 200,
     "\"text\":\"BCDEF\""},
    {"/v1/completions", "{\"prompt\":\"A\",\"max_tokens\":2,\"echo\":true}", 200,
     "\"text\":\"ABC\""},
    {"/v1/completions", "{\"prompt\":[65],\"max_tokens\":2,\"echo\":true,\"n\":2}", 200,
     "\"index\":1,\"text\":\"ABC\""},
    {"/v1/completions", "{\"prompt\":\"A\",\"max_tokens\":2,\"logprobs\":1}", 200,
     "\"tokens\":[\"B\",\"C\"],\"token_logprobs\":[-0,-1]"},
    {"/v1/completions", "{\"prompt\":\"A\",\"max_tokens\":1,\"user\":\"me\",\"suffix\":null}", 200,
     "\"prompt_tokens\":1,\"completion_tokens\":1,\"total_tokens\":2"},
    {"/v1/completions", "{\"prompt\":\"A\",\"max_tokens\":2,\"logit_bias\":{\"88\":5}}", 200,
     "\"text\":\"BC\""},
    {"/v1/completions", "{\"prompt\":\"A\",\"logit_bias\":{\"66\":1,\"B\":1}}", 400,
     "\"code\":\"bad_token\""},
    {"/v1/completions", "{\"prompt\":\"A\",\"suffix\":\"x\"}", 400, "\"param\":\"suffix\""},
    {"/v1/completions", "{\"prompt\":\"A\",\"model\":\"rule\",\"max_tokens\":1}", 200, "\"B\""},
    {"/v1/completions", "{\"prompt\":\"A\",\"model\":\"other\"}", 404,
     "\"code\":\"model_not_found\""},
    {"/v1/completions", "{\"prompt\":\"A\",\"best_of\":2}", 400, "\"param\":\"best_of\""},
    {"/v1/completions", "{\"prompt\":\"A\",\"max_tokens\":100000}", 400, "\"code\":\"too_large\""},
    {"/v1/completions", "{\"prompt\":[1000]}", 400, "\"code\":\"bad_token\""},
    {"/v1/completions", "{\"prompt\":[65,\"A\"]}", 400, "\"param\":\"prompt\""},
    {"/v1/completions", "{\"prompt\":[\"A\",65]}", 400, "\"param\":\"prompt\""},
    {"/v1/completions", "{\"prompt\":\"\"}", 400, "\"code\":\"empty\""},
    {"/v1/completions", "{}", 400, "prompt is missing"},
    {"/v1/completions", "[]", 400, "no JSON object"},
    {"/v1/completions", "{\"prompt\":\"A\",\"prompt\":\"B\"}", 400, "\"code\":\"bad_head\""},
    {"/v1/completions", "{\"prompt\":\"A\",\"echo\":true,\"logprobs\":1,\"stream\":true}", 400,
     "\"param\":\"stream\""},
    {"/v1/completions", "{\"prompt\":\"A\",\"echo\":true,\"logprobs\":0,\"max_tokens\":1}", 200,
     "\"text\":\"AB\",\"logprobs\":{\"tokens\":[\"A\",\"B\"],\"token_logprobs\":[null,-0],"
     "\"top_logprobs\":null,\"text_offset\":[0,1]}"},
    {"/v1/completions", "{\"prompt\":\"A\",\"stream\":1}", 400, "\"param\":\"stream\""},
    {"/v1/completions", "{\"prompt\":\"A\",\"stream_options\":{\"x\":true}}", 400,
     "stream_options.x"},
    {"/v1/chat/completions", "{\"messages\":[{\"role\":\"user\",\"content\":\"A\"}]}", 400,
     "no chat template"},
    {"/v1/chat/completions", "{\"messages\":[{\"content\":\"A\"}]}", 400, "without a role"},
    {"/v1/chat/completions",
     "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}", 400,
     "image_url"},
    {"/v1/embeddings", "{\"input\":\"A\"}", 200, "\"embedding\":[65,66,67,68]"},
    {"/v1/embeddings", "{\"input\":[\"A\",[66]]}", 400, "\"param\":\"input\""},
    {"/v1/embeddings", "{\"input\":[[66]],\"encoding_format\":\"base64\"}", 200,
     "\"embedding\":\"AACEQgAAhkIAAIhCAACKQg==\""},
    {"/v1/embeddings", "{\"input\":\"A\",\"dimensions\":2}", 400, "\"param\":\"dimensions\""},
    {"/tokenize", "{\"prompt\":\"AB\"}", 200, "\"tokens\":[65,66]"},
    {"/tokenize", "{\"prompt\":[1]}", 400, "must be one string"},
    {"/detokenize", "{\"tokens\":[65,256,66]}", 200, "\"prompt\":\"A<|end|>B\""},
    {"/detokenize", "{\"tokens\":[]}", 200, "\"prompt\":\"\""},
    {"/v1/models", NULL, 200, "\"id\":\"rule\""},
    {"/v1/models/rule", NULL, 200, "\"id\":\"rule\""},
    {"/v1/models/other", NULL, 404, "model_not_found"},
    {"/version", NULL, 200, SLUICE_VERSION},
    {"/health", NULL, 200, "\"status\":\"ok\""},
    {"/metrics", NULL, 200, "sluice_num_requests_running 0"},
    {"/v1/completions", NULL, 405, "another method"},
    {"/v1/nothing", NULL, 404, "{\"error\":{\"message\":\"there is nothing under this path\""},
    {"/v2/nothing", NULL, 404, "{\"error\":\"there is nothing under this path\"}"},
    {"/v2nothing", NULL, 404, "{\"error\":{\"message\":"},
    {"/v2/health/live", "{}", 405, "{\"error\":\"another method is expected here\"}"},
    {"/v1/messages", NULL, 405, "{\"type\":\"error\",\"error\":{\"type\":"},
};

START_TEST(a_request_gets_its_answer)
{
    const struct example *example = &examples[_i];
    unsigned status = fetch(&site, example->path, example->body, answer, sizeof(answer));
    ck_assert_msg(status == example->status, "%u, not %u: %s", status, example->status, answer);
    has(answer, example->part);
}
END_TEST

START_TEST(a_stream_gives_pieces_usage_and_its_end)
{
    struct caller caller;
    call(&site, &caller, "/v1/completions",
         "{\"prompt\":\"A\",\"max_tokens\":5,\"stream\":true,\"stream_options\":{\"include_usage\":"
         "true}}");
    ck_assert(caller.exchange->streaming);
    ck_assert_str_eq(caller_read(&caller), "");
    world_step(&site.world, 2);
    site_turn(&site);
    has(caller_read(&caller), "\"text\":\"BC\"");
    has_not(caller.answer, "[DONE]");
    ck_assert(!caller.ended);
    site_finish(&site);
    has(caller_read(&caller), "\"text\":\"DEF\",\"logprobs\":null,\"finish_reason\":\"length\"");
    has(caller.answer, "\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":5");
    ck_assert_str_eq(caller.answer + caller.length - 14, "data: [DONE]\n\n");
    ck_assert(caller.ended);
    caller_free(&caller);
}
END_TEST

/* A stream or not; two results, whose guesses are told as a sum. */
START_TEST(usage_tells_what_was_guessed)
{
    static const char *const bodies[2] = {
        "{\"prompt\":\"A\",\"max_tokens\":5,\"n\":2}",
        "{\"prompt\":\"A\",\"max_tokens\":5,\"n\":2,\"stream\":true,\"stream_options\":"
        "{\"include_usage\":true}}"};
    for (int guesses = 0; guesses < 2; guesses++) {
        struct caller caller;
        call(&site, &caller, "/v1/completions", bodies[_i]);
        world_step(&site.world, 1);
        for (int i = 0; i < 2 * guesses; i++) { /* as the worker does */
            caller.exchange->request->seqs[i].drafted = 4 + (uint32_t)i;
            caller.exchange->request->seqs[i].accepted = 3;
        }
        site_finish(&site);
        (void)caller_read(&caller);
        if (guesses)
            has(caller.answer, "\"completion_tokens\":10,\"total_tokens\":11,"
                               "\"completion_tokens_details\":{\"accepted_prediction_tokens\":6,"
                               "\"rejected_prediction_tokens\":3}}");
        else
            has_not(caller.answer, "completion_tokens_details");
        caller_free(&caller);
    }
}
END_TEST

START_TEST(a_stream_holds_back_what_may_become_a_stop_string)
{
    struct caller caller;
    call(&site, &caller, "/v1/completions",
         "{\"prompt\":\"A\",\"max_tokens\":50,\"stream\":true,\"stop\":\"DEF\"}");
    world_step(&site.world, 4); /* B C D E */
    site_turn(&site);
    has(caller_read(&caller), "\"text\":\"BC\"");
    world_step(&site.world, 1);
    site_turn(&site);
    has(caller_read(&caller), "\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"stop\"");
    ck_assert(caller.ended);
    ck_assert_uint_eq(site.world.server.live_sequences, 0);
    caller_free(&caller);
}
END_TEST

START_TEST(a_reader_that_is_slow_is_not_formatted_for)
{
    struct caller caller;
    call(&site, &caller, "/v1/completions",
         "{\"prompt\":\"A\",\"max_tokens\":4000,\"stream\":true,\"n\":8}");
    site_finish(&site);
    ck_assert_uint_lt(out_left(&caller.exchange->out), 128 << 10);
    ck_assert(!caller.exchange->finished || out_left(&caller.exchange->out) > 0);
    caller_read(&caller);
    ck_assert(caller.ended);
    caller_free(&caller);
}
END_TEST

START_TEST(who_goes_away_is_cancelled)
{
    struct caller caller;
    call(&site, &caller, "/v1/completions",
         _i == 0 ? "{\"prompt\":\"A\",\"max_tokens\":4000}"
                 : "{\"prompt\":\"A\",\"max_tokens\":4000,\"stream\":true,\"n\":3}");
    world_step(&site.world, 1);
    ck_assert_uint_gt(site.world.replica.count, 0);
    caller_free(&caller);
    ck_assert_uint_eq(site.world.replica.count, 0);
    ck_assert_uint_eq(site.world.server.live_sequences, 0);
}
END_TEST

/* As FIELDS.md has it: what there is of an answer is worth more than an error, of a row there is
 * nothing. */
START_TEST(what_runs_beyond_its_deadline_ends_with_what_it_has)
{
    struct caller text, row; /* the row is not begun */
    call(&site, &text, "/v1/completions",
         "{\"prompt\":\"A\",\"max_tokens\":4000,\"deadline_ms\":50}");
    world_step(&site.world, 1);
    call(&site, &row, "/v1/embeddings", "{\"input\":\"A\",\"deadline_ms\":50}");
    world_pass(&site.world, 50000);
    site_turn(&site);
    site_finish(&site);
    ck_assert_uint_eq(text.exchange->status, 200);
    has(caller_read(&text), "\"finish_reason\":\"deadline\"");
    ck_assert_uint_eq(row.exchange->status, 504);
    has(caller_read(&row), "\"code\":\"deadline\"");
    caller_free(&text);
    caller_free(&row);
}
END_TEST

/* By the world's rule the score at position i is -(i - 1), and the likeliest token i - 1. */
START_TEST(echoed_prompts_are_scored_before_they_are_continued)
{
    struct caller caller;
    call(&site, &caller, "/v1/completions",
         "{\"prompt\":[[65,66,67],[70]],\"max_tokens\":2,\"n\":2,\"echo\":true,\"logprobs\":1}");
    ck_assert_uint_eq(site.world.replica.count, 2); /* the prompts, once each */
    if (_i == 1) {
        caller_free(&caller);
        ck_assert_uint_eq(site.world.replica.count, 0);
        ck_assert_uint_eq(site.world.server.live_requests, 0);
        return;
    }
    site_finish(&site);
    const char *text = caller_read(&caller);
    has(text,
        "\"index\":1,\"text\":\"ABCBC\",\"logprobs\":{\"tokens\":[\"A\",\"B\",\"C\",\"B\",\"C\"],"
        "\"token_logprobs\":[null,-0,-1,-0,-1],\"top_logprobs\":[null,{\"\":0,\"B\":-0},{"
        "\"\\u0001\":0,\"C\":-1},");
    has(text, "\"index\":3,\"text\":\"FGH\",\"logprobs\":{\"tokens\":[\"F\",\"G\",\"H\"],"
              "\"token_logprobs\":[null,-0,-1]");
    has(text, "\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":8");
    caller_free(&caller);
    ck_assert_uint_eq(site.world.server.live_requests, 0);
}
END_TEST

START_TEST(a_full_queue_is_429_with_a_hint)
{
    struct caller caller, second;
    world_set(&site.world, "queue-sequences", "4");
    site.world.replica.room = 0;
    call(&site, &caller, "/v1/completions", "{\"prompt\":\"A\",\"n\":2}");
    call(&site, &second, "/v1/completions", "{\"prompt\":\"A\"}");
    ck_assert_uint_eq(second.exchange->status, 429);
    ck_assert_uint_gt(second.exchange->retry_after_ms, 0);
    has(caller_read(&second), "rate_limit_error");
    caller_free(&second);
    caller_free(&caller);
}
END_TEST

START_TEST(draining_is_503)
{
    server_drain(&site.world.server);
    ck_assert_uint_eq(fetch(&site, "/v1/completions", "{\"prompt\":\"A\"}", answer, sizeof(answer)),
                      503);
    ck_assert_uint_eq(fetch(&site, "/health", NULL, answer, sizeof(answer)), 503);
    has(answer, "\"status\":\"draining\"");
}
END_TEST

Suite *exchange_suite(void)
{
    Suite *suite = suite_create("exchange");
    TCase *tests = tcase_create("exchange");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_loop_test(tests, a_request_gets_its_answer, 0,
                        sizeof(examples) / sizeof(examples[0]));
    tcase_add_test(tests, a_stream_gives_pieces_usage_and_its_end);
    tcase_add_loop_test(tests, usage_tells_what_was_guessed, 0, 2);
    tcase_add_test(tests, a_stream_holds_back_what_may_become_a_stop_string);
    tcase_add_test(tests, a_reader_that_is_slow_is_not_formatted_for);
    tcase_add_loop_test(tests, who_goes_away_is_cancelled, 0, 2);
    tcase_add_test(tests, what_runs_beyond_its_deadline_ends_with_what_it_has);
    tcase_add_loop_test(tests, echoed_prompts_are_scored_before_they_are_continued, 0, 2);
    tcase_add_test(tests, a_full_queue_is_429_with_a_hint);
    tcase_add_test(tests, draining_is_503);
    suite_add_tcase(suite, tests);
    return suite;
}
