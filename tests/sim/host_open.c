#include "tests/sim/host.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/option_table.h"
#include "daemon/sched/kv.h"
#include "daemon/worker/device_module.h"
#include "daemon/worker/worker_inner.h"
#include "tests/sim/invariants.h"

/* Conversations give what was said, whatever the models' own templates do. */
#define TEMPLATE "tests/sim/said.jinja"

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

/* NULL: there is none for that model. */
static const char *head_of(const char *model)
{
    static const char *const heads[][2] = {
        {"tests/model/data/llama-llama3-f32", "tests/model/heads/llama-llama3-f32.part"},
        {"tests/model/data/qwen3-default-bf16", "tests/model/heads/qwen3-default-bf16.own"}};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        if (strcmp(model, heads[i][0]) == 0)
            return heads[i][1];
    return NULL;
}

/* A draft model, in some runs the model itself or a head for it: its guesses fall where it does not
 * know of a sequence's adapter, or of tokens that stand in the cache and were said without it. */
static void draw_draft_model(struct host *host, const struct host_setup *setup)
{
    static const char other[] =
        "tests/model/data/mistral-window-bf16"; /* it looks back 16 tokens */
    struct scene *scene = host->scene;
    bool computes = strcmp(setup->model, "synthetic:null") != 0;
    if (!computes || setup->models || setup->tp * setup->pp > 1 || !scene_one_in(scene, 2))
        return;
    set_word(host, "speculate", "draft");
    const char *head = head_of(setup->model),
               *alike = scene_one_in(scene, 2) ? setup->model : other;
    set_word(host, "draft-model", head && scene_one_in(scene, 2) ? head : alike);
}

/* As large as they are measured, in every other run: then the device has no room for two. */
static void draw_stay(struct host *host)
{
    set(host, "model-stay", scene_between(host->scene, 1, 100), "ms");
    if (!scene_one_in(host->scene, 2))
        return;
    set(host, "steps-in-flight", SLEEPERS_DEPTH, "");
    set(host, "sequences-max", SLEEPERS_SEQUENCES, "");
    set(host, "step-tokens", SLEEPERS_TOKENS, "");
}

static void draw_options(struct host *host, const struct host_setup *setup)
{
    struct scene *scene = host->scene;
    set_word(host, "model", setup->models ? setup->models : setup->model);
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
    if (setup->models)
        draw_stay(host);
}

/* By which a model runs; the daemon's where there is one. */
static struct options *options_of(const struct host *host, uint32_t index)
{
    return host->sleepers.scene ? host->sleepers.list.at[index] : host->options;
}

/* Slabs of few blocks, so that growing, emptying and preempting happen in small runs. */
static void draw_memory(struct host *host, const struct host_setup *setup, uint32_t index,
                        uint64_t block_bytes)
{
    struct scene *scene = host->scene;
    struct options *daemons = host->options;
    host->options = options_of(host, index);
    uint64_t slab_blocks = scene_between(scene, 1, 8);
    set(host, "slab-size", slab_blocks * block_bytes, "");
    set(host, "host-cache", scene_one_in(scene, 3) ? 0 : scene_between(scene, 8, 300) * block_bytes,
        "");
    if (setup->tight) {
        uint64_t need = setup->context_max / 32 + 1;
        set(host, "kv-max", (need + scene_below(scene, 12)) * block_bytes, "");
    }
    host->options = daemons;
}

static void wake(void *context)
{
    struct host *host = context;
    host->touched = true;
}

static struct gpu_options engine_options(const struct host *host, uint32_t index)
{
    static const int numbers[] = {0, 1, 2, 3};
    struct gpu_options options = device_module_options(options_of(host, index), numbers);
    options.host_limit = host->sleepers.host_limit;
    options.adapters = host->adapters_given;
    options.adapter_count = host->adapters.count;
    return options;
}

static uint64_t block_bytes_of(const struct host *host, uint32_t index)
{
    const struct gpu_options options = engine_options(host, index);
    struct gpu_model model;
    struct error error;
    if (gpu_module.check(&options, &model, &error))
        scene_fail(host->scene, "%s", error.text);
    else if (model.groups[0].block_bytes)
        return model.groups[0].block_bytes;
    return 256;
}

static int open_engine(const struct host *host, uint32_t index, struct gpu_kept *kept,
                       struct gpu_engine **ret_engine, struct gpu_model *ret_model,
                       struct gpu_limits *ret_limits, struct error *error)
{
    struct gpu_options options = engine_options(host, index);
    options.kept = kept;
    int rc = gpu_module.open(&options, ret_engine, ret_model, ret_limits, error);
    if (!rc)
        invariants_add(*ret_engine, ret_model, ret_limits);
    return rc;
}

/* For the sleeper, as daemon/service/models.c has it. */
static int open_again(void *context, uint32_t index, const struct replica *replica,
                      struct gpu_engine **ret_engine, struct gpu_model *ret_model,
                      struct gpu_limits *ret_limits, struct error *error)
{
    struct host *host = context;
    struct gpu_kept *kept = container_of(replica, const struct replica_worker, base)->kept;
    int rc = sleepers_refuse(&host->sleepers, error);
    rc = rc ? rc : open_engine(host, index, kept, ret_engine, ret_model, ret_limits, error);
    if (!rc)
        sleepers_change(&host->sleepers, ret_model);
    return rc;
}

static void open_replica(struct host *host, uint32_t index, struct gpu_model *model,
                         struct gpu_limits *limits)
{
    struct replica_worker **made = &host->replicas[host->replica_count];
    const uint64_t host_limit = host->sleepers.host_limit;
    struct gpu_engine *engine;
    struct gpu_kept *kept = NULL;
    struct error error;
    if ((host_limit && gpu_module.kept_make(host_limit, &kept, &error)) ||
        open_engine(host, index, kept, &engine, model, limits, &error) ||
        replica_make(invariants_api(), engine, model, limits, options_of(host, index),
                     &host->completions, made, &error)) {
        scene_fail(host->scene, "%s", error.text);
        return;
    }
    (*made)->kept = kept;
    if (host->sleepers.scene)
        worker_share((*made)->worker);
    /* One that is as large as the model never pays. */
    if (host->options->speculate == SPECULATE_DRAFT)
        (*made)->worker->sched.options.drafts_always = true;
    (*made)->base.api = shares_api(&host->shares, (*made)->base.api);
    host->replica_count++;
}

/* A replica of each, and the first is awake. */
static void open_sleepers(struct host *host)
{
    struct sleepers *sleepers = &host->sleepers;
    struct server *server = &host->server;
    for (uint32_t i = 0; i < sleepers->count && !host->scene->failed; i++) {
        struct gpu_model model;
        struct gpu_limits limits;
        struct error error;
        const char *names = sleepers->list.at[i]->served_model_name;
        open_replica(host, i, &model, &limits);
        if (host->scene->failed)
            return;
        struct replica *base = &host->replicas[i]->base;
        uint64_t kv_tokens = kv_length_max(&model, &limits);
        if (i == 0)
            server_serve_as(server, names, &model, limits.context_max, kv_tokens, "simulated",
                            &base, 1);
        else if (server_serve_beside(server, &model, names, limits.context_max, kv_tokens, &base, 1,
                                     &error))
            abort();
        server->models[i].text = i == 0 ? &host->model_text : &sleepers->texts[i];
    }
    if (!host->scene->failed)
        sleepers_begin(sleepers, server, host->replicas, &host->completions, open_again, host);
}

static void open_replicas(struct host *host, uint32_t replicas)
{
    struct gpu_model model = {.vocab = 1};
    struct gpu_limits limits = {.context_max = 1};
    for (uint32_t i = 0; i < replicas && !host->scene->failed; i++)
        open_replica(host, 0, &model, &limits);
    struct replica *bases[HOST_REPLICAS];
    for (uint32_t i = 0; i < host->replica_count; i++)
        bases[i] = &host->replicas[i]->base;
    if (host->replica_count > 0)
        server_serve(&host->server, &model, limits.context_max, kv_length_max(&model, &limits),
                     "simulated", bases, host->replica_count);
}

/* Each model's, and host memory for the weights of some of them, or all, or none. */
static void draw_memories(struct host *host, const struct host_setup *setup)
{
    struct sleepers *sleepers = &host->sleepers;
    uint64_t bytes = 0;
    if (!setup->models) {
        draw_memory(host, setup, 0, block_bytes_of(host, 0));
        return;
    }
    sleepers_make(sleepers, host->scene, host->options);
    for (uint32_t i = 0; i < sleepers->count && !host->scene->failed; i++) {
        const struct gpu_options options = engine_options(host, i);
        struct gpu_model model;
        struct error error;
        draw_memory(host, setup, i, block_bytes_of(host, i));
        if (!gpu_module.check(&options, &model, &error))
            bytes += model.weight_bytes + 16 * model.groups[0].block_bytes;
    }
    if (!scene_one_in(host->scene, 4))
        sleepers->host_limit =
            sleepers->host_before + 1 + bytes * scene_between(host->scene, 10, 200) / 100;
}

void host_open(struct host *host, struct scene *scene, const struct host_setup *setup)
{
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
    set_word(host, "chat-template", TEMPLATE);
    draw_memories(host, setup);
    if (scene->failed)
        return;
    completion_init(&host->completions, wake, host);
    if (server_init(&host->server, host->options, &host->completions, scene->random, scene->now_us,
                    &error))
        abort();
    if (model_text_load(&host->model_text, setup->model, &error) ||
        model_text_template(&host->model_text, TEMPLATE, &error))
        abort();
    threads_open(&host->threads, scene, &host->server);
    host->server.models[0].text = &host->model_text;
    host->server.background = &host->threads.background;
    if (setup->models)
        open_sleepers(host);
    else
        open_replicas(host, setup->replicas);
}
