/* Pool: libuv's threads as the background of server and files. It has no order of its own: no more
 * is given to it than its threads take at once. loop thread */
#pragma once

#include <uv.h>

#include "daemon/base/background.h"

struct threadpool {
    struct background background;
    uv_loop_t *uv;
    void (*worked)(void *context); /* before a task's done() */
    void *context;
    uv_work_t first; /* nothing: with it libuv makes its threads */
};

/* libuv makes its threads when the first task comes, and aborts where it gets none: so they are made
 * now, once as many could be had. 0, or an errno. */
int threadpool_init(struct threadpool *pool, uv_loop_t *uv, void (*worked)(void *context),
                    void *context);
