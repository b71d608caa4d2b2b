#include "tests/sim/host.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/option_table.h"
#include "daemon/sched/kv.h"
#include "daemon/text/template/chat.h"
#include "daemon/worker/device_module.h"
#include "daemon/worker/worker_inner.h"
#include "gpu/emu/emu.h"
#include "tests/sim/invariants.h"

static void set(struct host *host, const char *name, uint64_t value, const char *unit)
{
    char text[64];
    struct error error;
    const struct option *option = option_find(name, strlen(name));
    snprintf(text, sizeof(text), "%" PRIu64 "%s", value, unit);
    if (!option || option_set(host->options, option, text, strlen(text), &error))
        scene_fail(host->scene, "option %s = %s: %s", name, text, option ? error.text : "none");
}

static void set_word(struct host *host, const char *name, const char *text)
{
    struct error error;
    const struct option *option = option_find(name, strlen(name));
    if (!option || option_set(host->options, option, text, strlen(text), &error))
        scene_fail(host->scene, "option %s = %s: %s", name, text, option ? error.text : "none");
}

/* Some users have a part of their own, of whatever size. */
static void draw_weights(struct host *host)
{
    char users[128] = "";
    size_t used = 0;
    for (uint32_t uid = 0; uid < 3; uid++)
        if (scene_one_in(host->scene, 3))
            used += (size_t)snprintf(users + used, sizeof(users) - used, "%u:weight=%u,", uid,
                                     (unsigned)scene_between(host->scene, 1, 10000));
    set_word(host, "users", users);
}

/* A draft model, in some runs the model itself: its guesses fall where it does not know of a
 * sequence's adapter, or of tokens that stand in the cache and were said without it. */
static void draw_draft_model(struct host *host, const struct host_setup *setup)
{
    static const char other[] = "tests/model/data/mistral-window-bf16"; /* it looks back 16 tokens */
    struct scene *scene = host->scene;
    bool computes = strcmp(setup->model, "synthetic:null") != 0;
    if (!computes || setup->tp * setup->pp > 1 || !scene_one_in(scene, 2))
        return;
    set_word(host, "speculate", "draft");
    set_word(host, "draft-model", scene_one_in(scene, 2) ? setup->model : other);
}

static void draw_options(struct host *host, const struct host_setup *setup)
{
    struct scene *scene = host->scene;
    set_word(host, "model", setup->model);
    set_word(host, "adapter", setup->adapters);
    set_word(host, "device", "cpu");
    set(host, "context-max", setup->context_max, "");
    set(host, "steps-in-flight", scene_between(scene, 1, 2), "");
    set(host, "sequences-max", scene_between(scene, 1, 12), "");
    set(host, "step-tokens", 1u << scene_between(scene, 3, 8), "");
    set(host, "gpu-memory-reserve", 0, "");
    set(host, "kv-idle-release", scene_between(scene, 10, scene_one_in(scene, 2) ? 15 : 200), "ms");
    /* A slow device takes longer for a step than that: prompts wait until their turn must come. */
    bool slow = host->device_us > 30;
    set(host, "itl-target", slow ? 1 : scene_between(scene, 1, 50), "ms");
    set(host, "ttft-target", scene_between(scene, 1, 400), "ms");
    set(host, "step-timeout", scene_between(scene, 500, 2000), "ms");
    set(host, "queue-sequences", scene_between(scene, 4, 64), "");
    set(host, "queue-tokens", 2ull * setup->context_max * scene_between(scene, 4, 32), "");
    set(host, "output-high", scene_between(scene, 4, 16), "KiB");
    set(host, "output-max", scene_between(scene, 64, 128), "KiB");
    set(host, "input-max", scene_between(scene, 320, 1024), "KiB");
    set(host, "frame-max", 128, "KiB");
    set(host, "results-max", 64u << scene_below(scene, 6), "KiB");
    set(host, "priority-max", setup->flood ? 7 : scene_below(scene, 8), "");
    set(host, "min-share", setup->flood ? 20u : scene_below(scene, 51), "");
    draw_weights(host);
    set(host, "handshake-timeout", 300, "ms");
    set(host, "frame-timeout", 300, "ms");
    set(host, "stall-timeout", 300, "ms");
    set_word(host, "prefix-cache", scene_one_in(scene, 5) ? "no" : "yes");
    set_word(host, "speculate", scene_one_in(scene, 2) ? "lookup" : "no");
    set(host, "speculate-tokens", scene_between(scene, 1, 15), "");
    draw_draft_model(host, setup);
    set(host, "cache-idle-release", scene_between(scene, 10, 500), "ms");
}

/* Slabs of few blocks, so that growing, emptying and preempting happen in small runs. */
static void draw_memory(struct host *host, const struct host_setup *setup, uint64_t block_bytes)
{
    struct scene *scene = host->scene;
    uint64_t slab_blocks = scene_between(scene, 1, 8);
    set(host, "slab-size", slab_blocks * block_bytes, "");
    set(host, "host-cache", scene_one_in(scene, 3) ? 0 : scene_between(scene, 8, 300) * block_bytes,
        "");
    if (setup->tight) {
        uint64_t need = setup->context_max / 32 + 1;
        set(host, "kv-max", (need + scene_below(scene, 12)) * block_bytes, "");
    }
}

static void wake(void *context)
{
    struct host *host = context;
    host->touched = true;
}

/* Conversations whose template gives what was said, whatever the model's own does. */
static void load_chat(struct host *host)
{
    static const char source[] = "{% for m in messages %}{{ m.content }}{% endfor %}";
    struct error error;
    if (!host->model_text.tokenizer)
        return;
    chat_template_free(host->model_text.chat);
    if (chat_template_load(source, sizeof(source) - 1, &host->model_text.chat, &error))
        scene_fail(host->scene, "%s", error.text);
}

static struct gpu_options engine_options(const struct host *host)
{
    static const int numbers[] = {0, 1, 2, 3};
    struct gpu_options options = device_module_options(host->options, numbers);
    options.adapters = host->adapters_given;
    options.adapter_count = host->adapters.count;
    return options;
}

static uint64_t block_bytes_of(const struct host *host)
{
    const struct gpu_options options = engine_options(host);
    struct gpu_model model;
    struct error error;
    if (gpu_module.check(&options, &model, &error))
        scene_fail(host->scene, "%s", error.text);
    else if (model.groups[0].block_bytes)
        return model.groups[0].block_bytes;
    return 256;
}

static void open_replica(struct host *host, struct gpu_model *model, struct gpu_limits *limits)
{
    const struct gpu_options options = engine_options(host);
    struct gpu_engine *engine;
    struct error error;
    if (gpu_module.open(&options, &engine, model, limits, &error)) {
        scene_fail(host->scene, "%s", error.text);
        return;
    }
    invariants_add(engine, model, limits);
    struct replica_worker **made = &host->replicas[host->replica_count];
    if (replica_make(invariants_api(), engine, model, limits, host->options, &host->completions,
                     made, &error)) {
        scene_fail(host->scene, "%s", error.text);
        return;
    }
    /* One that is as large as the model never pays. */
    if (host->options->speculate == SPECULATE_DRAFT)
        (*made)->worker->sched.options.drafts_always = true;
    (*made)->base.api = shares_api(&host->shares, (*made)->base.api);
    host->replica_count++;
}

void host_open(struct host *host, struct scene *scene, const struct host_setup *setup)
{
    struct gpu_model model = {.vocab = 1};
    struct gpu_limits limits = {.context_max = 1};
    struct error error;
    memset(host, 0, sizeof(*host));
    host->scene = scene;
    shares_init(&host->shares, scene, &host->server);
    host->device_us = scene_one_in(scene, 3) ? 1000 : 30;
    if (options_defaults(&host->options, &error))
        abort();
    draw_options(host, setup);
    if (adapter_names_read(&host->adapters, setup->adapters, &error))
        abort();
    adapter_names_give(&host->adapters, host->adapters_given);
    set(host, "tp", setup->tp, "");
    set(host, "pp", setup->pp, "");
    set_word(host, "ep", setup->ep ? "yes" : "no");
    draw_memory(host, setup, block_bytes_of(host));
    completion_init(&host->completions, wake, host);
    if (server_init(&host->server, host->options, &host->completions, scene->random, scene->now_us,
                    &error))
        abort();
    if (model_text_load(&host->model_text, setup->model, &error))
        abort();
    load_chat(host);
    threads_open(&host->threads, scene, &host->server);
    host->server.models[0].text = &host->model_text;
    host->server.background = &host->threads.background;
    for (uint32_t i = 0; i < setup->replicas && !scene->failed; i++)
        open_replica(host, &model, &limits);
    struct replica *bases[HOST_REPLICAS];
    for (uint32_t i = 0; i < host->replica_count; i++)
        bases[i] = &host->replicas[i]->base;
    if (host->replica_count > 0)
        server_serve(&host->server, &model, limits.context_max, kv_length_max(&model, &limits),
                     "simulated", bases, host->replica_count);
}

void host_close(struct host *host)
{
    struct server *server = &host->server;
    host->tasks_hang = false;
    while (threads_end(&host->threads, true))
        continue;
    server_drain(server);
    server_cancel_all(server, host->scene->now_us);
    server_turn(server, host->scene->now_us);
    for (uint32_t i = 0; i < host->replica_count; i++) {
        worker_stop(host->replicas[i]->worker);
        if (worker_turn(host->replicas[i]->worker, host->scene->now_us))
            scene_fail(host->scene, "a worker that was stopped goes on");
    }
    server_turn(server, host->scene->now_us);
    if (server->live_sequences > 0)
        scene_fail(host->scene, "%" PRIu64 " sequences outlive their daemon",
                   server->live_sequences);
    server_destroy(server, host->scene->now_us);
    if (server->load.sequences || server->load.tokens || server->load.input ||
        server->load.connections || server->users.count)
        scene_fail(host->scene,
                   "left at the end: %" PRIu64 " sequences, %" PRIu64 " tokens, %" PRIu64
                   " bytes, %u connections, %u users",
                   server->load.sequences, server->load.tokens, server->load.input,
                   server->load.connections, server->users.count);
    for (uint32_t i = 0; i < host->replica_count; i++)
        replica_free(host->replicas[i]);
    completion_destroy(&host->completions);
    model_text_free(&host->model_text);
    options_free(host->options);
    host->replica_count = 0;
}

/* ---- what can happen ---------------------------------------------------------------------------
 */

static bool halted(const struct host *host, uint32_t replica)
{
    return host->stopped[replica] ||
           (host->worker_hangs && host->ending.stage >= ENDING_STOP && replica == 0) ||
           (host->device_hangs && host->ending.stage >= ENDING_STOP);
}

bool host_worker_due(struct host *host, uint32_t replica)
{
    const struct worker *worker = host->replicas[replica]->worker;
    uint64_t count;
    if (halted(host, replica))
        return false;
    if (worker_state(worker) == WORKER_LOADING)
        return true;
    if (read(worker_fd(worker), &count, sizeof(count)) > 0)
        host->woken[replica] = true;
    return host->woken[replica] || worker_wait_us(worker, host->scene->now_us) == 0;
}

void host_worker_turn(struct host *host, uint32_t replica)
{
    struct worker *worker = host->replicas[replica]->worker;
    scene_note(host->scene, "worker", replica, (uint64_t)worker_state(worker));
    host->device_runs = true;
    if (worker_state(worker) == WORKER_LOADING) {
        (void)worker_open(worker);
        return;
    }
    host->woken[replica] = false;
    host->stopped[replica] = !worker_turn(worker, host->scene->now_us);
    const char *wrong = sched_check(&worker->sched);
    if (*wrong)
        scene_fail(host->scene, "scheduler: %s", wrong);
}

bool host_mask_due(const struct host *host, uint32_t replica)
{
    return !halted(host, replica) && worker_mask_waits(host->replicas[replica]->worker);
}

void host_mask_make(struct host *host, uint32_t replica)
{
    scene_note(host->scene, "mask", replica, 0);
    (void)worker_mask(host->replicas[replica]->worker);
}

static void earlier(time_us *due_us, time_us at_us)
{
    if (at_us && (!*due_us || at_us < *due_us))
        *due_us = at_us;
}

/* As daemon/service/event_loop.c's arm() has it. */
static time_us due(const struct host *host)
{
    time_us due_us = server_due(&host->server);
    if (!host->over)
        earlier(&due_us, ending_due(&host->ending, host->scene->now_us));
    return due_us;
}

bool host_server_due(const struct host *host)
{
    time_us due_us = due(host);
    return host->touched || (due_us && due_us <= host->scene->now_us);
}

static bool all_ready(const struct host *host)
{
    for (uint32_t i = 0; i < host->replica_count; i++)
        if (worker_state(host->replicas[i]->worker) != WORKER_READY)
            return false;
    return true;
}

static void device_failed(struct host *host)
{
    for (uint32_t i = 0; i < host->replica_count && !host->failed; i++) {
        const struct worker *worker = host->replicas[i]->worker;
        if (worker_state(worker) != WORKER_FAILED)
            continue;
        host->failed = true;
        scene_note(host->scene, "failed", i, (uint64_t)worker_failure(worker)->code);
        server_fail(&host->server, worker_failure(worker), host->scene->now_us);
        if (host->ending.stage != ENDING_NOT)
            ending_fail(&host->ending, host->scene->now_us);
        host->touched = true;
    }
}

/* ---- the end -----------------------------------------------------------------------------------
 */

void host_end(struct host *host)
{
    struct scene *scene = host->scene;
    time_us now_us = scene->now_us;
    bool loading = host->server.phase == SERVER_LOADING;
    time_us drain_us = loading || scene_one_in(scene, 4) ? 0 : scene_below(scene, 500000);
    host->tasks_hang = scene_one_in(scene, 4);
    host->worker_hangs = scene_one_in(scene, 8);
    host->file_hangs = scene_one_in(scene, 8);
    time_us grace_us = host->server.phase == SERVER_READY && scene_one_in(scene, 2)
                           ? scene_below(scene, 300000)
                           : 0;
    scene_note(scene, "end", drain_us, host->server.live_sequences);
    if (grace_us) {
        server_leave(&host->server);
        ending_announce(&host->ending, grace_us, drain_us, now_us);
    } else {
        server_end(&host->server);
        ending_ask(&host->ending, drain_us, now_us);
    }
    host->end_us = now_us + grace_us + drain_us + ENDING_MOST_US;
    host->touched = true;
}

static void halt(struct host *host)
{
    server_halt(&host->server, host->scene->now_us);
    for (uint32_t i = 0; i < host->replica_count; i++) {
        host->over |= worker_state(host->replicas[i]->worker) == WORKER_LOADING;
        worker_stop(host->replicas[i]->worker);
    }
}

static bool all_stopped(const struct host *host)
{
    for (uint32_t i = 0; i < host->replica_count; i++)
        if (worker_state(host->replicas[i]->worker) != WORKER_STOPPED)
            return false;
    return true;
}

static void check_cut(const struct host *host)
{
    list_each(link, &host->server.errands)
    {
        if (!container_of(link, struct errand, link)->dropped)
            scene_fail(host->scene, "a text goes on after all was cancelled");
    }
}

static void advance(struct host *host)
{
    const struct server *server = &host->server;
    const struct ending_facts facts = {.idle = server_idle(server),
                                       .greeting = !list_empty(&server->conns.greeting),
                                       .stopped = all_stopped(host),
                                       .texts = server->encodings > 0,
                                       .file = host->file_hangs};
    if (host->ending.stage == ENDING_NOT || host->over)
        return;
    enum ending_act act = ending_turn(&host->ending, &facts, host->scene->now_us);
    scene_note(host->scene, "ending", act, host->ending.stage);
    host->touched |= act != ENDING_WAIT;
    if (act == ENDING_REFUSE)
        server_end(&host->server);
    host->cut |= act == ENDING_CANCEL;
    if (act == ENDING_CANCEL) {
        server_cancel_all(&host->server, host->scene->now_us);
        check_cut(host);
    }
    if (act == ENDING_HALT)
        halt(host);
    if (act == ENDING_RETURN && (server->live_requests || server->live_sequences))
        scene_fail(host->scene, "%" PRIu64 " sequences of %u requests outlive the loop",
                   server->live_sequences, server->live_requests);
    host->left |= act == ENDING_ABANDON;
    host->over |= act == ENDING_RETURN || act == ENDING_ABANDON;
}

/* A list of connections, and when each came onto it: what is behind a later one is found too late.
 */
#define CHECK_ORDER(host, list, link, since)                                                       \
    do {                                                                                           \
        time_us last_us = 0;                                                                       \
        list_each(at, &(host)->server.conns.list)                                                  \
        {                                                                                          \
            time_us at_us = container_of(at, struct conn, link)->since;                            \
            if (at_us < last_us)                                                                   \
                scene_fail((host)->scene, "a connection is " #list " since earlier than the one "  \
                                          "before it");                                            \
            last_us = at_us;                                                                       \
        }                                                                                          \
    } while (0)

static void check_order(const struct host *host)
{
    CHECK_ORDER(host, held, held_link, held_us);
    CHECK_ORDER(host, half, half_link, half_us);
    CHECK_ORDER(host, stalled, stall_link, stall_us);
    CHECK_ORDER(host, greeting, greet_link, greet_us);
}

void host_server_turn(struct host *host)
{
    check_order(host);
    host->touched = false;
    scene_note(host->scene, "server", host->server.live_sequences, host->server.load.sequences);
    shares_begin(&host->shares);
    unsigned control = server_turn(&host->server, host->scene->now_us);
    host->turned = true;
    shares_check(&host->shares);
    if (control & COMPLETION_READY && all_ready(host)) {
        server_ready(&host->server, host->scene->now_us);
        host->touched = true;
    }
    if (control & COMPLETION_FAILED)
        device_failed(host);
    advance(host);
    time_us due_us = due(host);
    /* Nothing may be due any more. What waits for a time was written down with the clock of that
     * moment, and a delay above 0 after it: so each list is in the order of its times, the turn
     * finds all that are not later than itself, and what it writes down itself is later. Left are
     * what was touched since, and what output made room for, which are the next turn's. */
    bool more = !list_empty(&host->server.conns.dirty) || host->server.results_freed;
    bool over = !host->touched && !more && due_us && due_us <= host->server.turn_us;
    if (over)
        scene_fail(host->scene, "a turn leaves something due that it did not do: it would spin");
}

bool host_healthy(const struct host *host)
{
    for (uint32_t i = 0; i < host->replica_count; i++)
        if (!halted(host, i) && !worker_healthy(host->replicas[i]->worker, host->scene->now_us))
            return false;
    return true;
}

bool host_task_due(const struct host *host)
{
    return threads_due(&host->threads) && !host->tasks_hang;
}

void host_task_end(struct host *host)
{
    host->touched = true;
    threads_end(&host->threads, false);
}

void host_check(struct host *host)
{
    if (!host->tasks_hang)
        threads_check(&host->threads, host->turned);
    host->turned = false;
}

bool host_device_due(const struct host *host)
{
    return host->device_runs;
}

void host_device_step(struct host *host)
{
    host->device_runs = emu_step();
    host->scene->now_us += scene_below(host->scene, host->device_us);
    scene_note(host->scene, "device", host->device_runs, 0);
}

time_us host_next(struct host *host)
{
    time_us due_us = due(host), now_us = host->scene->now_us;
    if (!host->tasks_hang)
        earlier(&due_us, threads_next(&host->threads));
    for (uint32_t i = 0; i < host->replica_count; i++) {
        if (halted(host, i))
            continue;
        uint64_t wait_us = worker_wait_us(host->replicas[i]->worker, now_us);
        if (wait_us != WORKER_FOREVER)
            earlier(&due_us, now_us + wait_us);
    }
    return due_us;
}

/* ---- at rest -----------------------------------------------------------------------------------
 */

static void check_replica(struct host *host, uint32_t i)
{
    struct replica *replica = &host->replicas[i]->base;
    struct gpu_memory memory;
    struct gpu_counters counters;
    replica->api->ask_stats(replica);
    host_worker_turn(host, i);
    const struct stats_worker *stats = replica->api->stats(replica);
    if (stats->running || stats->starting || stats->steps_in_flight || stats->kv_blocks_used ||
        stats->kv_slabs)
        scene_fail(host->scene,
                   "replica %u at rest: %" PRIu64 " running, %" PRIu64 " starting, %" PRIu64
                   " steps, %" PRIu64 " blocks, %" PRIu64 " slabs",
                   i, stats->running, stats->starting, stats->steps_in_flight,
                   stats->kv_blocks_used, stats->kv_slabs);
    host->figures.preemptions += stats->preemptions_total;
    host->figures.gave_way += stats->preemptions_priority_total;
    for (uint32_t level = 0; level < WAITING_LEVELS; level++)
        if (replica->below[level])
            scene_fail(host->scene, "replica %u at rest: %u of priority %u could give way", i,
                       replica->below[level], level);
    host->figures.wasted_rows += stats->wasted_rows_total;
    host->figures.moves += stats->kv_moved_total;
    host->figures.ahead += stats->steps_ahead_total;
    host->figures.drafted += stats->tokens_drafted_total;
    host->figures.stood += stats->tokens_accepted_total;
    host->figures.cached += stats->prompt_tokens_cached_total;
    host->figures.cache_waits += stats->cache_waits_total;
    host->figures.cache_evictions += stats->cache_evictions_total;
    host->figures.blocks_out += stats->host_blocks_out_total;
    host->figures.blocks_in += stats->host_blocks_in_total;
    host->figures.chunks_refused += stats->host_refused_total;
    replica->api->memory(replica, 0, &memory);
    if (memory.kv_used || memory.kv_held || memory.scratch_used || memory.scratch_held)
        scene_fail(host->scene,
                   "replica %u at rest holds %" PRIu64 " of %" PRIu64 " bytes of KV, %" PRIu64
                   " of %" PRIu64 " of scratch",
                   i, memory.kv_used, memory.kv_held, memory.scratch_used, memory.scratch_held);
    replica->api->counters(replica, &counters);
    if (counters.synchronizes || counters.pageable_copies || counters.allocations)
        scene_fail(host->scene,
                   "replica %u: %" PRIu64 " waits, %" PRIu64 " pageable copies, %" PRIu64
                   " allocations",
                   i, counters.synchronizes, counters.pageable_copies, counters.allocations);
}

void host_check_rest(struct host *host)
{
    struct server *server = &host->server;
    if (server->live_requests || server->live_sequences || server->models[0].waiting.count ||
        server->load.sequences || server->load.tokens || server->load.input || server->encodings ||
        server->load.results || server->load.running || server->models[0].owed ||
        !list_empty(&server->models[0].waiting.parked))
        scene_fail(host->scene,
                   "at rest: %u requests, %" PRIu64 " sequences, %" PRIu64
                   " waiting, load of %" PRIu64 " sequences, %" PRIu64 " tokens, %" PRIu64 " bytes",
                   server->live_requests, server->live_sequences, server->models[0].waiting.count,
                   server->load.sequences, server->load.tokens, server->load.input);
    for (uint32_t i = 0; i < host->replica_count && !host->scene->failed; i++)
        check_replica(host, i);
    host->figures.stopped = server->counts.finished_stop_total;
    host->figures.full = server->counts.finished_length_total;
    host->figures.cancelled = server->counts.finished_cancelled_total;
    host->figures.deadlines = server->counts.finished_deadline_total;
    host->figures.slow_readers = server->counts.slow_readers_total;
    host->figures.texts_late = server->counts.texts_deadline_total;
    host->figures.texts_cancelled = server->counts.texts_cancelled_total;
    host->figures.texts_dropped = server->counts.texts_dropped_total;
    host->figures.texts_stopped = server->counts.texts_stopped_total;
    host->figures.parked = host->shares.parked;
    host->figures.owed = host->shares.owed;
}
