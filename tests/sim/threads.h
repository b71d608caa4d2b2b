/* The threads of a simulated daemon's pool: what they are given takes time by the scene's clock,
 * and ends soon once it was told to stop. Beside the daemon's books of it, these: whose turn it is,
 * that no thread rests while something may start, and that nothing waits or runs for somebody gone.
 *
 * One thread, in truth.
 */
#pragma once

#include "daemon/base/background.h"
#include "daemon/request/errand.h"
#include "daemon/request/server.h"
#include "tests/sim/scene.h"

#define THREADS_MOST 4
#define THREADS_USERS 3       /* uids are below that */
#define THREADS_STOP_US 2000u /* from the word to stop until it is done */

struct threads_slot {
    struct task *task; /* NULL: the thread has nothing to do */
    time_us end_us;
    time_us deadline_us; /* 0 = none */
    bool halted;
};

struct threads {
    struct background background;
    struct scene *scene;
    const struct server *server;
    uint32_t slow; /* times that all of it takes as long */
    struct threads_slot slots[THREADS_MOST];
    uint64_t started;
    uint32_t smalls; /* one after the other while a large one could have been started */
    time_us turn_us; /* when the server last looked at deadlines */
    /* Whose item stands first in each lane, and how many had started when it came there. */
    const struct backlog_item *heads[THREADS_USERS][BACKLOG_CLASSES];
    uint64_t since[THREADS_USERS][BACKLOG_CLASSES];
};

void threads_open(struct threads *threads, struct scene *scene, const struct server *server);
bool threads_due(const struct threads *threads);
/* One task, of those whose time is over, is done; with all: of any. False when there was none. */
bool threads_end(struct threads *threads, bool all);
time_us threads_next(const struct threads *threads); /* 0 = never */
/* After each event; turned: the server has just taken a turn. */
void threads_check(struct threads *threads, bool turned);
