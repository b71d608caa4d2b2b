#include "daemon/service/log_writer.h"

#include <assert.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/base/clock.h"
#include "protocol/base/log_ring.h"

#define RING_BYTES ((size_t)1 << 20) /* some 7,000 lines of finished requests */
/* Whole lines, and not more than a pipe takes in one piece: what others write to it stays apart. */
#define WRITE_MAX PIPE_BUF
#define STALL_US 500000u
#define FLUSH_US 5000000u

static_assert(WRITE_MAX > LOG_LINE_MAX, "a line and the newline before it fit into a write");
static_assert(RING_BYTES / 8 >= 16 * LOG_LINE_MAX, "room for grave lines");

static char ring_bytes[RING_BYTES];

static struct {
    pthread_mutex_t lock;
    pthread_cond_t work; /* lines are there, and the thread sleeps */
    pthread_cond_t moved; /* a write has returned, or the thread sleeps */
    struct log_ring ring;
    uint64_t lost;   /* lines that stderr refused */
    uint64_t writes; /* attempts that have returned */
    bool started, asleep, awaited;
} writer = {.lock = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER};

/* ---- the thread --------------------------------------------------------------------------------
 */

/* The thread's own. */
static struct {
    char bytes[WRITE_MAX];
    uint64_t untold; /* lines dropped or lost that the log has not been told of */
    bool torn;       /* stderr took the beginning of a line and then failed */
} out;

static uint64_t count_lines(const char *bytes, size_t length)
{
    uint64_t count = 0;
    for (size_t i = 0; i < length; i++)
        count += bytes[i] == '\n';
    return count;
}

/* Whole lines; false when not all of them could be written. */
static bool write_lines(const char *bytes, size_t length)
{
    if (out.torn && log_write("\n", 1) == 1)
        out.torn = false;
    size_t done = out.torn ? 0 : log_write(bytes, length);
    if (done > 0)
        out.torn = bytes[done - 1] != '\n';
    uint64_t lost = count_lines(bytes + done, length - done);
    out.untold += lost;
    pthread_mutex_lock(&writer.lock);
    writer.lost += lost;
    pthread_mutex_unlock(&writer.lock);
    return lost == 0;
}

static void tell_gap(void)
{
    char line[LOG_LINE_MAX], message[96];
    uint64_t count = out.untold;
    snprintf(message, sizeof(message), "%llu lines were dropped: the log did not take them in time",
             (unsigned long long)count);
    size_t length = log_format_line(line, LOG_WARNING, "log", message);
    if (log_write(line, length) == length)
        out.untold = 0;
    else
        out.torn = true; /* or nothing of it was written: then a newline too many does no harm */
}

/* Waits for lines or a gap, and takes them; the lock is held. */
static size_t take_lines(void)
{
    for (;;) {
        size_t length = log_ring_take(&writer.ring, out.bytes, sizeof(out.bytes));
        uint64_t gap = length ? 0 : log_ring_gap(&writer.ring);
        out.untold += gap;
        if (length > 0 || gap > 0)
            return length;
        writer.asleep = true;
        if (writer.awaited)
            pthread_cond_broadcast(&writer.moved);
        while (writer.asleep)
            pthread_cond_wait(&writer.work, &writer.lock);
    }
}

static void *thread_main(void *unused)
{
    (void)pthread_setname_np(pthread_self(), "sluice-log");
    for (;;) {
        pthread_mutex_lock(&writer.lock);
        size_t length = take_lines();
        pthread_mutex_unlock(&writer.lock);
        bool good = length == 0 || write_lines(out.bytes, length);
        if (good && out.untold > 0)
            tell_gap();
        pthread_mutex_lock(&writer.lock);
        writer.writes++;
        if (writer.awaited)
            pthread_cond_broadcast(&writer.moved);
        pthread_mutex_unlock(&writer.lock);
    }
    return unused;
}

/* ---- the sink ----------------------------------------------------------------------------------
 */

/* The lock is held for a copy of a line, never for a write. */
static void put_locked(enum log_level level, const char *line, size_t length)
{
    (void)log_ring_put(&writer.ring, level, line, length);
    if (!writer.asleep)
        return;
    writer.asleep = false;
    pthread_cond_signal(&writer.work);
}

static void put(enum log_level level, const char *line, size_t length)
{
    pthread_mutex_lock(&writer.lock);
    put_locked(level, line, length);
    pthread_mutex_unlock(&writer.lock);
}

static uint64_t dropped(void)
{
    pthread_mutex_lock(&writer.lock);
    uint64_t count = writer.ring.dropped + writer.lost;
    pthread_mutex_unlock(&writer.lock);
    return count;
}

static struct timespec after(clockid_t clock, time_us us)
{
    struct timespec at;
    clock_gettime(clock, &at);
    uint64_t ns = (uint64_t)at.tv_nsec + us * 1000;
    at.tv_sec += (time_t)(ns / 1000000000u);
    at.tv_nsec = (long)(ns % 1000000000u);
    return at;
}

/* The lock is held. */
static void await_written(void)
{
    time_us end_us = clock_now_us() + FLUSH_US;
    int rc = 0;
    writer.awaited = true;
    while (!writer.asleep && clock_now_us() < end_us) {
        uint64_t before = writer.writes;
        struct timespec stall = after(CLOCK_MONOTONIC, STALL_US);
        while (rc == 0 && writer.writes == before && !writer.asleep)
            rc = pthread_cond_timedwait(&writer.moved, &writer.lock, &stall);
        if (rc != 0)
            return;
    }
}

/* Whoever aborts may hold the lock itself: then there is no last line. */
static void last(const char *line, size_t length)
{
    struct timespec stall = after(CLOCK_REALTIME, STALL_US);
    if (pthread_mutex_timedlock(&writer.lock, &stall) != 0)
        return;
    put_locked(LOG_ERROR, line, length);
    await_written();
    pthread_mutex_unlock(&writer.lock);
}

void log_writer_flush(void)
{
    if (!writer.started)
        return;
    log_rest();
    pthread_mutex_lock(&writer.lock);
    await_written();
    pthread_mutex_unlock(&writer.lock);
}

int log_writer_start(struct error *error)
{
    static const struct log_sink sink = {.put = put, .dropped = dropped, .last = last};
    pthread_condattr_t clock;
    pthread_t thread;
    sigset_t all, before;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&writer.moved, &clock);
    pthread_condattr_destroy(&clock);
    log_ring_init(&writer.ring, ring_bytes, sizeof(ring_bytes));
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the thread inherits it: no signal is its */
    int rc = pthread_create(&thread, NULL, thread_main, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0)
        return error_set(error, ERR_IO, "cannot start the log's thread: %s", strerror(rc));
    pthread_detach(thread);
    writer.started = true;
    log_to(&sink);
    atexit(log_writer_flush);
    return 0;
}
