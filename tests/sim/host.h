/* The daemon in a simulated run: the real server and connections, real replicas with workers that
 * take their turns here, the real engine on the stepped emulation. What daemon/service/event_loop.c
 * does around them, this does with the scene's clock.
 *
 * One thread. Lifetime: host_open, host_close; several may follow each other, as processes do.
 */
#pragma once

#include "daemon/base/option.h"
#include "daemon/request/errand.h"
#include "daemon/request/model_text.h"
#include "daemon/request/server.h"
#include "daemon/service/ending.h"
#include "daemon/worker/replica.h"
#include "tests/sim/scene.h"
#include "tests/sim/shares.h"
#include "tests/sim/sleepers.h"
#include "tests/sim/threads.h"

#define HOST_REPLICAS 3

struct host_setup {
    const char *model, *adapters;
    const char *models; /* NAME=DIR,... of several that sleep; NULL: one, which never does */
    uint32_t replicas, tp, pp;
    bool ep;
    uint32_t context_max;
    bool tight; /* KV and memory are short, by limits of the daemon's own */
    bool flood; /* somebody asks for much at the highest priority: shares are large */
};

/* What a daemon that came to rest had done: a simulation in which nothing happens shows nothing. */
struct host_figures {
    uint64_t preemptions, gave_way, wasted_rows, moves, ahead;
    uint64_t drafted, stood;                        /* tokens */
    uint64_t cached, cache_waits, cache_evictions;  /* tokens; times; blocks */
    uint64_t blocks_out, blocks_in, chunks_refused; /* host memory */
    uint64_t stopped, full, cancelled, deadlines, slow_readers;
    uint64_t texts_late, texts_cancelled, texts_dropped, texts_stopped;
    uint64_t parked, owed; /* turns in which results had no room; a slot was taken for somebody */
};

struct host {
    struct scene *scene;
    struct options *options;
    struct completion_queue completions;
    struct server server;
    struct model_text model_text;
    struct adapter_names adapters;
    struct gpu_adapter adapters_given[GPU_ADAPTERS_MAX];
    struct threads threads; /* of its pool */
    struct replica_worker *replicas[HOST_REPLICAS];
    bool woken[HOST_REPLICAS]; /* the worker's eventfd was readable */
    bool stopped[HOST_REPLICAS];
    uint32_t replica_count;
    bool touched; /* a turn of the server is due */
    bool turned;  /* it has just taken one */
    uint32_t
        device_us;    /* what one piece of the device's work takes at most, by the scene's clock */
    bool device_runs; /* the device may have something to do */
    struct shares shares;
    struct sleepers sleepers;
    struct host_figures figures; /* of host_check_rest() */
    bool failed;                 /* the device did; this daemon serves no more */

    /* The end, once it is asked for, and what of it does not come by itself. */
    struct ending ending;
    bool cut;  /* what did not drain was cancelled */
    bool over; /* the process leaves */
    bool left; /* and did not wait any longer for something */
    bool tasks_hang, worker_hangs, file_hangs;
    bool device_hangs; /* and so do workers that wait for it */
    time_us end_us;    /* when it is over at the latest */
};

/* The emulation is set up; options are drawn. No worker is loaded yet. */
void host_open(struct host *host, struct scene *scene, const struct host_setup *setup);
/* Everybody's connection is closed. After a failure the device's state is given up, not taken down.
 */
void host_close(struct host *host);

/* What can happen now, and doing it. */
bool host_worker_due(struct host *host, uint32_t replica);
void host_worker_turn(struct host *host, uint32_t replica);
/* A mask that its worker wants is made: as late as it comes. */
bool host_mask_due(const struct host *host, uint32_t replica);
void host_mask_make(struct host *host, uint32_t replica);
bool host_server_due(const struct host *host);
void host_server_turn(struct host *host);
/* Of a thread that a model falls asleep or wakes by, or has its weights kept by. */
bool host_thread_due(const struct host *host);
void host_thread_go_on(struct host *host);
bool host_task_due(const struct host *host);
void host_task_end(struct host *host);
/* After each event. */
void host_check(struct host *host);
bool host_device_due(const struct host *host);
void host_device_step(struct host *host);
/* The time at which something is due although nothing happens; 0 = never. */
time_us host_next(struct host *host);

/* SIGTERM. Drawn: what hangs meanwhile. */
void host_end(struct host *host);

/* False when the watchdog would end it. */
bool host_healthy(const struct host *host);

/* After all has ended: whether figures and memory are where they were. */
void host_check_rest(struct host *host);
