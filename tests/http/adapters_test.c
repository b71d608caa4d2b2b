/* Adapters that come and go while the daemon runs. */
#include <stdio.h>
#include <string.h>

#include "tests/http/caller.h"
#include "tests/http/http_suites.h"

#define LOAD "/v1/load_lora_adapter"
#define UNLOAD "/v1/unload_lora_adapter"

static struct site site;
static char answer[1 << 16];

static void serve(const char *places)
{
    struct server *server = &site.world.server;
    struct replica *replica = &site.world.replica.base;
    world_set(&site.world, "served-model-name", "org/a");
    world_set(&site.world, "adapter", "clerk=/c");
    world_set(&site.world, "adapters-max", places);
    server_serve(server, &server->models[0].info, server->models[0].info.context_max, UINT64_MAX,
                 "memory", &replica, 1);
}

static void set_up(void)
{
    site_make(&site);
    serve("2");
}

static void tear_down(void)
{
    site_free(&site);
}

static void send(struct caller *caller, const char *path, const char *body, bool admin)
{
    const struct exchange_peer peer = {.user = 1000, .admin = admin};
    const struct exchange_head head = {.method = "POST",
                                       .path = path,
                                       .content_type = "application/json",
                                       .content_length = strlen(body)};
    call_as(&site, caller, &peer, &head, body);
}

static unsigned ask(const char *path, const char *body)
{
    struct caller caller;
    send(&caller, path, body, true);
    site_turn(&site);
    ck_assert(exchange_ready(caller.exchange));
    unsigned status = caller.exchange->status;
    snprintf(answer, sizeof(answer), "%s", caller_read(&caller));
    caller_free(&caller);
    return status;
}

static unsigned completion(const char *model)
{
    char body[128];
    snprintf(body, sizeof(body), "{\"prompt\":\"A\",\"max_tokens\":1,\"model\":\"%s\"}", model);
    return fetch(&site, "/v1/completions", body, answer, sizeof(answer));
}

static enum adapter_state state(uint32_t number)
{
    return site.world.server.adapters.at[number - 1].state;
}

#define POET "{\"lora_name\":\"poet\",\"lora_path\":\"/srv/p\"}"

START_TEST(one_comes_and_goes)
{
    ck_assert_uint_eq(completion("poet"), 404);
    ck_assert_uint_eq(ask(LOAD, POET), 200);
    ck_assert_str_eq(answer, "Success: LoRA adapter 'poet' added successfully.\n");
    ck_assert_uint_eq(site.world.replica.adapter, 2);
    ck_assert_str_eq(site.world.replica.directory, "/srv/p");
    ck_assert_uint_eq(completion("poet"), 200);
    ck_assert_ptr_nonnull(strstr(answer, "\"model\":\"poet\""));
    ck_assert_uint_eq(fetch(&site, "/v1/models", NULL, answer, sizeof(answer)), 200);
    ck_assert_ptr_nonnull(strstr(answer, "{\"id\":\"poet\""));
    ck_assert_uint_eq(fetch(&site, "/metrics", NULL, answer, sizeof(answer)), 200);
    ck_assert_ptr_nonnull(strstr(answer, "sluice_adapter_requests_total{adapter=\"poet\"} 1\n"));
    ck_assert_uint_eq(ask(UNLOAD, "{\"lora_name\":\"poet\"}"), 200);
    ck_assert_uint_eq(completion("poet"), 404);
    ck_assert_uint_eq(fetch(&site, "/v1/models", NULL, answer, sizeof(answer)), 200);
    ck_assert_ptr_null(strstr(answer, "poet"));
    ck_assert_uint_eq(ask(UNLOAD, "{\"lora_name\":\"poet\"}"), 404);
    ck_assert_uint_eq(completion("clerk"), 200);
}
END_TEST

static uint32_t wakes;

static void count_wake(void *context, uint32_t model)
{
    (void)context;
    (void)model;
    wakes++;
}

static void fall_asleep(void *context, uint32_t model)
{
    (void)context;
    (void)model;
}

static const struct sleep_api sleep_api = {.sleep = fall_asleep, .wake = count_wake};

/* What came while it was awake comes again when it is asked for; what the option names is there. */
START_TEST(behind_a_sleep_they_are_what_they_were)
{
    struct server *server = &site.world.server;
    struct served_model *model = &server->models[0];
    struct error error;
    server->sleep_api = &sleep_api;
    wakes = 0;
    ck_assert_uint_eq(ask(LOAD, POET), 200);
    ck_assert_int_eq(model_sleep_ask(server, model, &error), 0);
    site_turn(&site);
    ck_assert_int_eq(model->sleep.state, MODEL_FALLING);
    ck_assert_uint_eq(ask(LOAD, "{\"lora_name\":\"late\",\"lora_path\":\"/l\"}"), 429);
    ck_assert_ptr_nonnull(strstr(answer, "org/a is falling asleep: adapters are loaded while"));
    model->sleep.early = false;
    model_slept(server, 0, site.world.now_us);
    ck_assert_uint_eq(ask(LOAD, "{\"lora_name\":\"late\",\"lora_path\":\"/l\"}"), 429);
    ck_assert_ptr_nonnull(strstr(answer, "asleep: adapters are loaded while it is awake"));
    ck_assert_uint_eq(wakes, 1); /* for who asks again */
    ck_assert_uint_eq(fetch(&site, "/v1/models", NULL, answer, sizeof(answer)), 200);
    ck_assert_ptr_nonnull(strstr(answer, "{\"id\":\"poet\""));
    model_woke(server, 0, site.world.now_us);
    ck_assert_uint_eq(completion("clerk"), 200);
    ck_assert_uint_eq(site.world.replica.adapter_loads, 1);
    ck_assert_uint_eq(completion("poet"), 200);
    ck_assert_ptr_nonnull(strstr(answer, "\"model\":\"poet\""));
    ck_assert_uint_eq(site.world.replica.adapter_loads, 2);
    ck_assert_str_eq(site.world.replica.directory, "/srv/p");
    /* An engine opens with what the option names, whoever has taken it away. */
    ck_assert_uint_eq(ask(UNLOAD, "{\"lora_name\":\"clerk\"}"), 200);
    ck_assert_int_eq(model_sleep_ask(server, model, &error), 0);
    site_turn(&site);
    model_slept(server, 0, site.world.now_us);
    model_woke(server, 0, site.world.now_us);
    ck_assert_uint_eq(completion("clerk"), 404);
    ck_assert_uint_eq(ask(LOAD, "{\"lora_name\":\"late\",\"lora_path\":\"/l\"}"), 200);
    ck_assert_uint_eq(site.world.replica.adapter, 1);
    ck_assert_uint_eq(completion("poet"), 200);
    ck_assert_uint_eq(site.world.replica.adapter, 2);
    ck_assert_uint_eq(site.world.replica.adapter_loads, 4);
}
END_TEST

/* The place is free once nobody has it, and what comes into it is another. */
START_TEST(who_has_it_keeps_it)
{
    struct caller caller;
    ck_assert_uint_eq(ask(LOAD, POET), 200);
    uint64_t load = site.world.server.adapters.at[1].load;
    call(&site, &caller, "/v1/completions", "{\"prompt\":\"A\",\"max_tokens\":3,\"model\":\"poet\"}");
    ck_assert_uint_eq(site.world.replica.held[0]->adapter, 2);
    ck_assert_uint_eq(ask(UNLOAD, "{\"lora_name\":\"poet\"}"), 200);
    ck_assert_int_eq(state(2), ADAPTER_LEAVING);
    ck_assert_uint_eq(ask(LOAD, POET), 429);
    ck_assert_ptr_nonnull(strstr(answer, "requests still have"));
    site_finish(&site);
    ck_assert_ptr_nonnull(strstr(caller_read(&caller), "\"model\":\"poet\""));
    ck_assert_uint_eq(caller.exchange->status, 200);
    caller_free(&caller);
    ck_assert_int_eq(state(2), ADAPTER_FREE);
    ck_assert_uint_eq(ask(LOAD, POET), 200);
    ck_assert_uint_ne(site.world.server.adapters.at[1].load, load);
    ck_assert_uint_eq(ask(UNLOAD, "{\"lora_name\":\"clerk\"}"), 200);
    ck_assert_uint_eq(ask(LOAD, "{\"lora_name\":\"b\",\"lora_path\":\"/b\"}"), 200);
    ck_assert_uint_eq(site.world.replica.adapter, 1);
}
END_TEST

/* While what runs runs on. */
static void has_figure(const char *figure)
{
    struct caller scrape;
    call(&site, &scrape, "/metrics", NULL);
    site_turn(&site);
    snprintf(answer, sizeof(answer), "%s", caller_read(&scrape));
    caller_free(&scrape);
    const char *line = strstr(answer, "\nvllm:lora_requests_info");
    ck_assert_msg(strstr(answer, figure) != NULL, "no %s, but%.300s", figure, line ? line : "");
}

#define AT_WORK(max, running, waiting)                                                             \
    "vllm:lora_requests_info{model_name=\"org/a\",max_lora=\"" max                                 \
    "\",running_lora_adapters=\"" running "\",waiting_lora_adapters=\"" waiting "\"} 1\n"

/* What pickers send requests by. */
START_TEST(figures_say_which_are_at_work)
{
    struct caller poet, clerk;
    world_set(&site.world, "metrics-vllm", "yes");
    ck_assert_uint_eq(ask(LOAD, POET), 200);
    has_figure(AT_WORK("2", "", ""));
    site.world.replica.room = 0;
    call(&site, &clerk, "/v1/completions", "{\"prompt\":\"A\",\"model\":\"clerk\"}");
    has_figure(AT_WORK("2", "", "clerk"));
    if (_i == 0) { /* gone before it was sent */
        caller_free(&clerk);
        has_figure(AT_WORK("2", "", ""));
        return;
    }
    site.world.replica.room = WORLD_HELD_MAX;
    site_turn(&site);
    call(&site, &poet, "/v1/completions", "{\"prompt\":\"A\",\"model\":\"poet\",\"n\":2}");
    has_figure(AT_WORK("2", "clerk,poet", ""));
    caller_free(&poet); /* gone while it runs */
    site_finish(&site);
    has_figure(AT_WORK("2", "", ""));
    caller_free(&clerk);
}
END_TEST

/* One leaves, and one of its name is there: readers of figures refuse a name that stands twice. */
START_TEST(a_name_that_comes_again_has_figures_once)
{
    static const char figure[] = "sluice_adapter_requests_total{adapter=\"poet\"} ";
    struct caller caller;
    serve("3");
    ck_assert_uint_eq(ask(LOAD, POET), 200);
    ck_assert_uint_eq(completion("poet"), 200);
    call(&site, &caller, "/v1/completions", "{\"prompt\":\"A\",\"model\":\"poet\"}");
    ck_assert_uint_eq(ask(UNLOAD, "{\"lora_name\":\"poet\"}"), 200);
    has_figure(figure);
    ck_assert_uint_eq(ask(LOAD, POET), 200);
    ck_assert_int_eq(state(2), ADAPTER_LEAVING);
    ck_assert_int_eq(state(3), ADAPTER_SERVED);
    has_figure(figure);
    const char *first = strstr(answer, figure);
    ck_assert_int_eq(first[sizeof(figure) - 1], '0');
    ck_assert_ptr_null(strstr(first + 1, figure));
    caller_free(&caller);
}
END_TEST

/* The daemon drains, or ends, while one is read: who asked is told, and it is not served. */
START_TEST(what_comes_too_late_is_not_served)
{
    struct caller caller;
    struct server *server = &site.world.server;
    site.hold = true;
    send(&caller, LOAD, POET, true);
    ck_assert_int_eq(state(2), ADAPTER_LOADING);
    if (_i == 0)
        server_drain(server);
    else
        server_halt(server, site.world.now_us);
    site_turn(&site);
    ck_assert(exchange_ready(caller.exchange));
    ck_assert_uint_eq(caller.exchange->status, 503);
    ck_assert_ptr_nonnull(strstr(caller_read(&caller), "draining"));
    ck_assert(!server_idle(server)); /* a thread reads it */
    if (_i == 0)
        ck_assert_uint_eq(ask(LOAD, "{\"lora_name\":\"b\",\"lora_path\":\"/b\"}"), 503);
    site_work(&site);
    site.hold = false;
    site_turn(&site);
    ck_assert_int_eq(state(2), ADAPTER_FREE);
    ck_assert_uint_eq(server->encodings, 0);
    caller_free(&caller);
    ck_assert(server_idle(server));
    if (_i == 0) {
        server_resume(server);
        ck_assert_uint_eq(ask(LOAD, POET), 200);
        ck_assert_uint_eq(completion("poet"), 200);
    }
}
END_TEST

static const struct {
    const char *path, *body, *says;
    unsigned status;
} wrong[] = {
    {LOAD, "{\"lora_path\":\"/p\"}", "lora_name is missing", 400},
    {LOAD, "{\"lora_name\":\"\",\"lora_path\":\"/p\"}", "lora_name must have", 400},
    {LOAD, "{\"lora_name\":\"a\\nb\",\"lora_path\":\"/p\"}", "no space", 400},
    {LOAD, "{\"lora_name\":1,\"lora_path\":\"/p\"}", "lora_name must be a string", 400},
    {LOAD, "{\"lora_name\":\"p\"}", "lora_path is missing", 400},
    {LOAD, "{\"lora_name\":\"p\",\"lora_path\":\"p\"}", "lora_path must begin with /", 400},
    {LOAD, "{\"lora_name\":\"org/a\",\"lora_path\":\"/p\"}", "a name of the model", 400},
    {LOAD, "{\"lora_name\":\"clerk\",\"lora_path\":\"/p\"}", "clerk already", 400},
    {LOAD, "{\"lora_name\":\"p\",\"lora_path\":\"/p\",\"load_inplace\":true}", "load_inplace", 400},
    {UNLOAD, "{\"lora_name\":\"p\"}", "there is no adapter p", 404},
    {UNLOAD, "{\"lora_name\":\"org/a\"}", "there is no adapter org/a", 404},
};

START_TEST(what_is_wrong_changes_nothing)
{
    ck_assert_msg(ask(wrong[_i].path, wrong[_i].body) == wrong[_i].status, "%s", answer);
    ck_assert_msg(strstr(answer, wrong[_i].says) != NULL, "%s", answer);
    ck_assert_uint_eq(site.world.replica.adapter_loads, 0);
    ck_assert_int_eq(state(2), ADAPTER_FREE);
    ck_assert_uint_eq(completion("clerk"), 200);
}
END_TEST

START_TEST(only_admins_say_so)
{
    struct caller caller;
    static const char *const paths[] = {LOAD, UNLOAD};
    for (int i = 0; i < 2; i++) {
        send(&caller, paths[i], i ? "{\"lora_name\":\"clerk\"}" : POET, false);
        ck_assert_uint_eq(caller.exchange->status, 403);
        caller_free(&caller);
    }
    ck_assert_uint_eq(site.world.replica.adapter_loads, 0);
    ck_assert_uint_eq(completion("clerk"), 200);
}
END_TEST

START_TEST(places_have_an_end)
{
    ck_assert_uint_eq(ask(LOAD, POET), 200);
    ck_assert_uint_eq(ask(LOAD, "{\"lora_name\":\"b\",\"lora_path\":\"/b\"}"), 400);
    ck_assert_ptr_nonnull(strstr(answer, "all 2 places"));
    serve("0");
    ck_assert_uint_eq(ask(LOAD, POET), 400);
    ck_assert_ptr_nonnull(strstr(answer, "adapters-max"));
}
END_TEST

START_TEST(what_fails_is_not_there)
{
    site.world.replica.adapter_fails = true;
    ck_assert_uint_ge(ask(LOAD, POET), 400);
    ck_assert_ptr_nonnull(strstr(answer, "adapter poet: it is no good"));
    ck_assert_uint_eq(completion("poet"), 404);
    ck_assert_int_eq(state(2), ADAPTER_FREE);
    site.world.replica.adapter_fails = false;
    ck_assert_uint_eq(ask(LOAD, POET), 200);
}
END_TEST

/* It is read by another thread: one at a time, and whoever goes meanwhile has nothing. */
START_TEST(who_goes_away_leaves_none)
{
    struct caller caller;
    site.hold = true;
    send(&caller, LOAD, POET, true);
    ck_assert(!exchange_ready(caller.exchange));
    ck_assert_int_eq(state(2), ADAPTER_LOADING);
    ck_assert_uint_eq(completion("poet"), 404);
    ck_assert_uint_eq(ask(LOAD, "{\"lora_name\":\"b\",\"lora_path\":\"/b\"}"), 429);
    if (_i == 0)
        caller_free(&caller);
    site_work(&site);
    site.hold = false;
    site_turn(&site);
    ck_assert_int_eq(state(2), _i == 0 ? ADAPTER_FREE : ADAPTER_SERVED);
    ck_assert_uint_eq(completion("poet"), _i == 0 ? 404 : 200);
    if (_i == 1)
        caller_free(&caller);
}
END_TEST

/* ---- more than there are places ----------------------------------------------------------------
 */

static void know(const char *places)
{
    static struct adapter_folder folder;
    struct server *server = &site.world.server;
    struct replica *replica = &site.world.replica.base;
    static const char *const names[] = {"a", "b", "c"};
    world_set(&site.world, "adapter", "");
    world_set(&site.world, "adapter-dir", "/srv");
    world_set(&site.world, "adapters-max", places);
    server_serve(server, &server->models[0].info, server->models[0].info.context_max, UINT64_MAX,
                 "memory", &replica, 1);
    for (folder.count = 0; folder.count < 3; folder.count++)
        snprintf(folder.names[folder.count], MODEL_NAME_SIZE, "%s", names[folder.count]);
    served_adapters_know(&server->adapters, &folder, "/srv");
}

static void begin(struct caller *caller, const char *model)
{
    char body[128];
    snprintf(body, sizeof(body), "{\"prompt\":\"A\",\"max_tokens\":2,\"model\":\"%s\"}", model);
    call(&site, caller, "/v1/completions", body);
    site_turn(&site);
}

static void loaded(uint32_t times, uint32_t place, const char *directory)
{
    ck_assert_uint_eq(site.world.replica.adapter_loads, times);
    ck_assert_uint_eq(site.world.replica.adapter, place);
    ck_assert_str_eq(site.world.replica.directory, directory);
}

START_TEST(one_comes_when_it_is_named)
{
    know("2");
    ck_assert_uint_eq(site.world.replica.adapter_loads, 0);
    ck_assert_uint_eq(fetch(&site, "/v1/models", NULL, answer, sizeof(answer)), 200);
    ck_assert_ptr_nonnull(strstr(answer, "{\"id\":\"c\""));
    ck_assert_uint_eq(completion("a"), 200);
    loaded(1, 1, "/srv/a");
    ck_assert_uint_eq(completion("b"), 200);
    loaded(2, 2, "/srv/b");
    ck_assert_uint_eq(completion("a"), 200);
    ck_assert_uint_eq(completion("c"), 200); /* b was used less lately */
    loaded(3, 2, "/srv/c");
    ck_assert_uint_eq(completion("a"), 200);
    ck_assert_uint_eq(site.world.replica.adapter_loads, 3);
    ck_assert_uint_eq(completion("d"), 404);
}
END_TEST

/* It waits for who has the place; who needs none goes by, and so does one of the same user. */
START_TEST(who_waits_for_one_waits_alone)
{
    struct caller a, b, none;
    know("1");
    begin(&a, "a");
    begin(&b, "b");
    ck_assert_uint_eq(site.world.replica.count, 1);
    begin(&none, "org/a");
    ck_assert_uint_eq(site.world.replica.count, 2);
    ck_assert_uint_eq(site.world.replica.held[1]->adapter, 0);
    ck_assert_uint_eq(site.world.replica.adapter_loads, 1);
    site_finish(&site);
    loaded(2, 1, "/srv/b");
    ck_assert_ptr_nonnull(strstr(caller_read(&b), "\"model\":\"b\""));
    ck_assert_ptr_nonnull(strstr(caller_read(&a), "\"model\":\"a\""));
    caller_free(&a);
    caller_free(&b);
    caller_free(&none);
}
END_TEST

/* While another thread reads it: its own wait, others go on; a deadline holds, or whoever waits goes. */
START_TEST(others_go_on_while_one_is_read)
{
    struct caller a, none;
    know("1");
    site.hold = true;
    begin(&a, "a");
    ck_assert_uint_eq(site.world.replica.count, 0);
    ck_assert_uint_eq(site.held_count, 1);
    begin(&none, "org/a");
    ck_assert_uint_eq(site.world.replica.count, 1);
    ck_assert_uint_eq(ask(LOAD, POET), 429);
    if (_i == 1)
        caller_free(&a);
    if (_i == 2)
        ck_assert_uint_eq(ask(UNLOAD, "{\"lora_name\":\"a\"}"), 200);
    site_work(&site);
    site.hold = false;
    site_turn(&site);
    ck_assert_uint_eq(site.world.server.encodings, 0);
    ck_assert_uint_eq(site.world.replica.count, _i == 1 ? 1 : 2);
    site_finish(&site);
    if (_i != 1)
        ck_assert_uint_eq(a.exchange->status, 200);
    ck_assert_uint_eq(completion("a"), _i == 2 ? 404 : 200);
    ck_assert_uint_eq(completion("b"), 200);
    if (_i != 1)
        caller_free(&a);
    caller_free(&none);
}
END_TEST

START_TEST(one_that_fails_is_said_so_and_tried_again)
{
    know("1");
    site.world.replica.adapter_fails = true;
    ck_assert_uint_ge(completion("a"), 400);
    ck_assert_ptr_nonnull(strstr(answer, "adapter a: it is no good"));
    ck_assert_uint_eq(completion("org/a"), 200);
    site.world.replica.adapter_fails = false;
    ck_assert_uint_eq(completion("a"), 200);
    loaded(2, 1, "/srv/a");
}
END_TEST

/* One that is always asked for gives way to one that waits, once it was there for a while. */
START_TEST(one_in_use_gives_way)
{
    struct caller first, second, b;
    know("1");
    begin(&first, "a");
    begin(&b, "b");
    world_pass(&site.world, _i == 0 ? 0 : ADAPTER_STAY_US);
    begin(&second, "a");
    ck_assert_uint_eq(site.world.replica.count, _i == 0 ? 2 : 1);
    if (_i == 2) /* who waited has gone: nothing has to leave */
        caller_free(&b);
    site_finish(&site);
    ck_assert_uint_eq(site.world.replica.adapter_loads, _i == 0 ? 2 : _i == 1 ? 3 : 1);
    ck_assert_ptr_nonnull(strstr(caller_read(&second), "\"model\":\"a\""));
    caller_free(&first);
    caller_free(&second);
    if (_i != 2)
        caller_free(&b);
}
END_TEST

/* One that is loaded by its path takes the place of one that nobody uses. */
START_TEST(one_more_makes_an_idle_one_leave)
{
    struct caller a;
    know("1");
    begin(&a, "a");
    ck_assert_uint_eq(ask(LOAD, POET), 429);
    ck_assert_ptr_nonnull(strstr(answer, "all places"));
    site_finish(&site);
    caller_free(&a);
    ck_assert_uint_eq(ask(LOAD, POET), 200);
    loaded(2, 1, "/srv/p");
    ck_assert_uint_eq(completion("a"), 200);
    ck_assert_uint_eq(completion("poet"), 200);
    loaded(4, 1, "/srv/p");
    ck_assert_uint_eq(ask(UNLOAD, "{\"lora_name\":\"poet\"}"), 200);
    ck_assert_uint_eq(completion("poet"), 404);
    ck_assert_uint_eq(site.world.server.adapters.place[0].adapter, 0);
}
END_TEST

/* The daemon fails: who waits aside is told as well. */
START_TEST(who_waits_aside_is_told_of_the_end)
{
    struct caller a;
    struct error error;
    know("1");
    site.hold = true;
    begin(&a, "a");
    error_set(&error, ERR_IO, "the device is gone");
    server_fail(&site.world.server, &error, site.world.now_us);
    site_turn(&site);
    ck_assert(exchange_ready(a.exchange));
    ck_assert_uint_ge(a.exchange->status, 500);
    site_work(&site);
    site.hold = false;
    caller_free(&a);
    ck_assert_uint_eq(site.world.server.encodings, 0);
}
END_TEST

Suite *adapters_suite(void)
{
    Suite *suite = suite_create("adapters");
    TCase *tests = tcase_create("adapters");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, one_comes_and_goes);
    tcase_add_test(tests, behind_a_sleep_they_are_what_they_were);
    tcase_add_test(tests, who_has_it_keeps_it);
    tcase_add_loop_test(tests, what_is_wrong_changes_nothing, 0, sizeof(wrong) / sizeof(wrong[0]));
    tcase_add_test(tests, only_admins_say_so);
    tcase_add_test(tests, places_have_an_end);
    tcase_add_test(tests, what_fails_is_not_there);
    tcase_add_loop_test(tests, who_goes_away_leaves_none, 0, 2);
    tcase_add_loop_test(tests, figures_say_which_are_at_work, 0, 2);
    tcase_add_test(tests, a_name_that_comes_again_has_figures_once);
    tcase_add_loop_test(tests, what_comes_too_late_is_not_served, 0, 2);
    tcase_add_test(tests, one_comes_when_it_is_named);
    tcase_add_test(tests, who_waits_for_one_waits_alone);
    tcase_add_loop_test(tests, others_go_on_while_one_is_read, 0, 3);
    tcase_add_test(tests, one_that_fails_is_said_so_and_tried_again);
    tcase_add_loop_test(tests, one_in_use_gives_way, 0, 3);
    tcase_add_test(tests, one_more_makes_an_idle_one_leave);
    tcase_add_test(tests, who_waits_aside_is_told_of_the_end);
    suite_add_tcase(suite, tests);
    return suite;
}
