/* Work that would hold up the loop, done by another thread: daemon/service/threadpool.c puts
 * libuv's pool behind it. What users ask for comes by way of daemon/request/errand.c, which knows
 * whose turn it is.
 *
 * loop thread, except `work`.
 */
#pragma once

#include <stdint.h>

#include "daemon/base/halt.h"
#include "protocol/base/clock.h"

/* Embedded in what the work is about, which stays until `done` was called. */
struct task {
    void (*work)(struct task *task); /* on a thread of its own; touches nothing of the loop's */
    void (*done)(struct task *task, time_us now_us); /* on the loop, in a later iteration */
    struct halt halt; /* `work` looks at it while it is long, and ends soon with the code set */
};

/* What the task works for is gone, cancelled or late. Whether it waits, runs or has ended: `done`
 * is called all the same, and soon. loop thread */
static inline void task_stop(struct task *task, int code)
{
    halt_set(&task->halt, code);
}

struct background {
    /* Takes the task over; negative, and nothing was done, when there is no memory. */
    int (*run)(struct background *background, struct task *task);
    uint32_t threads; /* tasks that run at a time; 0: any number */
};
