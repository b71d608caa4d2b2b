/* Backlog: what waits for a thread of the pool, and which of it is next. Pure: it starts nothing,
 * owns nothing, and time is a parameter.
 *
 * Users take turns, an item each; within a user's, the sources do that the items come from, which
 * are connections; of one source it is first come, first served. Small items go before
 * large ones, but of BACKLOG_SMALL_RUN + 1 that are started while a large one could be, one is
 * large. An item that runs cannot be interrupted, so that one thread is never given to large items,
 * nor all of them to one user: where there are several, somebody else's small item waits for small
 * ones alone.
 *
 * All operations but deadlines take constant time, given a number of threads. loop thread
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/base/deadlines.h"
#include "protocol/base/clock.h"
#include "protocol/base/list.h"

#define BACKLOG_SMALL ((size_t)64 << 10) /* bytes; some milliseconds at most */
#define BACKLOG_SMALL_RUN 4u

enum backlog_class { BACKLOG_IS_SMALL, BACKLOG_IS_LARGE, BACKLOG_CLASSES };
enum backlog_state { BACKLOG_OUT, BACKLOG_WAITS, BACKLOG_RUNS };

/* A source's part, embedded in struct response_sink. Zeroed memory is one that has nothing waiting.
 */
struct backlog_queue {
    struct list items;     /* backlog_item.link; null links until the first one */
    struct list turn_link; /* in its user's lane, while items is not empty */
};
struct backlog_source {
    struct backlog_queue queues[BACKLOG_CLASSES];
};

/* A user's part, embedded in struct user. */
struct backlog_lane {
    struct list turns;     /* backlog_queue.turn_link; whose turn it is stands first */
    struct list turn_link; /* in the turns of its class, while there are any in this lane */
};
struct backlog_user {
    struct backlog_lane lanes[BACKLOG_CLASSES];
    uint32_t running;
};

/* Embedded in what waits. */
struct backlog_item {
    struct list link; /* its source's queue, or backlog.running */
    struct backlog_user *user;
    struct backlog_source *source; /* while it waits */
    enum backlog_class class;
    enum backlog_state state;
    struct deadline deadline; /* until it has ended, or nobody waits for it */
};

struct backlog {
    uint32_t threads;
    uint32_t running_count, running_large;
    uint32_t smalls; /* started one after the other while a large one could have been */
    uint64_t waiting_count;
    struct list turns[BACKLOG_CLASSES]; /* backlog_lane.turn_link; whose turn it is stands first */
    struct list running;                /* backlog_item.link, oldest first */
    struct deadlines deadlines;
    double pace_us;   /* smoothed time between two ends while others wait */
    time_us ended_us; /* of the last item that ended while others waited; 0 = none */
};

void backlog_init(struct backlog *backlog, uint32_t threads);
void backlog_user_init(struct backlog_user *user);
void backlog_destroy(struct backlog *backlog); /* nothing waits or runs */

/* It waits from now on. deadline_us: 0 = none. Negative when there is no memory for a deadline. */
int backlog_push(struct backlog *backlog, struct backlog_user *user, struct backlog_source *source,
                 struct backlog_item *item, size_t size, time_us deadline_us, struct error *error);
/* Whose turn it is in this lane; NULL when nothing waits there. */
struct backlog_item *backlog_first(const struct backlog_lane *lane);
/* What is to be started now, on a thread of its own: it counts as running. NULL: nothing, or no
 * thread is free for it. */
struct backlog_item *backlog_take(struct backlog *backlog);
/* One that waits is taken out, as if it had not come; or one that ran has ended. */
void backlog_remove(struct backlog *backlog, struct backlog_item *item, time_us now_us);
/* Nobody waits for it any more: its deadline does not matter. */
void backlog_forget(struct backlog *backlog, struct backlog_item *item);
/* One whose deadline has passed, waiting or running; NULL: there is none. */
struct backlog_item *backlog_late(const struct backlog *backlog, time_us now_us);
/* When the next deadline is; 0 = never. */
time_us backlog_due(const struct backlog *backlog);
/* How long it takes, at the pace of late, until what waits now has been started. */
double backlog_wait_us(const struct backlog *backlog);

/* Threads that one user, or all large items together, have at most. */
static inline uint32_t backlog_share(const struct backlog *backlog)
{
    return backlog->threads > 1 ? backlog->threads - 1 : 1;
}
