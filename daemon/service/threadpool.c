#include "daemon/service/threadpool.h"

#include <pthread.h>
#include <stdlib.h>

#include "protocol/base/clock.h"
#include "protocol/base/error.h"
#include "protocol/base/list.h"

#define THREADS 4 /* libuv's, where UV_THREADPOOL_SIZE is not set */
#define THREADS_MAX 1024

struct handle {
    uv_work_t work;
    struct threadpool *pool;
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
    task->done(task, clock_now_us());
}

static int run(struct background *background, struct task *task)
{
    struct threadpool *pool = container_of(background, struct threadpool, background);
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

/* How many threads libuv makes, by its own rule. */
static uint32_t thread_count(void)
{
    const char *text = getenv("UV_THREADPOOL_SIZE");
    int count = text ? atoi(text) : THREADS;
    return count < 1 ? 1 : count > THREADS_MAX ? THREADS_MAX : (uint32_t)count;
}

static void *wait_for(void *gate)
{
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

/* Whether so many threads can be had at a time. */
static int try_threads(uint32_t count)
{
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_t threads[THREADS_MAX];
    uint32_t made = 0;
    int rc = 0;
    pthread_mutex_lock(&gate);
    while (made < count && (rc = pthread_create(&threads[made], NULL, wait_for, &gate)) == 0)
        made++;
    pthread_mutex_unlock(&gate);
    while (made > 0)
        pthread_join(threads[--made], NULL);
    pthread_mutex_destroy(&gate);
    return rc;
}

static void nothing(uv_work_t *work)
{
    (void)work;
}

int threadpool_init(struct threadpool *pool, uv_loop_t *uv, void (*worked)(void *context),
                    void *context)
{
    *pool = (struct threadpool){.background = {.run = run, .threads = thread_count()},
                                .uv = uv,
                                .worked = worked,
                                .context = context};
    int rc = try_threads(pool->background.threads);
    if (rc == 0)
        (void)uv_queue_work(uv, &pool->first, nothing, NULL);
    return rc;
}
