/* Models that sleep, in a simulated daemon: the daemon's own sleeper and keepers over the real
 * engines, on a device and with host memory that do not have room for all of them. What the sleeper
 * and the keepers give a thread to do happens here, at once, when the scene's clock has passed a
 * drawn time; a worker that they start is turned by the simulation, as all are.
 *
 * Threads, host memory and what an opening reads may be refused, and copies fail, while `faults` is
 * set. After every turn it is looked whether who sleeps has nothing: no engine, no byte of the
 * device once all sleep; and whether host memory is what is told of it, within its limit.
 *
 * One thread. The sleepers of one daemon at a time. Zeroed memory is of a daemon whose model never
 * sleeps.
 */
#pragma once

#include "daemon/base/model_list.h"
#include "daemon/request/model_text.h"
#include "daemon/service/sleeper.h"
#include "tests/sim/scene.h"

#define SLEEPERS_MODELS 3
/* What sizes of a replica are at most, in a simulated daemon. */
#define SLEEPERS_DEPTH 2
#define SLEEPERS_SEQUENCES 12
#define SLEEPERS_TOKENS 256

struct sleepers_thread {
    void *(*main)(void *argument);
    void *argument;
    bool there, over;
    time_us end_us;
};

struct sleepers_figures {
    uint64_t slept, woke, made_way, refused; /* wakings; refused: and asleep as before */
    uint64_t kept, keeps_failed;             /* weights to host memory */
};

struct sleepers {
    struct scene *scene; /* NULL: no model sleeps */
    struct server *server;
    struct model_list list;
    struct sleeper sleeper;
    struct replica_worker *const *replicas; /* by model */
    uint32_t count;
    struct model_text texts[SLEEPERS_MODELS]; /* of those behind the first */
    uint64_t host_limit;  /* of weights and KV, with what was there before; 0: nothing is kept */
    uint64_t host_before; /* bytes that earlier runs in this process have left */
    bool faults;
    bool may_fail; /* the device: it may break while nobody asks it anything, and keeps what it has
                    */
    struct sleepers_thread threads[2 * SLEEPERS_MODELS];
    const struct worker *started[SLEEPERS_MODELS]; /* that nobody has turned yet */
    enum model_state was[SLEEPERS_MODELS];
    uint64_t refusals[SLEEPERS_MODELS]; /* a bit for each code */
    struct sleepers_figures figures;
};

/* Bytes of device memory that do for each of these models to start alone, and for a step of one
 * while all are awake and have a sequence's KV; seldom for all to start, or to compute. `models`
 * are separated by commas. Sets up the emulation anew. */
uint64_t sleepers_room(struct scene *scene, const char *models, uint32_t context_max);

/* Options of each model, from the daemon's and `models`, with their names and how they sleep. */
void sleepers_make(struct sleepers *sleepers, struct scene *scene, const struct options *options);
/* After the models are served: those behind the first begin asleep. `open`: as the sleeper's. */
void sleepers_begin(struct sleepers *sleepers, struct server *server,
                    struct replica_worker *const *replicas, struct completion_queue *completions,
                    int (*open)(void *context, uint32_t model, const struct replica *replica,
                                struct gpu_engine **ret_engine, struct gpu_model *ret_model,
                                struct gpu_limits *ret_limits, struct error *error),
                    void *context);
/* The daemon has gone; its replicas have not. */
void sleepers_end(struct sleepers *sleepers);
/* Then they have: nothing of host memory is left, but of a device that may have failed. */
void sleepers_free(struct sleepers *sleepers);

/* Before the opening of an engine, behind it and around the loading by a worker: what is refused;
 * what files of another model say; and what a device has no memory for. */
int sleepers_refuse(struct sleepers *sleepers, struct error *error);
void sleepers_change(struct sleepers *sleepers, struct gpu_model *model);
void sleepers_load(struct sleepers *sleepers, struct replica_worker *replica);

/* After a turn of the server. True: it was told something. */
bool sleepers_turn(struct sleepers *sleepers, time_us now_us);
/* Whether this worker's failure is a waking's, which ends nothing else. */
bool sleepers_expect(const struct sleepers *sleepers, uint32_t model);
/* Whether a worker was started anew since this was asked last. */
bool sleepers_started(struct sleepers *sleepers, uint32_t model);
/* A thread whose time has passed; what it does. */
bool sleepers_due(const struct sleepers *sleepers);
void sleepers_go_on(struct sleepers *sleepers);
/* Their time has passed now: what they open comes at the worst moment. */
void sleepers_hurry(struct sleepers *sleepers);
time_us sleepers_next(const struct sleepers *sleepers); /* 0 = never */
/* Nothing is under way. */
void sleepers_check_rest(struct sleepers *sleepers);
