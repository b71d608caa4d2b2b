/* Pool: libuv's threads as the background of server and files. loop thread */
#pragma once

#include <uv.h>

#include "daemon/background.h"

struct pool {
    struct background background;
    uv_loop_t *uv;
    void (*worked)(void *context); /* before a task's done() */
    void *context;
};

void pool_init(struct pool *pool, uv_loop_t *uv, void (*worked)(void *context), void *context);
