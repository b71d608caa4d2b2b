/* What stands in front of several daemons and asks them: whether they live and take work, what they
 * serve, how much they have to do, and fields that it adds to everybody's requests. */
#include <stdio.h>
#include <string.h>

#include "daemon/text/template/chat.h"
#include "tests/http/caller.h"
#include "tests/http/has.h"
#include "tests/http/http_suites.h"

static struct site site;
static char answer[1 << 17];

static void set_up(void)
{
    static const char source[] = "{% for m in messages %}{{ m.content }}{% endfor %}";
    site_make(&site);
    ck_assert_int_eq(chat_template_load(source, sizeof(source) - 1, &site.model_text.chat, NULL),
                     0);
}

static void tear_down(void)
{
    site_free(&site);
}

static unsigned get(const char *path)
{
    return fetch(&site, path, NULL, answer, sizeof(answer));
}

/* ---- alive and ready ---------------------------------------------------------------------------
 */

START_TEST(who_is_about_to_end_lives_and_takes_work_and_is_not_ready)
{
    struct caller caller;
    ck_assert_uint_eq(get("/livez"), 200);
    ck_assert_uint_eq(get("/readyz"), 200);
    server_leave(&site.world.server);
    ck_assert_uint_eq(get("/livez"), 200);
    ck_assert_uint_eq(get("/readyz"), 503);
    ck_assert_uint_eq(get("/health"), 503);
    has(answer, "\"status\":\"draining\"");
    get("/metrics");
    has(answer, "\nsluice_ready 0\n");
    call(&site, &caller, "/v1/completions", "{\"prompt\":\"A\",\"max_tokens\":3}");
    site_finish(&site);
    has(caller_read(&caller), "\"text\":\"BCD\"");
    caller_free(&caller);
    server_resume(&site.world.server); /* nobody takes that back */
    ck_assert_uint_eq(get("/readyz"), 503);
}
END_TEST

START_TEST(only_who_is_stuck_or_failed_does_not_live)
{
    struct error error;
    site.world.server.phase = SERVER_LOADING;
    ck_assert_uint_eq(get("/livez"), 200);
    ck_assert_uint_eq(get("/readyz"), 503);
    site.world.server.phase = SERVER_READY;
    server_drain(&site.world.server);
    ck_assert_uint_eq(get("/livez"), 200);
    ck_assert_uint_eq(get("/readyz"), 503);
    server_fail(&site.world.server, (error_set(&error, ERR_DEVICE, "it broke"), &error), 1);
    ck_assert_uint_eq(get("/livez"), 503);
    has(answer, "\"status\":\"failed\"");
}
END_TEST

/* ---- busy --------------------------------------------------------------------------------------
 */

START_TEST(busy_is_what_the_option_says)
{
    struct caller caller, second;
    world_set(&site.world, "queue-sequences", "4");
    if (_i)
        world_set(&site.world, "busy-status", "503");
    site.world.replica.room = 0;
    call(&site, &caller, "/v1/completions", "{\"prompt\":\"A\",\"n\":2}");
    call(&site, &second, "/v1/completions", "{\"prompt\":\"A\"}");
    ck_assert_uint_eq(second.exchange->status, _i ? 503 : 429);
    ck_assert_uint_gt(second.exchange->retry_after_ms, 0);
    has(caller_read(&second), "\"code\":\"busy\"");
    caller_free(&second);
    caller_free(&caller);
}
END_TEST

/* ---- figures by vLLM's names -------------------------------------------------------------------
 */

static double figure(const char *name)
{
    char start[64];
    double value = -1;
    snprintf(start, sizeof(start), "\n%s{", name);
    const char *line = strstr(answer, start);
    ck_assert_msg(line != NULL, "%s is not in %s", name, answer);
    line = strchr(line, '}');
    ck_assert_int_eq(sscanf(line, "} %lf", &value), 1);
    return value;
}

START_TEST(figures_have_vllms_names_by_option_alone)
{
    struct caller caller, scrape;
    struct stats_worker *figures = &site.world.replica.figures;
    get("/metrics");
    has_not(answer, "vllm:");
    world_set(&site.world, "metrics-vllm", "yes");
    site.world.replica.room = 0;
    call(&site, &caller, "/v1/completions", "{\"prompt\":\"A\",\"n\":3}");
    figures->running = 5;
    figures->starting = 2;
    figures->kv_blocks_max = 400;
    figures->kv_blocks_used = 100;
    call(&site, &scrape, "/metrics", NULL);
    site_turn(&site);
    snprintf(answer, sizeof(answer), "%s", caller_read(&scrape));
    caller_free(&scrape);
    ck_assert_double_eq(figure("vllm:num_requests_running"), 5);
    ck_assert_double_eq(figure("vllm:num_requests_waiting"), 3 + 2);
    ck_assert_double_eq(figure("vllm:kv_cache_usage_perc"), 0.25);
    char info[128];
    snprintf(info, sizeof(info),
             "vllm:cache_config_info{model_name=\"rule\",block_size=\"%u\",num_gpu_blocks=\"400\"} "
             "1\n",
             site.world.server.models[0].info.block_tokens);
    has(answer, info);
    has(answer, "vllm:lora_requests_info{model_name=\"rule\",max_lora=\"0\","
                "running_lora_adapters=\"\",waiting_lora_adapters=\"\"} 1\n");
    caller_free(&caller);
}
END_TEST

/* ---- SGLang's router ---------------------------------------------------------------------------
 */

START_TEST(a_router_learns_what_is_served)
{
    ck_assert_uint_eq(get("/server_info"), 200);
    has(answer, "\"served_model_name\":\"rule\"");
    has(answer, "\"dp_size\":1");
    ck_assert_uint_eq(get("/model_info"), 200);
    has(answer, "\"model_path\":\"rule\"");
    has(answer, "\"is_generation\":true");
}
END_TEST

struct body {
    const char *path, *body;
};
/* As sglang-router 0.3.2 makes them of the plainest requests. */
static const struct body bodies[] = {
    {"/v1/completions",
     "{\"model\":\"rule\",\"prompt\":\"A\",\"stream\":false,\"echo\":false,\"no_stop_trim\":false,"
     "\"ignore_eos\":false,\"skip_special_tokens\":true,\"return_hidden_states\":false}"},
    {"/v1/chat/completions",
     "{\"messages\":[{\"role\":\"user\",\"content\":\"A\"}],\"model\":\"rule\",\"logprobs\":false,"
     "\"max_completion_tokens\":3,\"stream\":false,\"no_stop_trim\":false,\"ignore_eos\":false,"
     "\"continue_final_message\":false,\"skip_special_tokens\":true,\"separate_reasoning\":true,"
     "\"stream_reasoning\":true,\"return_hidden_states\":false}"},
    {"/v1/completions",
     "{\"prompt\":\"A\",\"store\":true,\"stream\":null,\"temperature\":1.0,\"top_p\":1.0,"
     "\"priority\":0,\"top_k\":-1,\"min_p\":0.0,\"repetition_penalty\":1.0}"},
};

START_TEST(what_a_router_adds_is_taken)
{
    struct caller caller;
    call(&site, &caller, bodies[_i].path, bodies[_i].body);
    site_finish(&site);
    const char *text = caller_read(&caller);
    ck_assert_msg(caller.exchange->status == 200, "%s", text);
    has(text, "BCD");
    caller_free(&caller);
}
END_TEST

Suite *router_suite(void)
{
    Suite *suite = suite_create("router");
    TCase *tests = tcase_create("all");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, who_is_about_to_end_lives_and_takes_work_and_is_not_ready);
    tcase_add_test(tests, only_who_is_stuck_or_failed_does_not_live);
    tcase_add_loop_test(tests, busy_is_what_the_option_says, 0, 2);
    tcase_add_test(tests, figures_have_vllms_names_by_option_alone);
    tcase_add_test(tests, a_router_learns_what_is_served);
    tcase_add_loop_test(tests, what_a_router_adds_is_taken, 0, sizeof(bodies) / sizeof(bodies[0]));
    suite_add_tcase(suite, tests);
    return suite;
}
