/* A replica as the server knows it, with a worker behind it: one engine, its worker, and the last
 * figures that the worker gave.
 *
 * loop thread, except that the worker has its own.
 */
#pragma once

#include "daemon/base/option.h"
#include "daemon/base/replica_api.h"
#include "daemon/worker/worker.h"
#include "gpu/gpu.h"

struct replica_worker {
    struct replica base;
    const struct gpu_api *gpu;
    struct gpu_engine *engine; /* the worker's once that is made */
    struct worker *worker;
    bool asked; /* for figures that are not there yet */
    struct stats_worker last;
    struct trace *trace; /* NULL: nothing is profiled */
};

/* Makes the worker for an opened engine and takes the engine over; nothing runs yet. base.devices
 * is the caller's to fill in. */
int replica_make(const struct gpu_api *gpu, struct gpu_engine *engine,
                 const struct gpu_model *model, const struct gpu_limits *limits,
                 const struct options *options, struct completion_queue *completions,
                 struct replica_worker **ret_replica, struct error *error);
/* After worker_join(). NULL is allowed. */
void replica_free(struct replica_worker *replica);
