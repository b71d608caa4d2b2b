/* Errands: the server's tasks, for which somebody waits. They take turns in the backlog until a
 * thread of the background is free for them.
 *
 * An errand ends once (`over`), whatever happens. Before that it may have lost its sense: then it
 * does not start any more, or is told to stop, and what comes of it is thrown away. When the daemon
 * finds that out, for its deadline passed or the daemon ends, whoever waits is told at once
 * (`end`); when the owner does, it says so with errand_drop().
 *
 * loop thread
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "daemon/base/background.h"
#include "daemon/request/backlog.h"
#include "protocol/base/clock.h"
#include "protocol/base/error.h"

struct response_sink;
struct errand;
struct server;

struct errand_api {
    void (*work)(struct errand *errand); /* any thread; touches nothing of the loop's */
    /* It has ended before it was done: whoever waits is told, and is not told again. */
    void (*end)(struct errand *errand, const struct error *error, time_us now_us);
    /* No thread looks at it any more: its memory may go. */
    void (*over)(struct errand *errand, time_us now_us);
};

/* Embedded in what it is about. */
struct errand {
    const struct errand_api *api;
    struct server *server;
    struct task task;
    struct backlog_item item;
    struct list link; /* server.errands */
    bool admits;      /* what comes of it is new work: refused while none is taken */
    bool dropped;     /* there is no result, or nobody wants it: task.halt says so to the thread */
};

/* Takes the errand over, for this sink, which drops it before it goes. size: bytes of what it
 * reads. Negative, and nothing was done, when there is no memory for it. */
int errand_start(struct errand *errand, const struct errand_api *api, struct server *server,
                 struct response_sink *sink, size_t size, time_us deadline_us, time_us now_us,
                 struct error *error);
/* Nobody waits for it any more; it may be over when this returns. Nothing, where it has not begun
 * or is over. */
void errand_drop(struct errand *errand);

/* Ends those whose deadline has passed. */
void errands_expire(struct server *server, time_us now_us);
/* Ends all of them, or those that ask for new work. */
void errands_end(struct server *server, bool all, const struct error *error, time_us now_us);
