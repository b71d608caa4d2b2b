/* Carries out what daemon/request/model_reload.h decides: a version of a model is opened and loaded
 * beside the one that serves, asked for a token, and one of the two ends and gives back what it
 * has.
 *
 * Reading files, opening engines and closing them may take long: a thread does it. What it opened
 * becomes the loop's, which starts the workers; they load on their own threads. Replicas that have
 * a worker are among the loop's, so that its end stops them with all others.
 *
 * A version that has not taken over ends its reload when anything of it fails, and nothing else:
 * where it is the device that failed, the other versions and models there notice for themselves.
 * So it does when it comes no further for reload-stall. What hangs then has what it has for as long
 * as it hangs, devices among that, which are not given back before; should it go on, it is taken
 * down.
 *
 * loop thread. reloader_close() before the server is destroyed, reloader_end() before the replicas
 * are freed.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "daemon/base/model_list.h"
#include "daemon/request/model_text.h"
#include "daemon/request/server.h"
#include "daemon/service/self_test.h"
#include "daemon/service/sleeper.h"
#include "daemon/worker/replica.h"

/* How a replica of a version is opened: by these options, on the devices of that one. Any thread.
 */
typedef int (*reloader_open)(void *context, uint32_t model, const struct options *options,
                             const struct replica *beside, struct completion_queue *completions,
                             struct replica_worker **ret_replica, struct gpu_model *ret_model,
                             struct gpu_limits *ret_limits, struct error *error);

/* The loop's replicas that have, or had, a worker. */
struct replica_list {
    struct replica_worker *at[2 * SERVER_REPLICAS_MAX]; /* a second version of each may be there */
    uint32_t count;
};

enum reloader_act {
    RELOADER_NONE,
    RELOADER_OPENING,
    RELOADER_LEFT, /* the thread that opens was given up, and has all of it meanwhile */
    RELOADER_LOADING,
    RELOADER_TESTING,
    RELOADER_RETIRING,
    RELOADER_STOPPING,
    RELOADER_CLOSING
};

struct reloader {
    struct server *server; /* NULL: there is no model */
    struct model_list *list;
    const struct model_text *texts;
    struct sleeper *sleeper;
    struct replica_list *replicas;
    struct completion_queue *completions;
    reloader_open open;
    void *context;

    enum reloader_act act;
    uint32_t number;         /* of the model */
    struct options *options; /* owned: what the version that does not serve runs by */
    /* The version that does not serve: the new one, then the old one. */
    struct replica_worker *parts[SERVER_REPLICAS_MAX];
    struct replica *beside[SERVER_REPLICAS_MAX]; /* of the served one, while a thread opens */
    uint32_t count;
    bool taken_over;
    struct gpu_model info; /* of the new one, */
    struct gpu_limits limits;
    struct error error; /* and why it does not take over; code 0: nothing so far */
    pthread_t thread;
    bool has_thread, opens; /* the thread does; else it closes */
    uint64_t moved;   /* how far it has come, by some measure; */
    time_us moved_us; /* since when it is there; 0: since the turn that comes */
    atomic_bool done;
    struct self_test probe;
    bool retry;       /* there was no room for the test: it is asked again */
    time_us asked_us; /* the first time */
};

/* After the models are served, and the sleeper has begun. texts: of each of the list. Becomes the
 * server's reload_api. */
void reloader_begin(struct reloader *reloader);
/* Workers, threads or the test have told of something. True: the server was told something. */
bool reloader_turn(struct reloader *reloader, time_us now_us);
/* Whether this failure is a new version's, which ends nothing else. */
bool reloader_expects(const struct reloader *reloader, const struct replica_worker *replica);
/* A thread of it hears nothing, for longer than it may. */
bool reloader_hangs(const struct reloader *reloader);
/* The connection of its test. */
void reloader_close(struct reloader *reloader, time_us now_us);
/* Waits for its thread, and frees what it has and the loop has not. Zeroed memory is allowed. */
void reloader_end(struct reloader *reloader);
