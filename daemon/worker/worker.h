/* A replica's worker: the thread that plans and submits steps of one engine, and takes their
 * results.
 *
 * worker_turn does all the work and never blocks. The thread is `for (;;) { wait; turn; }`: the
 * wait is one poll of one eventfd, written by the loop with a message and by the device after a
 * step. It is timed only while a step is in flight or memory waits to be given back; idle, no timer
 * is armed. The simulation makes no thread and calls worker_open and worker_turn itself.
 *
 * Mail from the loop: sequences (seq.in_link), cancels (seq.cancel_link) and commands (one word of
 * bits). A turn takes the mail first, then results, and only then plans: no step planned after a
 * cancel was taken contains the sequence. Answers go into the completion queue.
 *
 * When the device fails, every sequence here and every one sent later ends with FINISH_ERROR and
 * ERR_DEVICE (retryable), and COMPLETION_FAILED tells the loop to flush and to exit with 75.
 *
 * From start on, the worker's thread allocates nothing; with the first constrained sequence the
 * threads start that make masks (mask_crew.h).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/base/stats.h"
#include "daemon/base/replica_api.h"
#include "daemon/base/seq.h"
#include "daemon/sched/sched.h"
#include "daemon/worker/completion_queue.h"
#include "daemon/worker/trace.h"
#include "gpu/gpu.h"

#define WORKER_FOREVER UINT64_MAX
#define WORKER_WEIGHTS_US 120000000u /* for weights that come beside the first steps */

struct worker;

enum worker_state { WORKER_LOADING, WORKER_READY, WORKER_FAILED, WORKER_STOPPED };

struct worker_options {
    struct sched_options sched;
    uint64_t step_timeout_us; /* a step in flight for longer: the device counts as stuck */
    uint32_t ranks;           /* of the engine; 0 = 1 */
    struct trace *trace;      /* of the first steps; borrowed; NULL = none */
    bool direct;              /* the caller makes the turns: no eventfd, `notify` tells of mail */
    void (*notify)(void *context); /* direct: a message was sent; may be NULL */
    void *context;
};

/* Loop thread (before start: any). The engine was opened (api->open); the worker starts, stops and
 * closes it. All memory is taken here. */
int worker_create(const struct gpu_api *api, struct gpu_engine *engine,
                  const struct gpu_model *model, const struct gpu_limits *limits,
                  const struct worker_options *options, struct completion_queue *completions,
                  struct worker **ret_worker, struct error *error);

/* Loop thread. Starts the thread, which loads the model; COMPLETION_READY or COMPLETION_FAILED
 * follows. */
int worker_start(struct worker *worker, struct error *error);

/* Loop thread. Moves the sequence to the worker, which is ready; the seq's worker-only part is
 * zero, its output arrays are there. The worker looks after worker_wake. */
void worker_send(struct worker *worker, struct seq *seq);
/* Loop thread. What is cached here, about. */
struct prefix_hint *worker_hint(struct worker *worker);
/* As replica_api.cached. */
uint32_t worker_cached(const struct worker *worker, const struct prefix_key *keys, uint32_t count,
                       bool expected, uint32_t *ret_host);
/* Loop thread. What those need that wait to be sent here. */
struct prefix_wants *worker_wants(struct worker *worker);
/* Loop thread. seq->cancel_reason is set; once per sequence, after worker_send; worker_wake
 * follows. */
void worker_cancel(struct worker *worker, struct seq *seq);
/* Loop thread. Once after any number of worker_send and worker_cancel. */
void worker_wake(struct worker *worker);
/* Loop thread. What can be sent now. */
struct replica_room worker_room(const struct worker *worker);

/* Loop thread. Asks for a copy of the figures; COMPLETION_STATS tells that it is there. */
void worker_ask_stats(struct worker *worker);
/* Loop thread. The last copy; NULL while one that was asked for is not there yet. */
const struct stats_worker *worker_snapshot(const struct worker *worker);
/* Loop thread. Unused memory goes back at the worker's next idle turn, not after the idle time. */
void worker_trim(struct worker *worker);
/* Loop thread. There are other models on the device, or another version of this one, and the loop is
 * told what it refuses from now on. */
void worker_share(struct worker *worker);
/* Loop thread. Whether the device refused it memory since this was asked last. */
bool worker_lacks(struct worker *worker);
/* Loop thread. Another model lacks memory: what is only cached here goes back, and what is unused.
 */
void worker_yield(struct worker *worker);
/* Loop thread. Its model makes way: where it starves what is here is handed back. */
void worker_hand_back(struct worker *worker);
/* Loop thread. Ends what is still there with FINISH_CANCELLED, stops the engine, ends the thread;
 * COMPLETION_STOPPED follows. To let work finish first, stop sending and wait for it to end. */
void worker_stop(struct worker *worker);
/* Loop thread, blocks until the thread has ended. */
void worker_join(struct worker *worker);
/* After worker_join, or when no thread was started. Closes the engine. NULL is allowed. */
void worker_destroy(struct worker *worker);

/* Any thread. */
enum worker_state worker_state(const struct worker *worker);
/* Any thread. False when the device failed, or a step or its submission has been under way for
 * longer than step_timeout_us, or than WORKER_WEIGHTS_US where weights are still coming, which it
 * waits for: then the watchdog is not fed. */
bool worker_healthy(const struct worker *worker, time_us now_us);
/* Any thread. Thousandths of the loading that are done. */
uint32_t worker_progress(const struct worker *worker);
/* Any thread, while the state is WORKER_FAILED. */
const struct error *worker_failure(const struct worker *worker);

/* ---- the turns: the worker's thread, or the simulation -------------------------------------- */

/* Loads the model (blocks), then COMPLETION_READY or COMPLETION_FAILED. */
int worker_open(struct worker *worker);
/* Takes mail and results, plans, submits, tells. False when it has stopped: no further turn. */
bool worker_turn(struct worker *worker, time_us now_us);
/* Where no thread was started: makes the mask that was asked for first; false when there is none. */
bool worker_mask(struct worker *worker);
bool worker_mask_waits(const struct worker *worker); /* whether there is one */
/* What the device and the loop write to when there is something to do. */
int worker_fd(const struct worker *worker);
/* How long the wait before the next turn may be, at most; WORKER_FOREVER when only mail or a step's
 * end can give it something to do. */
uint64_t worker_wait_us(const struct worker *worker, time_us now_us);
