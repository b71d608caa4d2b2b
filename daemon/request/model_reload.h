/* Reload: a new version of a model takes over from the one that serves, between requests. Policy
 * alone, in states; who loads and ends versions is behind a table (daemon/service/reloader.h, or a
 * test). One model at a time.
 *
 *     NONE -> LOADING -> TESTING -> RETIRING -> NONE
 *             LOADING, TESTING -> ENDING -> NONE: refused, and the old version stays
 *
 * A version is weights. It has the tokenizer, the texts and the shape of the one before it, so that
 * what was measured for one holds for the other, and the served model keeps its names and its
 * queue. What differs is the replicas, and the load (which names of cached blocks begin with).
 *
 * The new one is loaded beside the old one, which serves. Then it answers a request of the daemon's
 * own (TESTING); then it has the place of the old one, and requests that are accepted from then on
 * are its own (RETIRING). What was accepted before, whether it runs or waits, ends on the old one:
 * a request has one version (request.version). Turns are as ever: who comes later waits behind
 * those before it, whichever version they are for. When nothing of the old one is left it is taken
 * down. Whatever fails before the new one has the place leaves the old one there, and the reason is
 * kept until the next reload.
 *
 * Whoever comes no further for reload-stall while it is loaded is refused, too. It may hang for
 * ever: it is left to itself, and no other version is loaded before it has ended.
 *
 * While a model is reloaded it does not fall asleep. One that hangs while it is opened, at its
 * files, is nothing to that any more; one that does on the devices, whose calls to give memory back
 * would wait for it, is the reason that its model's sleep is refused by. loop thread
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/base/replica_select.h"
#include "protocol/base/clock.h"
#include "protocol/base/error.h"

#define MODEL_TEST_RETRY_US 100000u
#define MODEL_TEST_MOST_US 60000000u /* from the first question to the answer of the new version   \
                                      */

struct gpu_model;
struct request;
struct served_model;
struct server;

enum reload_state { RELOAD_NONE, RELOAD_LOADING, RELOAD_TESTING, RELOAD_RETIRING, RELOAD_ENDING };

/* Embedded in struct served_model; zeroed memory is the first version. */
struct model_version {
    uint32_t number;        /* of the one that is served, from 0 on */
    uint64_t live[2];       /* sequences accepted and not ended, of even versions and of odd ones */
    uint64_t reloads_total; /* that took over */
    uint64_t refusals_total; /* that did not */
    struct error refusal;    /* why the last one did not; code 0: it did, or there was none */
};

/* Embedded in struct server. */
struct model_reload {
    enum reload_state state;
    struct served_model *model;                 /* NULL while there is none */
    struct replica *others[REPLICA_SELECT_MAX]; /* the version that is not served: as many as its */
    uint64_t other_load;
    bool admits;    /* a request that is made now is the other version's: the test's */
    bool hangs;     /* what was refused does not end: it counts as failed, and none begins before */
    bool engaged;   /* and is on the devices */
    time_us due_us; /* when it is looked at again by itself; 0: never */
};

/* Who carries it out; returns at once. directory: "": that which it is served from. */
struct reload_api {
    void (*begin)(void *context, struct served_model *model, const char *directory);
};

/* An admin's word. Negative, and nothing has begun, with the reason. */
int model_reload_ask(struct server *server, struct served_model *model, const char *directory,
                     struct error *error);
/* "none", "loading", "testing", "retiring" (the new one serves, and the old one has something to
 * end), "ending" (what was refused is taken down) or "failed" (the last one did not take over). */
const char *model_reload_word(const struct server *server, const struct served_model *model);
/* What of two that are loaded differs and may not, in words, where one is to serve in the other's
 * place: a version behind another, or a model that wakes. NULL: nothing. any thread */
const char *model_reload_differs(const struct gpu_model *was, const struct gpu_model *is);
/* Whether it is this model that is reloaded; */
bool model_reload_on(const struct server *server, const struct served_model *model);
/* and does not sleep before that is over. */
bool model_reload_holds(const struct server *server, const struct served_model *model);

/* What a request that is made now is of: its version, and the load that cached blocks are named
 * by. */
uint32_t model_reload_version(const struct server *server, const struct served_model *model,
                              uint64_t *ret_load);
/* The replicas that compute the request: as many as the model has. */
struct replica *const *model_reload_replicas(const struct server *server,
                                             const struct request *request);
/* Those of the version that is not served, where it has or had requests; NULL: none. */
struct replica *const *model_reload_others(const struct server *server, uint32_t *ret_count);
/* Its sequences are accepted, or one has ended. */
void model_reload_count(const struct request *request, int64_t sequences);

/* What the table's call came to, in this order. */
void model_reload_loaded(struct server *server, struct replica *const *fresh);
/* The new one answered. kv_tokens: how long a sequence can be in its KV memory. The replicas that
 * were served are the others now. */
void model_reload_take_over(struct server *server, const struct gpu_model *info,
                            uint64_t kv_tokens);
/* The new one does not take over, and is taken down. */
void model_reload_refuse(struct server *server, const struct error *error);
/* Taking it down takes too long; it may end all the same, and is told of then. engaged: its engines
 * were started. */
void model_reload_hang(struct server *server, bool engaged);
/* Nothing of the version that is not served waits or runs: its replicas may end. */
bool model_reload_idle(const struct server *server);
/* They end: nobody reaches them any more. */
void model_reload_forget(struct server *server);
/* They have ended. */
void model_reload_over(struct server *server);
