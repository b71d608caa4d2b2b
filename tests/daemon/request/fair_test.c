/* Users share a replica by weighted tokens, whatever they flood it with, and who asks now and then
 * is not behind them; nor is who has a higher priority: the loop's queue and the real scheduler on
 * a model of a GPU's steps (tests/bench/latency/machine.h), 10 seconds of virtual time. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/api/session.h"
#include "tests/bench/latency/machine.h"
#include "tests/daemon/daemon_suites.h"
#include "tests/daemon/rig/timed_replica.h"

#define SECONDS 10u
#define FLOODS 4u
#define QUIET FLOODS /* its place behind them */
#define USERS (FLOODS + 1)
#define UID 1000u /* of the first */
#define QUIET_EVERY_US 250000u
#define STEPS_MAX 8192u
#define HIGH_MAX 512u
#define HIGH_PROMPT 512u
#define SLOTS_OF_LOAD 512u
#define LOW_PROMPT 256u
#define LOW_OUTPUT 256u
#define FILLED_US 5000000u
#define BEGINNING_S 6u /* in which memory fills for the first time */

static const struct flood {
    uint32_t weight, prompt, output, batch;
} floods[FLOODS] = {{100, 1, 16, 1000}, {300, 1, 16, 1000}, {100, 4000, 4, 20}, {300, 4000, 4, 20}};
static const struct flood quiet = {100, 64, 4, 1};

static struct {
    struct world world;
    struct timed_replica replica;
    struct gpu_model model;
    struct client clients[USERS];
    uint64_t served[USERS]; /* tokens: prompts that were read, and what was generated */
    uint64_t random, asked;
    time_us steps_us[STEPS_MAX]; /* how long each took, of the first so many */
    uint32_t step_count;
    time_us high_us[HIGH_MAX]; /* of the high priority's, until the first token */
    uint32_t high_count;
    const struct seq *quiet; /* sent, and without a first token */
    uint64_t turn_step;      /* the last step that was planned while others went before it */
    uint64_t steps_most, told;
    time_us wait_us_most;
} all;

/* ---- what is looked at -------------------------------------------------------------------------
 */

static void sent(const struct seq *seq)
{
    if (seq->user_id != UID + QUIET)
        return;
    all.quiet = seq;
    all.turn_step = all.replica.sched.step_last;
}

static void told(const struct seq *seq)
{
    if (seq->priority > 0 && seq->out_count == 1 && all.high_count < HIGH_MAX)
        all.high_us[all.high_count++] = all.world.now_us - seq->arrived_us;
    all.served[seq->user_id - UID] += seq->out_count == 1 ? seq->prompt_len + 1 : 1;
    if (seq != all.quiet)
        return;
    uint64_t steps = all.replica.sched.step_done - all.turn_step;
    time_us wait_us = all.world.now_us - seq->arrived_us;
    all.steps_most = steps > all.steps_most ? steps : all.steps_most;
    all.wait_us_most = wait_us > all.wait_us_most ? wait_us : all.wait_us_most;
    all.told++;
    all.quiet = NULL;
}

/* It waits, and somebody whose turn is before its own does. */
static bool is_behind(const struct seq *seq)
{
    return seq && seq->phase == PHASE_WAITING &&
           container_of(all.replica.sched.waiting.next, struct seq, run_link) != seq;
}

static void planned(const struct gpu_plan *plan, time_us us)
{
    if (all.step_count < STEPS_MAX)
        all.steps_us[all.step_count++] = us;
    if (is_behind(all.quiet))
        all.turn_step = plan->step;
}

static const struct timed_watch watch = {.sent = sent, .told = told, .planned = planned};

/* ---- the users ---------------------------------------------------------------------------------
 */

static void ask(uint32_t user, const struct flood *what)
{
    struct ask ask = {.job = JOB_GENERATE,
                      .id = ++all.asked,
                      .count = what->batch,
                      .length = what->prompt,
                      .max_tokens = what->output,
                      .first = 1,
                      .whole = true};
    client_ask(&all.clients[user], &ask);
}

/* What came back is not read by anybody; what is on its way never ends. */
static void ask_again(time_us *quiet_due_us)
{
    for (uint32_t i = 0; i < USERS; i++)
        all.clients[i].got_length = all.clients[i].read_at = 0;
    for (uint32_t i = 0; i < FLOODS; i++) {
        const struct session *session = container_of(all.clients[i].conn, struct session, conn);
        const struct user *user = session->sink.user;
        while (user->load.sequences < floods[i].batch)
            ask(i, &floods[i]);
    }
    if (all.world.now_us < *quiet_due_us || all.quiet)
        return;
    *quiet_due_us += QUIET_EVERY_US;
    ask(QUIET, &quiet);
}

static void set_up(void)
{
    char users[128] = "";
    memset(&all, 0, sizeof(all));
    world_make(&all.world);
    world_set(&all.world, "prefix-cache", "no");
    world_set(&all.world, "queue-sequences", "8192");
    for (uint32_t i = 0; i < FLOODS; i++)
        snprintf(users + strlen(users), sizeof(users) - strlen(users), "%u:weight=%u,", UID + i,
                 floods[i].weight);
    world_set(&all.world, "users", users);
    all.model = machine_model;
    all.model.vocab = 10000;
    timed_replica_init(&all.replica, &all.world, &all.model, false, all.model.groups[0].slabs_max,
                       &watch);
    struct replica *replica = &all.replica.base;
    server_serve(&all.world.server, &all.model, all.model.context_max, UINT64_MAX, "memory",
                 &replica, 1);
    world_ready(&all.world);
    for (uint32_t i = 0; i < USERS; i++)
        client_open(&all.world, &all.clients[i], UID + i);
}

static void tear_down(void)
{
    for (uint32_t i = 0; i < USERS; i++)
        client_free(&all.clients[i]);
    world_turn(&all.world);
    world_free(&all.world);
    timed_replica_destroy(&all.replica);
}

START_TEST(floods_share_by_their_weights_and_the_quiet_one_does_not_wait)
{
    if (_i == 1)
        world_set(&all.world, "min-share", "0"); /* nobody gives a slot up for it */
    time_us begin_us = all.world.now_us, quiet_due_us = begin_us + QUIET_EVERY_US;
    uint64_t sum = 0, weights = 0;
    while (all.world.now_us < begin_us + SECONDS * 1000000u) {
        ask_again(&quiet_due_us);
        world_turn(&all.world);
        timed_replica_submit(&all.replica);
        timed_replicas_advance(&all.replica, 1);
    }
    for (uint32_t i = 0; i < FLOODS; i++) {
        sum += all.served[i];
        weights += floods[i].weight;
    }
    for (uint32_t i = 0; i < FLOODS; i++) {
        double share = (double)all.served[i] / (double)sum;
        double due = (double)floods[i].weight / (double)weights;
        ck_assert_msg(share > due * 0.95 && share < due * 1.05,
                      "user %u: %.4f of the tokens, due %.4f", i, share, due);
    }
    ck_assert_uint_gt(sum, 200000); /* the device is not idle meanwhile */
    ck_assert_uint_ge(all.told, 30);
    ck_assert_uint_le(all.steps_most, 2);
    ck_assert_uint_le(all.wait_us_most, 300000);
}
END_TEST

/* ---- priorities --------------------------------------------------------------------------------
 */

static int by_time(const void *a, const void *b)
{
    const time_us *first = a, *second = b;
    return (*first > *second) - (*first < *second);
}

static time_us part_of(time_us *times, uint32_t count, uint32_t percent)
{
    qsort(times, count, sizeof(*times), by_time);
    return times[(uint64_t)(count - 1) * percent / 100];
}

static bool is_there(uint32_t user, uint32_t count)
{
    const struct session *session = container_of(all.clients[user].conn, struct session, conn);
    return session->sink.user->load.sequences >= count;
}

static uint64_t served(void)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < USERS; i++)
        sum += all.served[i];
    return sum;
}

/* Some of the high priority, as they come, beside so many others as there always are, from then on.
 * Returns the tokens of all from then on. */
static uint64_t play(uint32_t lows, uint32_t seconds, time_us filled_us, time_us high_every_us)
{
    const struct ask low = {.job = JOB_GENERATE,
                            .count = 16,
                            .length = LOW_PROMPT,
                            .max_tokens = LOW_OUTPUT,
                            .first = 1,
                            .whole = true};
    const struct ask high = {.job = JOB_GENERATE,
                             .count = 1,
                             .length = HIGH_PROMPT,
                             .max_tokens = 64,
                             .first = 1,
                             .whole = true,
                             .priority = 1};
    time_us begin_us = all.world.now_us, from_us = begin_us + filled_us;
    time_us due_us = from_us;
    uint64_t before = 0;
    all.step_count = all.high_count = 0;
    while (all.world.now_us < begin_us + seconds * 1000000u) {
        for (uint32_t i = 0; i < USERS; i++)
            all.clients[i].got_length = all.clients[i].read_at = 0;
        for (uint32_t i = 0; i < FLOODS && lows > 0; i++)
            while (!is_there(i, lows / FLOODS)) {
                struct ask ask = low;
                ask.id = ++all.asked;
                client_ask(&all.clients[i], &ask);
            }
        before = all.world.now_us < from_us ? served() : before;
        if (high_every_us > 0 && all.world.now_us >= due_us) {
            struct ask ask = high;
            ask.id = ++all.asked;
            client_ask(&all.clients[QUIET], &ask);
            due_us += (time_us)((double)high_every_us * 2 * machine_random(&all.random));
        }
        world_turn(&all.world);
        timed_replica_submit(&all.replica);
        timed_replicas_advance(&all.replica, 1);
    }
    return served() - before;
}

static time_us play_alone(void)
{
    play(0, 20, 0, 200000);
    ck_assert_uint_gt(all.high_count, 50);
    time_us us = part_of(all.high_us, all.high_count, 99);
    play(0, 2, 0, 0); /* until nothing runs */
    return us;
}

/* Four times as many wait as there are places, and every twentieth that comes is above them. Its
 * first token is there two and a half of the load's median steps later than it is alone, where slots
 * are short and where memory is, and all together get no fewer tokens than without it. */
START_TEST(who_is_above_the_load_does_not_wait_for_it)
{
    if (_i)
        all.replica.slabs_max = 256;
    world_set(&all.world, "priority-max", "1");
    time_us alone_us = play_alone();
    uint64_t tokens = play(4 * SLOTS_OF_LOAD, 25, FILLED_US, 0);
    uint64_t beside = play(4 * SLOTS_OF_LOAD, 25, FILLED_US, 60000);
    time_us step_us = part_of(all.steps_us, all.step_count, 50);
    time_us high_us = part_of(all.high_us, all.high_count, 99);
    ck_assert_uint_gt(all.high_count, 200);
    ck_assert_uint_gt(all.replica.stats.preemptions_priority_total, 20);
    ck_assert_msg((double)beside >= 0.97 * (double)tokens, "%" PRIu64 " tokens, %" PRIu64 " without",
                  beside, tokens);
    ck_assert_msg(high_us <= alone_us + step_us * 5 / 2, "%u us, alone %u, a step %u",
                  (unsigned)high_us, (unsigned)alone_us, (unsigned)step_us);
}
END_TEST

/* Nor while the load begins, of which nothing was there before: all that come in its first second,
 * and 99 of 100 while memory fills. */
START_TEST(nor_does_it_while_the_load_begins)
{
    if (_i % 2)
        all.replica.slabs_max = 256;
    all.random = all.replica.random = (uint64_t)_i * 1000003;
    world_set(&all.world, "priority-max", "1");
    time_us alone_us = play_alone();
    play(4 * SLOTS_OF_LOAD, 1, 0, 20000);
    time_us first_us = part_of(all.high_us, all.high_count, 100);
    play(4 * SLOTS_OF_LOAD, BEGINNING_S, 0, 60000);
    time_us step_us = part_of(all.steps_us, all.step_count, 50);
    time_us high_us = part_of(all.high_us, all.high_count, 99);
    ck_assert_uint_gt(all.high_count, 70);
    high_us = first_us > high_us ? first_us : high_us;
    ck_assert_msg(high_us <= alone_us + step_us * 5 / 2, "%u us, alone %u, a step %u",
                  (unsigned)high_us, (unsigned)alone_us, (unsigned)step_us);
}
END_TEST

Suite *fair_suite(void)
{
    Suite *suite = suite_create("fairness");
    TCase *tcase = tcase_create("tokens");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_loop_test(tcase, floods_share_by_their_weights_and_the_quiet_one_does_not_wait, 0, 2);
    tcase_add_loop_test(tcase, who_is_above_the_load_does_not_wait_for_it, 0, 2);
    tcase_add_loop_test(tcase, nor_does_it_while_the_load_begins, 0, 12);
    suite_add_tcase(suite, tcase);
    return suite;
}
