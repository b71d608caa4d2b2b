/* What is said of the daemon in each of its states, everywhere that it is said: HEALTH of the
 * native protocol, /health, /livez, /readyz, KServe's two, the figure of /metrics, /is_sleeping,
 * and the line of the agent check. What the service manager hears stands in
 * tests/daemon/service/manager_test.c. */
#include <stdio.h>
#include <string.h>

#include "daemon/api/agent.h"
#include "daemon/request/model_sleep.h"
#include "tests/http/caller.h"
#include "tests/http/has.h"
#include "tests/http/http_suites.h"

static struct site site;
static struct server *server;
static char answer[1 << 17];

/* ---- states ------------------------------------------------------------------------------------
 */

static void do_nothing(void *context, uint32_t model)
{
    (void)context; /* a test says when a model is there, or gone */
    (void)model;
}

static const struct sleep_api sleep_api = {.sleep = do_nothing, .wake = do_nothing};

static void load(void)
{
    server->phase = SERVER_LOADING;
}

static void serve(void)
{
}

static void reload(void)
{
    world_set(&site.world, "batch-max", "77");
}

static void begin_to_fall(uint32_t model)
{
    struct error error;
    ck_assert_int_eq(model_sleep_ask(server, &server->models[model], &error), 0);
    world_turn(&site.world);
    ck_assert_int_eq(server->models[model].sleep.state, MODEL_FALLING);
}

static void sleep_one(uint32_t model)
{
    begin_to_fall(model);
    model_slept(server, model, site.world.now_us);
}

/* A sequence of its own that still runs. */
static void rest(void)
{
    server->models[1].running++;
    server->models[1].sleep.state = MODEL_RESTING;
}

static void fall(void)
{
    begin_to_fall(1);
}

static void sleep_beside(void)
{
    sleep_one(1);
}

static void all_sleep(void)
{
    sleep_one(0);
    sleep_one(1);
}

static void wake(void)
{
    sleep_one(1);
    model_wake_ask(server, &server->models[1], site.world.now_us);
}

static void wake_slowly(void)
{
    wake();
    for (uint32_t i = 0; i < 10; i++) {
        world_pass(&site.world, MODEL_STALL_US - 1000);
        site.world.beside[0].progress++;
    }
}

static void wake_without_progress(void)
{
    wake();
    world_pass(&site.world, MODEL_STALL_US);
}

static void fall_without_progress(void)
{
    fall();
    world_pass(&site.world, MODEL_STALL_US);
}

static void go_on_after_all(void)
{
    wake_without_progress();
    site.world.beside[0].progress++;
    world_turn(&site.world);
}

static void be_refused(int code)
{
    struct error error;
    wake();
    error_set(&error, code, "as the test has it");
    model_wake_refused(server, 1, &error, site.world.now_us);
}

static void lack_memory(void)
{
    be_refused(ERR_DEVICE_MEMORY);
}

static void lack_files(void)
{
    be_refused(ERR_BAD_MODEL);
}

static void wake_in_the_end(void)
{
    lack_files();
    model_wake_ask(server, &server->models[1], site.world.now_us);
    model_woke(server, 1, site.world.now_us);
}

static void drain(void)
{
    server_drain(server);
}

static void drain_asleep(void)
{
    all_sleep();
    server_drain(server);
}

static void take_work_again(void)
{
    server_drain(server);
    server_resume(server);
}

static void leave(void)
{
    server_leave(server);
}

static void end(void)
{
    server_end(server);
}

static void halt(void)
{
    server_halt(server, site.world.now_us);
}

static void be_stuck(void)
{
    site.world.beside[0].stuck = true;
}

static void be_stuck_and_drain(void)
{
    be_stuck();
    server_drain(server);
}

static void lose_the_device(void)
{
    struct error error;
    error_set(&error, ERR_DEVICE, "it broke");
    server_fail(server, &error, site.world.now_us);
}

static void lose_the_device_asleep(void)
{
    all_sleep();
    lose_the_device();
}

#define READY "up ready 100%\n"
#define DRAIN "up drain\n"

static const struct state {
    void (*enter)(void);
    const char *status, *agent, *asleep, *failing;
    bool lives, all_asleep;
} states[] = {
    {load, "loading", "down #loading\n", "", "", true, false},
    {serve, "ok", READY, "", "", true, false},
    {reload, "ok", READY, "", "", true, false},
    {rest, "ok", READY, "\"other\"", "", true, false},
    {fall, "ok", READY, "\"other\"", "", true, false},
    {sleep_beside, "ok", READY, "\"other\"", "", true, false},
    {all_sleep, "ok", READY, "\"rule\",\"other\"", "", true, true},
    {wake, "ok", READY, "\"other\"", "", true, false},
    {wake_slowly, "ok", READY, "\"other\"", "", true, false},
    {wake_without_progress, "stuck", "down #stuck\n", "\"other\"", "", false, false},
    {fall_without_progress, "stuck", "down #stuck\n", "\"other\"", "", false, false},
    {go_on_after_all, "ok", READY, "\"other\"", "", true, false},
    {lack_memory, "ok", READY, "\"other\"", "\"other\"", true, false},
    {lack_files, "ok", READY, "\"other\"", "\"other\"", true, false},
    {wake_in_the_end, "ok", READY, "", "", true, false},
    {drain, "draining", DRAIN, "", "", true, false},
    {drain_asleep, "draining", DRAIN, "\"rule\",\"other\"", "", true, true},
    {take_work_again, "ok", READY, "", "", true, false},
    {leave, "draining", DRAIN, "", "", true, false},
    {end, "draining", DRAIN, "", "", true, false},
    {halt, "draining", DRAIN, "", "", true, false},
    {be_stuck, "stuck", "down #stuck\n", "", "", false, false},
    {be_stuck_and_drain, "stuck", "down #stuck\n", "", "", false, false},
    {lose_the_device, "failed", "down #failed\n", "", "", false, false},
    {lose_the_device_asleep, "failed", "down #failed\n", "\"rule\",\"other\"", "", false, true},
};

/* ---- what is said ------------------------------------------------------------------------------
 */

static void set_up(void)
{
    site_make(&site);
    server = &site.world.server;
    world_serve_beside(&site.world, "other", 1000);
    server->models[1].text = &site.model_text;
    server->sleep_api = &sleep_api;
}

static void tear_down(void)
{
    server->models[1].running = 0;
    server->sleep_api = NULL;
    site_free(&site);
}

static void expect_health(const char *text, const struct state *state)
{
    char part[128];
    bool ready = strcmp(state->status, "ok") == 0;
    snprintf(part, sizeof(part), "\"status\":\"%s\",\"ready\":%s,", state->status,
             ready ? "true" : "false");
    has(text, part);
    has(text, "\"models\":[\"rule\",\"other\"]");
    snprintf(part, sizeof(part), "\"asleep\":[%s],\"failing\":[%s]", state->asleep, state->failing);
    has(text, part);
}

static void expect(const char *path, unsigned status)
{
    unsigned got = fetch(&site, path, NULL, answer, sizeof(answer));
    ck_assert_msg(got == status, "%s: %u", path, got);
}

static void expect_native(const struct state *state)
{
    struct client client;
    struct frame frame;
    client_open(&site.world, &client, 1000);
    client_control(&client, FRAME_HEALTH, 5, "");
    world_turn(&site.world);
    ck_assert(client_find(&client, FRAME_HEALTH, &frame));
    snprintf(answer, sizeof(answer), "%.*s", (int)frame.head_length, (const char *)frame.head);
    expect_health(answer, state);
    client_free(&client);
}

START_TEST(it_is_the_same_everywhere)
{
    const struct state *state = &states[_i];
    struct agent agent = {0};
    char line[AGENT_LINE_MAX];
    state->enter();
    const bool ready = strcmp(state->status, "ok") == 0;
    expect_native(state);
    expect("/health", ready ? 200 : 503);
    expect_health(answer, state);
    expect("/readyz", ready ? 200 : 503);
    expect_health(answer, state);
    expect("/livez", state->lives ? 200 : 503);
    expect_health(answer, state);
    expect("/v2/health/live", state->lives ? 200 : 503);
    expect("/v2/health/ready", ready ? 200 : 503);
    expect("/metrics", 200);
    has(answer, ready ? "\nsluice_ready 1\n" : "\nsluice_ready 0\n");
    expect("/is_sleeping", 200);
    has(answer, state->all_asleep ? "\"is_sleeping\":true" : "\"is_sleeping\":false");
    agent_line(&agent, server, site.world.now_us, line);
    ck_assert_str_eq(line, state->agent);
}
END_TEST

/* What they would be told by a router's eyes: a new process helps, and the daemon looks well again
 * once the model is there after all. */
START_TEST(a_way_without_progress_is_looked_at_in_time_and_forgotten_at_its_end)
{
    wake();
    time_us due_us = server_due(server);
    ck_assert_uint_gt(due_us, site.world.now_us);
    ck_assert_uint_le(due_us, site.world.now_us + MODEL_STALL_US);
    world_pass(&site.world, due_us - site.world.now_us);
    ck_assert(!server_healthy(server, site.world.now_us));
    ck_assert_uint_eq(server_due(server), 0); /* nothing is armed for who is stuck */
    model_woke(server, 1, site.world.now_us);
    ck_assert(server_healthy(server, site.world.now_us));
    fall_without_progress();
    ck_assert(!server_healthy(server, site.world.now_us));
    model_slept(server, 1, site.world.now_us);
    ck_assert(server_healthy(server, site.world.now_us));
}
END_TEST

Suite *health_suite(void)
{
    Suite *suite = suite_create("health");
    TCase *tests = tcase_create("health");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_loop_test(tests, it_is_the_same_everywhere, 0,
                        (int)(sizeof(states) / sizeof(states[0])));
    tcase_add_test(tests, a_way_without_progress_is_looked_at_in_time_and_forgotten_at_its_end);
    suite_add_tcase(suite, tests);
    return suite;
}
