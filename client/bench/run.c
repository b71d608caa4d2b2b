#include "client/bench/run.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

#define SENDS_MAX 64    /* at a time, before answers are read again */
#define LOOK_US 100000u /* how often a stop is looked for */
#define SHOW_US 200000u
#define START_DELAY_US 20000u /* for the threads to start in */

struct team { /* what all threads of a run share */
    const struct run *run;
    struct driver_live live;
    time_us start_us;
};

struct crew_member {
    struct team *team;
    uint32_t number;
    pthread_t thread;
    struct driver drivers[2]; /* the load; on thread 0 also the probes */
    uint32_t driver_count;
};

static bool send_due(struct driver *drivers, uint32_t count)
{
    bool sent = false;
    for (uint32_t i = 0; i < count; i++)
        sent = driver_send(&drivers[i], clock_now_us()) || sent;
    return sent;
}

static bool all_done(const struct driver *drivers, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (!driver_done(&drivers[i]))
            return false;
    return true;
}

static time_us wake_us(const struct driver *drivers, uint32_t count)
{
    time_us wake = clock_now_us() + LOOK_US;
    for (uint32_t i = 0; i < count; i++) {
        time_us next = driver_next_us(&drivers[i]);
        if (next && next < wake)
            wake = next;
    }
    return wake;
}

static void drive(struct driver *drivers, uint32_t count, bool (*stopped)(void))
{
    struct transport *transport = drivers[0].transport;
    bool stopping = false;
    while (!all_done(drivers, count)) {
        for (int i = 0; i < SENDS_MAX && send_due(drivers, count); i++)
            ;
        if (!stopping && stopped()) {
            stopping = true;
            for (uint32_t i = 0; i < count; i++)
                driver_stop(&drivers[i]);
        }
        if (!all_done(drivers, count))
            transport->wait(transport, wake_us(drivers, count));
    }
}

static void *run_member(void *argument)
{
    struct crew_member *member = argument;
    /* The kernel would gather timers within 50 us; that would be lateness of ours. */
    prctl(PR_SET_TIMERSLACK, 1UL);
    drive(member->drivers, member->driver_count, member->team->run->stopped);
    return NULL;
}

/* ---- warming up --------------------------------------------------------------------------------
 */

static int warm_up(const struct run *run, struct error *error)
{
    struct driver_live live = {0};
    struct driver driver;
    struct record *records = calloc(run->warmup->count, sizeof(*records));
    void **calls = calloc(run->warmup->count, sizeof(*calls));
    if (records && calls) {
        driver_init(&driver, run->warmup, records, calls, run->transports[0], &live);
        driver.open_max = run->open_max;
        driver_start(&driver, 0, clock_now_us());
        drive(&driver, 1, run->stopped);
        driver_free(&driver);
    }
    int rc = records && calls ? 0 : error_set(error, ERR_NO_MEMORY, "no memory for the warm-up");
    free(records);
    free(calls);
    return rc;
}

/* ---- the crew ----------------------------------------------------------------------------------
 */

/* Its part of a limit on all: as even as it goes, at least 1. */
static uint32_t share(uint32_t all, uint32_t number, uint32_t of)
{
    uint32_t own = all / of + (number < all % of);
    return all == 0 || own > 0 ? own : 1;
}

static void prepare(struct crew_member *member, struct record *records, void **calls,
                    struct record *probe_records, void **probe_calls)
{
    struct team *team = member->team;
    const struct run *run = team->run;
    struct driver *driver = &member->drivers[0];
    struct transport *transport = run->transports[member->number];
    driver_init(driver, run->load, records, calls, transport, &team->live);
    driver->stride = run->threads;
    driver->open_max = share(run->open_max, member->number, run->threads);
    driver->until_us = run->until_us;
    driver_start(driver, member->number, team->start_us);
    member->driver_count = 1;
    if (member->number > 0 || !run->probes)
        return;
    driver = &member->drivers[member->driver_count++];
    driver_init(driver, run->probes, probe_records, probe_calls, transport, &team->live);
    driver->until_us = run->until_us;
    driver_start(driver, 0, team->start_us);
}

/* By the wall clock, whose jumps only move the progress line: ThreadSanitizer knows this join, and
 * not the one that takes a clock. */
static void join(const struct run *run, struct crew_member *member)
{
    struct timespec until;
    do {
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += (long)SHOW_US * 1000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        if (run->show)
            run->show(run->context, &member->team->live, clock_now_us() - member->team->start_us);
    } while (pthread_timedjoin_np(member->thread, NULL, &until) == ETIMEDOUT);
}

static int start_all(const struct run *run, struct crew_member *members, struct error *error)
{
    uint32_t started = 0;
    int number = 0;
    for (; started < run->threads && !number; started += !number)
        number = pthread_create(&members[started].thread, NULL, run_member, &members[started]);
    for (uint32_t i = 0; i < started; i++)
        join(run, &members[i]);
    return number ? error_set(error, ERR_NO_MEMORY, "no further thread") : 0;
}

static int gather(struct crew_member *members, uint32_t count, struct recorder *ret_load,
                  struct recorder *ret_probes, struct error *error)
{
    int rc = 0;
    *ret_load = members[0].drivers[0].recorder;
    if (members[0].driver_count > 1)
        *ret_probes = members[0].drivers[1].recorder;
    for (uint32_t i = 1; i < count; i++) {
        if (!rc && recorder_join(ret_load, &members[i].drivers[0].recorder))
            rc = error_set(error, ERR_NO_MEMORY, "no memory for the results");
        driver_free(&members[i].drivers[0]);
    }
    return rc;
}

static int run_crew(const struct run *run, struct crew_member *members, struct record **records,
                    void ***calls, struct recorder *ret_load, struct recorder *ret_probes,
                    struct error *error)
{
    struct team team = {.run = run};
    team.start_us = clock_now_us() + START_DELAY_US;
    for (uint32_t i = 0; i < run->threads; i++) {
        members[i].team = &team;
        members[i].number = i;
        prepare(&members[i], records[0], calls[0], records[1], calls[1]);
    }
    int rc = start_all(run, members, error);
    int gathered = gather(members, run->threads, ret_load, ret_probes, error);
    return rc ? rc : gathered;
}

int run_all(const struct run *run, struct recorder *ret_load, struct recorder *ret_probes,
            struct error *error)
{
    const struct workload *loads[2] = {run->load, run->probes};
    struct record *records[2] = {0};
    void **calls[2] = {0};
    struct crew_member *members = calloc(run->threads, sizeof(*members));
    bool room = members != NULL;
    int rc = run->warmup ? warm_up(run, error) : 0;
    for (int i = 0; i < 2 && loads[i]; i++) {
        records[i] = calloc(loads[i]->count + 1, sizeof(**records));
        calls[i] = calloc(loads[i]->count + 1, sizeof(**calls));
        room = room && records[i] && calls[i];
    }
    recorder_init(ret_load, records[0]);
    recorder_init(ret_probes, records[1]);
    if (!rc && !room)
        rc = error_set(error, ERR_NO_MEMORY, "no memory for the records");
    if (!rc)
        rc = run_crew(run, members, records, calls, ret_load, ret_probes, error);
    free(members);
    free(calls[0]);
    free(calls[1]);
    return rc;
}
