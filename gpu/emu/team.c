#include "gpu/emu/team.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "gpu/emu/device.h"
#include "gpu/emu/order.h"
#include "gpu/emu/work.h"

/* A kernel that is over sooner stays on one thread. */
#define SHARE_NS 10000u
/* Kernels of a step follow one another within microseconds and waking a thread takes tens, so a
 * helper looks out for the next kernel for this long before it sleeps. */
#define LOOK_NS 30000u

struct team {
    struct lock lock;
    atomic_uint turn;     /* goes up with every kernel that is shared, and to stop */
    atomic_uint sleeping; /* helpers that wait for a wake-up */
    bool open, stop;      /* helpers may join in; helpers are to end */
    uint32_t helping;
    atomic_uint left; /* signal: the last helper left */
    const struct work *kernel;
    atomic_uint next; /* index to run */
    uint32_t helpers;
    char begin_key, end_key; /* order.h */
    pthread_t thread[];
};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void run_indices(struct team *team, const struct work *work)
{
    uint32_t index;
    while ((index = atomic_fetch_add_explicit(&team->next, 1, memory_order_relaxed)) <
           work->kernel.count)
        work->kernel.function(work->args, index);
}

static void help(struct team *team)
{
    lock_take(&team->lock);
    const struct work *work = team->open ? team->kernel : NULL;
    team->helping += work != NULL;
    lock_drop(&team->lock);
    if (!work)
        return;
    order_take(&team->begin_key);
    run_indices(team, work);
    order_give(&team->end_key);
    lock_take(&team->lock);
    bool last = --team->helping == 0 && !team->open;
    lock_drop(&team->lock);
    if (last)
        signal_give(&team->left);
}

static void pause_briefly(void)
{
#ifdef __x86_64__
    __builtin_ia32_pause();
#endif
}

/* Whether *word became other than `value` within LOOK_NS. */
static bool look(atomic_uint *word, unsigned int value)
{
    uint64_t end_ns = now_ns() + LOOK_NS;
    do {
        for (int i = 0; i < 16; i++) {
            if (atomic_load_explicit(word, memory_order_acquire) != value)
                return true;
            pause_briefly();
        }
    } while (now_ns() < end_ns);
    return false;
}

static void team_turn(struct team *team)
{
    atomic_fetch_add(&team->turn, 1);
    if (atomic_load(&team->sleeping))
        futex_wake(&team->turn, INT32_MAX);
}

static void team_await_turn(struct team *team, unsigned int seen)
{
    if (look(&team->turn, seen))
        return;
    atomic_fetch_add(&team->sleeping, 1);
    while (atomic_load(&team->turn) == seen)
        futex_wait(&team->turn, seen);
    atomic_fetch_sub(&team->sleeping, 1);
}

static void *helper_main(void *argument)
{
    struct team *team = argument;
    for (unsigned int seen = 0;;) {
        team_await_turn(team, seen);
        seen = atomic_load_explicit(&team->turn, memory_order_acquire);
        lock_take(&team->lock);
        bool stop = team->stop;
        lock_drop(&team->lock);
        if (stop)
            return NULL;
        help(team);
    }
}

static struct team *team_make(uint32_t helpers)
{
    struct team *team = calloc(1, sizeof(*team) + helpers * sizeof(pthread_t));
    if (!team)
        return NULL;
    for (; team->helpers < helpers; team->helpers++) {
        if (pthread_create(&team->thread[team->helpers], NULL, helper_main, team) != 0)
            break; /* fewer do the same work */
    }
    return team;
}

void team_stop(struct team *team)
{
    if (!team)
        return;
    lock_take(&team->lock);
    team->stop = true;
    lock_drop(&team->lock);
    team_turn(team);
    for (uint32_t i = 0; i < team->helpers; i++)
        pthread_join(team->thread[i], NULL);
    free(team);
}

static void run_shared(struct team *team, const struct work *work, uint32_t first)
{
    atomic_store_explicit(&team->next, first, memory_order_relaxed);
    order_give(&team->begin_key);
    lock_take(&team->lock);
    team->kernel = work;
    team->open = true;
    atomic_store_explicit(&team->left, 0, memory_order_relaxed);
    lock_drop(&team->lock);
    team_turn(team);
    run_indices(team, work);
    lock_take(&team->lock);
    team->open = false;
    bool wait = team->helping > 0;
    lock_drop(&team->lock);
    if (wait) {
        look(&team->left, 0);
        signal_await(&team->left);
    }
    order_take(&team->end_key);
}

/* In a random rotation, since no order is promised. */
static void run_stepped(const struct work *work)
{
    uint32_t count = work->kernel.count, first = (uint32_t)(device_random() % count);
    for (uint32_t i = 0; i < count; i++)
        work->kernel.function(work->args, (uint32_t)(((uint64_t)first + i) % count));
}

void team_run(struct CUstream_st *stream, const struct work *work)
{
    uint32_t threads = stream->priority < 0 ? device_chosen.team_threads : 1;
    uint32_t count = work->kernel.count, index = 0;
    if (device_chosen.engine == EMU_STEPPER) {
        run_stepped(work);
        return;
    }
    if (threads > 1 && count > 1) {
        if (!stream->team)
            stream->team = team_make(threads - 1);
        /* The first index tells what the rest will cost. Races between indices are looked for
         * whatever they cost. */
        uint64_t begin_ns = now_ns();
        if (!ORDER_SEEN)
            work->kernel.function(work->args, index++);
        if (stream->team && (ORDER_SEEN || (now_ns() - begin_ns) * (count - 1) > SHARE_NS)) {
            run_shared(stream->team, work, index);
            return;
        }
    }
    while (index < count)
        work->kernel.function(work->args, index++);
}
