#include "tests/sim/sim.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/emu/emu.h"
#include "gpu/kernels/common/clock_cpu.h"
#include "tests/sim/client.h"
#include "tests/sim/host.h"
#include "tests/sim/invariants.h"
#include "tests/sim/scribe.h"

#define DEVICE_BYTES (64u << 20)
#define EVENTS_MAX 3000000u
#define TIMEOUTS_US 120000000u /* virtual: for a phase to come to its end */
#define SLACK_US 1000000u      /* and for turns that others come before */

enum trouble { NO_TROUBLE, SHORT_MEMORY, FAILED_CALLS, STICKY, HANGING, TROUBLES };

struct sim {
    const struct sim_setup *setup;
    struct scene scene;
    struct questions questions[SLEEPERS_MODELS];
    char names[SLEEPERS_MODELS][8];
    char models[1024]; /* NAME=DIR,... */
    uint32_t model_count;
    uint64_t device_bytes; /* that the daemon may have; UINT64_MAX: all there are */
    struct host_setup host_setup;
    struct host host;
    struct order_mood mood[SLEEPERS_MODELS];
    struct sleepers_figures slept; /* of daemons that have gone */
    struct guests guests;
    struct scribe scribe;
    enum trouble trouble;
    uint64_t trouble_in; /* events until it strikes */
    bool loaded;
    bool calm;       /* an admin sees to it that work is accepted */
    bool may_fail;   /* this daemon's device was given a reason to */
    uint64_t end_in; /* events until the daemon is asked to end; 0: it is not */
    uint64_t failures, ends, drained, late, left;
};

static struct scene *clock_scene;

static uint64_t clock_ns(void)
{
    return clock_scene->now_us * 1000;
}

/* ---- trouble -----------------------------------------------------------------------------------
 */

static cudaError_t draw_error(struct scene *scene)
{
    static const cudaError_t errors[] = {cudaErrorMemoryAllocation, cudaErrorInvalidValue,
                                         cudaErrorUnknown, cudaErrorIllegalAddress};
    return errors[scene_below(scene, sizeof(errors) / sizeof(errors[0]))];
}

/* Before the daemon starts: any call may fail, those of loading too. */
static void draw_trouble(struct sim *sim)
{
    struct scene *scene = &sim->scene;
    sim->trouble =
        scene_one_in(scene, 3) ? NO_TROUBLE : (enum trouble)scene_between(scene, 1, TROUBLES - 1);
    if (sim->setup->skipped_wait)
        sim->trouble = NO_TROUBLE;
    sim->trouble_in = scene_below(scene, 4000);
    /* A kernel that never ends would hold whoever waits for it: where models wake, the only thread.
     */
    if (sim->trouble == HANGING && sim->model_count > 1)
        sim->trouble = STICKY;
    sim->may_fail = sim->trouble >= FAILED_CALLS;
    uint32_t faults = sim->trouble == FAILED_CALLS ? scene_between(scene, 1, 3) : 0;
    for (uint32_t i = 0; i < faults; i++) {
        uint32_t most = scene_one_in(scene, 3) ? 20 : 1000;
        emu_fault_set((enum emu_call)scene_below(scene, EMU_CALLS), scene_between(scene, 1, most),
                      draw_error(scene));
    }
    if (scene_one_in(scene, 3)) /* the system has no more memory to pin */
        emu_fault_set(EMU_cudaHostRegister, scene_between(scene, 1, 4), cudaErrorMemoryAllocation);
    sim->end_in = scene_one_in(scene, 3) ? scene_between(scene, 1, 4000) : 0;
    scene_note(scene, "trouble", sim->trouble, sim->trouble_in);
}

static void strike(struct sim *sim)
{
    struct scene *scene = &sim->scene;
    scene_note(scene, "strike", sim->trouble, 0);
    switch (sim->trouble) {
    case SHORT_MEMORY: {
        /* Others take the device's memory, all that is left or nearly all, and give it back. */
        uint64_t limits[] = {sim->device_bytes, 0,
                             emu_live().device_bytes + scene_below(scene, 1u << 14)};
        emu_memory_limit(limits[scene_below(scene, 3)]);
        sim->trouble_in = scene_between(scene, 1, 1000);
        break;
    }
    case STICKY:
        emu_break(cudaErrorIllegalAddress);
        break;
    case HANGING:
        emu_fault_hang(1);
        sim->host.device_hangs = true;
        break;
    case NO_TROUBLE:
    case FAILED_CALLS:
    case TROUBLES:
        break;
    }
}

static void end_trouble(struct sim *sim)
{
    sim->trouble = NO_TROUBLE;
    emu_memory_limit(sim->device_bytes);
    for (uint32_t call = 0; call < EMU_CALLS; call++)
        emu_fault_set((enum emu_call)call, 0, cudaSuccess);
    emu_fault_hang(0);
}

/* ---- one event ---------------------------------------------------------------------------------
 */

enum actor { DEVICE, SERVER, WORKER, MASK, TASK, THREAD, ACT, READ, DELIVER, END, WRITABLE, LOST };

struct choice {
    enum actor actor;
    uint32_t number;
};

struct choices {
    uint32_t count;
    struct choice choice[GUESTS * 6 + 2 * HOST_REPLICAS + 4];
};

static void offer(struct choices *choices, bool due, enum actor actor, uint32_t number)
{
    if (due)
        choices->choice[choices->count++] = (struct choice){actor, number};
}

static void offer_all(struct sim *sim, struct choices *choices)
{
    choices->count = 0;
    offer(choices, host_device_due(&sim->host), DEVICE, 0);
    offer(choices, host_server_due(&sim->host), SERVER, 0);
    offer(choices, host_task_due(&sim->host), TASK, 0);
    offer(choices, host_thread_due(&sim->host), THREAD, 0);
    for (uint32_t i = 0; i < sim->host.replica_count; i++)
        offer(choices, host_worker_due(&sim->host, i), WORKER, i);
    for (uint32_t i = 0; i < sim->host.replica_count; i++)
        offer(choices, host_mask_due(&sim->host, i), MASK, i);
    for (uint32_t i = 0; i < sim->guests.count; i++) {
        const struct guest *guest = &sim->guests.guest[i];
        offer(choices, guest_act_due(guest), ACT, i);
        offer(choices, guest_read_due(guest), READ, i);
        offer(choices, line_readable(&guest->line), DELIVER, i);
        offer(choices, line_ended(&guest->line), END, i);
        offer(choices, line_writable(&guest->line), WRITABLE, i);
        offer(choices, line_lost(&guest->line), LOST, i);
    }
}

static void deliver(struct sim *sim, struct guest *guest)
{
    struct scene *scene = &sim->scene;
    uint32_t small = scene_below(scene, 3);
    /* Of much, larger pieces: a slow device's time must not make a whole frame late. */
    uint32_t waits = (uint32_t)line_length(&guest->line.up);
    line_deliver(&guest->line, small == 0   ? scene_between(scene, 1, 9 + waits / 32)
                               : small == 1 ? scene_between(scene, 1, 300 + waits / 4)
                                            : SIZE_MAX);
    /* There is no room for the rest of its message, maybe not before frame-timeout: two large ones
     * of a user may wait for each other. */
    if (guest->line.conn && guest->line.conn->starved)
        guest->excused = true;
    sim->host.touched = true;
}

static void take(struct sim *sim, const struct choice *choice)
{
    struct guest *guest = &sim->guests.guest[choice->number];
    switch (choice->actor) {
    case DEVICE:
        host_device_step(&sim->host);
        break;
    case SERVER:
        host_server_turn(&sim->host);
        break;
    case TASK:
        host_task_end(&sim->host);
        break;
    case THREAD:
        host_thread_go_on(&sim->host);
        break;
    case WORKER:
        host_worker_turn(&sim->host, choice->number);
        break;
    case MASK:
        host_mask_make(&sim->host, choice->number);
        break;
    case ACT:
        guest_act(guest);
        sim->host.touched = true; /* a connection may have been made */
        break;
    case READ:
        guest_read(guest);
        break;
    case DELIVER:
        deliver(sim, guest);
        break;
    case END:
        line_tell_end(&guest->line);
        sim->host.touched = true;
        break;
    case WRITABLE:
        conn_writable(guest->line.conn, sim->scene.now_us);
        sim->host.touched = true;
        break;
    case LOST:
        conn_lost(guest->line.conn, sim->scene.now_us);
        sim->host.touched = true;
        break;
    }
}

static void earlier(time_us *due_us, time_us at_us)
{
    if (at_us && (!*due_us || at_us < *due_us))
        *due_us = at_us;
}

/* Nothing can happen now: to when something is due. False when nothing ever is. */
static bool pass_time(struct sim *sim)
{
    time_us next_us = host_next(&sim->host);
    for (uint32_t i = 0; i < sim->guests.count; i++)
        earlier(&next_us, guest_next(&sim->guests.guest[i]));
    if (!next_us)
        return false;
    if (next_us <= sim->scene.now_us)
        next_us = sim->scene.now_us + 1;
    sim->scene.now_us = next_us;
    return true;
}

/* Who has nothing more to do finishes what it has begun to send. */
static void quieten(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->guests.count; i++) {
        struct guest *guest = &sim->guests.guest[i];
        if (guest->acts == 0 && guest->manner == GUEST_WILD)
            client_settle(guest, GUEST_QUIET);
    }
}

static void learn_mood(struct sim *sim, uint32_t number)
{
    const struct server *server = &sim->host.server;
    const struct served_model *model = &server->models[number];
    struct order_mood *mood = &sim->mood[number];
    mood->ending = sim->host.ending.stage != ENDING_NOT;
    mood->device_failed = sim->host.failed;
    mood->short_of_memory = sim->trouble == SHORT_MEMORY;
    mood->refusals = sim->host.sleepers.refusals[number];
    mood->room = model->context_max;
    if (model->kv_tokens < mood->room)
        mood->room = (uint32_t)model->kv_tokens;
    mood->sequences_max = server->limits.sequences_max;
    mood->tokens_max = server->limits.tokens_max;
    mood->batch_max = server->limits.batch_max;
    mood->results_max = server->limits.results_max;
    mood->priority_max = (int32_t)server->options->priority_max;
    mood->hidden = model->info.hidden;
}

static void learn(struct sim *sim)
{
    const struct server *server = &sim->host.server;
    bool ready = server->phase == SERVER_READY || server->phase == SERVER_DRAINING;
    for (uint32_t i = 0; i < sim->model_count; i++)
        learn_mood(sim, i);
    if (sim->mood[0].ending)
        quieten(sim);
    if (sim->calm && server->draining)
        server_resume(&sim->host.server);
    if (ready && !sim->loaded) {
        sim->loaded = true;
        emu_fault_skip_wait(sim->setup->skipped_wait);
    }
    bool healthy = host_healthy(&sim->host);
    if (!healthy && !sim->host.failed && sim->may_fail)
        emu_break(cudaErrorLaunchTimeout); /* the watchdog's part */
    else if ((!healthy || sim->host.failed) && !sim->may_fail)
        scene_fail(&sim->scene, "the device failed, and nothing was wrong with it: %s",
                   server->failure.text);
}

/* False when nothing can happen any more. */
static bool happen(struct sim *sim)
{
    struct choices choices;
    struct scene *scene = &sim->scene;
    offer_all(sim, &choices);
    if (choices.count == 0)
        return pass_time(sim);
    take(sim, &choices.choice[scene_below(scene, choices.count)]);
    scene->now_us += scene_below(scene, 30);
    learn(sim);
    host_check(&sim->host);
    scribe_turn(&sim->scribe);
    if (sim->loaded && sim->trouble != NO_TROUBLE && sim->trouble_in > 0 && --sim->trouble_in == 0)
        strike(sim);
    if (sim->end_in > 0 && --sim->end_in == 0 && !sim->host.failed)
        host_end(&sim->host);
    if (scene->events > EVENTS_MAX)
        scene_fail(scene, "no end after %u events", EVENTS_MAX);
    return true;
}

/* ---- phases ------------------------------------------------------------------------------------
 */

static bool any_waits(const struct sim *sim)
{
    for (uint32_t i = 0; i < sim->guests.count; i++)
        if (guest_waits(&sim->guests.guest[i]))
            return true;
    return false;
}

static bool any_waits_for_this(const struct sim *sim)
{
    return any_waits(sim) && !sim->host.failed;
}

static bool any_acts(const struct sim *sim)
{
    for (uint32_t i = 0; i < sim->guests.count; i++)
        if (sim->guests.guest[i].acts > 0)
            return true;
    return false;
}

static bool any_line(const struct sim *sim)
{
    for (uint32_t i = 0; i < sim->guests.count; i++)
        if (sim->guests.guest[i].line.conn)
            return true;
    return false;
}

static void until(struct sim *sim, bool (*goes_on)(const struct sim *sim), const char *what)
{
    time_us end_us = sim->scene.now_us + TIMEOUTS_US;
    while (!sim->scene.failed && goes_on(sim)) {
        if (sim->scene.now_us > end_us || !happen(sim))
            scene_fail(&sim->scene, "%s does not come to an end: %" PRIu64 " sequences live", what,
                       sim->host.server.live_sequences);
    }
}

static void settle_all(struct sim *sim, enum guest_manner manner)
{
    for (uint32_t i = 0; i < sim->guests.count; i++)
        client_settle(&sim->guests.guest[i], manner);
}

static void start_daemon(struct sim *sim)
{
    const struct emu_options options = {.engine = EMU_STEPPER,
                                        .devices = 4,
                                        .memory_bytes = DEVICE_BYTES,
                                        .seed = chance_draw(&sim->scene.random),
                                        .poison = true,
                                        .strict = true};
    if (emu_setup(&options)) {
        scene_fail(&sim->scene, "no emulated device");
        return;
    }
    emu_memory_limit(sim->device_bytes);
    sim->loaded = false;
}

static void open_host(struct sim *sim)
{
    invariants_begin(&sim->scene, !sim->host_setup.tight && sim->model_count == 1 &&
                                      sim->trouble != SHORT_MEMORY && sim->trouble != FAILED_CALLS);
    host_open(&sim->host, &sim->scene, &sim->host_setup);
    if (sim->scene.failed)
        return;
    sim->host.sleepers.faults = !sim->calm;
    sim->host.sleepers.may_fail = sim->may_fail;
    for (uint32_t i = 0; i < sim->guests.count; i++)
        guest_meet(&sim->guests.guest[i], &sim->host.server);
    learn(sim);
}

static void leave_all(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->guests.count; i++)
        guest_leave(&sim->guests.guest[i]);
    until(sim, any_line, "leaving");
}

static bool wild(const struct sim *sim)
{
    return any_acts(sim) && !sim->host.failed && sim->host.ending.stage == ENDING_NOT;
}

static bool ending(const struct sim *sim)
{
    return !sim->host.over && !sim->host.failed;
}

static void add_slept(struct sim *sim)
{
    uint64_t *to = (uint64_t *)&sim->slept;
    const uint64_t *from = (const uint64_t *)&sim->host.sleepers.figures;
    for (size_t i = 0; i < sizeof(sim->slept) / sizeof(*to); i++)
        to[i] += from[i];
}

/* Another process begins. */
static void replace(struct sim *sim)
{
    leave_all(sim);
    add_slept(sim);
    host_close(&sim->host);
    end_trouble(sim);
    sim->may_fail = false;
    start_daemon(sim);
    for (uint32_t i = 0; i < sim->model_count; i++)
        sim->mood[i].device_failed = false;
    open_host(sim);
}

/* The daemon is asked to end amid its work, and another begins. */
static void end_daemon(struct sim *sim)
{
    until(sim, ending, "the end");
    if (sim->scene.failed || sim->host.failed)
        return;
    if (sim->scene.now_us > sim->host.end_us + SLACK_US)
        scene_fail(&sim->scene, "the end took %" PRIu64 " us more than its stages may",
                   sim->scene.now_us - sim->host.end_us);
    bool hangs = sim->host.tasks_hang || sim->host.worker_hangs || sim->host.file_hangs ||
                 sim->host.device_hangs;
    if (sim->host.left && !hangs)
        scene_fail(&sim->scene, "the process left something, and nothing hung");
    sim->ends++;
    sim->drained += !sim->host.cut;
    sim->late += sim->host.cut;
    sim->left += sim->host.left;
    if (sim->host.device_hangs)
        emu_break(cudaErrorLaunchTimeout); /* the process is gone, and nobody waits for it */
    replace(sim);
}

static bool tells(const struct sim *sim)
{
    return any_waits(sim) && !sim->host.over;
}

/* The device failed: whoever waits is told, then the process ends. */
static void restart(struct sim *sim)
{
    sim->failures++;
    settle_all(sim, GUEST_QUIET);
    until(sim, tells, "telling of a failure");
    replace(sim);
}

static void check_device(struct sim *sim)
{
    struct emu_live live = emu_live();
    if (live.streams || live.events || live.pools || live.graphs || live.host_ranges ||
        live.device_bytes)
        scene_fail(&sim->scene,
                   "the device is left with %u streams, %u events, %u pools, %u graphs, %u host "
                   "ranges, %" PRIu64 " bytes",
                   live.streams, live.events, live.pools, live.graphs, live.host_ranges,
                   live.device_bytes);
}

/* Whatever waits for a while to pass, such as memory that goes back. */
static void rest(struct sim *sim)
{
    time_us end_us = sim->scene.now_us + TIMEOUTS_US;
    while (!sim->scene.failed && sim->scene.now_us < end_us && happen(sim))
        continue;
}

/* Everybody asks one last thing, all of it is answered, they go, and nothing is left. */
static void calm(struct sim *sim)
{
    settle_all(sim, GUEST_CALM);
    until(sim, any_waits_for_this, "the calm phase");
    if (sim->host.failed)
        return;
    leave_all(sim);
    rest(sim);
    if (!sim->scene.failed && !sim->host.failed)
        host_check_rest(&sim->host);
    if (!sim->scene.failed && !sim->host.failed)
        scribe_check_rest(&sim->scribe, &sim->host.server);
}

static void play(struct sim *sim)
{
    until(sim, wild, "the wild phase");
    if (sim->host.ending.stage != ENDING_NOT && !sim->scene.failed)
        end_daemon(sim);
    sim->end_in = 0;
    if (sim->host.failed && !sim->scene.failed)
        restart(sim);
    end_trouble(sim);
    if (sim->scene.failed)
        return;
    sim->calm = true;
    sim->host.sleepers.faults = false;
    calm(sim);
    if (sim->host.failed && !sim->scene.failed) {
        restart(sim); /* it was broken before, and nobody had noticed until now */
        calm(sim);
    }
}

static void tell(const struct sim *sim, struct sim_report *report)
{
    struct invariants_figures figures = invariants_figures();
    report->failed = sim->scene.failed;
    memcpy(report->failure, sim->scene.failure, sizeof(report->failure));
    report->trace = sim->scene.trace;
    report->events = sim->scene.events;
    struct sim_figures *sum = &report->figures;
    const struct host_figures *host = &sim->host.figures;
    for (uint32_t i = 0; i < sim->guests.count; i++) {
        const struct guest *guest = &sim->guests.guest[i];
        sum->asked += guest->next_id - 1;
        sum->accepted += guest->accepted;
        sum->completed += guest->completed;
        sum->refused += guest->refused;
        sum->lost += guest->lost;
    }
    sum->steps = figures.steps;
    sum->grown = figures.grown;
    sum->refused_slabs = figures.refused;
    sum->shared = figures.shared;
    sum->failures = sim->failures;
    sum->preemptions = host->preemptions;
    sum->gave_way = host->gave_way;
    sum->wasted_rows = host->wasted_rows;
    sum->moves = host->moves;
    sum->ahead = host->ahead;
    sum->drafted = host->drafted;
    sum->stood = host->stood;
    sum->cached = host->cached;
    sum->cache_waits = host->cache_waits;
    sum->cache_evictions = host->cache_evictions;
    sum->blocks_out = host->blocks_out;
    sum->blocks_in = host->blocks_in;
    sum->chunks_refused = host->chunks_refused;
    sum->stopped = host->stopped;
    sum->full = host->full;
    sum->cancelled = host->cancelled;
    sum->deadlines = host->deadlines;
    sum->slow_readers = host->slow_readers;
    sum->ends = sim->ends;
    sum->ends_drained = sim->drained;
    sum->ends_late = sim->late;
    sum->ends_left = sim->left;
    sum->texts_late = host->texts_late;
    sum->texts_cancelled = host->texts_cancelled;
    sum->texts_dropped = host->texts_dropped;
    sum->texts_stopped = host->texts_stopped;
    sum->parked = host->parked;
    sum->owed = host->owed;
    sum->lines_waited = sim->scribe.waited;
    sum->lines_dropped = sim->scribe.ring.dropped;
    sum->slept = sim->slept.slept;
    sum->woke = sim->slept.woke;
    sum->made_way = sim->slept.made_way;
    sum->wakes_refused = sim->slept.refused;
    sum->kept = sim->slept.kept;
    sum->keeps_failed = sim->slept.keeps_failed;
}

/* The questions of each model, asked on a device of its own; and how much all have together. */
static void make_models(struct sim *sim, uint32_t context_max)
{
    const struct sim_setup *setup = sim->setup;
    const char *at = setup->beside;
    char list[1024], name[256];
    struct error error;
    snprintf(name, sizeof(name), "%s", setup->model);
    for (uint32_t i = 0; i < SLEEPERS_MODELS && name[0] && !sim->scene.failed; i++) {
        const struct question_model model = {name, i ? "" : setup->adapters, setup->tp, setup->ep};
        struct questions *questions = &sim->questions[sim->model_count++];
        if (questions_make(questions, &model, context_max, scene_between(&sim->scene, 4, 12),
                           &sim->scene.random, &error))
            scene_fail(&sim->scene, "%s", error.text);
        snprintf(sim->names[i], sizeof(sim->names[i]), "m%u", i);
        questions->number = i;
        questions->name = setup->beside[0] ? sim->names[i] : NULL;
        size_t used = strlen(sim->models), length = strcspn(at, ",");
        snprintf(sim->models + used, sizeof(sim->models) - used, "%s%s=%s", i ? "," : "",
                 sim->names[i], name);
        snprintf(name, sizeof(name), "%.*s", (int)length, at);
        at += length + (at[length] == ',');
    }
    sim->device_bytes = UINT64_MAX;
    snprintf(list, sizeof(list), "%s,%s", setup->model, setup->beside);
    if (setup->beside[0] && !sim->scene.failed)
        sim->device_bytes = sleepers_room(&sim->scene, list, context_max);
}

void sim_run(uint64_t seed, const struct sim_setup *setup, struct sim_report *ret_report)
{
    static struct sim sim; /* large */
    memset(&sim, 0, sizeof(sim));
    memset(ret_report, 0, sizeof(*ret_report));
    sim.setup = setup;
    sim.scene.random = seed;
    sim.scene.now_us = 1000000;
    sim.scene.story = setup->story ? stderr : NULL;
    clock_scene = &sim.scene;
    clock_set(clock_ns);
    struct scene *scene = &sim.scene;
    scribe_begin(&sim.scribe, scene);
    uint32_t context_max = 64u << scene_below(scene, 3);
    make_models(&sim, context_max);
    sim.host_setup = (struct host_setup){.model = setup->model,
                                         .adapters = setup->adapters,
                                         .models = setup->beside[0] ? sim.models : NULL,
                                         .replicas = setup->replicas,
                                         .tp = setup->tp,
                                         .pp = setup->pp,
                                         .ep = setup->ep,
                                         .context_max = context_max,
                                         .tight = scene_one_in(scene, 2),
                                         .flood = scene_one_in(scene, 3)};
    for (uint32_t i = 0; i < sim.model_count; i++)
        sim.mood[i].flood = sim.host_setup.flood;
    if (!scene->failed)
        start_daemon(&sim);
    if (!scene->failed) {
        sim.guests.count = scene_between(scene, 2, GUESTS);
        for (uint32_t i = 0; i < sim.guests.count; i++)
            guest_init(&sim.guests.guest[i], &sim.guests, i, scene, sim.questions, sim.mood,
                       sim.model_count, scene_between(scene, 5, 50));
        draw_trouble(&sim);
        open_host(&sim);
        play(&sim);
        add_slept(&sim);
        if (!scene->failed)
            host_close(&sim.host);
        if (!scene->failed && !sim.may_fail) /* else a call that destroys may have failed */
            check_device(&sim);
    }
    tell(&sim, ret_report);
    for (uint32_t i = 0; i < sim.guests.count; i++)
        guest_free(&sim.guests.guest[i]);
    invariants_end();
    for (uint32_t i = 0; i < sim.model_count; i++)
        questions_free(&sim.questions[i]);
    scribe_end();
}
