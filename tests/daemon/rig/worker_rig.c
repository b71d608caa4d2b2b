#include "tests/daemon/rig/worker_rig.h"

#include <poll.h>
#include <unistd.h>

#include <check.h>

#include "daemon/worker/worker_inner.h"
#include "gpu/emu/emu.h"

static void woken(void *context)
{
    (void)context;
}

static uint64_t kv_of(const struct gpu_options *gpu, const struct worker_rig_options *options)
{
    uint64_t bytes = 0;
    struct gpu_model of;
    struct error error;
    ck_assert_int_eq(gpu_module.check(gpu, &of, &error), 0);
    uint32_t blocks = options->kv_tokens / of.block_tokens + options->kv_more;
    for (uint32_t g = 0; g < of.group_count; g++)
        bytes += blocks * of.groups[g].block_bytes;
    return bytes;
}

/* So many chunks, of a few blocks each. */
static void host_set(struct gpu_options *gpu, uint32_t chunks)
{
    struct gpu_model of;
    struct error error;
    ck_assert_int_eq(gpu_module.check(gpu, &of, &error), 0);
    for (uint32_t g = 0; g < of.group_count; g++)
        if (gpu->host_chunk_bytes < 4 * of.groups[g].block_bytes * of.ranks)
            gpu->host_chunk_bytes = 4 * of.groups[g].block_bytes * of.ranks;
    gpu->host_max = chunks * gpu->host_chunk_bytes;
}

void worker_rig_open(struct worker_rig *rig, const struct worker_rig_options *options)
{
    static const int devices[] = {0, 1, 2, 3};
    struct emu_options emu = {.engine = EMU_THREADS,
                              .memory_bytes = 512u << 20,
                              .devices = 4,
                              .team_threads = 1,
                              .poison = true,
                              .strict = true};
    struct gpu_options gpu = {.model = options->model,
                              .draft_model = options->draft_model,
                              .devices = devices,
                              .cpu_devices = 4,
                              .tp = options->tp,
                              .pp = options->pp,
                              .slots_max = options->slots_max,
                              .kv_dtype = options->kv_fp8 ? GPU_KV_FP8 : GPU_KV_AUTO,
                              .tokens_max = options->chunk,
                              .slab_bytes = 4096};
    struct worker_options worker = {.sched = {.itl_target_us = 50000,
                                              .chunk_every = 4,
                                              .kv_idle_release_us = 2000,
                                              .prefix_cache = options->prefix_cache,
                                              .cache_idle_release_us = 60000000,
                                              .drafts_max = options->drafts_max,
                                              .draft_model = options->draft_model != NULL,
                                              .drafts_always = true,
                                              .stall_us = UINT64_MAX},
                                    .step_timeout_us = 60000000};
    struct gpu_limits limits;
    struct gpu_engine *engine;
    struct error error = {.code = 0};
    ck_assert_int_eq(emu_setup(&emu), cudaSuccess);
    if (options->kv_tokens)
        gpu.kv_max = kv_of(&gpu, options);
    if (options->host_chunks)
        host_set(&gpu, options->host_chunks);
    int rc = gpu_module.open(&gpu, &engine, &rig->model, &limits, &error);
    ck_assert_msg(rc == 0, "%s", error.text);
    worker.ranks = rig->model.ranks;
    completion_init(&rig->completions, woken, NULL);
    rc = worker_create(&gpu_module, engine, &rig->model, &limits, &worker, &rig->completions,
                       &rig->worker, &error);
    ck_assert_msg(rc == 0, "%s", error.text);
    ck_assert_int_eq(worker_open(rig->worker), 0);
    rig->now_us = 1000000;
    rig->ended = rig->awaited = 0;
}

void worker_rig_close(struct worker_rig *rig)
{
    worker_destroy(rig->worker);
    completion_destroy(&rig->completions);
}

void worker_rig_send(struct worker_rig *rig, struct seq *seq)
{
    worker_send(rig->worker, seq);
    worker_wake(rig->worker);
}

static void turn(struct worker_rig *rig)
{
    uint64_t drained;
    unsigned control, flags;
    struct pollfd poll_fd = {.fd = worker_fd(rig->worker), .events = POLLIN};
    if (poll(&poll_fd, 1, 10000) > 0)
        ck_assert_int_eq(read(worker_fd(rig->worker), &drained, sizeof drained), sizeof drained);
    rig->now_us += 100;
    worker_turn(rig->worker, rig->now_us);
    ck_assert_str_eq(sched_check(&rig->worker->sched), "");
    struct mailbox_link *chain = completion_drain(&rig->completions, &control);
    while (completion_next(&chain, &flags) != NULL)
        rig->ended += (flags & COMPLETION_ENDED) != 0;
}

void worker_rig_run(struct worker_rig *rig, uint32_t count)
{
    for (rig->awaited += count; rig->ended < rig->awaited;)
        turn(rig);
}

void worker_rig_generate(struct worker_rig *rig, uint64_t tokens)
{
    const struct stats_worker *stats = worker_rig_stats(rig);
    for (tokens += stats->generated_tokens_total; stats->generated_tokens_total < tokens;)
        turn(rig);
}

const struct stats_worker *worker_rig_stats(const struct worker_rig *rig)
{
    return &rig->worker->stats;
}
