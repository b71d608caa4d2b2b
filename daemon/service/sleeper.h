/* Carries out what daemon/request/model_sleep.h decides: the replicas of a model end and give back
 * what they have, or are opened and loaded once more.
 *
 * Closing an engine and reading a model's configuration may take long: a thread does it, one at a
 * time for each model, which has the engines meanwhile; replicas are the loop's and have none then.
 * Weights that are in no host memory of ours are read from the model's files, which the system's
 * cache has as far as there is memory.
 *
 * While a model is awake a thread copies its weights to host memory (keeper.h), from where they
 * come when it wakes; it does not fall asleep before that has ended. Where devices are given back,
 * that happens when no model has any, nor a version of one that hangs, on the thread that closed
 * the last, and what opens one waits.
 *
 * loop thread. sleeper_end() before the replicas are freed.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "daemon/base/file_marks.h"
#include "daemon/base/model_list.h"
#include "daemon/request/server.h"
#include "daemon/worker/keeper.h"
#include "daemon/worker/replica.h"

/* How a replica of a model is opened. */
struct sleeper_opener {
    int (*open)(void *context, uint32_t model, const struct replica *replica,
                struct gpu_engine **ret_engine, struct gpu_model *ret_model,
                struct gpu_limits *ret_limits, struct error *error); /* any thread */
    void (*give_devices)(void *context); /* any thread; NULL: they stay the process's */
    void *context;
};

enum sleeper_act {
    SLEEPER_NONE,
    SLEEPER_KEEPING,
    SLEEPER_STOPPING,
    SLEEPER_CLOSING,
    SLEEPER_OPENING,
    SLEEPER_LOADING
};

/* One of a model's replicas, while the thread has its engine. */
struct sleeper_part {
    const struct replica_worker *replica;
    struct gpu_engine *engine;
    struct worker *worker;
};

struct sleeper_model {
    struct sleeper *sleeper;
    uint32_t number;
    const struct options *options; /* borrowed */
    enum sleeper_act act;
    bool keeps; /* its weights are to go to host memory, as soon as it is awake */
    bool falls; /* what follows is sleep: else `error` says why it could not wake */
    pthread_t thread;
    bool has_thread;
    atomic_bool done;
    struct error error; /* code 0: none */
    struct file_marks marks; /* of its texts' files; until they were read once more, those that they
                                have themselves */
    bool marked;             /* they were, or it has other files by now */
    struct keeper keeper;
    struct sleeper_part parts[SERVER_REPLICAS_MAX];
    uint32_t count;
};

struct sleeper {
    struct server *server;
    struct completion_queue *completions;
    struct sleeper_opener opener;
    pthread_mutex_t lock; /* of what follows, and held while devices are given back */
    uint32_t open;        /* models that have engines, or are about to, and versions beside those */
    struct sleeper_model models[MODEL_LIST_MAX];
};

/* After the models are served. `asleep`: a bit for each that begins so; its workers were not
 * started. Becomes the server's sleep_api. */
void sleeper_begin(struct sleeper *sleeper, struct server *server, const struct model_list *list,
                   struct completion_queue *completions, const struct sleeper_opener *opener,
                   uint32_t asleep);
/* Workers or threads have told of something. True: the server was told something. */
bool sleeper_turn(struct sleeper *sleeper, time_us now_us);
/* Its replicas are others, and it runs by other options from now on: a model that was reloaded.
 * Weights of its new replicas are to go to host memory. */
void sleeper_renew(struct sleeper *sleeper, uint32_t model, const struct options *options);
/* Before a version beside a served one touches a device, and after all of it is closed: devices are
 * given back only then. The model is awake at first. Any thread. */
void sleeper_enter_devices(struct sleeper *sleeper);
void sleeper_leave_devices(struct sleeper *sleeper);
/* A thread has engines of its replicas. */
bool sleeper_keeps(const struct sleeper *sleeper, uint32_t model);
/* Whether this failure is a waking's, which ends nothing else. */
bool sleeper_expects(const struct sleeper *sleeper, const struct replica_worker *replica);
/* Waits for its threads, and gives back what they have. Zeroed memory is allowed. */
void sleeper_end(struct sleeper *sleeper);
