#include "gpu/emu/stream.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/emu/call.h"
#include "gpu/emu/crew.h"
#include "gpu/emu/device.h"
#include "gpu/emu/team.h"

#define STREAM_MAGIC 0x5354524du

static struct lock all_lock; /* guards the list's head and `alive` when streams are taken from it */
static struct CUstream_st *all;
static uint32_t live_count;

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
/* The calling thread's default streams. */
static _Thread_local struct {
    uint32_t generation;
    struct CUstream_st *stream[DEVICES_MAX];
} per_thread;

/* --- life ------------------------------------------------------------------------------------ */

static struct CUstream_st *take_unused(struct device *device)
{
    for (struct CUstream_st *stream = all; stream; stream = stream->next_all) {
        if (!stream->alive && stream->device == device &&
            atomic_load(&stream->done) == stream->queue.issued)
            return stream;
    }
    return NULL;
}

static struct CUstream_st *make_new(struct device *device)
{
    struct CUstream_st *stream = calloc(1, sizeof(*stream));
    if (!stream)
        return NULL;
    stream->crew = device->crew ? device->crew : crew_make(1);
    if (!stream->crew) {
        free(stream);
        return NULL;
    }
    stream->magic = STREAM_MAGIC;
    stream->device = device;
    stream->wait.stream = stream;
    stream->next_all = all;
    all = stream;
    return stream;
}

struct CUstream_st *stream_make(struct device *device, int priority, bool created)
{
    lock_take(&all_lock);
    struct CUstream_st *stream = take_unused(device);
    if (!stream)
        stream = make_new(device);
    if (stream) {
        lock_take(&stream->lock);
        stream->priority = priority;
        stream->alive = true;
        stream->created = created;
        lock_drop(&stream->lock);
        live_count += created;
    }
    lock_drop(&all_lock);
    return stream;
}

void stream_retire(struct CUstream_st *stream)
{
    lock_take(&all_lock);
    live_count -= stream->created;
    lock_take(&stream->lock);
    stream->alive = false;
    lock_drop(&stream->lock);
    lock_drop(&all_lock);
}

uint32_t stream_live(void)
{
    lock_take(&all_lock);
    uint32_t count = live_count;
    lock_drop(&all_lock);
    return count;
}

void stream_join(void)
{
    for (struct CUstream_st *stream = all; stream; stream = stream->next_all) {
        if (!stream->device->crew)
            crew_join(stream->crew);
    }
}

void stream_reset(void)
{
    while (all) {
        struct CUstream_st *stream = all;
        all = stream->next_all;
        team_stop(stream->team);
        if (!stream->device->crew)
            crew_free(stream->crew);
        fifo_free(&stream->queue);
        free(stream);
    }
    live_count = 0;
}

void stream_await_all(struct device *device)
{
    lock_take(&all_lock);
    struct CUstream_st *stream = all;
    lock_drop(&all_lock);
    for (; stream; stream = stream->next_all) {
        if (stream->device == device)
            stream_await(stream, stream_issued(stream));
    }
}

/* --- handles --------------------------------------------------------------------------------- */

static void thread_ends(void *unused)
{
    (void)unused;
    if (!device_ready() || per_thread.generation != device_generation())
        return;
    for (int i = 0; i < DEVICES_MAX; i++) {
        if (per_thread.stream[i])
            stream_retire(per_thread.stream[i]);
    }
    memset(&per_thread, 0, sizeof(per_thread));
}

static void make_key(void)
{
    if (pthread_key_create(&key, thread_ends) != 0)
        call_abort("no thread key left");
}

static struct CUstream_st *default_of_thread(void)
{
    struct device *device = device_current();
    if (per_thread.generation != device_generation()) {
        memset(&per_thread, 0, sizeof(per_thread));
        per_thread.generation = device_generation();
        pthread_once(&key_once, make_key);
        pthread_setspecific(key, &per_thread);
    }
    struct CUstream_st **slot = &per_thread.stream[device->ordinal];
    if (!*slot)
        *slot = stream_make(device, 0, false);
    return *slot;
}

struct CUstream_st *stream_from(cudaStream_t handle)
{
    if (!handle || handle == cudaStreamLegacy)
        call_abort("the legacy default stream was used");
    if (handle == cudaStreamPerThread)
        return default_of_thread();
    return handle->magic == STREAM_MAGIC && handle->alive ? handle : NULL;
}
