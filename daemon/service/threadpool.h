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
};

void threadpool_init(struct threadpool *pool, uv_loop_t *uv, void (*worked)(void *context),
                     void *context);
