/* What daemon/worker/worker.c, the loop's side and the thread, and daemon/worker/worker_turn.c, the
 * worker's turns, have in common. Private to them. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "daemon/base/mailbox.h"
#include "daemon/worker/chunk_thread.h"
#include "daemon/worker/mask_crew.h"
#include "daemon/worker/rank_group.h"
#include "daemon/worker/worker.h"

enum worker_command {
    COMMAND_STATS = 1,
    COMMAND_TRIM = 2,
    COMMAND_STOP = 4,
    COMMAND_YIELD = 8,
    COMMAND_HAND_BACK = 16
};

/* What the worker tells the loop about its room; single words, read without order between them. */
struct worker_shown {
    atomic_uint sequences, empty, starves, waiting, gave_way;
    _Atomic uint64_t kv_tokens, prefill_tokens, wait_us, token_ns, copy_ns;
    _Atomic uint64_t taken, taken_tokens; /* out of the mailbox, since start */
};

struct worker {
    const struct gpu_api *api;
    struct gpu_engine *engine;
    struct rank_group *group;
    struct worker_options options;
    struct completion_queue *completions;
    struct mask_crew *masks;
    struct chunk_thread *chunks;
    int wake_fd;
    pthread_t thread;
    bool has_thread, opened;
    bool threaded; /* written before there is a thread */
    atomic_bool shares;   /* likewise: the device is not its own */
    atomic_bool lacks;

    struct mailbox in, cancels;
    atomic_uint commands;
    atomic_uint state; /* enum worker_state */
    struct worker_shown shown;
    uint64_t sent, sent_tokens;   /* loop: into the mailbox, since start */
    uint64_t taken, taken_tokens; /* worker: the same, out of it */

    _Atomic time_us
        busy_since_us;    /* oldest step in flight, or the submission under way; 0 = none */
    atomic_bool weights_come; /* a step in flight may wait for them; cleared behind busy_since_us */
    struct error failure; /* written before state becomes WORKER_FAILED */

    /* The worker's own. */
    struct sched sched;
    struct stats_worker stats;
    struct stats_worker snapshot; /* the loop's once COMPLETION_STATS is told */
    atomic_bool snapshot_there;
    time_us late_us;   /* when a step in flight counts as late; 0 = none is in flight */
    struct error lost; /* how a call from within the scheduler found the device lost; code 0: not */
};

/* worker_turn.c: how the scheduler asks for memory and tells of sequences. */
struct sched_calls worker_calls(struct worker *worker);
