/* Work that would hold up the loop, done by another thread: daemon/pool.c puts libuv's pool behind
 * it.
 *
 * loop thread, except `work`.
 */
#pragma once

/* Embedded in what the work is about, which stays until `done` was called. */
struct task {
    void (*work)(struct task *task); /* on a thread of its own; touches nothing of the loop's */
    void (*done)(struct task *task); /* on the loop, in a later iteration */
};

struct background {
    /* Takes the task over; negative, and nothing was done, when there is no memory. */
    int (*run)(struct background *background, struct task *task);
};
