#include "daemon/request/server.h"
#include "daemon/request/constraint_cache.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/net/timeouts.h"
#include "daemon/request/dispatcher.h"
#include "daemon/request/errand.h"
#include "daemon/request/request_builder.h"
#include "daemon/request/request_table.h"
#include "daemon/text/tokenizer.h"
#include "protocol/base/log.h"
#include "protocol/base/mix.h"
#include "protocol/frame.h"
#include "protocol/message.h"

#define RETRY_MIN_MS 10u
#define MAPPINGS_IDLE_BYTES ((uint64_t)1 << 30) /* of memory that clients share, kept for a second */
#define RETRY_MAX_MS 10000u

static void limits_from_options(struct server *server)
{
    const struct options *options = server->options;
    struct admission_limits *limits = &server->limits;
    limits->connections_max = (uint32_t)options->connections_max;
    limits->sequences_max = options->queue_sequences;
    limits->tokens_max = options->queue_tokens;
    limits->batch_max = (uint32_t)options->batch_max;
    limits->n_max = (uint32_t)options->n_max;
    limits->logprobs_max = (uint32_t)options->logprobs_max;
    limits->stop_max = (uint32_t)options->stop_max;
    limits->results_max = options->results_max;
    limits->tensors_max = options->tensors_max;
    server->jobs.waiting.share = (uint32_t)options->min_share;
    for (uint32_t i = 0; i < MODEL_LIST_MAX; i++)
        server->models[i].waiting.share = (uint32_t)options->min_share;
    server->results_freed = true;                             /* there may be more room */
    (void)grants_read(&server->grants, options->users, NULL); /* options_check() has read it */
}

int server_init(struct server *server, const struct options *options,
                struct completion_queue *completions, uint64_t seed, time_us now_us,
                struct error *error)
{
    *server = (struct server){.options = options,
                              .completions = completions,
                              .seed = seed,
                              .next_request = 1,
                              .next_seq = 1,
                              .started_us = now_us,
                              .turn_us = now_us};
    int rc =
        conn_set_init(&server->conns, options, &server->counts, &server->load.input, now_us, error);
    if (rc)
        return rc;
    rc = constraint_cache_make(options->constraints_max, &server->models[0].constraints, error);
    if (rc) {
        conn_set_destroy(&server->conns, now_us);
        return rc;
    }
    list_init(&server->stats_waiters);
    list_init(&server->errands);
    for (uint32_t i = 0; i < MODEL_LIST_MAX; i++) {
        server->models[i].number = i;
        waiting_init(&server->models[i].waiting);
    }
    waiting_init(&server->jobs.waiting);
    job_mappings_init(&server->jobs.mappings, MAPPINGS_IDLE_BYTES);
    deadlines_init(&server->deadlines);
    backlog_init(&server->backlog, 1);
    users_init(&server->users);
    index_init(&server->by_id);
    index_init(&server->by_client);
    server->models[0].kv_tokens = UINT64_MAX; /* not known before a model is served */
    limits_from_options(server);
    return 0;
}

/* Of the next model, which is named. */
static void add_replicas(struct server *server, struct served_model *served,
                         struct replica *const *replicas, uint32_t count)
{
    assert(count > 0 && server->replica_count + count <= SERVER_REPLICAS_MAX);
    size_t length = strnlen(served->names.names[0], sizeof(served->info.id) - 1);
    memcpy(served->info.id, served->names.names[0], length);
    served->info.id[length] = '\0';
    served->load = ++server->loads;
    served->replicas = server->replicas + server->replica_count;
    served->replica_count = count;
    memcpy(served->replicas, replicas, count * sizeof(struct replica *));
    server->replica_count += count;
    server->model_count++;
}

void server_serve_as(struct server *server, const char *names, const struct gpu_model *model,
                     uint32_t context_max, uint64_t kv_tokens, const char *device,
                     struct replica *const *replicas, uint32_t replica_count)
{
    struct adapter_names adapters;
    server->replica_count = server->model_count = 0;
    server->models[0].info = *model;
    server->models[0].context_max = context_max;
    server->models[0].kv_tokens = kv_tokens;
    snprintf(server->device, sizeof(server->device), "%s", device);
    if (replica_count == 0)
        return;
    (void)model_names_read(&server->models[0].names, names, model->id,
                           NULL); /* options_check() has read it */
    (void)adapter_names_read(&adapters, server->options->adapter, NULL); /* likewise */
    served_adapters_set(&server->adapters, &adapters, (uint32_t)server->options->adapters_max);
    add_replicas(server, &server->models[0], replicas, replica_count);
}

void server_serve(struct server *server, const struct gpu_model *model, uint32_t context_max,
                  uint64_t kv_tokens, const char *device, struct replica *const *replicas,
                  uint32_t replica_count)
{
    server_serve_as(server, server->options->served_model_name, model, context_max, kv_tokens,
                    device, replicas, replica_count);
}

int server_serve_beside(struct server *server, const struct gpu_model *model, const char *names,
                        uint32_t context_max, uint64_t kv_tokens, struct replica *const *replicas,
                        uint32_t replica_count, struct error *error)
{
    assert(server->model_count > 0 && server->model_count < MODEL_LIST_MAX);
    struct served_model *served = &server->models[server->model_count];
    int rc = 0;
    if (!served->constraints)
        rc = constraint_cache_beside(server->models[0].constraints, &served->constraints, error);
    if (!rc)
        rc = model_names_read(&served->names, names, model->id, error);
    for (uint32_t i = 0; !rc && i < served->names.count; i++)
        if (server_find_model(server, served->names.names[i]) ||
            served_adapters_find(&server->adapters, served->names.names[i]))
            rc = error_set(error, ERR_BAD_CONFIG, "model: %s is another's name, too",
                           served->names.names[i]);
    if (rc)
        return rc;
    served->info = *model;
    served->context_max = context_max;
    served->kv_tokens = kv_tokens;
    add_replicas(server, served, replicas, replica_count);
    return 0;
}

bool server_has_model(const struct server *server)
{
    return server->model_count > 0;
}

struct served_model *server_find_model(struct server *server, const char *name)
{
    for (uint32_t i = 0; i < server->model_count; i++)
        if (model_names_has(&server->models[i].names, name))
            return &server->models[i];
    return NULL;
}

struct admission_limits server_limits(const struct server *server, const struct served_model *model)
{
    struct admission_limits limits = server->limits;
    limits.context_max = model->context_max;
    limits.kv_tokens = model->kv_tokens;
    return limits;
}

uint64_t server_waiting(const struct server *server)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < MODEL_LIST_MAX; i++)
        count += server->models[i].waiting.count;
    return count;
}

/* ---- jobs --------------------------------------------------------------------------------------
 */

void server_serve_jobs(struct server *server, struct job_programs *programs,
                       struct replica *replica, const struct chunk_limits *limits, uint32_t lanes)
{
    server->jobs.programs = programs;
    server->jobs.replica = replica;
    server->jobs.limits = *limits;
    server->jobs.ahead_bytes = 2 * lanes * limits->bytes;
    server->jobs.ahead_jobs = 2 * lanes * GPU_JOBS_PIECES_MAX;
}

/* What a job counts there: one that goes in pieces leaves room for others beside it. */
static uint64_t ahead_of(const struct server *server, const struct seq *seq)
{
    uint64_t bytes =
        seq->job->in_bytes > seq->job->out_bytes ? seq->job->in_bytes : seq->job->out_bytes;
    uint64_t most = 2 * server->jobs.limits.bytes;
    return bytes < most ? bytes : most;
}

void server_job_sent(struct server *server, const struct seq *seq)
{
    server->jobs.running++;
    server->jobs.running_bytes += ahead_of(server, seq);
}

void server_job_back(struct server *server, const struct seq *seq)
{
    server->jobs.running--;
    server->jobs.running_bytes -= ahead_of(server, seq);
}

void server_ready(struct server *server, time_us now_us)
{
    if (server->phase != SERVER_LOADING)
        return;
    server->phase = server->draining ? SERVER_DRAINING : SERVER_READY;
    server->ready_us = now_us;
    for (uint32_t i = 0; i < server->model_count; i++)
        server->models[i].sleep.used_us = server->models[i].sleep.since_us = now_us;
}

void server_drain(struct server *server)
{
    server->draining = true;
    if (server->phase == SERVER_READY)
        server->phase = SERVER_DRAINING;
}

void server_leave(struct server *server)
{
    server->leaving = true;
}

void server_end(struct server *server)
{
    server->ending = true;
    server_drain(server);
}

void server_halt(struct server *server, time_us now_us)
{
    struct error error;
    error_set(&error, ERR_DRAINING, "the daemon ends");
    server_fail(server, &error, now_us);
}

void server_resume(struct server *server)
{
    if (server->ending)
        return;
    server->draining = false;
    if (server->phase == SERVER_DRAINING)
        server->phase = SERVER_READY;
}

bool server_idle(const struct server *server)
{
    if (server->live_requests > 0 || server->encodings > 0)
        return false;
    return conn_set_idle(&server->conns);
}

void server_reload(struct server *server, const struct options *options)
{
    server->options = options;
    server->conns.options = options;
    limits_from_options(server);
}

bool server_healthy(const struct server *server, time_us now_us)
{
    for (uint32_t i = 0; i < server->replica_count; i++)
        if (!server->replicas[i]->api->healthy(server->replicas[i], now_us))
            return false;
    /* One that has only been loaded ends its reload, and nothing else, when it fails. */
    uint32_t count;
    struct replica *const *others = model_reload_others(server, &count);
    for (uint32_t i = 0; server->reload.state == RELOAD_RETIRING && i < count; i++)
        if (!others[i]->api->healthy(others[i], now_us))
            return false;
    const struct replica *jobs = server->jobs.replica;
    return !model_sleep_stalled(server) && (!jobs || jobs->api->healthy(jobs, now_us));
}

/* What waits here, at the pace of late. */
static double queue_us(const struct server *server)
{
    double us = 0;
    for (uint32_t i = 0; i < server->model_count; i++) {
        const struct served_model *model = &server->models[i];
        double model_us = model->wait_us * (double)model->waiting.count;
        us = us > model_us ? us : model_us;
    }
    double jobs_us = server->jobs.wait_us * (double)server->jobs.waiting.count;
    double texts_us = backlog_wait_us(&server->backlog);
    us = us > jobs_us ? us : jobs_us;
    return us > texts_us ? us : texts_us;
}

/* Until one that is sent to the model's best replica begins. */
static uint64_t least_us(const struct served_model *model)
{
    uint64_t least_us = UINT64_MAX;
    for (uint32_t i = 0; i < model->replica_count; i++) {
        struct replica_room room = model->replicas[i]->api->room(model->replicas[i]);
        if (room.ready && room.wait_us < least_us)
            least_us = room.wait_us;
    }
    return least_us == UINT64_MAX ? 0 : least_us;
}

double server_wait_us(const struct server *server)
{
    uint64_t most_us = 0;
    for (uint32_t i = 0; i < server->model_count; i++) {
        uint64_t us = least_us(&server->models[i]);
        most_us = us > most_us ? us : most_us;
    }
    return queue_us(server) + (double)most_us;
}

uint32_t server_retry_ms(const struct server *server)
{
    /* Half of what waits now is gone by then. */
    double ms = queue_us(server) / 2000.0;
    return ms < RETRY_MIN_MS ? RETRY_MIN_MS : ms > RETRY_MAX_MS ? RETRY_MAX_MS : (uint32_t)ms;
}

uint64_t server_draw(struct server *server)
{
    return mix64(server->seed += 0x9e3779b97f4a7c15u); /* splitmix64 */
}

/* ---- the end of all ----------------------------------------------------------------------------
 */

void server_cancel_all(struct server *server, time_us now_us)
{
    struct error error;
    error_set(&error, ERR_DRAINING, "the daemon ends");
    error.retry_after_ms = 1000;
    errands_end(server, true, &error, now_us);
    for (uint32_t i = 0; i < INDEX_BUCKETS; i++)
        list_each_safe(link, &server->by_id.buckets[i]) request_table_cancel_request(
            server, container_of(link, struct request, id_link), now_us);
}

static void fail_waiting(struct server *server, struct waiting *waiting, time_us now_us)
{
    struct seq *seq;
    waiting_unpark(waiting);
    while ((seq = waiting_first(waiting))) {
        waiting_remove(waiting, seq);
        seq->finish = FINISH_ERROR;
        seq->failure = &server->failure;
        request_table_end(server, seq, now_us);
    }
}

void server_fail(struct server *server, const struct error *error, time_us now_us)
{
    if (server->phase == SERVER_FAILED)
        return;
    server->phase = SERVER_FAILED;
    server->failure = *error;
    struct error told = *error;
    told.retry_after_ms = 1000;
    errands_end(server, true, &told, now_us);
    adapter_tiers_drop(server);
    for (uint32_t i = 0; i < server->model_count; i++)
        fail_waiting(server, &server->models[i].waiting, now_us);
    fail_waiting(server, &server->jobs.waiting, now_us);
}

/* ---- the turn ----------------------------------------------------------------------------------
 */

/* With a reason to end it does, however it comes back. */
static void take_back(struct server *server, struct seq *seq, time_us now_us)
{
    if (seq->handed_back && !seq->cancel_sent && server->phase != SERVER_FAILED) {
        request_table_return(server, seq);
        return;
    }
    if (seq->handed_back && seq->cancel_sent) {
        seq->finish = seq->cancel_reason;
    } else if (seq->handed_back) {
        seq->finish = FINISH_ERROR;
        *seq->failure = server->failure;
    }
    request_table_end(server, seq, now_us);
}

static unsigned take_completions(struct server *server, time_us now_us)
{
    unsigned control = 0, flags;
    struct mailbox_link *chain = completion_drain(server->completions, &control);
    struct seq *seq;
    while ((seq = completion_next(&chain, &flags))) {
        bool owned =
            flags & COMPLETION_ENDED && (!seq->cancel_sent || flags & COMPLETION_CANCEL_SEEN);
        if (owned)
            take_back(server, seq, now_us);
        else if (!(flags & COMPLETION_ENDED))
            request_table_progress(server, seq, now_us);
    }
    return control;
}

static void expire_deadlines(struct server *server, time_us now_us)
{
    struct deadline *first;
    while ((first = deadlines_first(&server->deadlines)) && first->at_us <= now_us)
        request_table_cancel(server, container_of(first, struct seq, deadline), FINISH_DEADLINE,
                             now_us);
}

static void wake_mailed(struct replica *replica)
{
    if (replica->mailed)
        replica->api->wake(replica);
    replica->mailed = false;
}

/* Once a turn, and before output is written: the device works meanwhile. */
static void wake_replicas(struct server *server)
{
    uint32_t count;
    struct replica *const *others = model_reload_others(server, &count);
    for (uint32_t i = 0; i < server->replica_count; i++)
        wake_mailed(server->replicas[i]);
    for (uint32_t i = 0; i < count; i++)
        wake_mailed(others[i]);
    if (server->jobs.replica)
        wake_mailed(server->jobs.replica);
}

/* ---- memory ------------------------------------------------------------------------------------
 */

static void yield_all(struct replica *const *replicas, uint32_t count, const struct replica *to)
{
    for (uint32_t i = 0; i < count; i++)
        if (replicas[i] != to && replica_shares_device(to, replicas[i]))
            replicas[i]->api->yield(replicas[i]);
}

/* One lacks memory of a device: those that it shares it with, of other models or another version of
 * its own, give back what they can do without. */
void server_yield_to(struct server *server, const struct replica *replica)
{
    uint32_t count;
    struct replica *const *others = model_reload_others(server, &count);
    yield_all(server->replicas, server->replica_count, replica);
    yield_all(others, count, replica);
}

static void share_memory(struct server *server)
{
    uint32_t count;
    struct replica *const *others = model_reload_others(server, &count);
    for (uint32_t i = 0; i < server->replica_count; i++)
        if (server->replicas[i]->api->lacks(server->replicas[i]))
            server_yield_to(server, server->replicas[i]);
    for (uint32_t i = 0; i < count; i++)
        if (others[i]->api->lacks(others[i]))
            server_yield_to(server, others[i]);
}

/* ---- figures of the workers --------------------------------------------------------------------
 */

static void ask_workers(struct server *server, time_us now_us)
{
    server->stats_asked_us = now_us;
    for (uint32_t i = 0; i < server->replica_count; i++)
        server->replicas[i]->api->ask_stats(server->replicas[i]);
}

void server_ask_stats(struct server *server, struct stats_waiter *waiter, time_us now_us)
{
    if (server->phase == SERVER_LOADING || server->phase == SERVER_FAILED) {
        waiter->done(waiter, now_us);
        return;
    }
    list_append(&server->stats_waiters, &waiter->link);
    if (!server->stats_asked_us)
        ask_workers(server, now_us);
}

/* Several workers may have told of theirs by one word. */
static bool stats_are_there(const struct server *server)
{
    for (uint32_t i = 0; i < server->replica_count; i++)
        if (!server->replicas[i]->api->stats_there(server->replicas[i]))
            return false;
    return true;
}

/* Answers everybody who waits for them. */
static void tell_stats(struct server *server, time_us now_us)
{
    struct list *link;
    server->stats_asked_us = 0;
    while ((link = list_take(&server->stats_waiters))) {
        struct stats_waiter *waiter = container_of(link, struct stats_waiter, link);
        waiter->done(waiter, now_us);
    }
}

/* What comes of them would be refused. */
static void refuse_drained(struct server *server, time_us now_us)
{
    struct error error;
    if (server->draining && !server->drained && request_builder_phase(server, &error))
        errands_end(server, false, &error, now_us);
    server->drained = server->draining;
}

unsigned server_turn(struct server *server, time_us now_us)
{
    server->turn_us = server->conns.turn_us = now_us;
    unsigned control = take_completions(server, now_us);
    if (control & COMPLETION_MEMORY)
        share_memory(server);
    job_mappings_turn(&server->jobs.mappings, now_us);
    expire_deadlines(server, now_us);
    errands_expire(server, now_us);
    refuse_drained(server, now_us);
    timeouts_expire(&server->conns, now_us);
    conn_set_feed(&server->conns, now_us);
    model_sleep_turn(server, now_us);
    dispatch(server, now_us);
    wake_replicas(server);
    if (server->stats_asked_us &&
        (stats_are_there(server) || server->stats_asked_us + SERVER_STATS_US <= now_us))
        tell_stats(server, now_us);
    conn_set_deliver(&server->conns, now_us);
    wake_replicas(server); /* who was found gone while writing is cancelled */
    conn_set_bury(&server->conns);
    return control;
}

time_us server_due(const struct server *server)
{
    const struct deadline *first = deadlines_first(&server->deadlines);
    time_us due_us = timeouts_due(&server->conns);
    bool parked = !list_empty(&server->jobs.waiting.parked);
    for (uint32_t i = 0; i < server->model_count; i++)
        parked |= !list_empty(&server->models[i].waiting.parked);
    bool unpark = server->results_freed && parked;
    if (!list_empty(&server->conns.dirty) || unpark)
        return server->turn_us;
    if (first && (!due_us || first->at_us < due_us))
        due_us = first->at_us;
    time_us sleep_us = model_sleep_due(server);
    if (sleep_us && (!due_us || sleep_us < due_us))
        due_us = sleep_us;
    time_us reload_us = server->reload.due_us;
    if (reload_us && (!due_us || reload_us < due_us))
        due_us = reload_us;
    time_us texts_us = backlog_due(&server->backlog);
    if (texts_us && (!due_us || texts_us < due_us))
        due_us = texts_us;
    time_us mappings_us = job_mappings_due(&server->jobs.mappings);
    if (mappings_us && (!due_us || mappings_us < due_us))
        due_us = mappings_us;
    time_us stats_us = server->stats_asked_us ? server->stats_asked_us + SERVER_STATS_US : 0;
    if (stats_us && (!due_us || stats_us < due_us))
        due_us = stats_us;
    return due_us;
}

void server_destroy(struct server *server, time_us now_us)
{
    conn_set_destroy(&server->conns, now_us);
    take_completions(server, now_us);
    tell_stats(server, now_us);
    assert(server->live_requests == 0 && server->encodings == 0);
    job_mappings_destroy(&server->jobs.mappings);
    deadlines_destroy(&server->deadlines);
    backlog_destroy(&server->backlog);
    users_free(&server->users);
    for (uint32_t i = 0; i < MODEL_LIST_MAX; i++) {
        tokenizer_scratch_free(server->models[i].scratch);
        constraint_cache_free(server->models[i].constraints);
    }
}
