#include "gpu/lanes/copy_crew.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define SLICE ((uint64_t)256 << 10)
#define PAGES ((uint64_t)64 << 10) /* that the kernel maps at once around one that is read */
#define LOOKS 20000u /* before a thread sleeps: some tens of microseconds */

struct slice {
    void *to;
    const void *from;
    uint64_t bytes;
};

struct copy_crew {
    struct slice *slices;
    uint32_t count, room;
    /* How many slices nobody has taken, from the last down; below 0 where threads came too late. */
    atomic_int left;
    atomic_uint copied;
    atomic_uint sleeping;
    atomic_bool stop;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    uint32_t threads;
    pthread_t ids[COPY_CREW_MAX];
};

/* Pages that were not seen before are mapped one by one when they are written, and many at once when
 * one is read: of fresh memory that clients share that is three quarters of a copy's time. */
static void copy(void *to, const void *from, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += PAGES)
        (void)*((const volatile char *)to + at);
    memcpy(to, from, bytes);
}

/* Whoever takes a number may read its slice: the number was stored after it. */
static void take_slices(struct copy_crew *crew)
{
    while (atomic_load_explicit(&crew->left, memory_order_relaxed) > 0) {
        const int number = atomic_fetch_sub(&crew->left, 1) - 1;
        if (number < 0)
            return;
        const struct slice *slice = &crew->slices[number];
        copy(slice->to, slice->from, slice->bytes);
        atomic_fetch_add_explicit(&crew->copied, 1, memory_order_release);
    }
}

/* sleeping goes up before left is looked at, and left before sleeping: one of both sees the other.
 */
static void sleep_until_work(struct copy_crew *crew)
{
    pthread_mutex_lock(&crew->lock);
    atomic_fetch_add(&crew->sleeping, 1);
    while (!atomic_load(&crew->stop) && atomic_load(&crew->left) <= 0)
        pthread_cond_wait(&crew->wake, &crew->lock);
    atomic_fetch_sub(&crew->sleeping, 1);
    pthread_mutex_unlock(&crew->lock);
}

static void *thread_main(void *data)
{
    struct copy_crew *crew = data;
    (void)pthread_setname_np(pthread_self(), "sluice-copies");
    while (!atomic_load(&crew->stop)) {
        take_slices(crew);
        uint32_t looks = 0;
        while (looks < LOOKS && atomic_load_explicit(&crew->left, memory_order_relaxed) <= 0)
            looks++;
        if (looks == LOOKS)
            sleep_until_work(crew);
    }
    return NULL;
}

static void wake_all(struct copy_crew *crew)
{
    pthread_mutex_lock(&crew->lock);
    pthread_cond_broadcast(&crew->wake);
    pthread_mutex_unlock(&crew->lock);
}

int copy_crew_open(struct copy_crew **ret, uint32_t threads, uint64_t bytes, uint32_t copies,
                   struct error *error)
{
    *ret = NULL;
    if (threads == 0)
        return 0;
    assert(threads <= COPY_CREW_MAX);
    struct copy_crew *crew = calloc(1, sizeof(*crew));
    const uint32_t room = (uint32_t)(bytes / SLICE) + copies; /* each has a last, shorter one */
    struct slice *slices = calloc(room, sizeof(*slices));
    if (!crew || !slices) {
        free(crew);
        free(slices);
        return error_set(error, ERR_NO_MEMORY, "no memory for threads that copy");
    }
    crew->slices = slices;
    crew->room = room;
    pthread_mutex_init(&crew->lock, NULL);
    pthread_cond_init(&crew->wake, NULL);
    for (; crew->threads < threads; crew->threads++) {
        int failed = pthread_create(&crew->ids[crew->threads], NULL, thread_main, crew);
        if (failed) {
            copy_crew_close(crew);
            return error_set(error, ERR_INTERNAL, "cannot start a thread that copies: %s",
                             strerror(failed));
        }
    }
    *ret = crew;
    return 0;
}

void copy_crew_close(struct copy_crew *crew)
{
    if (!crew)
        return;
    atomic_store(&crew->stop, true);
    wake_all(crew);
    for (uint32_t i = 0; i < crew->threads; i++)
        pthread_join(crew->ids[i], NULL);
    pthread_mutex_destroy(&crew->lock);
    pthread_cond_destroy(&crew->wake);
    free(crew->slices);
    free(crew);
}

void copy_crew_add(struct copy_crew *crew, void *to, const void *from, uint64_t bytes)
{
    if (!crew || bytes < SLICE) {
        copy(to, from, bytes);
        return;
    }
    for (uint64_t at = 0; at < bytes; at += SLICE) {
        assert(crew->count < crew->room);
        crew->slices[crew->count++] =
            (struct slice){.to = (char *)to + at,
                           .from = (const char *)from + at,
                           .bytes = bytes - at < SLICE ? bytes - at : SLICE};
    }
}

void copy_crew_run(struct copy_crew *crew)
{
    const uint32_t count = crew ? crew->count : 0;
    if (count == 0)
        return;
    crew->count = 0;
    atomic_store_explicit(&crew->copied, 0, memory_order_relaxed);
    atomic_store(&crew->left, (int)count);
    if (count > 1 && atomic_load(&crew->sleeping) > 0)
        wake_all(crew);
    take_slices(crew);
    while (atomic_load_explicit(&crew->copied, memory_order_acquire) < count)
        sched_yield(); /* their last slices: as long as one takes */
}
