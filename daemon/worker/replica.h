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
    struct worker *worker;     /* NULL while its model sleeps */
    bool waking; /* its worker loads once more: that this fails is no illness, unless the device
                    does */
    bool slept;
    struct gpu_kept *kept; /* its weights in host memory; owned; NULL: they come from files */
    struct stats_worker before; /* figures of the workers that it had */
    struct replica_worker *elder; /* the version before it, which ends: its figures count here */
    struct stats_worker told;     /* `last` and those, while there is one */
    struct replica_worker *beside; /* the version that is to follow: what it holds counts here */
    struct gpu_counters counters;
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
/* The worker of an engine that was opened for it anew; nothing runs yet. Any thread. */
int replica_worker_make(const struct replica_worker *replica, struct gpu_engine *engine,
                        const struct gpu_model *model, const struct gpu_limits *limits,
                        const struct options *options, struct completion_queue *completions,
                        struct worker **ret_worker, struct error *error);
/* The worker, which has nothing and has ended or is about to, is the caller's to join and destroy:
 * the replica has none then. NULL: it had none. */
struct worker *replica_detach(struct replica_worker *replica);
/* It has this one, made for it; the caller starts it. */
void replica_attach(struct replica_worker *replica, struct gpu_engine *engine,
                    struct worker *worker);
/* The elder's worker has ended: what it counted stays counted here, and it is no elder any more. */
void replica_inherit(struct replica_worker *replica);
/* WORKER_STOPPED where it has none. */
enum worker_state replica_state(const struct replica_worker *replica);
/* After worker_join(). NULL is allowed. */
void replica_free(struct replica_worker *replica);
