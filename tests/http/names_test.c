/* What the model is called. */
#include <stdio.h>
#include <string.h>

#include "tests/http/caller.h"
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

/* As service.c does it once the model is opened. */
static void serve_as(const char *names)
{
    struct server *server = &site.world.server;
    struct replica *replica = &site.world.replica.base;
    world_set(&site.world, "served-model-name", names);
    server_serve(server, &server->models[0].info, server->models[0].info.context_max, UINT64_MAX,
                 "memory", &replica, 1);
}

START_TEST(every_name_is_served_and_the_first_is_told)
{
    static const char *const bodies[] = {
        "{\"prompt\":\"A\",\"max_tokens\":1}", "{\"prompt\":\"A\",\"max_tokens\":1,\"model\":\"b\"}",
        "{\"prompt\":\"A\",\"max_tokens\":1,\"model\":\"org/a\"}"};
    serve_as("org/a,b");
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        struct caller caller;
        call(&site, &caller, "/v1/completions", bodies[i]);
        site_finish(&site);
        ck_assert_ptr_nonnull(strstr(caller_read(&caller), "\"model\":\"org/a\""));
        ck_assert_uint_eq(caller.exchange->status, 200);
        caller_free(&caller);
    }
    ck_assert_uint_eq(fetch(&site, "/v1/completions", "{\"prompt\":\"A\",\"model\":\"rule\"}",
                            answer, sizeof(answer)),
                      404);
    ck_assert_ptr_nonnull(strstr(answer, "there is no model rule here, but org/a"));
}
END_TEST

START_TEST(models_are_listed_by_all_their_names)
{
    serve_as("org/a,b");
    ck_assert_uint_eq(fetch(&site, "/v1/models", NULL, answer, sizeof(answer)), 200);
    ck_assert_ptr_nonnull(strstr(answer, "\"id\":\"org/a\""));
    ck_assert_ptr_nonnull(strstr(answer, "\"id\":\"b\""));
    ck_assert_uint_eq(fetch(&site, "/v1/models/org/a", NULL, answer, sizeof(answer)), 200);
    ck_assert_ptr_nonnull(strstr(answer, "\"id\":\"org/a\""));
    ck_assert_uint_eq(fetch(&site, "/v1/models/b", NULL, answer, sizeof(answer)), 200);
    ck_assert_ptr_nonnull(strstr(answer, "{\"id\":\"b\""));
    ck_assert_uint_eq(fetch(&site, "/v1/models/rule", NULL, answer, sizeof(answer)), 404);
    ck_assert_uint_eq(fetch(&site, "/metrics", NULL, answer, sizeof(answer)), 200);
    ck_assert_ptr_nonnull(strstr(answer, "model_name=\"org/a\"}"));
}
END_TEST

START_TEST(adapters_are_named_as_models)
{
    world_set(&site.world, "adapter", "poet=/a,clerk=/b");
    serve_as("org/a");
    struct caller caller;
    call(&site, &caller, "/v1/completions", "{\"prompt\":\"A\",\"max_tokens\":1,\"model\":\"clerk\"}");
    site_finish(&site);
    ck_assert_ptr_nonnull(strstr(caller_read(&caller), "\"model\":\"clerk\""));
    ck_assert_uint_eq(caller.exchange->status, 200);
    caller_free(&caller);
    ck_assert_uint_eq(fetch(&site, "/v1/models", NULL, answer, sizeof(answer)), 200);
    ck_assert_ptr_nonnull(strstr(answer, "{\"id\":\"org/a\""));
    ck_assert_ptr_nonnull(strstr(answer, "{\"id\":\"poet\""));
    ck_assert_ptr_nonnull(strstr(answer, "{\"id\":\"clerk\""));
    ck_assert_uint_eq(fetch(&site, "/v1/models/poet", NULL, answer, sizeof(answer)), 200);
    ck_assert_ptr_nonnull(strstr(answer, "\"parent\":\"org/a\""));
    ck_assert_uint_eq(fetch(&site, "/v1/completions", "{\"prompt\":\"A\",\"model\":\"nobody\"}",
                            answer, sizeof(answer)),
                      404);
    ck_assert_uint_eq(fetch(&site, "/metrics", NULL, answer, sizeof(answer)), 200);
    ck_assert_ptr_nonnull(strstr(answer, "sluice_adapter_requests_total{adapter=\"poet\"} 0\n"));
    ck_assert_ptr_nonnull(strstr(answer, "sluice_adapter_requests_total{adapter=\"clerk\"} 1\n"));
    ck_assert_ptr_nonnull(strstr(answer, "sluice_adapter_prompt_tokens_total{adapter=\"clerk\"} 1\n"));
    ck_assert_ptr_nonnull(
        strstr(answer, "sluice_adapter_generation_tokens_total{adapter=\"clerk\"} 1\n"));
    ck_assert_uint_eq(site.world.server.adapters.at[1].live, 0);
}
END_TEST

Suite *names_suite(void)
{
    Suite *suite = suite_create("names");
    TCase *tests = tcase_create("names");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, every_name_is_served_and_the_first_is_told);
    tcase_add_test(tests, models_are_listed_by_all_their_names);
    tcase_add_test(tests, adapters_are_named_as_models);
    suite_add_tcase(suite, tests);
    return suite;
}
