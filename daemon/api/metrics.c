/* /metrics: the figures of stats.def as Prometheus text, under the names that operators know from
 * vLLM where there is one, with the prefix sluice_. Buckets begin at 0.5 ms, those of steps at 50
 * us. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "daemon/api/metrics.h"
#include "daemon/api/status.h"
#include "daemon/base/stats.h"
#include "daemon/request/server.h"
#include "gpu/gpu.h"

/* The page is read every 50 ms by some, and most of its lines are buckets: their edges in seconds
 * are texts already. */
struct edge {
    uint64_t us;
    const char *seconds;
};
static const struct edge edges[] = {
    {500, "0.0005"},     {1000, "0.001"},  {2000, "0.002"},    {4000, "0.004"},
    {6000, "0.006"},     {10000, "0.01"},  {20000, "0.02"},    {40000, "0.04"},
    {60000, "0.06"},     {80000, "0.08"},  {100000, "0.1"},    {150000, "0.15"},
    {250000, "0.25"},    {500000, "0.5"},  {750000, "0.75"},   {1000000, "1"},
    {2500000, "2.5"},    {5000000, "5"},   {10000000, "10"},   {20000000, "20"},
    {40000000, "40"},    {80000000, "80"}, {160000000, "160"}, {640000000, "640"},
    {2560000000, "2560"}};
static const struct edge step_edges[] = {
    {50, "5e-05"},    {100, "0.0001"},   {250, "0.00025"},  {500, "0.0005"},   {1000, "0.001"},
    {2000, "0.002"},  {4000, "0.004"},   {8000, "0.008"},   {16000, "0.016"},  {32000, "0.032"},
    {64000, "0.064"}, {128000, "0.128"}, {256000, "0.256"}, {512000, "0.512"}, {1000000, "1"},
    {4000000, "4"},   {16000000, "16"},  {60000000, "60"}};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Entries of stats.def that have another name, or are a label of a common one, here. */
struct renamed {
    const char *entry, *name, *label;
};
static const struct renamed renamed[] = {
    {"running", "num_requests_running", NULL},
    {"waiting", "num_requests_waiting", NULL},
    {"generated_tokens_total", "generation_tokens_total", NULL},
    {"preemptions_total", "num_preemptions_total", NULL},
    {"queue_time", "request_queue_time", NULL},
    {"prefill_time", "request_prefill_time", NULL},
    {"decode_time", "request_decode_time", NULL},
    {"time_per_output_token", "request_time_per_output_token", NULL},
    {"end_to_end", "e2e_request_latency", NULL},
    {"step_in", "step_h2d", NULL},
    {"step_out", "step_d2h", NULL},
    {"finished_stop_total", "request_success_total", "finished_reason=\"stop\""},
    {"finished_length_total", "request_success_total", "finished_reason=\"length\""},
    {"finished_cancelled_total", "request_success_total", "finished_reason=\"abort\""},
    {"finished_deadline_total", "request_success_total", "finished_reason=\"deadline\""},
    {"finished_error_total", "request_success_total", "finished_reason=\"error\""},
    {"refused_busy_total", "admission_rejections_total", "reason=\"busy\""},
    {"refused_final_total", "admission_rejections_total", "reason=\"final\""},
};

/* The help of what has several labels. */
static const struct {
    const char *name, *help;
} common_help[] = {
    {"request_success_total", "Sequences that ended, by the reason"},
    {"admission_rejections_total", "Requests refused: for now (busy), or for good (final)"},
};

static const struct renamed *find(const char *entry)
{
    for (size_t i = 0; i < COUNT(renamed); i++)
        if (strcmp(renamed[i].entry, entry) == 0)
            return &renamed[i];
    return NULL;
}

static const char *help_of(const char *name, const char *own)
{
    for (size_t i = 0; i < COUNT(common_help); i++)
        if (strcmp(common_help[i].name, name) == 0)
            return common_help[i].help;
    return own;
}

/* Hundreds of lines, some thousand times a minute: printf would cost more than all else here. */
#define PUT(out, ...) out_words(out, (const char *const[]){__VA_ARGS__, NULL})

#define DIGITS_ROOM 24u /* of 64 bits in decimal */

static const char *digits(char room[DIGITS_ROOM], uint64_t value)
{
    char *at = room + DIGITS_ROOM - 1;
    *at = '\0';
    do
        *--at = (char)('0' + value % 10);
    while ((value /= 10) > 0);
    return at;
}

/* The end of a line. */
static void put_value(struct out *out, uint64_t value)
{
    char room[DIGITS_ROOM];
    PUT(out, " ", digits(room, value), "\n");
}

static void put_type(struct out *out, const char *name, const char *type, const char *help)
{
    PUT(out, "# HELP sluice_", name, " ", help, "\n# TYPE sluice_", name, " ", type, "\n");
}

static void put_hist(struct out *out, const char *name, const char *help, const struct hist *hist)
{
    bool step = strncmp(name, "step_", 5) == 0;
    const struct edge *of = step ? step_edges : edges;
    size_t count = step ? COUNT(step_edges) : COUNT(edges);
    struct hist_walk walk = {0};
    char full[64], bucket[96];
    snprintf(full, sizeof(full), "%s_seconds", name);
    snprintf(bucket, sizeof(bucket), "sluice_%s_bucket{le=\"", full);
    put_type(out, full, "histogram", help);
    for (size_t i = 0; i < count; i++) {
        PUT(out, bucket, of[i].seconds, "\"}");
        put_value(out, hist_count_below(hist, of[i].us, &walk));
    }
    PUT(out, bucket, "+Inf\"}");
    put_value(out, hist->count);
    out_format(out, "sluice_%s_sum %.6f\n", full, (double)hist->sum_us / 1e6);
    PUT(out, "sluice_", full, "_count");
    put_value(out, hist->count);
}

static void put_entry(struct out *out, const struct stats_entry *entry, const void *owner,
                      const char **last)
{
    const struct renamed *other = find(entry->name);
    const char *name = other ? other->name : entry->name;
    if (entry->kind == STATS_HIST) {
        put_hist(out, name, entry->help, stats_hist(entry, owner));
        return;
    }
    if (*last == NULL || strcmp(*last, name) != 0)
        put_type(out, name, entry->kind == STATS_COUNTER ? "counter" : "gauge",
                 help_of(name, entry->help));
    *last = name;
    if (other && other->label)
        PUT(out, "sluice_", name, "{", other->label, "}");
    else
        PUT(out, "sluice_", name);
    put_value(out, stats_value(entry, owner));
}

static void put_number(struct out *out, const char *name, const char *type, const char *help,
                       double value)
{
    put_type(out, name, type, help);
    out_format(out, "sluice_%s %.17g\n", name, value);
}

/* `labels` go before the kind, with a comma behind them. */
static void put_memory(struct out *out, const char *name, const char *labels,
                       const struct gpu_memory *memory)
{
    const struct {
        const char *kind;
        uint64_t bytes;
    } parts[] = {
        {"weights", memory->weights},
        {"kv_used", memory->kv_used},
        {"kv_held", memory->kv_held},
        {"scratch_used", memory->scratch_used},
        {"scratch_held", memory->scratch_held},
        {"graphs", memory->graphs},
        {"pinned", memory->pinned},
        {"host_cache", memory->host_blocks},
        {"kept_pinned", memory->kept_pinned},
        {"kept_mapped", memory->kept_mapped},
        {"device_free", memory->device_free},
        {"device_total", memory->device_total},
    };
    for (size_t i = 0; i < COUNT(parts); i++) {
        PUT(out, "sluice_", name, "{", labels, "kind=\"", parts[i].kind, "\"}");
        put_value(out, parts[i].bytes);
    }
}

/* What is told of all replicas together, of each; and the memory of each device. */
static void put_replicas(struct out *out, const struct server *server)
{
    char name[64], labels[64], room[DIGITS_ROOM];
    for (size_t i = 0; i < stats_table_count; i++) {
        const struct stats_entry *entry = &stats_table[i];
        if (entry->owner == STATS_LOOP || entry->kind == STATS_HIST)
            continue;
        snprintf(name, sizeof(name), "replica_%s", entry->name);
        put_type(out, name, entry->kind == STATS_COUNTER ? "counter" : "gauge", entry->help);
        for (uint32_t r = 0; r < server->replica_count; r++) {
            PUT(out, "sluice_", name, "{replica=\"", digits(room, r), "\"}");
            put_value(out,
                      stats_value(entry, server->replicas[r]->api->stats(server->replicas[r])));
        }
    }
    put_type(out, "gpu_memory_bytes", "gauge", "Memory by its use, of each device");
    for (uint32_t r = 0; r < server->replica_count; r++) {
        const struct replica *replica = server->replicas[r];
        for (uint32_t rank = 0; rank < replica->rank_count; rank++) {
            struct gpu_memory memory = {0};
            replica->api->memory(replica, rank, &memory);
            snprintf(labels, sizeof(labels), "replica=\"%u\",gpu=\"%d\",", r,
                     replica->devices[rank]);
            put_memory(out, "gpu_memory_bytes", labels, &memory);
        }
    }
}

/* A label's value: the model's name is the file system's. */
static void put_label(struct out *out, const char *text)
{
    while (*text) {
        size_t plain = 0;
        while ((unsigned char)text[plain] >= 0x20 && text[plain] != '"' && text[plain] != '\\')
            plain++;
        out_bytes(out, text, plain);
        text += plain;
        if (*text == '"' || *text == '\\')
            PUT(out, *text == '"' ? "\\\"" : "\\\\");
        text += *text != '\0';
    }
}

static void put_user(struct out *out, const char *name, const struct user_figures *figures,
                     uint64_t value)
{
    PUT(out, "sluice_", name, "{user=\"");
    put_label(out, figures->name);
    PUT(out, "\"}");
    put_value(out, value);
}

/* Of users with figures of their own, and of all others together. */
static void put_users(struct out *out, const struct server *server)
{
    const struct users *users = &server->users;
    const struct {
        const char *name, *help;
        size_t offset;
    } series[] = {
        {"user_requests_total", "Requests accepted, by user",
         offsetof(struct user_figures, requests)},
        {"user_refusals_total", "Requests refused, by user",
         offsetof(struct user_figures, refusals)},
        {"user_prompt_tokens_total", "Prompt tokens sent to a replica, by user",
         offsetof(struct user_figures, prompt_tokens)},
        {"user_generation_tokens_total", "Tokens generated, by user",
         offsetof(struct user_figures, generated_tokens)},
    };
    for (size_t i = 0; i < COUNT(series); i++) {
        put_type(out, series[i].name, "counter", series[i].help);
        for (uint32_t u = 0; u <= users->figures_count; u++) {
            const struct user_figures *figures =
                u < users->figures_count ? &users->figures[u] : &users->rest;
            put_user(out, series[i].name, figures,
                     *(const uint64_t *)((const char *)figures + series[i].offset));
        }
    }
}

struct model_figures {
    uint64_t running, waiting, kv_blocks_max;
    double kv_usage;
};

static struct model_figures figures_of(const struct served_model *model)
{
    struct model_figures figures = {.waiting = model->waiting.count};
    uint64_t used = 0;
    for (uint32_t i = 0; i < model->replica_count; i++) {
        const struct stats_worker *stats = model->replicas[i]->api->stats(model->replicas[i]);
        figures.running += stats->running;
        figures.waiting += stats->starting;
        figures.kv_blocks_max += stats->kv_blocks_max;
        used += stats->kv_blocks_used;
    }
    if (figures.kv_blocks_max > 0)
        figures.kv_usage = (double)used / (double)figures.kv_blocks_max;
    return figures;
}

static void put_model(struct out *out, const char *name, const struct served_model *model)
{
    PUT(out, "sluice_", name, "{model=\"");
    put_label(out, model->info.id);
    PUT(out, "\"}");
}

/* Of each, where there are several. */
static void put_models(struct out *out, const struct server *server)
{
    static const struct {
        const char *name, *help;
        size_t offset;
    } series[] = {
        {"model_requests_total", "Requests accepted, by model",
         offsetof(struct served_model, requests)},
        {"model_prompt_tokens_total", "Prompt tokens sent to a replica, by model",
         offsetof(struct served_model, prompt_tokens)},
        {"model_generation_tokens_total", "Tokens generated, by model",
         offsetof(struct served_model, generated_tokens)},
        {"model_sleeps_total", "Times that a model fell asleep, by model",
         offsetof(struct served_model, sleep.sleeps_total)},
        {"model_wakes_total", "Times that a model was woken, by model",
         offsetof(struct served_model, sleep.wakes_total)},
    };
    bool several = server->model_count > 1;
    for (size_t i = 0; several && i < COUNT(series); i++) {
        put_type(out, series[i].name, "counter", series[i].help);
        for (uint32_t j = 0; j < server->model_count; j++) {
            const struct served_model *model = &server->models[j];
            put_model(out, series[i].name, model);
            put_value(out, *(const uint64_t *)((const char *)model + series[i].offset));
        }
    }
    for (int run = 0; server->reload_api && run < 2; run++) {
        const char *name = run ? "model_reloads_refused_total" : "model_reloads_total";
        put_type(out, name, "counter",
                 run ? "Versions that did not take over, and the one before stayed, by model"
                     : "Versions of a model that took over, by model");
        for (uint32_t j = 0; j < server->model_count; j++) {
            const struct model_version *version = &server->models[j].version;
            put_model(out, name, &server->models[j]);
            put_value(out, run ? version->refusals_total : version->reloads_total);
        }
    }
    if (server->sleep_api)
        put_type(out, "model_awake", "gauge", "1 while it is on its devices, by model");
    for (uint32_t j = 0; server->sleep_api && j < server->model_count; j++) {
        put_model(out, "model_awake", &server->models[j]);
        put_value(out, server->models[j].sleep.state == MODEL_AWAKE);
    }
    for (int run = 0; several && run < 2; run++) {
        const char *name = run ? "model_num_requests_running" : "model_num_requests_waiting";
        put_type(out, name, "gauge",
                 run ? "Sequences on the device, by model" : "Sequences that wait, by model");
        for (uint32_t j = 0; j < server->model_count; j++) {
            const struct model_figures figures = figures_of(&server->models[j]);
            put_model(out, name, &server->models[j]);
            put_value(out, run ? figures.running : figures.waiting);
        }
    }
}

/* Memory by its use, of each model's devices; where there are several. */
static void put_model_memory(struct out *out, const struct server *server)
{
    static const char name[] = "model_memory_bytes";
    if (server->model_count < 2)
        return;
    put_type(out, name, "gauge", "Memory by its use, by model");
    for (uint32_t i = 0; i < server->model_count; i++) {
        const struct served_model *model = &server->models[i];
        struct gpu_memory memory;
        status_model_memory(model, &memory);
        const struct {
            const char *kind;
            uint64_t bytes;
        } parts[] = {{"weights", memory.weights},
                     {"kv", memory.kv_held},
                     {"scratch", memory.scratch_held},
                     {"pinned", memory.pinned},
                     {"host_cache", memory.host_blocks},
                     {"kept_pinned", memory.kept_pinned},
                     {"kept_mapped", memory.kept_mapped}};
        for (size_t j = 0; j < COUNT(parts); j++) {
            PUT(out, "sluice_", name, "{model=\"");
            put_label(out, model->info.id);
            PUT(out, "\",kind=\"", parts[j].kind, "\"}");
            put_value(out, parts[j].bytes);
        }
    }
}

static void put_adapters(struct out *out, const struct server *server)
{
    const struct {
        const char *name, *help;
        size_t offset;
    } series[] = {
        {"adapter_requests_total", "Requests accepted, by adapter",
         offsetof(struct served_adapter, requests)},
        {"adapter_prompt_tokens_total", "Prompt tokens sent to a replica, by adapter",
         offsetof(struct served_adapter, prompt_tokens)},
        {"adapter_generation_tokens_total", "Tokens generated, by adapter",
         offsetof(struct served_adapter, generated_tokens)},
    };
    for (size_t i = 0; server->adapters.count > 0 && i < COUNT(series); i++) {
        put_type(out, series[i].name, "counter", series[i].help);
        for (uint32_t j = 0; j < server->adapters.count; j++) {
            const struct served_adapter *adapter = &server->adapters.at[j];
            if (!served_adapters_newest(&server->adapters, adapter))
                continue; /* one that leaves, and whose name has come again */
            PUT(out, "sluice_", series[i].name, "{adapter=\"");
            put_label(out, adapter->name);
            PUT(out, "\"}");
            put_value(out, *(const uint64_t *)((const char *)adapter + series[i].offset));
        }
    }
}

/* Of one replica. */
static void put_formats(struct out *out, const struct gpu_model *model)
{
    put_type(out, "weight_bytes", "gauge", "Weights of a replica, by format, scales included");
    for (uint32_t i = 0; i < model->format_count; i++)
        out_format(out, "sluice_weight_bytes{format=\"%s\"} %" PRIu64 "\n", model->formats[i].name,
                   model->formats[i].bytes);
    put_type(out, "kv_token_bytes", "gauge", "Keys and values of a token, scales included");
    out_format(out, "sluice_kv_token_bytes{format=\"%s\"} %" PRIu64 "\n", model->kv_dtype,
               model->kv_token_bytes);
}

/* Programs' names are made of a-z, 0-9, _ and -. */
static void put_programs(struct out *out, const struct server *server)
{
    const struct job_programs *programs = server->jobs.programs;
    const struct {
        const char *name, *help;
        size_t offset;
    } series[] = {
        {"program_jobs_total", "Jobs accepted, by program",
         offsetof(struct job_program, jobs_total)},
        {"program_failed_total", "Jobs that ended with an error, by program",
         offsetof(struct job_program, failed_total)},
        {"program_bytes_in_total", "Bytes of inputs, by program",
         offsetof(struct job_program, bytes_in_total)},
        {"program_bytes_out_total", "Bytes of outputs of jobs that ended well, by program",
         offsetof(struct job_program, bytes_out_total)},
    };
    if (!programs)
        return;
    for (size_t i = 0; i < COUNT(series); i++) {
        put_type(out, series[i].name, "counter", series[i].help);
        for (unsigned j = 0; j < programs->count; j++)
            out_format(out, "sluice_%s{program=\"%s\"} %" PRIu64 "\n", series[i].name,
                       programs->list[j].program.name,
                       *(const uint64_t *)((const char *)&programs->list[j] + series[i].offset));
    }
    put_type(out, "program_off", "gauge", "1 while a program is off since it failed, by program");
    for (unsigned j = 0; j < programs->count; j++)
        out_format(out, "sluice_program_off{program=\"%s\"} %d\n", programs->list[j].program.name,
                   programs->list[j].off);
}

static void put_rest(struct out *out, const struct server *server,
                     const struct stats_worker *workers, time_us now_us)
{
    struct gpu_memory memory;
    struct gpu_counters counters;
    status_device(server, &memory, &counters);
    double kv = workers->kv_blocks_max > 0
                    ? (double)workers->kv_blocks_used / (double)workers->kv_blocks_max
                    : 0;
    put_number(out, "kv_cache_usage_perc", "gauge", "Part of the KV blocks in use, 0 to 1", kv);
    put_number(out, "live_sequences", "gauge", "Sequences accepted and not ended",
               (double)server->live_sequences);
    put_number(out, "users", "gauge", "Users with a connection or a request", server->users.count);
    put_number(out, "uptime_seconds", "gauge", "Since the process began",
               (double)(now_us - server->started_us) / 1e6);
    put_number(out, "ready", "gauge", "1 while requests are served", status_ready(server, now_us));
    put_type(out, "memory_bytes", "gauge", "Memory by its use, of all devices");
    put_memory(out, "memory_bytes", "", &memory);
    put_formats(out, &server->models[0].info);
    put_replicas(out, server);
    put_users(out, server);
    put_models(out, server);
    put_model_memory(out, server);
    put_adapters(out, server);
    put_programs(out, server);
    put_number(out, "graph_steps_total", "counter", "Steps that ran as a captured graph",
               (double)counters.graph_steps);
    put_type(out, "build_info", "gauge", "Always 1; the version and the model are its labels");
    out_text(out, "sluice_build_info{version=\"" SLUICE_VERSION "\",model_name=\"");
    put_label(out, server->models[0].info.id);
    out_text(out, "\"} 1\n");
}

/* ---- by vLLM's names ---------------------------------------------------------------------------
 */

static void put_vllm_type(struct out *out, const char *name, const char *help)
{
    out_format(out, "# HELP vllm:%s %s\n# TYPE vllm:%s gauge\n", name, help, name);
}

static void put_vllm(struct out *out, const struct served_model *model, const char *name,
                     const char *labels, double value)
{
    out_format(out, "vllm:%s{model_name=\"", name);
    put_label(out, model->info.id);
    out_format(out, "\"%s} %.17g\n", labels, value);
}

static void put_names(struct out *out, const struct server *server, const char *label, bool run)
{
    bool first = true;
    out_format(out, ",%s=\"", label);
    for (uint32_t i = 0; i < server->adapters.count; i++) {
        const struct served_adapter *adapter = &server->adapters.at[i];
        if ((run ? adapter->running : adapter->waiting) == 0 ||
            !served_adapters_newest(&server->adapters, adapter))
            continue;
        out_text(out, first ? "" : ",");
        put_label(out, adapter->name);
        first = false;
    }
    out_text(out, "\"");
}

/* Pickers send a request to where its adapter is at work. */
static void put_vllm_adapters(struct out *out, const struct server *server)
{
    static const char name[] = "vllm:lora_requests_info";
    out_format(out, "# HELP %s Always 1; adapters that run and wait\n# TYPE %s gauge\n", name,
               name);
    out_format(out, "%s{model_name=\"", name);
    put_label(out, server->models[0].info.id);
    out_format(out, "\",max_lora=\"%" PRIu32 "\"", server->adapters.places);
    put_names(out, server, "running_lora_adapters", true);
    put_names(out, server, "waiting_lora_adapters", false);
    out_text(out, "} 1\n");
}

/* What routers and pickers for vLLM read, by its names and in its units: a sequence waits until it
 * is in a step, wherever it lies until then. */
static void put_vllm_all(struct out *out, const struct server *server)
{
    char labels[96];
    put_vllm_type(out, "num_requests_running", "Sequences on the device");
    for (uint32_t i = 0; i < server->model_count; i++)
        put_vllm(out, &server->models[i], "num_requests_running", "",
                 (double)figures_of(&server->models[i]).running);
    put_vllm_type(out, "num_requests_waiting", "Sequences that wait for a slot on the device");
    for (uint32_t i = 0; i < server->model_count; i++)
        put_vllm(out, &server->models[i], "num_requests_waiting", "",
                 (double)figures_of(&server->models[i]).waiting);
    put_vllm_type(out, "kv_cache_usage_perc", "Part of the KV blocks in use, 0 to 1");
    for (uint32_t i = 0; i < server->model_count; i++) {
        const struct model_figures figures = figures_of(&server->models[i]);
        put_vllm(out, &server->models[i], "kv_cache_usage_perc", "", figures.kv_usage);
    }
    put_vllm_type(out, "cache_config_info", "Always 1; the KV cache's shape is its labels");
    for (uint32_t i = 0; i < server->model_count; i++) {
        const struct served_model *model = &server->models[i];
        snprintf(labels, sizeof(labels), ",block_size=\"%u\",num_gpu_blocks=\"%" PRIu64 "\"",
                 model->info.block_tokens, figures_of(model).kv_blocks_max);
        put_vllm(out, model, "cache_config_info", labels, 1);
    }
    put_vllm_adapters(out, server);
}

void metrics_write(struct out *out, struct server *server, time_us now_us)
{
    const struct stats_worker *workers = status_figures(server);
    const char *last = NULL;
    for (size_t i = 0; i < stats_table_count; i++) {
        const struct stats_entry *entry = &stats_table[i];
        put_entry(out, entry, entry->owner == STATS_LOOP ? (const void *)&server->counts : workers,
                  &last);
    }
    put_rest(out, server, workers, now_us);
    if (server->options->metrics_vllm)
        put_vllm_all(out, server);
}
