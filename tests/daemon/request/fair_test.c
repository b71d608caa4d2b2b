/* Users share a replica by weighted tokens, whatever they flood it with, and who asks now and then
 * is not behind them; nor is who has a higher priority: the loop's queue and the real scheduler on
 * a model of a GPU's steps (tests/bench/latency/machine.h), 10 seconds of virtual time. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/api/session.h"
#include "daemon/sched/sched.h"
#include "tests/bench/latency/machine.h"
#include "tests/daemon/daemon_suites.h"
#include "tests/daemon/rig/world.h"

#define SECONDS 10u
#define FLOODS 4u
#define QUIET FLOODS /* its place behind them */
#define USERS (FLOODS + 1)
#define UID 1000u /* of the first */
#define QUIET_EVERY_US 250000u
#define SAMPLES 1024
#define STEPS_MAX 8192u
#define HIGH_MAX 512u
#define HIGH_PROMPT 512u
#define SLOTS_OF_LOAD 512u
#define LOW_PROMPT 256u
#define LOW_OUTPUT 256u
#define FILLED_US 5000000u

static const struct flood {
    uint32_t weight, prompt, output, batch;
} floods[FLOODS] = {{100, 1, 16, 1000}, {300, 1, 16, 1000}, {100, 4000, 4, 20}, {300, 4000, 4, 20}};
static const struct flood quiet = {100, 64, 4, 1};

static struct {
    struct world world;
    struct replica replica;
    struct gpu_model model;
    struct sched sched;
    struct stats_worker stats;
    struct client clients[USERS];
    uint64_t served[USERS]; /* tokens: prompts that were read, and what was generated */
    uint32_t slabs, slabs_max;
    uint64_t random, asked;
    struct {
        time_us start_us, end_us;
    } flight[GPU_DEPTH_MAX + 1];
    time_us device_us;           /* end of its last step */
    time_us steps_us[STEPS_MAX]; /* how long each took, of the first so many */
    uint32_t step_count;
    time_us high_us[HIGH_MAX]; /* of the high priority's, until the first token */
    uint32_t high_count;
    const struct seq *quiet; /* sent, and without a first token */
    uint64_t turn_step;      /* the last step that was planned while others went before it */
    uint64_t steps_most, told;
    time_us wait_us_most;
} all;

/* ---- the replica -------------------------------------------------------------------------------
 */

static int grow(void *context, uint32_t group, uint32_t *ret_slab)
{
    (void)context, (void)group;
    if (all.slabs == all.slabs_max)
        return -ERR_DEVICE_MEMORY;
    *ret_slab = all.slabs++;
    return 0;
}

static void shrink(void *context, uint32_t group, uint32_t slab)
{
    (void)context, (void)group, (void)slab;
}

static void count(const struct seq *seq)
{
    if (seq->priority > 0 && seq->out_count == 1 && all.high_count < HIGH_MAX)
        all.high_us[all.high_count++] = all.world.now_us - seq->arrived_us;
    all.served[seq->user_id - UID] += seq->out_count == 1 ? seq->prompt_len + 1 : 1;
    if (seq != all.quiet)
        return;
    uint64_t steps = all.sched.step_done - all.turn_step;
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
           container_of(all.sched.waiting.next, struct seq, run_link) != seq;
}

static void progressed(void *context, struct seq *seq)
{
    (void)context;
    count(seq);
    completion_visit(&all.world.completions, seq, 0);
}

static void ended(void *context, struct seq *seq)
{
    (void)context;
    if (seq->finish == FINISH_LENGTH)
        count(seq);
    completion_visit(&all.world.completions, seq,
                     COMPLETION_ENDED | (seq->cancel_sent ? COMPLETION_CANCEL_SEEN : 0));
}

static struct replica_room room(const struct replica *replica)
{
    (void)replica;
    struct replica_room room = sched_room(&all.sched, all.world.now_us);
    room.ready = true;
    return room;
}

static void send(struct replica *replica, struct seq *seq)
{
    (void)replica;
    if (seq->user_id == UID + QUIET) {
        all.quiet = seq;
        all.turn_step = all.sched.step_last;
    }
    sched_add(&all.sched, seq, all.world.now_us);
}

static void cancel(struct replica *replica, struct seq *seq)
{
    (void)replica;
    if (atomic_load(&seq->out_flags) & COMPLETION_ENDED)
        completion_visit(&all.world.completions, seq, COMPLETION_CANCEL_SEEN);
    else
        sched_cancel(&all.sched, seq, seq->cancel_reason, all.world.now_us);
}

static uint32_t cached(const struct replica *replica, const struct prefix_key *keys, uint32_t count,
                       bool expected, uint32_t *ret_host)
{
    (void)replica, (void)keys, (void)count, (void)expected;
    *ret_host = 0;
    return 0;
}

static void expect(struct replica *replica, const struct prefix_key *keys, uint32_t count)
{
    (void)replica, (void)keys, (void)count;
}

static void wake(struct replica *replica)
{
    (void)replica;
}

static bool healthy(const struct replica *replica, time_us now_us)
{
    (void)replica, (void)now_us;
    return true;
}

static const struct replica_api api = {.room = room,
                                       .send = send,
                                       .cancel = cancel,
                                       .cached = cached,
                                       .expect = expect,
                                       .wake = wake,
                                       .healthy = healthy};

/* ---- its device --------------------------------------------------------------------------------
 */

static void submit_all(void)
{
    const struct gpu_plan *plan;
    while (sched_in_flight(&all.sched) < all.sched.limits.depth &&
           (plan = sched_plan(&all.sched, all.world.now_us))) {
        time_us us = (time_us)machine_step_us(plan, &all.random);
        time_us start_us = all.world.now_us > all.device_us ? all.world.now_us : all.device_us;
        all.device_us = start_us + us;
        if (all.step_count < STEPS_MAX)
            all.steps_us[all.step_count++] = us;
        all.flight[plan->step % (GPU_DEPTH_MAX + 1)].start_us = start_us;
        all.flight[plan->step % (GPU_DEPTH_MAX + 1)].end_us = all.device_us;
        sched_submitted(&all.sched, all.world.now_us);
        if (is_behind(all.quiet))
            all.turn_step = plan->step;
    }
}

/* The next thing that happens. */
static void advance(void)
{
    static struct gpu_sample samples[SAMPLES];
    static struct gpu_top tops[SAMPLES * GPU_LOGPROBS_MAX];
    uint64_t step = all.sched.step_done + 1;
    bool flies = sched_in_flight(&all.sched) > 0;
    time_us start = all.flight[step % (GPU_DEPTH_MAX + 1)].start_us;
    time_us next = flies ? all.flight[step % (GPU_DEPTH_MAX + 1)].end_us : all.world.now_us + 1000;
    time_us due = sched_due_us(&all.sched);
    all.world.now_us = due < next && due > all.world.now_us ? due : next;
    if (flies && all.world.now_us >= next) {
        struct gpu_results results = {.step = step,
                                      .samples = samples,
                                      .tops = tops,
                                      .start_ns = start * 1000,
                                      .end_ns = next * 1000};
        sched_complete(&all.sched, &results, all.world.now_us);
    }
    sched_housekeep(&all.sched, all.world.now_us);
}

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
    struct error error;
    const struct sched_options options = {.ttft_target_us = 100000,
                                          .itl_target_us = 50000,
                                          .chunk_every = 4,
                                          .kv_idle_release_us = 5000000,
                                          .stall_us = UINT64_MAX};
    const struct sched_calls calls = {
        .kv_grow = grow, .kv_shrink = shrink, .progressed = progressed, .ended = ended};
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
    all.slabs_max = all.model.groups[0].slabs_max;
    all.model.vocab = 10000;
    all.replica = (struct replica){.api = &api, .rank_count = 1};
    struct replica *replica = &all.replica;
    ck_assert_int_eq(
        sched_init(&all.sched, &all.model, &machine_limits, &options, &calls, &all.stats, &error),
        0);
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
    sched_destroy(&all.sched);
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
        submit_all();
        advance();
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
    ck_assert_uint_le(all.wait_us_most, 500000);
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

/* Some of the high priority, as they come, beside so many others as there always are, which have
 * filled the memory by then. Returns the tokens of all from then on. */
static uint64_t play(uint32_t lows, uint32_t seconds, time_us high_every_us)
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
    time_us begin_us = all.world.now_us, from_us = begin_us + (lows > 0 ? FILLED_US : 0);
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
        submit_all();
        advance();
    }
    return served() - before;
}

/* Four times as many wait as there are places, and every twentieth that comes is above them. Its
 * first token is there two and a half of the load's median steps later than it is alone, where slots
 * are short and where memory is, and all together get no fewer tokens than without it. */
START_TEST(who_is_above_the_load_does_not_wait_for_it)
{
    if (_i)
        all.slabs_max = 256;
    world_set(&all.world, "priority-max", "1");
    play(0, 20, 200000);
    time_us alone_us = part_of(all.high_us, all.high_count, 99);
    ck_assert_uint_gt(all.high_count, 50);
    uint64_t tokens = play(4 * SLOTS_OF_LOAD, 25, 0);
    uint64_t beside = play(4 * SLOTS_OF_LOAD, 25, 60000);
    time_us step_us = part_of(all.steps_us, all.step_count, 50);
    time_us high_us = part_of(all.high_us, all.high_count, 99);
    ck_assert_uint_gt(all.high_count, 200);
    ck_assert_uint_gt(all.stats.preemptions_priority_total, 20);
    ck_assert_msg((double)beside >= 0.97 * (double)tokens, "%" PRIu64 " tokens, %" PRIu64 " without",
                  beside, tokens);
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
    suite_add_tcase(suite, tcase);
    return suite;
}
