#include "tests/sim/host.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "daemon/worker/worker_inner.h"
#include "gpu/emu/emu.h"

static struct worker *worker_of(const struct host *host, uint32_t replica)
{
    return host->replicas[replica]->worker; /* NULL: its model sleeps */
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
        if (!worker_of(host, i))
            continue;
        worker_stop(worker_of(host, i));
        if (worker_turn(worker_of(host, i), host->scene->now_us))
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
    sleepers_end(&host->sleepers);
    for (uint32_t i = 0; i < host->replica_count; i++)
        replica_free(host->replicas[i]);
    sleepers_free(&host->sleepers);
    completion_destroy(&host->completions);
    model_text_free(&host->model_text);
    options_free(host->options);
    host->replica_count = 0;
}

/* ---- what can happen ---------------------------------------------------------------------------
 */

static bool halted(const struct host *host, uint32_t replica)
{
    return host->stopped[replica] || !worker_of(host, replica) ||
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
        sleepers_load(&host->sleepers, host->replicas[replica]);
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
        if (worker_of(host, i) && worker_state(worker_of(host, i)) != WORKER_READY)
            return false;
    return true;
}

static void device_failed(struct host *host)
{
    for (uint32_t i = 0; i < host->replica_count && !host->failed; i++) {
        const struct worker *worker = worker_of(host, i);
        if (replica_state(host->replicas[i]) != WORKER_FAILED ||
            sleepers_expect(&host->sleepers, i))
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
    sleepers_hurry(&host->sleepers);
    server_halt(&host->server, host->scene->now_us);
    for (uint32_t i = 0; i < host->replica_count; i++) {
        if (!worker_of(host, i))
            continue;
        host->over |= worker_state(worker_of(host, i)) == WORKER_LOADING;
        worker_stop(worker_of(host, i));
    }
}

static bool all_stopped(const struct host *host)
{
    for (uint32_t i = 0; i < host->replica_count; i++)
        if (worker_of(host, i) && worker_state(worker_of(host, i)) != WORKER_STOPPED)
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

/* A worker that was started anew is another. */
static void turn_sleepers(struct host *host)
{
    host->touched |= sleepers_turn(&host->sleepers, host->scene->now_us);
    for (uint32_t i = 0; i < host->sleepers.count; i++)
        if (sleepers_started(&host->sleepers, i))
            host->stopped[i] = host->woken[i] = false;
}

bool host_thread_due(const struct host *host)
{
    return sleepers_due(&host->sleepers);
}

void host_thread_go_on(struct host *host)
{
    host->device_runs = true; /* it may have given it something to do */
    sleepers_go_on(&host->sleepers);
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
    turn_sleepers(host);
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
        if (!halted(host, i) &&
            !host->replicas[i]->base.api->healthy(&host->replicas[i]->base, host->scene->now_us))
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
    earlier(&due_us, sleepers_next(&host->sleepers));
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
    if (worker_of(host, i))
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
    const struct worker *worker = worker_of(host, i);
    for (uint32_t waits = 0; worker && waits < SCHED_WAITS; waits++)
        if (worker->sched.wants[waits].room != worker->sched.wants[waits].most)
            scene_fail(host->scene, "replica %u at rest keeps blocks for somebody who waits", i);
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
    uint64_t waiting = server_waiting(server);
    bool parked = false;
    for (uint32_t i = 0; i < server->model_count; i++)
        parked |= server->models[i].owed || !list_empty(&server->models[i].waiting.parked);
    if (server->live_requests || server->live_sequences || waiting || server->load.sequences ||
        server->load.tokens || server->load.input || server->encodings || server->load.results ||
        server->load.running || parked)
        scene_fail(host->scene,
                   "at rest: %u requests, %" PRIu64 " sequences, %" PRIu64
                   " waiting, load of %" PRIu64 " sequences, %" PRIu64 " tokens, %" PRIu64 " bytes",
                   server->live_requests, server->live_sequences, waiting, server->load.sequences,
                   server->load.tokens, server->load.input);
    for (uint32_t i = 0; i < host->replica_count && !host->scene->failed; i++)
        check_replica(host, i);
    sleepers_check_rest(&host->sleepers);
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
