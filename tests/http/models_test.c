/* Two models over HTTP. */
#include <stdio.h>
#include <string.h>

#include "tests/http/caller.h"
#include "tests/http/http_suites.h"

static struct site site;
static struct model_text text;
static char answer[1 << 16];

static void set_up(void)
{
    site_make(&site);
    world_serve_beside(&site.world, "org/b,b", 300);
    ck_assert_int_eq(model_text_load(&text, "synthetic:null", NULL), 0);
    site.world.server.models[1].text = &text;
}

static void tear_down(void)
{
    site_free(&site);
    model_text_free(&text);
}

static void ask(const char *body, unsigned status, const char *has)
{
    struct caller caller;
    call(&site, &caller, "/v1/completions", body);
    site_finish(&site);
    const char *told = caller_read(&caller);
    ck_assert_msg(strstr(told, has) != NULL, "%s", told);
    ck_assert_uint_eq(caller.exchange->status, status);
    caller_free(&caller);
}

START_TEST(requests_name_a_model_and_answers_call_it_as_it_is_called_first)
{
    ask("{\"prompt\":\"A\",\"max_tokens\":1,\"model\":\"b\"}", 200, "\"model\":\"org/b\"");
    ask("{\"prompt\":\"A\",\"max_tokens\":1,\"model\":\"rule\"}", 200, "\"model\":\"rule\"");
    ask("{\"prompt\":\"A\",\"max_tokens\":1}", 200, "\"model\":\"rule\"");
    ask("{\"prompt\":\"A\",\"max_tokens\":1,\"model\":\"none\"}", 404,
        "there is no model none here, but rule and 1 more");
    ck_assert_uint_eq(site.world.server.models[1].requests, 1);
    ck_assert_uint_eq(site.world.server.models[0].requests, 2);
}
END_TEST

/* Whatever stands before it in the body. */
START_TEST(the_named_models_vocabulary_and_context_hold)
{
    ask("{\"prompt\":[[299]],\"max_tokens\":1,\"model\":\"b\"}", 200, "\"model\":\"org/b\"");
    ask("{\"prompt\":[[300]],\"max_tokens\":1,\"model\":\"b\"}", 400, "vocabulary of 300");
    ask("{\"prompt\":[[300]],\"max_tokens\":1}", 200, "\"model\":\"rule\"");
    ask("{\"prompt\":\"A\",\"max_tokens\":3000,\"model\":\"b\"}", 400, "2048");
    ck_assert_uint_eq(
        fetch(&site, "/tokenize", "{\"prompt\":\"A\",\"model\":\"b\"}", answer, sizeof(answer)),
        200);
    ck_assert_ptr_nonnull(strstr(answer, "\"max_model_len\":2048"));
}
END_TEST

START_TEST(all_models_are_listed_and_have_figures)
{
    ask("{\"prompt\":\"A\",\"max_tokens\":1,\"model\":\"b\"}", 200, "org/b");
    ck_assert_uint_eq(fetch(&site, "/v1/models", NULL, answer, sizeof(answer)), 200);
    ck_assert_ptr_nonnull(strstr(answer, "{\"id\":\"rule\""));
    ck_assert_ptr_nonnull(strstr(answer, "{\"id\":\"org/b\""));
    ck_assert_ptr_nonnull(strstr(answer, "{\"id\":\"b\""));
    ck_assert_uint_eq(fetch(&site, "/v1/models/b", NULL, answer, sizeof(answer)), 200);
    ck_assert_ptr_nonnull(strstr(answer, "\"max_model_len\":2048"));
    world_set(&site.world, "metrics-vllm", "yes");
    ck_assert_uint_eq(fetch(&site, "/metrics", NULL, answer, sizeof(answer)), 200);
    ck_assert_ptr_nonnull(strstr(answer, "sluice_model_requests_total{model=\"rule\"} 0\n"));
    ck_assert_ptr_nonnull(strstr(answer, "sluice_model_requests_total{model=\"org/b\"} 1\n"));
    ck_assert_ptr_nonnull(
        strstr(answer, "sluice_model_generation_tokens_total{model=\"org/b\"} 1\n"));
    ck_assert_ptr_nonnull(
        strstr(answer, "sluice_model_memory_bytes{model=\"org/b\",kind=\"weights\"} 7\n"));
    ck_assert_ptr_nonnull(strstr(answer, "vllm:num_requests_waiting{model_name=\"rule\"} 0\n"));
    ck_assert_ptr_nonnull(strstr(answer, "vllm:num_requests_waiting{model_name=\"org/b\"} 0\n"));
}
END_TEST

Suite *models_suite(void)
{
    Suite *suite = suite_create("models");
    TCase *tests = tcase_create("models");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, requests_name_a_model_and_answers_call_it_as_it_is_called_first);
    tcase_add_test(tests, the_named_models_vocabulary_and_context_hold);
    tcase_add_test(tests, all_models_are_listed_and_have_figures);
    suite_add_tcase(suite, tests);
    return suite;
}
