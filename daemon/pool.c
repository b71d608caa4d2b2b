#include "daemon/pool.h"

#include <stdlib.h>

#include "protocol/base/error.h"
#include "protocol/base/list.h"

struct handle {
    uv_work_t work;
    struct pool *pool;
    struct task *task;
};

/* A thread of the pool. */
static void on_work(uv_work_t *work)
{
    struct task *task = container_of(work, struct handle, work)->task;
    task->work(task);
}

static void on_worked(uv_work_t *work, int status)
{
    struct handle *handle = container_of(work, struct handle, work);
    struct task *task = handle->task;
    (void)status; /* nothing cancels work */
    handle->pool->worked(handle->pool->context);
    free(handle);
    task->done(task);
}

static int run(struct background *background, struct task *task)
{
    struct pool *pool = container_of(background, struct pool, background);
    struct handle *handle = malloc(sizeof(*handle));
    if (!handle)
        return -ERR_NO_MEMORY;
    handle->pool = pool;
    handle->task = task;
    if (uv_queue_work(pool->uv, &handle->work, on_work, on_worked) != 0) {
        free(handle);
        return -ERR_NO_MEMORY;
    }
    return 0;
}

void pool_init(struct pool *pool, uv_loop_t *uv, void (*worked)(void *context), void *context)
{
    *pool =
        (struct pool){.background = {.run = run}, .uv = uv, .worked = worked, .context = context};
}
