/* Models that sleep and wake, as chance has it: up to four on a device that has no room for all,
 * with requests, deadlines, admins' words, wakings that take long or fail, and others that hold
 * memory. Some of them need more while they compute, and starve where that is not left, two beside
 * each other as well. By a seed; the line that fails names it. Once nothing fails any more, all
 * that waits is answered: who starves here does so for ever. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/request/model_sleep.h"
#include "protocol/base/mix.h"
#include "tests/daemon/daemon_suites.h"
#include "tests/daemon/rig/world.h"

#define SEEDS 1000
#define MODELS_MAX (WORLD_BESIDE + 1)
#define STEPS 120
#define CALM_US ((time_us)3600 * 1000000)

enum act { ACT_NONE, ACT_FALL, ACT_WAKE };

static struct world world;
static struct client guest;
static struct {
    uint64_t seed, random, next_id;
    uint32_t count, memory, outside, need[MODELS_MAX];
    uint32_t kv[MODELS_MAX]; /* what each needs while it computes; 0: nothing */
    bool fed[MODELS_MAX];    /* and has */
    enum act act[MODELS_MAX];
    bool calm;
    uint64_t evictions, refusals, wakes, starved, handed_back;
} sim;

#define HOLDS(condition) ck_assert_msg(condition, "seed %" PRIu64 ": %s", sim.seed, #condition)

static uint64_t draw(uint64_t below)
{
    return mix64(sim.random += 0x9e3779b97f4a7c15u) % below;
}

static struct served_model *model(uint32_t index)
{
    return &world.server.models[index];
}

static struct world_replica *replica(uint32_t index)
{
    return index == 0 ? &world.replica : &world.beside[index - 1];
}

/* ---- the device --------------------------------------------------------------------------------
 */

static bool is_there(uint32_t index)
{
    return model(index)->sleep.state != MODEL_ASLEEP && sim.act[index] != ACT_WAKE;
}

/* What is left beside the others. */
static bool fits(uint32_t index)
{
    uint32_t held = sim.outside;
    for (uint32_t i = 0; i < sim.count; i++)
        held += (i != index && is_there(i) ? sim.need[i] : 0) + (sim.fed[i] ? sim.kv[i] : 0);
    return held + sim.need[index] <= sim.memory;
}

/* Each takes what it needs as soon as that is left, whoever looks first, and gives it back with its
 * last sequence. */
static void feed(void)
{
    uint32_t held = sim.outside, first = (uint32_t)draw(sim.count);
    for (uint32_t i = 0; i < sim.count; i++) {
        sim.fed[i] = sim.fed[i] && replica(i)->count > 0;
        held += (is_there(i) ? sim.need[i] : 0) + (sim.fed[i] ? sim.kv[i] : 0);
    }
    for (uint32_t j = 0; j < sim.count; j++) {
        uint32_t i = (first + j) % sim.count;
        bool wants = replica(i)->count > 0 && sim.kv[i] > 0 && !sim.fed[i];
        sim.fed[i] |= wants && held + sim.kv[i] <= sim.memory;
        held += wants && sim.fed[i] ? sim.kv[i] : 0;
        replica(i)->starves = wants && !sim.fed[i];
        sim.starved += replica(i)->starves;
    }
}

static void fall(void *context, uint32_t index)
{
    (void)context;
    HOLDS(sim.act[index] == ACT_NONE);
    HOLDS(replica(index)->count == 0 && model(index)->running == 0);
    sim.act[index] = ACT_FALL;
    if (!model(index)->sleep.gave)
        return;
    HOLDS(world.now_us >= model(index)->sleep.since_us + world.options->model_stay);
    sim.evictions++;
}

static void wake(void *context, uint32_t index)
{
    (void)context;
    HOLDS(sim.act[index] == ACT_NONE);
    sim.act[index] = ACT_WAKE;
    sim.wakes++;
}

static const struct sleep_api api = {.sleep = fall, .wake = wake};

static void end_act(uint32_t index)
{
    struct error error;
    enum act act = sim.act[index];
    bool fails = act == ACT_WAKE && !sim.calm && draw(6) == 0;
    bool lacks = act == ACT_WAKE && !fits(index);
    sim.act[index] = ACT_NONE;
    if (act == ACT_FALL) {
        model_slept(&world.server, index, world.now_us);
    } else if (fails || lacks) {
        error_set(&error, fails ? ERR_IO : ERR_DEVICE_MEMORY, "as chance has it");
        model_wake_refused(&world.server, index, &error, world.now_us);
        sim.refusals++;
    } else {
        model_woke(&world.server, index, world.now_us);
    }
}

/* ---- a seed ------------------------------------------------------------------------------------
 */

static void ask(void)
{
    const char *const names[MODELS_MAX] = {"rule", "m1", "m2", "m3"};
    client_ask(&guest, &(struct ask){.job = JOB_GENERATE,
                                     .id = ++sim.next_id,
                                     .count = 1 + (uint32_t)draw(3),
                                     .length = 1,
                                     .max_tokens = 1 + (uint32_t)draw(40),
                                     .deadline_ms = !sim.calm && draw(5) == 0 ? 1 + draw(20000) : 0,
                                     .model = names[draw(sim.count)]});
}

static void happen(void)
{
    struct error error;
    uint32_t index = (uint32_t)draw(sim.count);
    switch (draw(8)) {
    case 0:
    case 1:
        ask();
        break;
    case 2:
        (void)model_sleep_ask(&world.server, model(index), &error);
        break;
    case 3:
        model_wake_ask(&world.server, model(index), world.now_us);
        break;
    case 4:
        sim.outside = draw(3) == 0 ? (uint32_t)draw(sim.memory) : 0;
        break;
    default:
        world_pass(&world, draw(4) == 0 ? draw(8000000) : draw(300000));
    }
}

static void go_on(void)
{
    uint64_t sent[MODELS_MAX];
    enum model_state state[MODELS_MAX];
    for (uint32_t i = 0; i < sim.count; i++) {
        if (sim.act[i] != ACT_NONE && draw(3) == 0)
            end_act(i);
        sent[i] = replica(i)->sent_total;
        state[i] = model(i)->sleep.state;
    }
    feed();
    world_turn(&world);
    for (uint32_t i = 0; i < sim.count; i++) {
        HOLDS(state[i] == MODEL_AWAKE || replica(i)->sent_total == sent[i]);
        sim.handed_back += replica(i)->handed_back;
        replica(i)->handed_back = 0;
    }
    feed();
    if (draw(2) == 0)
        world_step(&world, 1 + (uint32_t)draw(8));
}

static void begin(uint64_t seed)
{
    char name[16];
    memset(&sim, 0, sizeof(sim));
    sim.seed = sim.random = seed;
    sim.count = 2 + (uint32_t)draw(MODELS_MAX - 1);
    sim.memory = 100;
    world_make(&world);
    for (uint32_t i = 1; i < sim.count; i++) {
        snprintf(name, sizeof(name), "m%u", i);
        world_serve_beside(&world, name, 1000);
    }
    world_ready(&world);
    world.server.sleep_api = &api;
    for (uint32_t i = 0; i < sim.count; i++) {
        struct model_sleep *sleep = &model(i)->sleep;
        *sleep = (struct model_sleep){.used_us = world.now_us, .since_us = world.now_us};
        sleep->after_us = draw(2) == 0 ? 1000000 + draw(10000000) : 0;
        sim.need[i] = 20 + (uint32_t)draw(81);
        if (i > 0) {
            sleep->state = MODEL_ASLEEP;
            sleep->early = draw(2) == 0;
        }
    }
    for (uint32_t i = 0; i < sim.count; i++)
        sim.kv[i] = draw(2) == 0 ? (uint32_t)draw(101 - sim.need[i]) : 0;
    client_open(&world, &guest, 1000);
}

/* Time goes as far as it must: nobody waits for ever. */
static void come_to_rest(void)
{
    time_us until_us = world.now_us + CALM_US;
    sim.calm = true;
    sim.outside = 0;
    for (int i = 0; i < 20; i++)
        ask();
    while (world.server.live_sequences > 0 && world.now_us < until_us) {
        go_on();
        world_pass(&world, 50000);
    }
    HOLDS(world.server.live_sequences == 0);
    for (uint32_t i = 0; i < sim.count; i++)
        while (sim.act[i] != ACT_NONE)
            end_act(i);
}

START_TEST(nobody_waits_for_ever_whatever_happens)
{
    static uint64_t evictions, refusals, wakes, starved, handed_back;
    for (uint64_t seed = 1 + (uint64_t)_i * 100; seed < 1 + ((uint64_t)_i + 1) * 100; seed++) {
        begin(seed);
        for (uint32_t i = 0; i < STEPS; i++) {
            happen();
            go_on();
        }
        come_to_rest();
        client_free(&guest);
        world.server.sleep_api = NULL;
        world_free(&world);
        evictions += sim.evictions;
        refusals += sim.refusals;
        wakes += sim.wakes;
        starved += sim.starved;
        handed_back += sim.handed_back;
    }
    ck_assert_msg(evictions > 0 && refusals > 0 && wakes > 0 && starved > 0 && handed_back > 0,
                  "these seeds test nothing of it");
}
END_TEST

Suite *sleep_sim_suite(void)
{
    Suite *suite = suite_create("sleep_sim");
    TCase *tests = tcase_create("sleep_sim");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, nobody_waits_for_ever_whatever_happens, 0, SEEDS / 100);
    suite_add_tcase(suite, tests);
    return suite;
}
