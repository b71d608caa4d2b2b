#include "tests/sim/sleepers.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "daemon/base/host_memory.h"
#include "daemon/base/option_table.h"
#include "daemon/service/check_text.h"
#include "gpu/emu/emu.h"
#include "gpu/memory/host_pages.h"
#include "tests/sim/invariants.h"

#define WRONG(...) scene_fail(sleepers->scene, "sleep: " __VA_ARGS__)
#define MEASURE_STEP (64u << 10)
#define MEASURED_MOST (64u << 20)
#define POOL_GRANULE (2u << 20)

static struct sleepers *present; /* whose threads are taken */

/* ---- threads -----------------------------------------------------------------------------------
 *
 * The linker puts these in the place of the functions that they are named by.
 */

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*start)(void *), void *argument);
int __real_pthread_join(pthread_t thread, void **ret_value);
int __real_worker_start(struct worker *worker, struct error *error);
bool __real_host_memory_read(const char *root, struct host_memory *ret_memory);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*start)(void *), void *argument);
int __wrap_pthread_join(pthread_t thread, void **ret_value);
int __wrap_worker_start(struct worker *worker, struct error *error);
bool __wrap_host_memory_read(const char *root, struct host_memory *ret_memory);

static bool is_ours(const struct sleepers *sleepers, const void *argument)
{
    uintptr_t first = (uintptr_t)&sleepers->sleeper, at = (uintptr_t)argument;
    return at >= first && at < first + sizeof(sleepers->sleeper);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*start)(void *), void *argument)
{
    struct sleepers *sleepers = present;
    if (!sleepers || !is_ours(sleepers, argument))
        return __real_pthread_create(thread, attributes, start, argument);
    if (sleepers->faults && scene_one_in(sleepers->scene, 30))
        return EAGAIN;
    for (uint32_t i = 0; i < 2 * SLEEPERS_MODELS; i++) {
        struct sleepers_thread *slot = &sleepers->threads[i];
        if (slot->there)
            continue;
        *slot = (struct sleepers_thread){.main = start,
                                         .argument = argument,
                                         .there = true,
                                         .end_us = sleepers->scene->now_us +
                                                   scene_below(sleepers->scene, 20000)};
        *thread = (pthread_t)(uintptr_t)slot;
        return 0;
    }
    WRONG("a model has more than two threads");
    return EAGAIN;
}

static bool keeps(const struct sleepers *sleepers, const struct sleepers_thread *thread)
{
    for (uint32_t i = 0; i < sleepers->count; i++)
        if (thread->argument == &sleepers->sleeper.models[i].keeper)
            return true;
    return false;
}

/* One call that copying weights to host memory makes fails, and no other feels it. */
static enum emu_call arm_keeping(struct sleepers *sleepers)
{
    static const struct {
        enum emu_call call;
        cudaError_t error;
    } faults[] = {{EMU_cudaMemcpyAsync, cudaErrorInvalidValue},
                  {EMU_cudaHostRegister, cudaErrorMemoryAllocation},
                  {EMU_cudaStreamCreateWithPriority, cudaErrorMemoryAllocation}};
    uint32_t which = scene_below(sleepers->scene, 8);
    if (!sleepers->faults || which >= sizeof(faults) / sizeof(faults[0]))
        return EMU_CALLS;
    emu_fault_set(faults[which].call, 1, faults[which].error); /* weights are a chunk or two */
    return faults[which].call;
}

static void disarm(enum emu_call call)
{
    if (call != EMU_CALLS)
        emu_fault_set(call, 0, cudaSuccess);
}

static void run(struct sleepers *sleepers, struct sleepers_thread *thread)
{
    bool keeping = keeps(sleepers, thread);
    enum emu_call armed = keeping ? arm_keeping(sleepers) : EMU_CALLS;
    scene_note(sleepers->scene, keeping ? "keeps" : "opens or closes",
               (uint64_t)(thread - sleepers->threads), armed);
    (void)thread->main(thread->argument);
    disarm(armed);
    thread->over = true;
    if (!keeping)
        return;
    const struct keeper *keeper = thread->argument;
    sleepers->figures.kept += keeper->error.code == 0;
    sleepers->figures.keeps_failed += keeper->error.code != 0;
}

int __wrap_pthread_join(pthread_t thread, void **ret_value)
{
    struct sleepers *sleepers = present;
    for (uint32_t i = 0; sleepers && i < 2 * SLEEPERS_MODELS; i++) {
        struct sleepers_thread *slot = &sleepers->threads[i];
        if (!slot->there || thread != (pthread_t)(uintptr_t)slot)
            continue;
        if (!slot->over)
            run(sleepers, slot);
        slot->there = false;
        return 0;
    }
    return __real_pthread_join(thread, ret_value);
}

/* It is turned by the simulation. */
int __wrap_worker_start(struct worker *worker, struct error *error)
{
    struct sleepers *sleepers = present;
    if (!sleepers)
        return __real_worker_start(worker, error);
    if (sleepers->faults && scene_one_in(sleepers->scene, 30))
        return error_set(error, ERR_INTERNAL, "no thread for a worker");
    for (uint32_t i = 0; i < sleepers->count; i++)
        if (sleepers->replicas[i]->worker == worker)
            sleepers->started[i] = worker;
    return 0;
}

/* Others on the machine have taken it, now and then. */
bool __wrap_host_memory_read(const char *root, struct host_memory *ret_memory)
{
    struct sleepers *sleepers = present;
    if (!sleepers)
        return __real_host_memory_read(root, ret_memory);
    bool none = sleepers->faults && scene_one_in(sleepers->scene, 12);
    *ret_memory =
        (struct host_memory){.all = UINT64_C(1) << 40, .left = none ? 0 : UINT64_C(1) << 40};
    return true;
}

bool sleepers_expect(const struct sleepers *sleepers, uint32_t model)
{
    return sleepers->scene && sleeper_expects(&sleepers->sleeper, sleepers->replicas[model]);
}

bool sleepers_started(struct sleepers *sleepers, uint32_t model)
{
    bool started = sleepers->started[model] != NULL;
    sleepers->started[model] = NULL;
    return started;
}

bool sleepers_due(const struct sleepers *sleepers)
{
    for (uint32_t i = 0; sleepers->scene && i < 2 * SLEEPERS_MODELS; i++) {
        const struct sleepers_thread *thread = &sleepers->threads[i];
        if (thread->there && !thread->over && thread->end_us <= sleepers->scene->now_us)
            return true;
    }
    return false;
}

void sleepers_go_on(struct sleepers *sleepers)
{
    uint32_t first = scene_below(sleepers->scene, 2 * SLEEPERS_MODELS);
    for (uint32_t i = 0; i < 2 * SLEEPERS_MODELS; i++) {
        struct sleepers_thread *thread = &sleepers->threads[(first + i) % (2 * SLEEPERS_MODELS)];
        if (!thread->there || thread->over || thread->end_us > sleepers->scene->now_us)
            continue;
        run(sleepers, thread);
        return;
    }
}

void sleepers_hurry(struct sleepers *sleepers)
{
    for (uint32_t i = 0; sleepers->scene && i < 2 * SLEEPERS_MODELS; i++)
        sleepers->threads[i].end_us = sleepers->scene->now_us;
}

time_us sleepers_next(const struct sleepers *sleepers)
{
    time_us next_us = 0;
    for (uint32_t i = 0; sleepers->scene && i < 2 * SLEEPERS_MODELS; i++) {
        const struct sleepers_thread *thread = &sleepers->threads[i];
        if (thread->there && !thread->over && (!next_us || thread->end_us < next_us))
            next_us = thread->end_us;
    }
    return next_us;
}

/* ---- what is refused ---------------------------------------------------------------------------
 */

int sleepers_refuse(struct sleepers *sleepers, struct error *error)
{
    static const int codes[] = {ERR_IO, ERR_NO_MEMORY, ERR_BAD_MODEL};
    if (!sleepers->faults || !scene_one_in(sleepers->scene, 12))
        return 0;
    return error_set(error, codes[scene_below(sleepers->scene, 3)], "as chance has it");
}

void sleepers_change(struct sleepers *sleepers, struct gpu_model *model)
{
    if (sleepers->faults && scene_one_in(sleepers->scene, 16))
        model->hidden++;
}

/* Memory for the weights, or the registering of host memory that has them. */
void sleepers_load(struct sleepers *sleepers, struct replica_worker *replica)
{
    enum emu_call armed = EMU_CALLS;
    if (replica->waking && sleepers->faults && scene_one_in(sleepers->scene, 8))
        armed = scene_one_in(sleepers->scene, 2) ? EMU_cudaMalloc : EMU_cudaHostRegister;
    if (armed != EMU_CALLS)
        emu_fault_set(armed, scene_between(sleepers->scene, 1, 4), cudaErrorMemoryAllocation);
    (void)worker_open(replica->worker);
    disarm(armed);
}

/* ---- room --------------------------------------------------------------------------------------
 */

struct need {
    char model[256];
    uint32_t context_max;
    uint64_t start, fixed, kv; /* bytes to start by; from then on; and what a sequence has */
};

/* Whether an engine starts on a device of so many bytes. */
static bool starts(struct scene *scene, struct need *need, uint64_t bytes)
{
    const struct gpu_options options = {.model = need->model,
                                        .tp = 1,
                                        .pp = 1,
                                        .depth = SLEEPERS_DEPTH,
                                        .slots_max = SLEEPERS_SEQUENCES,
                                        .tokens_max = SLEEPERS_TOKENS,
                                        .context_max = need->context_max};
    struct gpu_engine *engine;
    struct gpu_model facts;
    struct gpu_limits limits;
    struct error error = {.text = "no emulated device"};
    int wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (emu_setup(&(struct emu_options){
            .engine = EMU_STEPPER, .devices = 1, .memory_bytes = MEASURED_MOST}) ||
        gpu_module.open(&options, &engine, &facts, &limits, &error)) {
        scene_fail(scene, "%s is not measured: %s", need->model, error.text);
        return true;
    }
    emu_memory_limit(bytes); /* to the byte, unlike what the device has */
    bool good = gpu_module.start(engine, 0, wake_fd, &error) == 0;
    uint64_t kv = 0;
    for (uint32_t i = 0; i < facts.group_count; i++) /* slabs have up to 8 blocks */
        kv += (need->context_max / facts.block_tokens + 9) * facts.groups[i].block_bytes;
    need->start = bytes;
    need->fixed = emu_live().device_bytes;
    need->kv = (kv / POOL_GRANULE + 1) * POOL_GRANULE;
    if (good)
        (void)gpu_module.stop(engine, 0, NULL);
    gpu_module.close(engine);
    close(wake_fd);
    return good;
}

static const struct need *measure(struct scene *scene, const char *model, uint32_t context_max)
{
    static struct need known[16];
    uint32_t at = 0;
    while (known[at].start && at + 1 < sizeof(known) / sizeof(known[0])) {
        if (strcmp(known[at].model, model) == 0 && known[at].context_max == context_max)
            return &known[at];
        at++;
    }
    uint64_t bytes = MEASURE_STEP;
    known[at].context_max = context_max;
    snprintf(known[at].model, sizeof(known[at].model), "%s", model);
    while (!starts(scene, &known[at], bytes))
        bytes += MEASURE_STEP;
    return &known[at];
}

uint64_t sleepers_room(struct scene *scene, const char *models, uint32_t context_max)
{
    uint64_t start = 0, all = 2 * POOL_GRANULE; /* of the other pool, for a step */
    uint32_t count = 0;
    char name[256];
    while (*models && !scene->failed) {
        size_t length = strcspn(models, ",");
        snprintf(name, sizeof(name), "%.*s", (int)length, models);
        const struct need *need = measure(scene, name, context_max);
        start = need->start > start ? need->start : start;
        all += need->fixed + need->kv;
        count++;
        models += length + (models[length] == ',');
    }
    uint64_t more = 2 * count * POOL_GRANULE * scene_below(scene, 100) / 100;
    if (scene_one_in(scene, 2))
        more = 0; /* none of the large ones beside another */
    return (start > all ? start : all) + more;
}

/* ---- life --------------------------------------------------------------------------------------
 */

void sleepers_make(struct sleepers *sleepers, struct scene *scene, const struct options *options)
{
    struct error error;
    memset(sleepers, 0, sizeof(*sleepers));
    sleepers->scene = scene;
    sleepers->host_before = host_pages_reserved();
    if (model_list_make(options, &sleepers->list, &error)) {
        WRONG("%s", error.text);
        return;
    }
    sleepers->count = sleepers->list.count;
    const struct option *chat = option_find("chat-template", strlen("chat-template"));
    for (uint32_t i = 0; i < sleepers->count; i++) {
        struct options *own = sleepers->list.at[i];
        own->sleep_after =
            1000 * (uint64_t)scene_between(scene, 2, scene_one_in(scene, 2) ? 15 : 300);
        if (scene_one_in(scene, 3))
            own->sleep_after = 0; /* an admin's word, or another model */
        const char *said = options->chat_template; /* the first one's alone, unless it is told */
        if (option_set(own, chat, said, strlen(said), &error) ||
            (i > 0 && check_text_load(&sleepers->texts[i], own, &error)))
            abort();
    }
}

static void give_devices(void *context)
{
    const struct sleepers *sleepers = present;
    struct error error;
    (void)context;
    scene_note(sleepers->scene, "device given", 0, 0);
    (void)gpu_module.device_give(0, &error);
}

void sleepers_begin(struct sleepers *sleepers, struct server *server,
                    struct replica_worker *const *replicas, struct completion_queue *completions,
                    int (*open)(void *context, uint32_t model, const struct replica *replica,
                                struct gpu_engine **ret_engine, struct gpu_model *ret_model,
                                struct gpu_limits *ret_limits, struct error *error),
                    void *context)
{
    const struct sleeper_opener opener = {
        .open = open,
        .give_devices = scene_one_in(sleepers->scene, 2) ? give_devices : NULL,
        .context = context};
    const uint32_t first = 1;
    sleepers->server = server;
    sleepers->replicas = replicas;
    present = sleepers;
    sleeper_begin(&sleepers->sleeper, server, &sleepers->list, completions, &opener,
                  ((1u << sleepers->count) - 1) & ~first);
    for (uint32_t i = 0; i < sleepers->count; i++)
        sleepers->was[i] = server->models[i].sleep.state;
}

void sleepers_end(struct sleepers *sleepers)
{
    if (!sleepers->scene)
        return;
    sleepers->faults = false;
    sleeper_end(&sleepers->sleeper);
    for (uint32_t i = 0; i < 2 * SLEEPERS_MODELS; i++)
        if (sleepers->threads[i].there)
            WRONG("a thread outlives its daemon");
    present = NULL;
}

void sleepers_free(struct sleepers *sleepers)
{
    if (!sleepers->scene)
        return;
    if (!sleepers->may_fail && host_pages_reserved() != sleepers->host_before)
        WRONG("%" PRIu64 " bytes of host memory are left at the end, %" PRIu64 " were there before",
              host_pages_reserved(), sleepers->host_before);
    for (uint32_t i = 0; i < SLEEPERS_MODELS; i++)
        model_text_free(&sleepers->texts[i]);
    model_list_free(&sleepers->list);
}

/* ---- what must hold ----------------------------------------------------------------------------
 */

static void note_state(struct sleepers *sleepers, uint32_t number)
{
    const struct model_sleep *sleep = &sleepers->server->models[number].sleep;
    enum model_state was = sleepers->was[number];
    sleepers->was[number] = sleep->state;
    if (was == sleep->state)
        return;
    scene_note(sleepers->scene, model_sleep_word(&sleepers->server->models[number]), number, was);
    if (was == MODEL_WAKING && sleep->state == MODEL_ASLEEP) {
        sleepers->figures.refused++;
        sleepers->refusals[number] |= UINT64_C(1) << sleep->refusal.code;
    }
    sleepers->figures.made_way += sleep->state == MODEL_FALLING && sleep->gave != 0;
    sleepers->figures.slept += was == MODEL_FALLING && sleep->state == MODEL_ASLEEP;
    sleepers->figures.woke += was == MODEL_WAKING && sleep->state == MODEL_AWAKE;
}

static bool under_way(const struct sleepers *sleepers)
{
    for (uint32_t i = 0; i < 2 * SLEEPERS_MODELS; i++)
        if (sleepers->threads[i].there)
            return true;
    return false;
}

/* What the process holds is what is told of its models, to the byte. */
static void check_host_memory(struct sleepers *sleepers)
{
    uint64_t held = 0, all = host_pages_reserved() - sleepers->host_before;
    for (uint32_t i = 0; i < sleepers->count; i++) {
        const struct replica *replica = &sleepers->replicas[i]->base;
        struct gpu_memory memory;
        replica->api->memory(replica, 0, &memory);
        held += memory.kept_pinned + memory.kept_mapped + memory.host_blocks;
    }
    if (sleepers->host_limit && host_pages_reserved() > sleepers->host_limit)
        WRONG("%" PRIu64 " bytes of host memory are held, at most %" PRIu64, host_pages_reserved(),
              sleepers->host_limit);
    if (held != all)
        WRONG("%" PRIu64 " bytes of host memory are told of, %" PRIu64 " are held", held, all);
}

/* Nothing of it is on its way. */
static void check_device(struct sleepers *sleepers)
{
    uint32_t open = 0;
    for (uint32_t i = 0; i < sleepers->count; i++) {
        const struct served_model *model = &sleepers->server->models[i];
        bool there = sleepers->replicas[i]->worker != NULL;
        open += there;
        if (model->sleep.state == MODEL_ASLEEP && there)
            WRONG("model %u sleeps, and has an engine", i);
        if (model->sleep.state == MODEL_AWAKE && !there)
            WRONG("model %u is awake, and has no engine", i);
        if (model->sleep.state == MODEL_ASLEEP && model->running > 0)
            WRONG("model %u sleeps, and %u sequences run", i, model->running);
    }
    if (invariants_open() != open)
        WRONG("%u engines are open, %u models have one", invariants_open(), open);
    struct emu_live live = emu_live();
    if (open == 0 && (live.device_bytes || live.streams))
        WRONG("all models sleep, and %" PRIu64 " bytes and %u streams are left on the device",
              live.device_bytes, live.streams);
}

/* Who has waited since before this turn for memory that the device did not have finds somebody on
 * its way to sleep, unless all that are awake have yet to stay. */
static void check_way(struct sleepers *sleepers)
{
    const struct server *server = sleepers->server;
    bool waits = false, leaves = false, stays = true;
    for (uint32_t i = 0; i < sleepers->count; i++) {
        const struct model_sleep *sleep = &server->models[i].sleep;
        waits |= sleep->state == MODEL_ASLEEP && sleep->refused_us &&
                 sleep->refusal.code == ERR_DEVICE_MEMORY && sleep->used_us == server->turn_us &&
                 server->models[i].waiting.level_bits;
        leaves |= sleep->state == MODEL_RESTING || sleep->state == MODEL_FALLING;
        stays &= sleep->state != MODEL_AWAKE ||
                 server->turn_us < sleep->since_us + server->options->model_stay;
    }
    if (waits && !leaves && !stays)
        WRONG("a model waits for memory, and nobody makes way");
}

bool sleepers_turn(struct sleepers *sleepers, time_us now_us)
{
    if (!sleepers->scene)
        return false;
    check_way(sleepers);
    for (uint32_t i = 0; i < sleepers->count; i++)
        note_state(sleepers, i);
    bool told = sleeper_turn(&sleepers->sleeper, now_us);
    for (uint32_t i = 0; i < sleepers->count; i++)
        note_state(sleepers, i);
    if (model_sleep_stalled(sleepers->server))
        WRONG("a model makes no progress on its way");
    if (!under_way(sleepers) && !sleepers->may_fail) {
        check_host_memory(sleepers);
        check_device(sleepers);
    }
    return told;
}

void sleepers_check_rest(struct sleepers *sleepers)
{
    if (!sleepers->scene)
        return;
    if (under_way(sleepers))
        WRONG("at rest a thread goes on");
    for (uint32_t i = 0; i < sleepers->count; i++) {
        enum model_state state = sleepers->server->models[i].sleep.state;
        if (state != MODEL_AWAKE && state != MODEL_ASLEEP)
            WRONG("at rest model %u is %s", i, model_sleep_word(&sleepers->server->models[i]));
        if (state == MODEL_AWAKE && sleepers->list.at[i]->sleep_after)
            WRONG("at rest model %u is awake, and its time to sleep has come", i);
    }
}
