#include "daemon/api/status.h"

#include <string.h>

#include "daemon/base/api_key.h"
#include "daemon/request/server.h"
#include "protocol/base/log.h"
#include "protocol/message.h"

/* ---- health and model --------------------------------------------------------------------------
 */

const char *status_word(const struct server *server, time_us now_us)
{
    if (server->phase == SERVER_FAILED)
        return server->failure.code == ERR_DRAINING ? "draining" : "failed";
    if (server->phase == SERVER_LOADING)
        return "loading";
    if (!server_healthy(server, now_us))
        return "stuck";
    return server->phase == SERVER_DRAINING || server->leaving ? "draining" : "ok";
}

static double progress(const struct server *server)
{
    uint32_t least = 1000;
    for (uint32_t i = 0; i < server->replica_count; i++) {
        uint32_t done = server->replicas[i]->api->progress(server->replicas[i]);
        least = done < least ? done : least;
    }
    return (double)least / 1000;
}

bool status_alive(const struct server *server, time_us now_us)
{
    const char *word = status_word(server, now_us);
    return strcmp(word, "stuck") != 0 && strcmp(word, "failed") != 0;
}

bool status_ready(const struct server *server, time_us now_us)
{
    return strcmp(status_word(server, now_us), "ok") == 0;
}

/* All that are served, by what they are called first; those that are not on their devices, and of
 * these whose last waking was refused; and those whose last reload was. */
static void put_names(const struct server *server, struct json_writer *writer)
{
    json_open(writer, "models", '[');
    for (uint32_t i = 0; i < server->model_count; i++)
        json_put_text(writer, NULL, server->models[i].info.id);
    json_close(writer, ']');
    json_open(writer, "asleep", '[');
    for (uint32_t i = 0; i < server->model_count; i++)
        if (server->models[i].sleep.state != MODEL_AWAKE)
            json_put_text(writer, NULL, server->models[i].info.id);
    json_close(writer, ']');
    json_open(writer, "failing", '[');
    for (uint32_t i = 0; i < server->model_count; i++)
        if (server->models[i].sleep.failing)
            json_put_text(writer, NULL, server->models[i].info.id);
    json_close(writer, ']');
    json_open(writer, "not_reloaded", '[');
    for (uint32_t i = 0; i < server->model_count; i++)
        if (server->models[i].version.refusal.code)
            json_put_text(writer, NULL, server->models[i].info.id);
    json_close(writer, ']');
}

void status_health(const struct server *server, struct json_writer *writer, time_us now_us)
{
    const char *status = status_word(server, now_us);
    json_open(writer, NULL, '{');
    json_put_text(writer, "status", status);
    json_put_bool(writer, "ready", strcmp(status, "ok") == 0);
    json_put_double(writer, "progress", server->phase == SERVER_LOADING ? progress(server) : 1);
    json_put_uint(writer, "uptime_us", now_us - server->started_us);
    json_put_text(writer, "version", SLUICE_VERSION);
    json_put_text(writer, "model", server->models[0].info.id);
    put_names(server, writer);
    json_put_text(writer, "device", server->device);
    json_open(writer, "unreachable", '[');
    for (uint32_t i = 0; i < SERVER_SOCKETS_MAX; i++)
        if (server->lost[i][0])
            json_put_text(writer, NULL, server->lost[i]);
    json_close(writer, ']');
    json_close(writer, '}');
}

static void put_limits(const struct server *server, const struct served_model *model,
                       struct json_writer *writer)
{
    const struct admission_limits *limits = &server->limits;
    json_open(writer, "limits", '{');
    json_put_uint(writer, "context_max", model->context_max);
    json_put_uint(writer, "batch_max", limits->batch_max);
    json_put_uint(writer, "n_max", limits->n_max);
    json_put_uint(writer, "logprobs_max", limits->logprobs_max);
    json_put_uint(writer, "stop_max", limits->stop_max);
    json_put_uint(writer, "frame_max", server->options->frame_max);
    json_put_uint(writer, "connections_max", limits->connections_max);
    json_put_uint(writer, "queue_sequences", limits->sequences_max);
    json_put_uint(writer, "queue_tokens", limits->tokens_max);
    json_put_uint(writer, "results_max", limits->results_max);
    json_put_uint(writer, "priority_max", server->options->priority_max);
    json_close(writer, '}');
}

/* What weights take by format, and a token's keys and values. */
static void put_formats(const struct gpu_model *model, struct json_writer *writer)
{
    json_open(writer, "formats", '{');
    json_open(writer, "weights", '{');
    for (uint32_t i = 0; i < model->format_count; i++)
        json_put_uint(writer, model->formats[i].name, model->formats[i].bytes);
    json_close(writer, '}');
    json_put_text(writer, "kv", model->kv_dtype);
    json_put_uint(writer, "kv_token_bytes", model->kv_token_bytes);
    json_close(writer, '}');
}

/* Where they are, or will come from. */
static const char *weights_word(const struct served_model *model)
{
    struct gpu_memory memory;
    status_model_memory(model, &memory);
    if (model->sleep.state != MODEL_ASLEEP && model->sleep.state != MODEL_WAKING)
        return "device";
    return memory.kept_mapped > 0 ? "mapped" : memory.kept_pinned > 0 ? "pinned" : "files";
}

void status_reload(const struct server *server, const struct served_model *served,
                   struct json_writer *writer)
{
    const struct error *refusal = &served->version.refusal;
    json_put_uint(writer, "model_version", served->version.number + 1);
    json_put_text(writer, "reload", model_reload_word(server, served));
    if (refusal->code) {
        json_put_text(writer, "reload_code", error_name(refusal->code));
        json_put_text(writer, "reload_error", refusal->text);
    }
}

void status_model(const struct server *server, const struct served_model *served,
                  struct json_writer *writer)
{
    const struct gpu_model *model = &served->info;
    json_open(writer, NULL, '{');
    json_put_text(writer, "model", model->id);
    json_put_text(writer, "state", model_sleep_word(served));
    json_put_text(writer, "weights", weights_word(served));
    status_reload(server, served, writer);
    json_put_text(writer, "architecture", model->arch);
    json_put_text(writer, "dtype", model->dtype);
    json_put_text(writer, "kv_dtype", model->kv_dtype);
    json_put_bool(writer, "invariant", model->invariant);
    json_put_text(writer, "device", server->device);
    json_put_uint(writer, "vocabulary", model->vocab);
    json_put_uint(writer, "hidden", model->hidden);
    json_put_uint(writer, "layers", model->layers);
    json_put_uint(writer, "parameters", model->parameters);
    json_put_uint(writer, "weight_bytes", model->weight_bytes);
    json_put_uint(writer, "step_parameters", model->step_parameters);
    json_put_uint(writer, "experts", model->experts);
    json_put_uint(writer, "experts_per_token", model->experts_per_token);
    json_put_uint(writer, "kv_token_bytes", model->kv_token_bytes);
    put_formats(model, writer);
    json_put_uint(writer, "block_tokens", model->block_tokens);
    json_put_bool(writer, "text", model_text_texts(served->text, NULL) == 0);
    json_open(writer, "eos_token_ids", '[');
    for (uint32_t i = 0; i < model->eos_count; i++)
        json_put_int(writer, NULL, model->eos[i]);
    json_close(writer, ']');
    put_limits(server, served, writer);
    json_close(writer, '}');
}

/* ---- stats -------------------------------------------------------------------------------------
 */

static void put_buckets(struct json_writer *writer, const struct hist *hist)
{
    json_open(writer, "buckets", '[');
    for (uint32_t i = 0; i < HIST_BUCKETS; i++) {
        if (hist->bucket[i] == 0)
            continue;
        json_open(writer, NULL, '[');
        json_put_uint(writer, NULL, i);
        json_put_uint(writer, NULL, hist->bucket[i]);
        json_close(writer, ']');
    }
    json_close(writer, ']');
}

static void put_hist(struct json_writer *writer, const char *name, const struct hist *hist,
                     bool buckets)
{
    json_open(writer, name, '{');
    json_put_uint(writer, "count", hist->count);
    json_put_double(writer, "mean_us",
                    hist->count ? (double)hist->sum_us / (double)hist->count : 0);
    json_put_uint(writer, "p50_us", hist_percentile(hist, 0.5));
    json_put_uint(writer, "p90_us", hist_percentile(hist, 0.9));
    json_put_uint(writer, "p99_us", hist_percentile(hist, 0.99));
    json_put_uint(writer, "p999_us", hist_percentile(hist, 0.999));
    json_put_uint(writer, "max_us", hist->max_us);
    if (buckets) {
        json_put_uint(writer, "sum_us", hist->sum_us);
        put_buckets(writer, hist);
    }
    json_close(writer, '}');
}

static void put_kind(struct json_writer *writer, enum stats_kind kind,
                     const struct stats_loop *loop, const struct stats_worker *worker, bool buckets)
{
    for (size_t i = 0; i < stats_table_count; i++) {
        const struct stats_entry *entry = &stats_table[i];
        const void *owner = entry->owner == STATS_LOOP ? (const void *)loop : worker;
        if (entry->kind != kind)
            continue;
        if (kind == STATS_HIST)
            put_hist(writer, entry->name, stats_hist(entry, owner), buckets);
        else
            json_put_uint(writer, entry->name, stats_value(entry, owner));
    }
}

static void add_counters(struct gpu_counters *sum, const struct gpu_counters *one)
{
    sum->steps += one->steps;
    sum->graph_steps += one->graph_steps;
    sum->captures += one->captures;
    sum->allocations += one->allocations;
    sum->synchronizes += one->synchronizes;
    sum->pageable_copies += one->pageable_copies;
    sum->steps_ahead += one->steps_ahead;
}

/* seen: devices whose own figures are in the sum, a bit each. */
static void add_replica_memory(struct gpu_memory *sum, const struct replica *replica,
                               uint64_t *seen)
{
    for (uint32_t rank = 0; rank < replica->rank_count; rank++) {
        struct gpu_memory memory = {0};
        const uint64_t bit = UINT64_C(1) << (replica->devices[rank] & 63);
        replica->api->memory(replica, rank, &memory);
        replica_add_memory(sum, &memory);
        if (*seen & bit)
            continue;
        *seen |= bit;
        sum->device_free += memory.device_free;
        sum->device_total += memory.device_total;
    }
}

void status_device(const struct server *server, struct gpu_memory *ret_memory,
                   struct gpu_counters *ret_counters)
{
    *ret_memory = (struct gpu_memory){0};
    *ret_counters = (struct gpu_counters){0};
    uint64_t seen = 0;
    for (uint32_t i = 0; i < server->replica_count; i++) {
        const struct replica *replica = server->replicas[i];
        struct gpu_counters counters = {0};
        replica->api->counters(replica, &counters);
        add_counters(ret_counters, &counters);
        add_replica_memory(ret_memory, replica, &seen);
    }
}

void status_model_memory(const struct served_model *model, struct gpu_memory *ret_memory)
{
    uint64_t seen = 0;
    *ret_memory = (struct gpu_memory){0};
    for (uint32_t i = 0; i < model->replica_count; i++)
        add_replica_memory(ret_memory, model->replicas[i], &seen);
}

static void put_memory(struct json_writer *writer, const struct gpu_memory *memory)
{
    json_open(writer, "memory", '{');
    json_put_uint(writer, "weights", memory->weights);
    json_put_uint(writer, "kv_used", memory->kv_used);
    json_put_uint(writer, "kv_held", memory->kv_held);
    json_put_uint(writer, "scratch_used", memory->scratch_used);
    json_put_uint(writer, "scratch_held", memory->scratch_held);
    json_put_uint(writer, "graphs", memory->graphs);
    json_put_uint(writer, "pinned", memory->pinned);
    json_put_uint(writer, "host_cache", memory->host_blocks);
    json_put_uint(writer, "kept_pinned", memory->kept_pinned);
    json_put_uint(writer, "kept_mapped", memory->kept_mapped);
    json_put_uint(writer, "device_free", memory->device_free);
    json_put_uint(writer, "device_total", memory->device_total);
    json_close(writer, '}');
}

static void put_counters(struct json_writer *writer, const struct gpu_counters *counters)
{
    json_open(writer, "device", '{');
    json_put_uint(writer, "steps", counters->steps);
    json_put_uint(writer, "graph_steps", counters->graph_steps);
    json_put_uint(writer, "captures", counters->captures);
    json_put_uint(writer, "allocations", counters->allocations);
    json_put_uint(writer, "synchronizes", counters->synchronizes);
    json_put_uint(writer, "pageable_copies", counters->pageable_copies);
    json_put_uint(writer, "steps_ahead", counters->steps_ahead);
    json_close(writer, '}');
}

/* One replica: its work, its steps, and the memory of each of its devices. */
static void put_replica(const struct served_model *model, struct replica *replica,
                        struct json_writer *writer)
{
    const struct stats_worker *stats = replica->api->stats(replica);
    struct gpu_counters counters = {0};
    replica->api->counters(replica, &counters);
    json_open(writer, NULL, '{');
    json_put_text(writer, "model", model->info.id);
    json_put_uint(writer, "running", stats->running);
    json_put_uint(writer, "starting", stats->starting);
    json_put_uint(writer, "kv_blocks_used", stats->kv_blocks_used);
    json_put_uint(writer, "kv_blocks_free", stats->kv_blocks_free);
    put_counters(writer, &counters);
    json_open(writer, "gpus", '[');
    for (uint32_t rank = 0; rank < replica->rank_count; rank++) {
        struct gpu_memory memory = {0};
        replica->api->memory(replica, rank, &memory);
        json_open(writer, NULL, '{');
        json_put_uint(writer, "gpu", (uint64_t)replica->devices[rank]);
        put_memory(writer, &memory);
        json_close(writer, '}');
    }
    json_close(writer, ']');
    json_close(writer, '}');
}

/* What the lanes of jobs have done, and what they hold. */
static void put_lanes(const struct job_worker *worker, struct json_writer *writer)
{
    struct gpu_jobs_memory memory;
    struct gpu_jobs_counters counters;
    job_worker_figures(worker, &memory, &counters);
    json_open(writer, "lanes", '{');
    json_put_uint(writer, "chunks", counters.chunks);
    json_put_uint(writer, "pieces", counters.pieces);
    json_put_uint(writer, "bytes_in", counters.bytes_in);
    json_put_uint(writer, "bytes_out", counters.bytes_out);
    json_put_uint(writer, "overlapped", counters.overlapped);
    json_put_uint(writer, "allocations", counters.allocations);
    json_put_uint(writer, "synchronizes", counters.synchronizes);
    json_put_uint(writer, "pageable_copies", counters.pageable_copies);
    json_put_uint(writer, "memory_used", memory.used);
    json_put_uint(writer, "memory_held", memory.held);
    json_put_uint(writer, "pinned", memory.pinned);
    json_close(writer, '}');
}

static void put_devices(const struct server *server, struct json_writer *writer)
{
    struct gpu_memory memory;
    struct gpu_counters counters;
    status_device(server, &memory, &counters);
    put_memory(writer, &memory);
    put_counters(writer, &counters);
    json_open(writer, "replicas", '[');
    for (uint32_t i = 0; i < server->model_count; i++)
        for (uint32_t j = 0; j < server->models[i].replica_count; j++)
            put_replica(&server->models[i], server->models[i].replicas[j], writer);
    json_close(writer, ']');
    if (server->jobs.worker)
        put_lanes(server->jobs.worker, writer);
}

static void put_models(const struct server *server, struct json_writer *writer)
{
    json_open(writer, "models", '[');
    for (uint32_t i = 0; i < server->model_count; i++) {
        const struct served_model *model = &server->models[i];
        struct gpu_memory memory;
        status_model_memory(model, &memory);
        json_open(writer, NULL, '{');
        json_put_text(writer, "name", model->info.id);
        json_put_text(writer, "state", model_sleep_word(model));
        json_put_uint(writer, "sleeps", model->sleep.sleeps_total);
        json_put_uint(writer, "wakes", model->sleep.wakes_total);
        json_put_uint(writer, "reloads", model->version.reloads_total);
        json_put_uint(writer, "reloads_refused", model->version.refusals_total);
        json_put_uint(writer, "waiting", model->waiting.count);
        json_put_uint(writer, "running", model->running);
        json_put_uint(writer, "requests", model->requests);
        json_put_uint(writer, "prompt_tokens", model->prompt_tokens);
        json_put_uint(writer, "generated_tokens", model->generated_tokens);
        json_put_uint(writer, "replicas", model->replica_count);
        put_memory(writer, &memory);
        put_formats(&model->info, writer);
        json_put_bool(writer, "invariant", model->info.invariant);
        json_close(writer, '}');
    }
    json_close(writer, ']');
}

static void put_adapters(const struct server *server, struct json_writer *writer)
{
    json_open(writer, "adapters", '[');
    for (uint32_t i = 0; i < server->adapters.count; i++) {
        const struct served_adapter *adapter = &server->adapters.at[i];
        if (adapter->state < ADAPTER_SERVED)
            continue;
        json_open(writer, NULL, '{');
        json_put_text(writer, "name", adapter->name);
        json_put_uint(writer, "live", adapter->live);
        json_put_uint(writer, "requests", adapter->requests);
        json_put_uint(writer, "prompt_tokens", adapter->prompt_tokens);
        json_put_uint(writer, "generated_tokens", adapter->generated_tokens);
        json_close(writer, '}');
    }
    json_close(writer, ']');
}

/* Of those that run, too. */
static uint64_t tokens_of(const struct request *request)
{
    uint64_t tokens = request->out_tokens;
    for (uint32_t i = 0; request->params.job == JOB_GENERATE && i < request->seq_count; i++)
        if (request->seqs[i].state == SEQ_SENT)
            tokens += seq_out_count(&request->seqs[i]);
    return tokens;
}

static void put_request(const struct server *server, const struct request *request,
                        struct json_writer *writer, time_us now_us)
{
    uint32_t waiting = 0, running = 0;
    for (uint32_t i = 0; i < request->seq_count; i++) {
        waiting += request->seqs[i].state == SEQ_WAITING;
        running += request->seqs[i].state == SEQ_SENT;
    }
    json_open(writer, NULL, '{');
    json_put_uint(writer, "request", request->id);
    json_put_text(writer, "user", request->user->name);
    if (request->user->id < KEY_USER_FIRST)
        json_put_uint(writer, "uid", request->user->id);
    json_put_text(writer, "job", job_name(request->params.job));
    if (request->model)
        json_put_text(writer, "model", request->model->info.id);
    if (request->adapter)
        json_put_text(writer, "adapter", server->adapters.at[request->adapter - 1].name);
    json_put_int(writer, "priority", request->params.priority);
    json_put_uint(writer, "sequences", request->seq_count);
    json_put_uint(writer, "waiting", waiting);
    json_put_uint(writer, "running", running);
    json_put_uint(writer, "tokens", tokens_of(request));
    json_put_uint(writer, "age_us", now_us - request->arrived_us);
    json_close(writer, '}');
}

static void put_requests(const struct server *server, const struct peer *peer,
                         struct json_writer *writer, time_us now_us)
{
    uint32_t listed = 0;
    json_open(writer, "requests", '[');
    for (uint32_t i = 0; i < INDEX_BUCKETS && listed < STATUS_REQUESTS_MAX; i++) {
        list_each(link, &server->by_id.buckets[i])
        {
            const struct request *request = container_of(link, struct request, id_link);
            if ((peer->admin || request->user->id == peer->uid) && listed < STATUS_REQUESTS_MAX) {
                put_request(server, request, writer, now_us);
                listed++;
            }
        }
    }
    json_close(writer, ']');
}

const struct stats_worker *status_figures(struct server *server)
{
    /* The histograms of a worker are large; the stack need not hold them. */
    static struct stats_worker workers;
    memset(&workers, 0, sizeof(workers));
    for (uint32_t i = 0; i < server->replica_count; i++)
        stats_worker_merge(&workers, server->replicas[i]->api->stats(server->replicas[i]));
    server->counts.connections = server->load.connections;
    server->counts.requests = server->live_requests;
    server->counts.waiting = server_waiting(server);
    server->counts.waiting_tokens = server->load.tokens;
    server->counts.jobs_waiting = server->jobs.waiting.count;
    server->counts.jobs_running = server->jobs.running;
    server->counts.tensor_bytes = server->load.tensors;
    server->counts.log_lines_dropped_total = log_dropped();
    server->counts.texts_waiting = server->backlog.waiting_count;
    server->counts.texts_running = server->backlog.running_count;
    server->counts.result_bytes = server->load.results;
    return &workers;
}

void status_stats(struct server *server, const struct peer *peer, const struct message_stats *want,
                  struct json_writer *writer, time_us now_us)
{
    const struct stats_worker *workers = status_figures(server);
    json_open(writer, NULL, '{');
    json_put_uint(writer, "uptime_us", now_us - server->started_us);
    json_open(writer, "counters", '{');
    put_kind(writer, STATS_COUNTER, &server->counts, workers, false);
    json_close(writer, '}');
    json_open(writer, "gauges", '{');
    put_kind(writer, STATS_GAUGE, &server->counts, workers, false);
    json_put_uint(writer, "users", server->users.count);
    json_put_uint(writer, "live_sequences", server->live_sequences);
    json_close(writer, '}');
    json_open(writer, "histograms", '{');
    put_kind(writer, STATS_HIST, &server->counts, workers, want->buckets);
    json_close(writer, '}');
    put_devices(server, writer);
    put_formats(&server->models[0].info, writer);
    put_models(server, writer);
    put_adapters(server, writer);
    if (want->requests)
        put_requests(server, peer, writer, now_us);
    json_close(writer, '}');
}
