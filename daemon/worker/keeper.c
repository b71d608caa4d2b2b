#include "daemon/worker/keeper.h"

#include <inttypes.h>

#include "daemon/base/host_memory.h"
#include "protocol/base/log.h"

/* Others on the machine come first: files can be read again. */
static int check_spare(uint64_t bytes, struct error *error)
{
    struct host_memory memory;
    if (!host_memory_read("", &memory) || host_memory_spares(&memory, bytes))
        return 0;
    return error_set(error, ERR_NO_MEMORY,
                     "%" PRIu64 " MiB of the machine's %" PRIu64 " are left, too few for %" PRIu64
                     " more",
                     memory.left >> 20, memory.all >> 20, bytes >> 20);
}

static void *thread_main(void *argument)
{
    struct keeper *keeper = argument;
    int rc = 0;
    (void)pthread_setname_np(pthread_self(), "sluice-keep");
    for (uint32_t i = 0; !rc && i < keeper->count; i++) {
        rc = keeper->anew[i] ? check_spare(keeper->bytes, &keeper->error) : 0;
        if (!rc)
            rc = keeper->gpu->keep(keeper->engines[i], &keeper->error);
    }
    if (!rc)
        keeper->error.code = 0;
    atomic_store_explicit(&keeper->done, true, memory_order_release);
    completion_control(keeper->completions, COMPLETION_STOPPED);
    completion_flush(keeper->completions);
    return NULL;
}

void keeper_add(struct keeper *keeper, const struct replica_worker *replica)
{
    uint64_t pinned, mapped;
    if (!replica->kept)
        return;
    replica->gpu->kept_memory(replica->kept, &pinned, &mapped);
    keeper->gpu = replica->gpu;
    keeper->anew[keeper->count] = pinned + mapped == 0;
    keeper->engines[keeper->count++] = replica->engine;
}

void keeper_begin(struct keeper *keeper, struct completion_queue *completions, uint64_t bytes)
{
    keeper->completions = completions;
    keeper->bytes = bytes;
    atomic_store_explicit(&keeper->done, false, memory_order_relaxed);
    /* Without a thread files do. */
    keeper->has_thread = keeper->count > 0 &&
                         pthread_create(&keeper->thread, NULL, thread_main, keeper) == 0;
    if (!keeper->has_thread)
        keeper->count = 0;
}

bool keeper_busy(const struct keeper *keeper)
{
    return keeper->has_thread;
}

void keeper_end(struct keeper *keeper)
{
    if (keeper->has_thread)
        (void)pthread_join(keeper->thread, NULL);
    keeper->has_thread = false;
    keeper->count = 0;
}

void keeper_turn(struct keeper *keeper, const char *model)
{
    if (!keeper->has_thread || !atomic_load_explicit(&keeper->done, memory_order_acquire))
        return;
    keeper_end(keeper);
    const int code = keeper->error.code;
    if (code && code != ERR_DRAINING && !keeper->told)
        log_line(LOG_NOTICE, "model", "%s will wake from its files, not from host memory: %s", model,
                 keeper->error.text);
    else if (!code)
        log_line(LOG_INFO, "model", "%s has its weights in host memory", model);
    keeper->told = code != 0;
}
