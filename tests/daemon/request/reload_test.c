/* Versions of a model: which requests are whose, what takes over when, and what is refused. Who
 * loads them is here, and does so when the test says. */
#include <stdio.h>
#include <string.h>

#include "daemon/request/model_reload.h"
#include "protocol/base/mix.h"
#include "tests/daemon/daemon_suites.h"
#include "tests/daemon/request/server_rig.h"

#define SEEDS 300u
#define EVENTS 120u

static uint32_t begun;
static char directory[64];

static void begin(void *context, struct served_model *model, const char *from)
{
    (void)context;
    (void)model;
    begun++;
    snprintf(directory, sizeof(directory), "%s", from);
}

static const struct reload_api api = {.begin = begin};

static struct served_model *model(void)
{
    return &world.server.models[0];
}

/* The two places that versions have by turns; the rule of the second is another. */
static struct world_replica *place(uint32_t version)
{
    return version & 1 ? &world.beside[0] : &world.replica;
}

static void setup(void)
{
    server_rig_setup();
    world.beside[0].script = "xyz";
    world.server.reload_api = &api;
    begun = 0;
}

static int ask_reload(const char *from)
{
    struct error error;
    return model_reload_ask(&world.server, model(), from, &error);
}

static void load(void)
{
    struct replica *fresh = &place(model()->version.number + 1)->base;
    model_reload_loaded(&world.server, &fresh);
}

static void take_over(void)
{
    const struct gpu_model info = model()->info;
    model_reload_take_over(&world.server, &info, UINT64_MAX);
}

static void retire(void)
{
    ck_assert(model_reload_idle(&world.server));
    model_reload_forget(&world.server);
    model_reload_over(&world.server);
}

static void renew(void)
{
    ck_assert_int_eq(ask_reload(""), 0);
    load();
    take_over();
}

static void ask(struct client *from, uint64_t id, uint32_t count)
{
    struct ask own = one;
    own.id = id;
    own.count = count;
    client_ask(from, &own);
}

START_TEST(what_runs_and_what_waits_ends_on_the_version_that_accepted_it)
{
    world.replica.room = 1;
    ask(&client, 1, 1);
    ask(&client, 2, 2);
    world_turn(&world);
    ck_assert_uint_eq(world.replica.count, 1);
    ck_assert_uint_eq(model()->waiting.count, 2);
    renew();
    ask(&other, 3, 1);
    world_turn(&world);
    ck_assert_uint_eq(world.replica.count, 1);
    ck_assert(!model_reload_idle(&world.server));
    ck_assert_str_eq(model_reload_word(&world.server, model()), "retiring");
    world_step(&world, 64);
    ck_assert_uint_eq(world.replica.count, 1); /* what waited */
    ck_assert(!model_reload_idle(&world.server));
    world_finish(&world);
    ck_assert_uint_eq(world.replica.sent_total, 3);
    ck_assert_uint_eq(world.beside[0].sent_total, 1);
    ck_assert_uint_eq(done_count(&client), 3);
    ck_assert_int_eq(next_finish(&other), FINISH_STOP);
    retire();
    ck_assert_str_eq(model_reload_word(&world.server, model()), "none");
    ck_assert_uint_eq(model()->version.reloads_total, 1);
}
END_TEST

START_TEST(until_it_takes_over_only_its_test_is_the_new_ones)
{
    ck_assert_int_eq(ask_reload("/models/two"), 0);
    ck_assert_str_eq(directory, "/models/two");
    ask(&client, 1, 1);
    load();
    world.server.reload.admits = true;
    ask(&other, 2, 1);
    world.server.reload.admits = false;
    ask(&client, 3, 1);
    world_turn(&world);
    ck_assert_uint_eq(world.replica.count, 2);
    ck_assert_uint_eq(world.beside[0].count, 1);
    ck_assert_ptr_eq(model()->replicas[0], &world.replica.base);
    ck_assert_uint_gt(world.beside[0].wakes, 0);
    world_finish(&world);
    take_over();
    ck_assert_ptr_eq(model()->replicas[0], &world.beside[0].base);
    ck_assert_ptr_eq(world.server.replicas[0], &world.beside[0].base);
    retire();
}
END_TEST

START_TEST(who_is_refused_leaves_the_old_one_and_says_why)
{
    struct error why;
    error_set(&why, ERR_BAD_MODEL, "it is no good");
    const uint64_t load_before = model()->load;
    ck_assert_int_eq(ask_reload(""), 0);
    ask(&client, 1, 1);
    load();
    model_reload_refuse(&world.server, &why);
    ck_assert_str_eq(model_reload_word(&world.server, model()), "ending");
    ck_assert_int_eq(ask_reload(""), -ERR_BUSY);
    retire();
    world_finish(&world);
    ck_assert_uint_eq(world.replica.sent_total, 1);
    ck_assert_uint_eq(model()->load, load_before);
    ck_assert_uint_eq(model()->version.number, 0);
    ck_assert_uint_eq(model()->version.refusals_total, 1);
    ck_assert_str_eq(model_reload_word(&world.server, model()), "failed");
    ck_assert_str_eq(model()->version.refusal.text, "it is no good");
    renew();
    ck_assert_int_eq(model()->version.refusal.code, 0);
    retire();
}
END_TEST

START_TEST(what_was_refused_and_hangs_counts_as_failed_and_none_begins_before_it_has_ended)
{
    struct error why, error;
    error_set(&why, ERR_DEADLINE, "it came no further");
    ck_assert_int_eq(ask_reload(""), 0);
    model_reload_refuse(&world.server, &why);
    ck_assert_str_eq(model_reload_word(&world.server, model()), "ending");
    model_reload_hang(&world.server, false);
    ck_assert_str_eq(model_reload_word(&world.server, model()), "failed");
    ck_assert_int_eq(model_reload_ask(&world.server, model(), "", &error), -ERR_BAD_STATE);
    ck_assert_uint_eq(error.retry_after_ms, 0);
    ck_assert_str_eq(model()->version.refusal.text, "it came no further");
    ask(&client, 1, 1);
    world_finish(&world);
    ck_assert_uint_eq(world.replica.sent_total, 1);
    retire();
    ck_assert_str_eq(model_reload_word(&world.server, model()), "failed");
    renew();
    retire();
}
END_TEST

START_TEST(two_at_once_are_refused_and_so_is_one_without_a_model_awake)
{
    struct error error;
    ck_assert_int_eq(ask_reload(""), 0);
    ck_assert_int_eq(model_reload_ask(&world.server, model(), "", &error), -ERR_BUSY);
    ck_assert_uint_eq(error.retry_after_ms, 1000);
    ck_assert_uint_eq(begun, 1);
    load();
    take_over();
    ck_assert_int_eq(ask_reload(""), -ERR_BUSY); /* the old one is still there */
    retire();
    ck_assert_int_eq(ask_reload("models/two"), -ERR_BAD_VALUE);
    model()->sleep.state = MODEL_ASLEEP;
    ck_assert_int_eq(ask_reload(""), -ERR_BAD_STATE);
    model()->sleep.state = MODEL_AWAKE;
    server_drain(&world.server);
    ck_assert_int_eq(ask_reload(""), -ERR_DRAINING);
    server_resume(&world.server);
    model()->info.ranks = 2;
    ck_assert_int_eq(ask_reload(""), -ERR_UNSUPPORTED);
    model()->info.ranks = 1;
    world_set(&world, "adapters-max", "1");
    ck_assert_int_eq(ask_reload(""), -ERR_UNSUPPORTED);
    world_set(&world, "adapters-max", "0");
    world_set(&world, "profile-steps", "5");
    ck_assert_int_eq(ask_reload(""), -ERR_UNSUPPORTED);
    world_set(&world, "profile-steps", "0");
    world.server.reload_api = NULL;
    ck_assert_int_eq(ask_reload(""), -ERR_UNSUPPORTED);
    ck_assert_uint_eq(begun, 1);
}
END_TEST

START_TEST(an_admin_alone_has_it_reloaded)
{
    static const char *const wrong[] = {"{\"reload\":true,\"sleep\":true}",
                                        "{\"directory\":\"/two\"}", "{\"reload\":1}",
                                        "{\"reload\":true,\"directory\":\"two\"}"};
    struct client admin;
    struct frame frame;
    client_control(&client, FRAME_MODEL, 7, "{\"reload\":true}");
    world_turn(&world);
    ck_assert_int_eq(client_error(&client), ERR_DENIED);
    client_open(&world, &admin, 0);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        client_control(&admin, FRAME_MODEL, 7, wrong[i]);
        world_turn(&world);
        ck_assert_int_eq(client_error(&admin), ERR_BAD_VALUE);
    }
    ck_assert_uint_eq(begun, 0);
    client_control(&admin, FRAME_MODEL, 8, "{\"reload\":true,\"directory\":\"/two\"}");
    world_turn(&world);
    ck_assert(client_find(&admin, FRAME_MODEL, &frame));
    ck_assert_ptr_nonnull(memmem(frame.head, frame.head_length, "\"reload\":\"loading\"", 18));
    ck_assert_uint_eq(begun, 1);
    ck_assert_str_eq(directory, "/two");
    load();
    take_over();
    retire();
    client_free(&admin);
}
END_TEST

static struct prefix_key first_name(struct world_replica *of)
{
    ck_assert_uint_eq(of->count, 1);
    ck_assert(of->held[0]->caches && of->held[0]->key_count > 0);
    return of->held[0]->keys[0];
}

START_TEST(what_the_old_one_cached_has_no_name_of_the_new_one)
{
    model()->info.block_tokens = 2;
    ask(&client, 1, 1);
    world_turn(&world);
    const struct prefix_key before = first_name(&world.replica);
    renew();
    ask(&client, 2, 1);
    world_turn(&world);
    const struct prefix_key after = first_name(&world.beside[0]);
    ck_assert(!prefix_key_same(&before, &after));
    world_finish(&world);
    retire();
    renew();
    ask(&client, 3, 1);
    world_turn(&world);
    const struct prefix_key third = first_name(&world.replica); /* where the first was */
    ck_assert(!prefix_key_same(&before, &third) && !prefix_key_same(&after, &third));
    world_finish(&world);
    retire();
}
END_TEST

static uint32_t sleeps;

static void count_sleep(void *context, uint32_t number)
{
    (void)context;
    (void)number;
    sleeps++;
}

START_TEST(while_it_is_reloaded_it_does_not_sleep)
{
    static const struct sleep_api sleep = {.sleep = count_sleep};
    struct error error;
    sleeps = 0;
    world.server.sleep_api = &sleep;
    model()->sleep.after_us = 1000000;
    ck_assert_int_eq(ask_reload(""), 0);
    ck_assert_int_eq(model_sleep_ask(&world.server, model(), &error), 0);
    world_pass(&world, 5000000);
    ck_assert_uint_eq(sleeps, 0);
    load();
    take_over();
    world_pass(&world, 5000000);
    ck_assert_uint_eq(sleeps, 0);
    retire();
    world_turn(&world);
    ck_assert_uint_eq(sleeps, 1);
    model_slept(&world.server, 0, world.now_us);
    model_woke(&world.server, 0, world.now_us);
    world.server.sleep_api = NULL;
}
END_TEST

/* By sleep-after (0), by an admin's word (1), and for another that lacks memory (2); at its files,
 * and on the devices (3 and on). */
START_TEST(while_what_was_refused_hangs_its_model_sleeps_or_is_refused_to)
{
    static const struct sleep_api sleep = {.sleep = count_sleep, .wake = count_sleep};
    const bool engaged = _i >= 3;
    const int way = _i % 3;
    struct error why, error;
    sleeps = 0;
    world_serve_beside(&world, "other", 1000);
    world.server.sleep_api = &sleep;
    model()->sleep.after_us = way == 0 ? 1000000 : 0;
    ck_assert_int_eq(ask_reload(""), 0);
    if (way == 1)
        ck_assert_int_eq(model_sleep_ask(&world.server, model(), &error), 0);
    if (way == 2) {
        world.beside[0].starves = true;
        client_ask(&client, &(struct ask){.job = JOB_GENERATE,
                                          .id = 1,
                                          .count = 1,
                                          .length = 1,
                                          .max_tokens = 2,
                                          .model = "other"});
        world_turn(&world);
    }
    world_turn(&world);
    world_pass(&world, 60000000);
    error_set(&why, ERR_DEADLINE, "it came no further");
    model_reload_refuse(&world.server, &why);
    world_pass(&world, 5000000);
    ck_assert_uint_eq(sleeps, 0); /* it is taken down, in time maybe */
    model_reload_hang(&world.server, engaged);
    world_pass(&world, 60000000);
    ck_assert_uint_eq(sleeps, engaged ? 0 : 1);
    ck_assert_int_eq(model_sleep_ask(&world.server, model(), &error), engaged ? -ERR_BAD_STATE : 0);
    if (engaged) /* it has ended */
        retire();
    world_turn(&world);
    ck_assert_uint_eq(sleeps, engaged && way == 1 ? 0 : 1); /* that word is forgotten */
    if (engaged && way == 1)
        ck_assert_int_eq(model_sleep_ask(&world.server, model(), &error), 0);
    world_turn(&world);
    ck_assert_uint_eq(sleeps, 1);
    ck_assert_int_eq(model()->sleep.state, MODEL_FALLING);
    model_slept(&world.server, 0, world.now_us);
    world.beside[0].starves = false;
    world_finish(&world);
    model_wake_ask(&world.server, model(), world.now_us);
    model_woke(&world.server, 0, world.now_us);
    ck_assert_str_eq(model_reload_word(&world.server, model()), "failed");
    ask(&client, 2, 1);
    world_finish(&world);
    if (!engaged)
        retire();
    world.server.sleep_api = NULL;
}
END_TEST

START_TEST(one_that_lacks_memory_has_what_the_other_only_cached)
{
    renew();
    world.replica.lack = true;
    completion_control(&world.completions, COMPLETION_MEMORY);
    completion_flush(&world.completions);
    world_turn(&world);
    ck_assert_uint_eq(world.beside[0].yields, 1);
    ck_assert_uint_eq(world.replica.yields, 0);
    world.beside[0].lack = true;
    completion_control(&world.completions, COMPLETION_MEMORY);
    completion_flush(&world.completions);
    world_turn(&world);
    ck_assert_uint_eq(world.replica.yields, 1);
    world.replica.stuck = true;
    ck_assert(!server_healthy(&world.server, world.now_us)); /* it has requests to end */
    world.replica.stuck = false;
    retire();
}
END_TEST

/* ---- by seeds ----------------------------------------------------------------------------------
 */

struct chance {
    uint64_t state;
};

static uint32_t draw(struct chance *chance, uint32_t below)
{
    return (uint32_t)(mix64(chance->state += 0x9e3779b97f4a7c15u) % below);
}

static void check_places(uint64_t seed)
{
    for (uint32_t i = 0; i < 2; i++) {
        const struct world_replica *replica = place(i);
        for (uint32_t j = 0; j < replica->count; j++)
            ck_assert_msg((replica->held[j]->request->version & 1) == i,
                          "seed %llu: a sequence is on the other version",
                          (unsigned long long)seed);
    }
}

/* One step of a reload, whichever is next. */
static void advance(struct chance *chance)
{
    struct error why;
    error_set(&why, ERR_DEVICE_MEMORY, "no room");
    switch (world.server.reload.state) {
    case RELOAD_NONE:
        ck_assert_int_eq(ask_reload(""), 0);
        break;
    case RELOAD_LOADING:
        if (draw(chance, 4) == 0)
            model_reload_refuse(&world.server, &why);
        else
            load();
        break;
    case RELOAD_TESTING:
        if (draw(chance, 4) == 0)
            model_reload_refuse(&world.server, &why);
        else
            take_over();
        break;
    default:
        if (model_reload_idle(&world.server))
            retire();
    }
}

static void happen(struct chance *chance, uint64_t *ids)
{
    struct ask own = one;
    uint32_t what = draw(chance, 8);
    own.id = ++*ids;
    own.count = 1 + draw(chance, 3);
    own.max_tokens = 1 + draw(chance, 9);
    own.priority = (int32_t)draw(chance, 3);
    if (what < 3)
        client_ask(draw(chance, 3) ? &client : &other, &own);
    else if (what == 3)
        client_control(&client, FRAME_CANCEL, 1 + draw(chance, (uint32_t)*ids), "");
    else if (what < 6)
        world_step(&world, 1 + draw(chance, 4));
    else
        advance(chance);
    world_turn(&world);
}

START_TEST(every_request_ends_once_on_its_version_by_seeds)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct chance chance = {.state = seed};
        uint64_t ids = 0;
        setup();
        world_set(&world, "priority-max", "3");
        world.replica.room = 1 + draw(&chance, 4);
        world.beside[0].room = 1 + draw(&chance, 4);
        world.replica.gives_way = world.beside[0].gives_way = draw(&chance, 2);
        for (uint32_t i = 0; i < EVENTS; i++) {
            happen(&chance, &ids);
            check_places(seed);
        }
        world_finish(&world);
        ck_assert_uint_eq(model()->version.live[0] + model()->version.live[1], 0);
        ck_assert_uint_eq(world.replica.count + world.beside[0].count, 0);
        while (world.server.reload.state != RELOAD_NONE)
            advance(&chance);
        server_rig_teardown();
    }
}
END_TEST

Suite *reload_suite(void)
{
    Suite *suite = suite_create("reload");
    TCase *tcase = tcase_create("versions"), *seeds = tcase_create("seeds");
    tcase_add_checked_fixture(tcase, setup, server_rig_teardown);
    tcase_add_test(tcase, what_runs_and_what_waits_ends_on_the_version_that_accepted_it);
    tcase_add_test(tcase, until_it_takes_over_only_its_test_is_the_new_ones);
    tcase_add_test(tcase, who_is_refused_leaves_the_old_one_and_says_why);
    tcase_add_test(tcase, what_was_refused_and_hangs_counts_as_failed_and_none_begins_before_it_has_ended);
    tcase_add_test(tcase, two_at_once_are_refused_and_so_is_one_without_a_model_awake);
    tcase_add_test(tcase, an_admin_alone_has_it_reloaded);
    tcase_add_test(tcase, what_the_old_one_cached_has_no_name_of_the_new_one);
    tcase_add_test(tcase, while_it_is_reloaded_it_does_not_sleep);
    tcase_add_loop_test(tcase, while_what_was_refused_hangs_its_model_sleeps_or_is_refused_to, 0,
                        6);
    tcase_add_test(tcase, one_that_lacks_memory_has_what_the_other_only_cached);
    tcase_add_test(seeds, every_request_ends_once_on_its_version_by_seeds);
    suite_add_tcase(suite, tcase);
    suite_add_tcase(suite, seeds);
    return suite;
}
