#include "daemon/worker/chunk_thread.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

#include "daemon/base/host_memory.h"
#include "protocol/base/log.h"

enum chunk_job { CHUNK_NONE, CHUNK_ASKED, CHUNK_DONE };

struct chunk_thread {
    const struct gpu_api *api;
    struct gpu_engine *engine;
    void (*ready)(void *context);
    void *context;
    const char *root; /* where the system tells of memory; NULL: there is no thread */
    uint64_t chunk_bytes[GPU_GROUPS_MAX];
    bool has_thread, ends;
    bool told; /* of the refusal that holds on */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum chunk_job job;
    uint32_t group, chunk;
    bool make, good;
};

int chunk_thread_make(const struct gpu_api *api, struct gpu_engine *engine,
                      const struct gpu_model *model, void (*ready)(void *context), void *context,
                      struct chunk_thread **ret_thread, struct error *error)
{
    struct chunk_thread *thread = calloc(1, sizeof(*thread));
    if (thread == NULL)
        return error_set(error, ERR_NO_MEMORY, "no memory for a thread");
    thread->api = api;
    thread->engine = engine;
    thread->ready = ready;
    thread->context = context;
    for (uint32_t g = 0; g < model->group_count; g++)
        thread->chunk_bytes[g] =
            model->groups[g].chunk_blocks * model->groups[g].block_bytes * model->ranks;
    pthread_mutex_init(&thread->lock, NULL);
    pthread_cond_init(&thread->changed, NULL);
    *ret_thread = thread;
    return 0;
}

void chunk_thread_threaded(struct chunk_thread *thread, const char *root)
{
    thread->root = root;
}

/* Others on the machine, and what this process needs more, come before a cache. */
static int check_spare(const struct chunk_thread *thread, struct error *error)
{
    struct host_memory memory;
    uint64_t bytes = thread->chunk_bytes[thread->group];
    if (!thread->root || !host_memory_read(thread->root, &memory) ||
        host_memory_spares(&memory, bytes))
        return 0;
    return error_set(error, ERR_NO_MEMORY,
                     "%" PRIu64 " MiB of %" PRIu64 " are left, too few for %" PRIu64 " more",
                     memory.left >> 20, memory.all >> 20, bytes >> 20);
}

static bool work(struct chunk_thread *thread)
{
    struct error error = {.code = 0};
    if (!thread->make) {
        thread->api->chunk_drop(thread->engine, thread->chunk);
        return true;
    }
    int rc = check_spare(thread, &error);
    if (!rc)
        rc = thread->api->chunk_make(thread->engine, thread->group, thread->chunk, &error);
    if (rc && !thread->told)
        log_line(LOG_NOTICE, "device", "host-cache grows no further now: %s", error.text);
    thread->told = rc != 0;
    return rc == 0;
}

static void *thread_main(void *argument)
{
    struct chunk_thread *thread = argument;
    pthread_mutex_lock(&thread->lock);
    while (!thread->ends) {
        if (thread->job != CHUNK_ASKED) {
            pthread_cond_wait(&thread->changed, &thread->lock);
            continue;
        }
        pthread_mutex_unlock(&thread->lock);
        bool good = work(thread);
        pthread_mutex_lock(&thread->lock);
        thread->good = good;
        thread->job = CHUNK_DONE;
        thread->ready(thread->context);
    }
    pthread_mutex_unlock(&thread->lock);
    return NULL;
}

/* Without a thread, or where none can be had, at once. */
void chunk_thread_ask(struct chunk_thread *thread, uint32_t group, uint32_t chunk, bool make)
{
    pthread_mutex_lock(&thread->lock);
    assert(thread->job == CHUNK_NONE);
    thread->group = group;
    thread->chunk = chunk;
    thread->make = make;
    thread->job = CHUNK_ASKED;
    if (thread->root && !thread->has_thread)
        thread->has_thread = pthread_create(&thread->thread, NULL, thread_main, thread) == 0;
    pthread_cond_signal(&thread->changed);
    if (!thread->has_thread) {
        thread->good = work(thread);
        thread->job = CHUNK_DONE;
        thread->ready(thread->context);
    }
    pthread_mutex_unlock(&thread->lock);
}

bool chunk_thread_told(struct chunk_thread *thread, bool *ret_good)
{
    pthread_mutex_lock(&thread->lock);
    bool done = thread->job == CHUNK_DONE;
    if (done) {
        *ret_good = thread->good;
        thread->job = CHUNK_NONE;
    }
    pthread_mutex_unlock(&thread->lock);
    return done;
}

void chunk_thread_stop(struct chunk_thread *thread)
{
    if (!thread->has_thread)
        return;
    pthread_mutex_lock(&thread->lock);
    thread->ends = true;
    pthread_cond_signal(&thread->changed);
    pthread_mutex_unlock(&thread->lock);
    pthread_join(thread->thread, NULL);
    thread->has_thread = false;
}

void chunk_thread_free(struct chunk_thread *thread)
{
    if (thread == NULL)
        return;
    chunk_thread_stop(thread);
    pthread_cond_destroy(&thread->changed);
    pthread_mutex_destroy(&thread->lock);
    free(thread);
}
