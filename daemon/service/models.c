#include "daemon/service/models.h"

#include <inttypes.h>
#include <string.h>

#include "daemon/base/host_memory.h"
#include "daemon/sched/kv.h"
#include "daemon/worker/device_module.h"
#include "daemon/worker/replica.h"
#include "protocol/base/log.h"

/* ---- the device --------------------------------------------------------------------------------
 */

/* Models of different layouts have all devices to choose from. */
static int choose_devices(struct models *models, const struct options *options, struct error *error)
{
    struct options all = *options;
    if (models->list.count == 1)
        return device_module_choose(models->list.at[0], models->numbers, &models->device_count,
                                    error);
    if (models->list.count > 1)
        all.dp = 0;
    int rc = device_module_choose(&all, models->numbers, &models->device_count, error);
    for (uint32_t i = 0; !rc && i < models->list.count; i++)
        rc = device_module_fits(models->list.at[i], error);
    return rc;
}

int models_find(struct models *models, const struct options *options, struct error *error)
{
    int rc = model_list_make(options, &models->list, error);
    if (!rc)
        rc = choose_devices(models, options, error);
    if (!rc)
        rc = adapter_names_read(&models->adapters, options->adapter, error);
    if (!rc)
        rc = adapter_folder_read(&models->folder, options->adapter_dir, error);
    if (rc)
        return rc;
    adapter_names_give(&models->adapters, models->adapters_given);
    return device_module_load(options, &models->gpu, error);
}

void models_free(struct models *models)
{
    model_list_free(&models->list);
}

/* own: what the model runs by. */
static struct gpu_options gpu_options_by(const struct models *models, uint32_t index,
                                         const struct options *own, const int *numbers)
{
    struct gpu_options options = device_module_options(own, numbers);
    options.adapters = models->adapters_given;
    options.adapter_count = index == 0 ? models->adapters.count : 0;
    return options;
}

static struct gpu_options gpu_options_of(const struct models *models, uint32_t index,
                                         const int *numbers)
{
    return gpu_options_by(models, index, models->list.at[index], numbers);
}

/* ---- whether it fits ---------------------------------------------------------------------------
 */

/* Of host-cache, what each replica has. */
static uint64_t host_share(const struct options *options, uint32_t replicas)
{
    if (!options->prefix_cache || options->host_cache == 0)
        return 0;
    if (options->host_cache == OPTION_AUTO)
        return GPU_HOST_AUTO;
    return options->host_cache > replicas ? options->host_cache / replicas : 1; /* 0: none */
}

/* Of so many bytes of a device, what is left to one more model. */
static uint64_t left_of(const struct models *models, const struct options *options, uint64_t bytes)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < models->device_count && !models->alone; i++)
        most = models->taken[i] > most ? models->taken[i] : most;
    bytes = bytes > options->gpu_memory_reserve ? bytes - options->gpu_memory_reserve : 0;
    if (options->gpu_memory_max && bytes > options->gpu_memory_max)
        bytes = options->gpu_memory_max;
    return bytes > most ? bytes - most : 0;
}

/* As for one device, where the options leave it open. */
static int check_files(const struct models *models, uint32_t index, struct gpu_model *ret_model,
                       struct error *error)
{
    const struct gpu_options options = gpu_options_of(models, index, models->numbers);
    struct model_names names;
    int rc = models->gpu->check(&options, ret_model, error);
    if (!rc)
        rc = model_names_read(&names, models->list.at[index]->served_model_name, ret_model->id,
                              error);
    rc = rc ? rc : adapter_names_apart(&models->adapters, &names, error);
    return rc ? rc : adapter_folder_apart(&models->folder, &models->adapters, &names, error);
}

/* What no other process's leaving will mend: with all of their memory to ourselves, the devices
 * would not do. */
static int check_room(const struct models *models, uint32_t index,
                      const struct device_memory *memory, struct layout_facts facts,
                      struct layout *ret_layout, struct error *error)
{
    const struct options *own = models->list.at[index];
    struct gpu_options options = gpu_options_of(models, index, models->numbers);
    struct gpu_model model;
    char reason[LAYOUT_REASON_MAX];
    facts.memory_bytes = left_of(models, own, memory->total_bytes);
    int rc = layout_choose(own, &facts, ret_layout, reason, error);
    if (rc == -ERR_DEVICE_MEMORY)
        rc = -(error->code = ERR_BAD_CONFIG);
    if (rc)
        return rc;
    options.tp = ret_layout->tp;
    options.pp = ret_layout->pp;
    options.host_max = host_share(own, ret_layout->dp);
    rc = models->gpu->check(&options, &model, error);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < model.group_count; i++)
        facts.slab_bytes += model.groups[i].block_bytes * model.groups[i].slab_blocks;
    return layout_check_room(ret_layout, &facts, error);
}

static void take(struct models *models, const struct layout *layout, const struct gpu_model *model)
{
    const uint32_t ranks = layout->tp * layout->pp;
    for (uint32_t i = 0; i < layout->dp * ranks && i < GPU_DEVICES_MAX; i++)
        models->taken[i] += model->weight_bytes / ranks;
}

/* A model is named by its directory where there are several. */
static int say_which(const struct models *models, uint32_t index, int rc, struct error *error)
{
    const struct error inner = *error;
    if (rc && models->list.count > 1)
        error_limit(error, inner.code, inner.limit, inner.value, "%.128s: %s",
                    models->list.at[index]->served_model_name, inner.text);
    return rc;
}

/* What shares a device with models would lose it with them; and of the library that sums between
 * ranks it is not known what it keeps of a context. */
static int check_release(const struct options *options, const struct layout *layout,
                         struct error *error)
{
    if (!options->release_device)
        return 0;
    if (options->program[0])
        return error_set(error, ERR_BAD_CONFIG,
                         "release-device: not with program, whose lanes keep their devices");
    if (layout->tp > 1)
        return error_set(error, ERR_BAD_CONFIG,
                         "release-device: not with tp above 1: NCCL may keep a part of a context");
    return 0;
}

/* free: only what is free now counts as there, and the layout stays. */
static int check(struct models *models, uint32_t index, bool free, struct gpu_model *ret_model,
                 struct error *error)
{
    const struct options *own = models->list.at[index];
    struct device_memory memory;
    struct layout layout;
    char reason[LAYOUT_REASON_MAX];
    const bool several = models->list.count > 1;
    int rc = check_files(models, index, ret_model, error);
    struct layout_facts facts = {.named = !several && own->gpus[0] != '\0',
                                 .weight_bytes = rc ? 0 : ret_model->weight_bytes};
    if (!rc)
        rc = device_module_found(models->gpu, models->numbers, &models->device_count, &memory,
                                 error);
    if (rc)
        return rc;
    facts.devices = models->device_count;
    rc = check_room(models, index, &memory, facts, &layout, error);
    facts.memory_bytes = left_of(models, own, memory.free_bytes);
    if (!rc && free)
        rc = layout_choose(own, &facts, &layout, reason, error);
    if (!rc)
        rc = check_release(own, &layout, error);
    if (rc)
        return rc;
    if (!models->alone)
        take(models, &layout, ret_model);
    models->layouts[index] = layout;
    if (free)
        log_line(LOG_NOTICE, "device", "%s%s%s", several ? own->served_model_name : "",
                 several ? ": " : "", reason);
    return 0;
}

/* One that may sleep need not fit beside the others, and begins so. */
static int check_either(struct models *models, uint32_t index, bool free,
                        struct gpu_model *ret_model, struct error *error)
{
    models->alone = index > 0 && models->list.at[index]->sleep_after > 0;
    int rc = check(models, index, free, ret_model, error);
    models->asleep |= (uint32_t)models->alone << index;
    models->alone = false;
    return say_which(models, index, rc, error);
}

int models_check(struct models *models, uint32_t index, struct gpu_model *ret_model,
                 struct error *error)
{
    return check_either(models, index, false, ret_model, error);
}

int models_layout(struct models *models, struct error *error)
{
    struct gpu_model model;
    int rc = 0;
    for (uint32_t i = 0; !rc && i < models->list.count; i++) {
        const struct options *own = models->list.at[i];
        rc = check_either(models, i, true, &model, error);
        if (!rc && own->context_max > model.context_max)
            log_line(LOG_WARNING, "sluiced",
                     "context-max is %" PRIu64 ", the model supports %u tokens: that holds",
                     own->context_max, model.context_max);
    }
    return rc;
}

/* ---- replicas ----------------------------------------------------------------------------------
 */

/* What all replicas of a model have in common is told of the first. */
struct opened {
    struct replica_worker *replicas[SERVER_REPLICAS_MAX]; /* of all models */
    uint32_t count;
    struct gpu_model model; /* of the last */
    struct gpu_limits limits;
};

static int open_engine(const struct models *models, uint32_t index, const struct options *own,
                       const int *numbers, struct gpu_kept *kept, struct gpu_engine **ret_engine,
                       struct gpu_model *ret_model, struct gpu_limits *ret_limits,
                       struct error *error)
{
    const struct layout *layout = &models->layouts[index];
    struct gpu_options options = gpu_options_by(models, index, own, numbers);
    options.host_limit = models->host_limit;
    options.kept = kept;
    options.tp = layout->tp;
    options.pp = layout->pp;
    options.host_max = host_share(own, layout->dp);
    return models->gpu->open(&options, ret_engine, ret_model, ret_limits, error);
}

/* Which may sleep without an admin's asking, and lose nothing. */
static bool is_kept(const struct models *models, uint32_t index)
{
    const struct options *own = models->list.at[index];
    return own->sleep_after > 0 || models->list.count > 1;
}

static void limit_host(struct models *models)
{
    uint64_t cache = 0, asked = models->list.at[0]->host_memory;
    bool any = false;
    struct host_memory memory;
    for (uint32_t i = 0; i < models->list.count; i++) {
        const struct options *own = models->list.at[i];
        any = any || is_kept(models, i);
        cache += own->host_cache == OPTION_AUTO ? 0 : own->host_cache;
    }
    models->host_limit = asked == OPTION_AUTO ? 0 : asked;
    if (asked != OPTION_AUTO || !any || strcmp(models->gpu->name, "cpu") == 0 ||
        !host_memory_read("", &memory))
        return;
    models->host_limit = memory.all / 2 > cache ? memory.all / 2 : cache;
}

static int make_kept(const struct models *models, uint32_t index, struct gpu_kept **ret_kept,
                     struct error *error)
{
    *ret_kept = NULL;
    return models->host_limit && is_kept(models, index)
               ? models->gpu->kept_make(models->host_limit, ret_kept, error)
               : 0;
}

/* For the sleeper: what is read changes only when another version takes over, and the model is
 * awake then. */
static int open_again(void *context, uint32_t index, const struct replica *replica,
                      struct gpu_engine **ret_engine, struct gpu_model *ret_model,
                      struct gpu_limits *ret_limits, struct error *error)
{
    struct gpu_kept *kept = container_of(replica, const struct replica_worker, base)->kept;
    const struct models *models = context;
    return open_engine(models, index, models->list.at[index], replica->devices, kept, ret_engine,
                       ret_model, ret_limits, error);
}

static void give_devices(void *context)
{
    const struct models *models = context;
    struct error error;
    for (uint32_t i = 0; i < models->device_count; i++)
        if (models->gpu->device_give(models->numbers[i], &error))
            log_line(LOG_ERROR, "device", "device %d is not given back: %s", models->numbers[i],
                     error.text);
}

static void drop_kept(const struct models *models, struct gpu_kept *kept)
{
    if (kept)
        models->gpu->kept_free(kept);
}

static int make_replica(const struct models *models, uint32_t index, const struct options *own,
                        const int *numbers, struct completion_queue *completions,
                        struct replica_worker **ret_replica, struct gpu_model *ret_model,
                        struct gpu_limits *ret_limits, struct error *error)
{
    const struct layout *layout = &models->layouts[index];
    struct gpu_engine *engine;
    struct gpu_kept *kept;
    int rc = make_kept(models, index, &kept, error);
    if (rc)
        return rc;
    rc = open_engine(models, index, own, numbers, kept, &engine, ret_model, ret_limits, error);
    if (rc) {
        drop_kept(models, kept);
        return rc;
    }
    rc = replica_make(models->gpu, engine, ret_model, ret_limits, own, completions, ret_replica,
                      error);
    if (rc) {
        models->gpu->close(engine);
        drop_kept(models, kept);
        return rc;
    }
    (*ret_replica)->kept = kept;
    memcpy((*ret_replica)->base.devices, numbers, layout->tp * layout->pp * sizeof(*numbers));
    return 0;
}

/* For the reloader, whose model may sleep by now if this hung. */
static int open_version(void *context, uint32_t index, const struct options *own,
                        const struct replica *beside, struct completion_queue *completions,
                        struct replica_worker **ret_replica, struct gpu_model *ret_model,
                        struct gpu_limits *ret_limits, struct error *error)
{
    return make_replica(context, index, own, beside->devices, completions, ret_replica, ret_model,
                        ret_limits, error);
}

static int open_replica(const struct models *models, uint32_t index, uint32_t number,
                        struct event_loop *loop, struct opened *opened, struct error *error)
{
    const struct layout *layout = &models->layouts[index];
    const int *numbers = models->numbers + number * layout->tp * layout->pp;
    struct replica_worker *replica;
    if (opened->count == SERVER_REPLICAS_MAX)
        return error_limit(error, ERR_BAD_CONFIG, SERVER_REPLICAS_MAX, opened->count + 1,
                           "dp: at most %d replicas of all models together", SERVER_REPLICAS_MAX);
    int rc = make_replica(models, index, models->list.at[index], numbers, &loop->completions,
                          &replica, &opened->model, &opened->limits, error);
    if (rc)
        return rc;
    if (models->list.count > 1)
        worker_share(replica->worker);
    if (replica->trace)
        trace_name(replica->trace, opened->count, numbers);
    opened->replicas[opened->count++] = replica;
    return 0;
}

static int serve(const struct models *models, struct server *server, uint32_t index,
                 const char *device, const struct opened *opened, uint32_t first,
                 struct error *error)
{
    const uint32_t count = opened->count - first, context = opened->limits.context_max;
    const uint64_t kv_tokens = kv_length_max(&opened->model, &opened->limits);
    const struct options *own = models->list.at[index];
    struct replica *bases[SERVER_REPLICAS_MAX];
    for (uint32_t i = 0; i < count; i++)
        bases[i] = &opened->replicas[first + i]->base;
    if (index > 0)
        return server_serve_beside(server, &opened->model, own->served_model_name, context,
                                   kv_tokens, bases, count, error);
    server_serve_as(server, own->served_model_name, &opened->model, context, kv_tokens, device,
                    bases, count);
    served_adapters_know(&server->adapters, &models->folder, own->adapter_dir);
    return 0;
}

static int open_model(struct models *models, uint32_t index, struct event_loop *loop,
                      struct opened *opened, struct error *error)
{
    const struct layout *layout = &models->layouts[index];
    const uint32_t first = opened->count;
    char name[96];
    int rc =
        device_module_describe(models->gpu, models->numbers, layout->dp * layout->tp * layout->pp,
                               name, sizeof(name), error);
    for (uint32_t i = 0; !rc && i < layout->dp; i++)
        rc = open_replica(models, index, i, loop, opened, error);
    if (!rc)
        rc = serve(models, &loop->server, index, name, opened, first, error);
    return say_which(models, index, rc, error);
}

int models_open(struct models *models, struct event_loop *loop, struct error *error)
{
    struct opened opened = {.count = 0};
    int rc = 0;
    limit_host(models);
    for (uint32_t i = 0; !rc && i < models->list.count; i++)
        rc = open_model(models, i, loop, &opened, error);
    for (uint32_t i = 0; rc && i < opened.count; i++)
        replica_free(opened.replicas[i]);
    const struct sleeper_opener opener = {
        .open = open_again,
        .give_devices = models->list.at[0]->release_device ? give_devices : NULL,
        .context = models};
    if (!rc) {
        sleeper_begin(&loop->sleeper, &loop->server, &models->list, &loop->completions, &opener,
                      models->asleep);
        event_loop_take_models(loop, &models->list, open_version, models);
    }
    return rc ? rc : event_loop_start(loop, &models->list, opened.replicas, opened.count, error);
}

int models_open_none(struct models *models, struct event_loop *loop, struct error *error)
{
    const struct gpu_model none = {.id = ""};
    struct device_memory memory;
    char name[96];
    int rc =
        device_module_found(models->gpu, models->numbers, &models->device_count, &memory, error);
    if (!rc)
        rc = device_module_describe(models->gpu, models->numbers, 1, name, sizeof(name), error);
    if (rc)
        return rc;
    server_serve(&loop->server, &none, 0, 0, name, NULL, 0);
    return event_loop_start(loop, &models->list, NULL, 0, error);
}
