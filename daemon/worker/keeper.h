/* A thread that copies the weights of a model's replicas to host memory while the model serves, so
 * that it wakes from there (gpu_api.keep). What is refused, by host-memory, the machine's memory or
 * the driver, is said once; the model's files are read then.
 *
 * loop thread. The engines stay open until it is not busy any more; one that stops ends it.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/worker/completion_queue.h"
#include "daemon/worker/replica.h"
#include "protocol/base/error.h"

#define KEEPER_REPLICAS_MAX GPU_DEVICES_MAX /* each has a device of its own */

struct keeper {
    const struct gpu_api *gpu;
    struct gpu_engine *engines[KEEPER_REPLICAS_MAX]; /* that are to be kept */
    bool anew[KEEPER_REPLICAS_MAX]; /* nothing of it is in host memory */
    uint32_t count;
    uint64_t bytes;
    struct completion_queue *completions;
    pthread_t thread;
    bool has_thread;
    atomic_bool done;
    bool told; /* of a refusal that holds on */
    struct error error; /* code 0: none */
};

/* A replica of it that has an engine; one that keeps nothing is passed over. */
void keeper_add(struct keeper *keeper, const struct replica_worker *replica);
/* With those that were added; none: nothing happens. `bytes`: of one replica's weights. */
void keeper_begin(struct keeper *keeper, struct completion_queue *completions, uint64_t bytes);
bool keeper_busy(const struct keeper *keeper);
/* Whether it has ended, and how, of the model of that name. */
void keeper_turn(struct keeper *keeper, const char *model);
/* Waits for it. */
void keeper_end(struct keeper *keeper);
