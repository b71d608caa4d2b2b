#include "gpu/emu/crew.h"

#include <stdlib.h>
#include <time.h>

#include "gpu/emu/device.h"

/* A thread that has been busy for this long is no longer expected to take what waits. */
#define BUSY_NS 50000u
#define BUSY_FOREVER 1u

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The crew's lock is held. */
static struct CUstream_st *take(struct crew *crew)
{
    struct list *link = NULL;
    for (int i = 0; i < CLASSES && !link; i++)
        link = list_take(&crew->queue[i]);
    if (!link)
        return NULL;
    atomic_fetch_sub_explicit(&crew->waiting, 1, memory_order_relaxed);
    return container_of(link, struct CUstream_st, link);
}

static void *member_main(void *argument)
{
    struct crew_member *member = argument;
    struct crew *crew = member->crew;
    signal_await(&member->wake);
    lock_take(&crew->lock);
    for (;;) {
        struct CUstream_st *stream = crew->stop ? NULL : take(crew);
        if (stream) {
            lock_drop(&crew->lock);
            stream_run(stream, member, 0);
            lock_take(&crew->lock);
            continue;
        }
        if (crew->stop)
            break;
        crew->active--;
        member->idle = true;
        atomic_store_explicit(&member->wake, 0, memory_order_relaxed);
        lock_drop(&crew->lock);
        signal_await(&member->wake);
        lock_take(&crew->lock);
    }
    lock_drop(&crew->lock);
    return NULL;
}

struct crew *crew_make(uint32_t threads)
{
    struct crew *crew = calloc(1, sizeof(*crew));
    if (!crew)
        return NULL;
    for (int i = 0; i < CLASSES; i++)
        list_init(&crew->queue[i]);
    for (; crew->threads < threads; crew->threads++) {
        struct crew_member *member = &crew->member[crew->threads];
        member->crew = crew;
        member->idle = true;
        if (pthread_create(&member->thread, NULL, member_main, member) != 0) {
            crew_join(crew);
            crew_free(crew);
            return NULL;
        }
    }
    return crew;
}

/* The crew's lock is held. Returns an idle member, now counted as active and still to be signalled;
 * NULL when there is none. */
static struct crew_member *rouse(struct crew *crew)
{
    for (uint32_t i = 0; i < crew->threads; i++) {
        struct crew_member *member = &crew->member[i];
        if (member->idle) {
            member->idle = false;
            crew->active++;
            return member;
        }
    }
    return NULL;
}

/* The crew's lock is held: no active thread will come to the queue soon. */
static bool all_stuck(struct crew *crew)
{
    if (crew->active == 0)
        return true;
    if (crew->active == crew->threads)
        return false;
    bool awaited = atomic_load(&crew->awaiting) > 0;
    uint64_t now = now_ns();
    for (uint32_t i = 0; i < crew->threads; i++) {
        uint64_t since = atomic_load_explicit(&crew->member[i].busy_since_ns, memory_order_relaxed);
        if (!crew->member[i].idle && (since == 0 || (!awaited && now - since < BUSY_NS)))
            return false;
    }
    return true;
}

void crew_push(struct crew *crew, struct CUstream_st *stream)
{
    struct crew_member *woken = NULL;
    lock_take(&crew->lock);
    list_append(&crew->queue[stream_head_class(stream)], &stream->link);
    atomic_fetch_add_explicit(&crew->waiting, 1, memory_order_relaxed);
    if (crew->threads > 0 && all_stuck(crew))
        woken = rouse(crew);
    lock_drop(&crew->lock);
    if (woken)
        signal_give(&woken->wake);
}

bool crew_prefers_another(struct crew *crew, enum stream_class class)
{
    if (crew->threads == 0 || class == CLASS_LIGHT ||
        atomic_load_explicit(&crew->waiting, memory_order_relaxed) == 0)
        return false;
    bool other = false;
    lock_take(&crew->lock);
    for (int i = 0; i < (int)class; i++)
        other = other || !list_empty(&crew->queue[i]);
    lock_drop(&crew->lock);
    return other;
}

/* Wakes a thread when streams wait and, by `stuck`, no active thread will come for them. */
static void rouse_for_waiting(struct crew *crew, bool (*stuck)(struct crew *crew))
{
    struct crew_member *woken = NULL;
    lock_take(&crew->lock);
    if (atomic_load_explicit(&crew->waiting, memory_order_relaxed) > 0 && (!stuck || stuck(crew)))
        woken = rouse(crew);
    lock_drop(&crew->lock);
    if (woken)
        signal_give(&woken->wake);
}

void crew_busy(struct crew_member *member, bool share, bool forever)
{
    struct crew *crew = member->crew;
    if (crew->threads == 1)
        return;
    atomic_store(&member->busy_since_ns, forever ? BUSY_FOREVER : now_ns());
    if (atomic_load_explicit(&crew->waiting, memory_order_relaxed) > 0 &&
        (share || atomic_load(&crew->awaiting) > 0))
        rouse_for_waiting(crew, NULL);
}

void crew_light(struct crew_member *member)
{
    atomic_store_explicit(&member->busy_since_ns, 0, memory_order_relaxed);
}

void crew_await_begin(struct crew *crew)
{
    if (crew->threads <= 1)
        return;
    atomic_fetch_add(&crew->awaiting, 1);
    if (atomic_load(&crew->waiting) > 0)
        rouse_for_waiting(crew, all_stuck);
}

void crew_await_end(struct crew *crew)
{
    if (crew->threads > 1)
        atomic_fetch_sub(&crew->awaiting, 1);
}

void crew_join(struct crew *crew)
{
    lock_take(&crew->lock);
    crew->stop = true;
    lock_drop(&crew->lock);
    for (uint32_t i = 0; i < crew->threads; i++) {
        signal_give(&crew->member[i].wake);
        pthread_join(crew->member[i].thread, NULL);
    }
}

void crew_free(struct crew *crew)
{
    free(crew);
}

/* Which go first. */
static bool goes_first(const struct CUstream_st *stream)
{
    return !device_chosen.lazy || stream->priority < 0 || !stream->created;
}

bool crew_step(struct crew *crew, uint64_t choice)
{
    uint64_t ready[2] = {0}; /* by goes_first() */
    for (int i = 0; i < CLASSES; i++) {
        list_each(link, &crew->queue[i])
        {
            const struct CUstream_st *stream = container_of(link, struct CUstream_st, link);
            ready[goes_first(stream)] += !stream_head_hangs(stream);
        }
    }
    const bool first = ready[true] > 0;
    if (ready[first] == 0)
        return false;
    choice %= ready[first];
    for (int i = 0; i < CLASSES; i++) {
        list_each(link, &crew->queue[i])
        {
            struct CUstream_st *stream = container_of(link, struct CUstream_st, link);
            if (stream_head_hangs(stream) || goes_first(stream) != first || choice-- > 0)
                continue;
            list_remove(link);
            atomic_fetch_sub_explicit(&crew->waiting, 1, memory_order_relaxed);
            stream_run(stream, NULL, 1);
            return true;
        }
    }
    return false;
}
