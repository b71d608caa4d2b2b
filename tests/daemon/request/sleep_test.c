/* Which models are awake: sleep-after, an admin's word, requests that wake, and two that do not fit
 * beside each other. Who carries it out is here, and does so when the test says. */
#include <stdio.h>
#include <string.h>

#include "daemon/request/model_sleep.h"
#include "tests/daemon/daemon_suites.h"
#include "tests/daemon/request/server_rig.h"

#define STAY_US 5000000u

static const struct ask other_one = {
    .job = JOB_GENERATE, .id = 2, .count = 1, .length = 1, .max_tokens = 2, .model = "other"};

static uint32_t sleeps[MODEL_LIST_MAX], wakes[MODEL_LIST_MAX];

static void count_sleep(void *context, uint32_t model)
{
    (void)context;
    sleeps[model]++;
}

static void count_wake(void *context, uint32_t model)
{
    (void)context;
    wakes[model]++;
}

static const struct sleep_api api = {.sleep = count_sleep, .wake = count_wake};

static struct served_model *model(uint32_t index)
{
    return &world.server.models[index];
}

static void setup(void)
{
    server_rig_setup();
    world_serve_beside(&world, "other", 1000);
    memset(sleeps, 0, sizeof(sleeps));
    memset(wakes, 0, sizeof(wakes));
    world.server.sleep_api = &api;
    for (uint32_t i = 0; i < 2; i++)
        model(i)->sleep = (struct model_sleep){.used_us = world.now_us, .since_us = world.now_us};
}

static void teardown(void)
{
    for (uint32_t i = 0; i < 2; i++)
        if (model(i)->sleep.state != MODEL_AWAKE)
            model_woke(&world.server, i, world.now_us);
    server_rig_teardown();
}

static void slept(uint32_t index)
{
    ck_assert_int_eq(model(index)->sleep.state, MODEL_FALLING);
    model_slept(&world.server, index, world.now_us);
    world_turn(&world);
}

static void refuse(uint32_t index, int code)
{
    struct error error;
    error_set(&error, code, "it does not fit");
    ck_assert_int_eq(model(index)->sleep.state, MODEL_WAKING);
    model_wake_refused(&world.server, index, &error, world.now_us);
    world_turn(&world);
}

static void put_to_sleep(uint32_t index)
{
    struct error error;
    ck_assert_int_eq(model_sleep_ask(&world.server, model(index), &error), 0);
    world_turn(&world);
    slept(index);
    ck_assert_int_eq(model(index)->sleep.state, MODEL_ASLEEP);
}

START_TEST(who_is_not_used_sleeps_after_its_time)
{
    model(1)->sleep.after_us = 1000000;
    world_pass(&world, 900000);
    ck_assert_uint_eq(sleeps[1], 0);
    client_ask(&client, &other_one);
    world_finish(&world);
    world_pass(&world, 900000);
    ck_assert_uint_eq(sleeps[1], 0); /* it was used */
    ck_assert_uint_gt(server_due(&world.server), 0);
    world_pass(&world, 200000);
    ck_assert_uint_eq(sleeps[1], 1);
    ck_assert_uint_eq(sleeps[0], 0); /* it has no such time */
    slept(1);
    world_pass(&world, 10000000);
    ck_assert_uint_eq(sleeps[1], 1);
    ck_assert_uint_eq(wakes[1], 0);
}
END_TEST

START_TEST(nobody_sleeps_and_nothing_is_due_while_others_load)
{
    world.server.phase = SERVER_LOADING;
    model(1)->sleep.after_us = 1000000;
    world_pass(&world, 2000000);
    ck_assert_uint_eq(sleeps[1], 0);
    ck_assert_uint_eq(server_due(&world.server), 0); /* or the loop would turn until they are there */
    server_ready(&world.server, world.now_us);
    world_pass(&world, 900000);
    ck_assert_uint_eq(sleeps[1], 0);
    world_pass(&world, 200000);
    ck_assert_uint_eq(sleeps[1], 1);
    slept(1);
}
END_TEST

START_TEST(a_request_wakes_it_and_waits_until_it_is_there)
{
    struct ask ask = other_one;
    put_to_sleep(1);
    uint64_t load = model(1)->load;
    client_ask(&client, &ask);
    world_turn(&world);
    ck_assert_uint_eq(wakes[1], 1);
    ask.id = 3;
    client_ask(&client, &ask);
    world_pass(&world, 1000000);
    ck_assert_uint_eq(wakes[1], 1);
    ck_assert_uint_eq(world.beside[0].count, 0);
    ck_assert_uint_eq(model(1)->waiting.count, 2);
    client_ask(&client, &one); /* the other model goes on */
    world_turn(&world);
    ck_assert_uint_eq(world.replica.count, 1);
    model_woke(&world.server, 1, world.now_us);
    world_turn(&world);
    ck_assert_uint_eq(world.beside[0].count, 2);
    ck_assert_uint_ne(model(1)->load, load); /* what it had cached is gone */
    world_finish(&world);
}
END_TEST

START_TEST(a_deadline_holds_while_it_wakes)
{
    struct ask ask = other_one;
    put_to_sleep(1);
    ask.deadline_ms = 50;
    client_ask(&client, &ask);
    world_turn(&world);
    world_pass(&world, 60000);
    ck_assert_int_eq(next_finish(&client), FINISH_DEADLINE);
    ck_assert_int_eq(model(1)->sleep.state, MODEL_WAKING);
}
END_TEST

START_TEST(a_busy_model_sleeps_once_it_is_idle)
{
    struct error error;
    client_ask(&client, &other_one);
    world_turn(&world);
    ck_assert_int_eq(model_sleep_ask(&world.server, model(1), &error), 0);
    world_turn(&world);
    ck_assert_uint_eq(sleeps[1], 0);
    world_finish(&world);
    world_turn(&world);
    ck_assert_uint_eq(sleeps[1], 1);
    slept(1);
}
END_TEST

START_TEST(what_an_admin_wakes_wakes)
{
    put_to_sleep(1);
    model_wake_ask(&world.server, model(1), world.now_us);
    ck_assert_uint_eq(wakes[1], 1);
    model_wake_ask(&world.server, model(1), world.now_us);
    ck_assert_uint_eq(wakes[1], 1);
    model_woke(&world.server, 1, world.now_us);
}
END_TEST

/* "poet" and "clerk" of a folder, and the engine opens with neither; one place. */
static struct served_adapters *serve_adapters(void)
{
    static const struct adapter_names none;
    static const struct adapter_folder folder = {2, {"clerk", "poet"}};
    struct served_adapters *adapters = &world.server.adapters;
    served_adapters_set(adapters, &none, 1);
    served_adapters_know(adapters, &folder, "/srv");
    return adapters;
}

START_TEST(what_an_adapter_is_read_into_does_not_sleep_before_it_is_there)
{
    struct error error;
    struct served_adapters *adapters = serve_adapters();
    uint32_t place = served_adapters_take(adapters, 1, world.now_us);
    ck_assert_uint_eq(place, 1);
    ck_assert_int_eq(model_sleep_ask(&world.server, model(0), &error), 0);
    world_pass(&world, 1000);
    ck_assert_uint_eq(sleeps[0], 0);
    put_to_sleep(1); /* the other has none */
    client_ask(&client, &other_one);
    world_pass(&world, STAY_US);
    refuse(1, ERR_DEVICE_MEMORY);
    ck_assert_int_eq(model(0)->sleep.state, MODEL_RESTING);
    world_pass(&world, 1000);
    ck_assert_uint_eq(sleeps[0], 0);
    served_adapters_come(adapters, 1, place, true, world.now_us);
    world_turn(&world);
    ck_assert_uint_eq(sleeps[0], 1);
    ck_assert_uint_eq(adapters->at[0].place, 1);
    model_slept(&world.server, 0, world.now_us);
    ck_assert_uint_eq(adapters->at[0].place, 0);
    ck_assert_uint_eq(adapters->place[0].adapter, 0);
    world_turn(&world);
    model_woke(&world.server, 1, world.now_us);
    world_finish(&world);
}
END_TEST

/* Its adapter had no place; it wakes the model, and comes into one. */
START_TEST(what_waits_for_an_adapter_wakes_the_model_too)
{
    struct ask clerk = one, poet = one;
    struct served_adapters *adapters = serve_adapters();
    clerk.adapter = "clerk";
    poet.adapter = "poet";
    poet.id = 8;
    put_to_sleep(1);
    world_pass(&world, STAY_US);
    client_ask(&client, &clerk);
    world_turn(&world);
    client_ask(&client, &poet);
    world_turn(&world);
    ck_assert_uint_eq(world.replica.count, 1);
    ck_assert(!list_empty(&adapters->at[1].aside));
    client_ask(&client, &other_one);
    world_turn(&world);
    refuse(1, ERR_DEVICE_MEMORY);
    ck_assert_int_eq(model(0)->sleep.state, MODEL_RESTING);
    world_step(&world, 100);
    world_turn(&world);
    ck_assert_uint_eq(sleeps[0], 1);
    slept(0);
    ck_assert(list_empty(&adapters->at[1].aside));
    ck_assert_uint_eq(world.replica.adapter_loads, 1); /* nothing is read where nobody is awake */
    model_woke(&world.server, 1, world.now_us);
    world_step(&world, 100);
    ck_assert_uint_eq(wakes[0], 1);
    model_woke(&world.server, 0, world.now_us);
    world_turn(&world);
    ck_assert_uint_eq(world.replica.adapter_loads, 2);
    ck_assert_uint_eq(world.replica.held[0]->adapter, 1);
    world_finish(&world);
}
END_TEST

START_TEST(who_is_to_wake_while_it_falls_wakes_once_it_is_asleep)
{
    struct error error;
    ck_assert_int_eq(model_sleep_ask(&world.server, model(1), &error), 0);
    world_turn(&world);
    ck_assert_int_eq(model(1)->sleep.state, MODEL_FALLING);
    model_wake_ask(&world.server, model(1), world.now_us);
    world_pass(&world, 1000000);
    ck_assert_uint_eq(wakes[1], 0);
    model_slept(&world.server, 1, world.now_us);
    world_turn(&world);
    ck_assert_uint_eq(wakes[1], 1);
    ck_assert_int_eq(model(1)->sleep.state, MODEL_WAKING);
    model_woke(&world.server, 1, world.now_us);
    put_to_sleep(1); /* and it stays so */
    world_pass(&world, 1000000);
    ck_assert_uint_eq(wakes[1], 1);
}
END_TEST

/* Of two that do not fit beside each other the idle one leaves, after its stay. */
START_TEST(an_idle_model_makes_way_after_its_stay)
{
    put_to_sleep(1);
    client_ask(&client, &other_one);
    world_turn(&world);
    refuse(1, ERR_DEVICE_MEMORY);
    ck_assert_uint_eq(sleeps[0], 0);
    model(1)->sleep.retry_us = world.now_us + 10 * STAY_US; /* not for want of a try */
    world_pass(&world, STAY_US);
    ck_assert_uint_eq(sleeps[0], 1);
    slept(0); /* there is memory: it is tried at once */
    uint32_t before = wakes[1];
    ck_assert_int_eq(model(1)->sleep.state, MODEL_WAKING);
    model_woke(&world.server, 1, world.now_us);
    world_finish(&world);
    ck_assert_uint_eq(wakes[1], before);
    ck_assert_uint_eq(sleeps[1], 1);
}
END_TEST

/* It gets nothing more, and what it has ends. */
START_TEST(a_busy_model_drains_and_both_are_served_in_turns)
{
    struct ask ask = one;
    put_to_sleep(1);
    world_pass(&world, STAY_US);
    client_ask(&client, &ask);
    world_turn(&world);
    ck_assert_uint_eq(world.replica.count, 1);
    client_ask(&client, &other_one);
    world_turn(&world);
    refuse(1, ERR_DEVICE_MEMORY);
    ck_assert_int_eq(model(0)->sleep.state, MODEL_RESTING);
    ask.id = 7;
    client_ask(&client, &ask);
    world_turn(&world);
    ck_assert_uint_eq(world.replica.count, 1); /* not the second */
    ck_assert_uint_eq(sleeps[0], 0);
    uint32_t tried = wakes[1];
    world_pass(&world, 20000000);
    ck_assert_uint_eq(wakes[1], tried); /* no trying while somebody leaves */
    world_step(&world, 100);
    world_turn(&world);
    ck_assert_uint_eq(sleeps[0], 1);
    slept(0);
    ck_assert_int_eq(model(1)->sleep.state, MODEL_WAKING);
    ck_assert_int_eq(model(0)->sleep.state, MODEL_ASLEEP); /* it does not take back what it gave */
    model_woke(&world.server, 1, world.now_us);
    world_turn(&world);
    ck_assert_uint_eq(world.beside[0].count, 1);
    /* Now the first wants to wake, is refused, and has its turn when the other has stayed. */
    refuse(0, ERR_DEVICE_MEMORY);
    world_step(&world, 100);
    ck_assert_uint_eq(sleeps[1], 1);
    world_pass(&world, STAY_US);
    refuse(0, ERR_DEVICE_MEMORY);
    ck_assert_uint_eq(sleeps[1], 2);
    slept(1);
    model_woke(&world.server, 0, world.now_us);
    world_finish(&world);
    ck_assert_uint_eq(done_count(&client), 3);
}
END_TEST

/* Where no model has what it needs, what waits is refused in the end, with the reason. */
/* None of its sequences gets memory: what is idle leaves, and does not take it back before. */
START_TEST(an_idle_model_makes_way_for_one_that_starves)
{
    client_ask(&client, &one);
    world_pass(&world, STAY_US);
    world.replica.starves = true;
    world_turn(&world);
    world_pass(&world, MODEL_STARVE_US - 1000);
    ck_assert_uint_eq(sleeps[1], 0);
    world_pass(&world, 1000);
    ck_assert_uint_eq(sleeps[1], 1);
    client_ask(&other, &other_one);
    slept(1);
    world_pass(&world, 1000000);
    ck_assert_uint_eq(wakes[1], 0);
    world.replica.starves = false;
    world_turn(&world);
    ck_assert_uint_eq(wakes[1], 1);
    ck_assert_uint_eq(sleeps[0], 0);
    model_woke(&world.server, 1, world.now_us);
    world_finish(&world);
}
END_TEST

START_TEST(a_busy_model_makes_way_for_one_that_starves)
{
    client_ask(&client, &one);
    client_ask(&other, &other_one);
    world_pass(&world, STAY_US);
    world.replica.starves = true;
    world_turn(&world);
    world_pass(&world, MODEL_STARVE_BUSY_US - 1000);
    ck_assert_int_eq(model(1)->sleep.state, MODEL_AWAKE);
    world_pass(&world, 1000);
    ck_assert_int_eq(model(0)->sleep.state, MODEL_AWAKE);
    ck_assert_int_eq(model(1)->sleep.state, MODEL_RESTING);
    world_step(&world, 8);
    world_turn(&world);
    ck_assert_uint_eq(world.beside[0].hand_backs, 0); /* what runs ends */
    ck_assert_uint_eq(sleeps[1], 1);
    ck_assert_uint_eq(done_count(&other), 1);
    slept(1);
    world.replica.starves = false;
    world_finish(&world);
    ck_assert_uint_eq(done_count(&client), 1);
}
END_TEST

static const struct ask other_long = {
    .job = JOB_GENERATE, .id = 2, .count = 2, .length = 3, .max_tokens = 40, .model = "other"};

/* Both have said some of it, and then neither gets memory. */
static void starve_both(void)
{
    struct ask ask = one;
    ask.max_tokens = 40;
    client_ask(&client, &ask);
    client_ask(&other, &other_long);
    world_step(&world, 5);
    world_pass(&world, STAY_US);
    world.replica.starves = world.beside[0].starves = true;
    world_turn(&world);
    world_pass(&world, MODEL_STARVE_BUSY_US - 1000);
    ck_assert_int_eq(model(0)->sleep.state, MODEL_AWAKE);
    ck_assert_int_eq(model(1)->sleep.state, MODEL_AWAKE);
    world_pass(&world, 1000);
}

/* What it has said so far stays said, and is computed once more when it has its turn: when the
 * other has drained for it. */
START_TEST(of_two_that_starve_the_one_that_woke_last_makes_way_and_they_take_turns)
{
    struct ask more = one;
    model(1)->sleep.since_us = world.now_us + 1;
    starve_both();
    world_turn(&world);
    ck_assert_int_eq(model(0)->sleep.state, MODEL_AWAKE);
    ck_assert_uint_eq(world.beside[0].count, 0);
    ck_assert_uint_eq(model(1)->running, 0);
    ck_assert_uint_eq(model(1)->waiting.count, 2);
    world_turn(&world);
    slept(1);
    world.replica.starves = world.beside[0].starves = false;
    more.id = 7;
    more.max_tokens = 60;
    client_ask(&client, &more);
    world_step(&world, 1);
    ck_assert_uint_eq(world.replica.count, 2);
    world_pass(&world, STAY_US - 1000);
    ck_assert_int_eq(model(0)->sleep.state, MODEL_AWAKE);
    ck_assert_uint_eq(wakes[1], 0); /* not even tried: it would starve the other again */
    ck_assert_uint_le(server_due(&world.server), world.now_us + 1000);
    world_pass(&world, 1000);
    ck_assert_int_eq(model(0)->sleep.state, MODEL_RESTING); /* it has stayed, and drains */
    ck_assert_uint_eq(wakes[1], 0);
    more.id = 8;
    client_ask(&client, &more); /* the next turn's */
    world_step(&world, 100);
    world_turn(&world);
    ck_assert_uint_eq(world.replica.hand_backs, 0);
    ck_assert_uint_eq(done_count(&client), 2);
    slept(0);
    ck_assert_uint_eq(wakes[0], 0);
    ck_assert_uint_eq(wakes[1], 1);
    model_woke(&world.server, 1, world.now_us);
    world_turn(&world);
    ck_assert_uint_eq(world.beside[0].count, 2);
    ck_assert_uint_eq(world.beside[0].held[0]->out_count, 5);
    world_step(&world, 5);
    ck_assert_uint_eq(wakes[0], 0);
    world_pass(&world, STAY_US);
    ck_assert_int_eq(model(1)->sleep.state, MODEL_RESTING);
    world_step(&world, 100);
    world_turn(&world);
    slept(1);
    ck_assert_uint_eq(wakes[0], 1);
    model_woke(&world.server, 0, world.now_us);
    world_finish(&world);
    ck_assert_uint_eq(done_count(&client), 1);
    ck_assert_uint_eq(done_count(&other), 2);
    ck_assert_uint_eq(model(1)->prompt_tokens, 2 * other_long.length);
    ck_assert_uint_eq(model(1)->generated_tokens, 2 * other_long.max_tokens);
}
END_TEST

/* Of those that woke together the one named last; and it is tried at once when the other has
 * nothing to do. */
START_TEST(what_made_way_while_it_starved_wakes_once_the_other_is_idle)
{
    model(1)->sleep.since_us = model(0)->sleep.since_us;
    starve_both();
    world_turn(&world);
    world_turn(&world);
    slept(1);
    world.replica.starves = world.beside[0].starves = false;
    world_turn(&world);
    ck_assert_uint_eq(wakes[1], 0);
    world_step(&world, 100);
    world_turn(&world);
    ck_assert_uint_eq(done_count(&client), 1);
    ck_assert_int_eq(model(0)->sleep.state, MODEL_AWAKE);
    ck_assert_uint_eq(wakes[1], 1);
    model_woke(&world.server, 1, world.now_us);
    world_finish(&world);
    ck_assert_uint_eq(done_count(&other), 2);
}
END_TEST

/* By its deadline, by its client, and by a device that fails meanwhile. */
START_TEST(what_was_handed_back_ends_for_any_reason_once)
{
    struct error error;
    struct ask ask = other_long;
    client_ask(&client, &one);
    ask.deadline_ms = _i == 0 ? 60000 : 0;
    client_ask(&other, &ask);
    world_step(&world, 1);
    world_pass(&world, STAY_US);
    world.replica.starves = world.beside[0].starves = true;
    world_turn(&world);
    world_pass(&world, MODEL_STARVE_BUSY_US);
    if (_i == 1) /* on its way back */
        client_control(&other, FRAME_CANCEL, 2, "");
    world_turn(&world);
    if (_i == 2) {
        error_set(&error, ERR_DEVICE, "it is lost");
        server_fail(&world.server, &error, world.now_us);
    }
    world_pass(&world, 60000000);
    if (_i != 2)
        ck_assert_int_eq(next_finish(&other), _i == 0 ? FINISH_DEADLINE : FINISH_CANCELLED);
    else
        ck_assert_int_eq(client_error(&other), ERR_DEVICE);
    ck_assert_uint_eq(model(1)->waiting.count + model(1)->running, 0);
    world.replica.starves = world.beside[0].starves = false;
    if (model(1)->sleep.state == MODEL_FALLING)
        slept(1);
}
END_TEST

/* It could not make way in its turn. */
START_TEST(nobody_makes_way_for_one_that_starves_as_well_and_cannot_sleep)
{
    world.server.reload = (struct model_reload){.model = model(0), .hangs = true, .engaged = true};
    model(1)->sleep.since_us = world.now_us + 1;
    starve_both();
    world_pass(&world, 60000000);
    ck_assert_int_eq(model(1)->sleep.state, MODEL_AWAKE);
    world.server.reload = (struct model_reload){.model = NULL};
    world.replica.starves = world.beside[0].starves = false;
    world_finish(&world);
}
END_TEST

START_TEST(memory_that_others_hold_is_asked_for_less_and_less_often)
{
    put_to_sleep(0);
    put_to_sleep(1);
    client_ask(&client, &other_one);
    world_turn(&world);
    for (int i = 0; i < 40 && model(1)->waiting.count > 0; i++) {
        if (model(1)->sleep.state == MODEL_WAKING)
            refuse(1, ERR_DEVICE_MEMORY);
        world_pass(&world, 1000000);
    }
    ck_assert_uint_eq(model(1)->waiting.count, 0);
    ck_assert_int_eq(client_error(&client), ERR_DEVICE_MEMORY);
    ck_assert_uint_ge(wakes[1], 6);
    ck_assert_uint_le(wakes[1], 14);
    client_ask(&client, &other_one); /* and the next one tries again */
    world_turn(&world);
    ck_assert_int_eq(model(1)->sleep.state, MODEL_WAKING);
    model_woke(&world.server, 1, world.now_us);
    world_finish(&world);
}
END_TEST

/* Nobody waited meanwhile: the refusal of long ago is no reason. */
START_TEST(who_asks_long_after_a_refusal_is_not_refused_untried)
{
    struct ask ask = other_one;
    put_to_sleep(0);
    put_to_sleep(1);
    ask.deadline_ms = 50;
    client_ask(&client, &ask);
    world_turn(&world);
    refuse(1, ERR_DEVICE_MEMORY);
    world_pass(&world, 60000);
    ck_assert_int_eq(next_finish(&client), FINISH_DEADLINE);
    world_pass(&world, 2 * MODEL_WAKE_MOST_US);
    ask.id = 3;
    ask.deadline_ms = 0;
    client_ask(&client, &ask);
    world_turn(&world);
    ck_assert_int_eq(model(1)->sleep.state, MODEL_WAKING);
    refuse(1, ERR_DEVICE_MEMORY);
    ck_assert_uint_eq(model(1)->waiting.count, 1);
}
END_TEST

START_TEST(files_that_are_gone_refuse_at_once_and_nobody_leaves_for_them)
{
    put_to_sleep(1);
    world_pass(&world, STAY_US);
    client_ask(&client, &other_one);
    world_turn(&world);
    refuse(1, ERR_BAD_MODEL);
    ck_assert_int_eq(client_error(&client), ERR_BAD_MODEL);
    ck_assert_uint_eq(sleeps[0], 0);
    ck_assert_int_eq(model(1)->sleep.state, MODEL_ASLEEP);
}
END_TEST

START_TEST(models_that_begin_asleep_wake_one_after_the_other_and_nobody_leaves_for_them)
{
    world_pass(&world, STAY_US);
    model(0)->sleep.state = model(1)->sleep.state = MODEL_ASLEEP;
    model(0)->sleep.early = model(1)->sleep.early = true;
    world_turn(&world);
    ck_assert_uint_eq(wakes[0], 1);
    ck_assert_uint_eq(wakes[1], 0);
    model_woke(&world.server, 0, world.now_us);
    world_pass(&world, STAY_US);
    ck_assert_uint_eq(wakes[1], 1);
    refuse(1, ERR_DEVICE_MEMORY);
    world_pass(&world, 10 * STAY_US);
    ck_assert_uint_eq(sleeps[0], 0);
    ck_assert_uint_eq(wakes[1], 1);
}
END_TEST

START_TEST(health_and_figures_say_who_sleeps)
{
    struct frame frame;
    char head[4096];
    put_to_sleep(1);
    client_control(&client, FRAME_HEALTH, 5, "");
    world_turn(&world);
    ck_assert(client_find(&client, FRAME_HEALTH, &frame));
    snprintf(head, sizeof(head), "%.*s", (int)frame.head_length, (const char *)frame.head);
    ck_assert_ptr_nonnull(strstr(head, "\"status\":\"ok\",\"ready\":true"));
    ck_assert_ptr_nonnull(strstr(head, "\"asleep\":[\"other\"]"));
    client_control(&client, FRAME_MODEL, 5, "{\"model\":\"other\",\"sleep\":false}");
    world_turn(&world);
    ck_assert_int_eq(client_error(&client), ERR_DENIED); /* not an admin */
    ck_assert_uint_eq(wakes[1], 0);
}
END_TEST

Suite *sleep_suite(void)
{
    Suite *suite = suite_create("sleep");
    TCase *tests = tcase_create("sleep");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, who_is_not_used_sleeps_after_its_time);
    tcase_add_test(tests, nobody_sleeps_and_nothing_is_due_while_others_load);
    tcase_add_test(tests, a_request_wakes_it_and_waits_until_it_is_there);
    tcase_add_test(tests, a_deadline_holds_while_it_wakes);
    tcase_add_test(tests, a_busy_model_sleeps_once_it_is_idle);
    tcase_add_test(tests, what_an_admin_wakes_wakes);
    tcase_add_test(tests, what_an_adapter_is_read_into_does_not_sleep_before_it_is_there);
    tcase_add_test(tests, what_waits_for_an_adapter_wakes_the_model_too);
    tcase_add_test(tests, who_is_to_wake_while_it_falls_wakes_once_it_is_asleep);
    tcase_add_test(tests, an_idle_model_makes_way_after_its_stay);
    tcase_add_test(tests, a_busy_model_drains_and_both_are_served_in_turns);
    tcase_add_test(tests, an_idle_model_makes_way_for_one_that_starves);
    tcase_add_test(tests, a_busy_model_makes_way_for_one_that_starves);
    tcase_add_test(tests, of_two_that_starve_the_one_that_woke_last_makes_way_and_they_take_turns);
    tcase_add_test(tests, what_made_way_while_it_starved_wakes_once_the_other_is_idle);
    tcase_add_loop_test(tests, what_was_handed_back_ends_for_any_reason_once, 0, 3);
    tcase_add_test(tests, nobody_makes_way_for_one_that_starves_as_well_and_cannot_sleep);
    tcase_add_test(tests, memory_that_others_hold_is_asked_for_less_and_less_often);
    tcase_add_test(tests, who_asks_long_after_a_refusal_is_not_refused_untried);
    tcase_add_test(tests, files_that_are_gone_refuse_at_once_and_nobody_leaves_for_them);
    tcase_add_test(tests,
                   models_that_begin_asleep_wake_one_after_the_other_and_nobody_leaves_for_them);
    tcase_add_test(tests, health_and_figures_say_who_sleeps);
    suite_add_tcase(suite, tests);
    return suite;
}
