/* The logic of the loop: what happens between bytes that came and bytes that go. No libuv here.
 *
 * Whoever drives it (daemon/service/event_loop.c, a test, the simulation) hands in connections
 * (session_accept, conn_received, conn_ended, conn_writable, conn_lost) and calls server_turn()
 * once after each batch of them, when the completion queue was written to, and when server_due()
 * has come. A turn never blocks. Time comes in as a parameter, and nothing here asks the system for
 * anything but memory.
 *
 * Way of a sequence: request_make() -> waiting queue -> replica's mailbox -> completion queue ->
 * its connection's `ready` list -> frames -> freed with its request. Whatever happens, it ends
 * exactly once, in daemon/request/request_table.c.
 *
 * loop thread, all of it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/adapters/served_adapters.h"
#include "daemon/base/background.h"
#include "daemon/base/deadlines.h"
#include "daemon/base/grant.h"
#include "daemon/base/model_name.h"
#include "daemon/base/option.h"
#include "daemon/base/stats.h"
#include "daemon/jobs/job_worker.h"
#include "daemon/jobs/mapping.h"
#include "daemon/net/conn.h"
#include "daemon/request/adapter_tiers.h"
#include "daemon/request/admission.h"
#include "daemon/request/backlog.h"
#include "daemon/request/index.h"
#include "daemon/request/model_text.h"
#include "daemon/base/replica_select.h"
#include "daemon/request/request.h"
#include "daemon/request/served_model.h"
#include "daemon/request/users.h"
#include "daemon/request/wait_queue.h"
#include "daemon/worker/completion_queue.h"
#include "protocol/message.h"

#define SERVER_REPLICAS_MAX REPLICA_SELECT_MAX
/* Listening sockets, and how long the word about one is. */
#define SERVER_SOCKETS_MAX 8
#define SERVER_LOST_MAX 256
/* How long STATS waits for the workers' figures before it takes the last ones. */
#define SERVER_STATS_US 250000u

enum server_phase { SERVER_LOADING, SERVER_READY, SERVER_DRAINING, SERVER_FAILED };

/* Somebody who waits for the workers' figures; embedded there. */
struct stats_waiter {
    struct list link;
    void (*done)(struct stats_waiter *waiter, time_us now_us); /* off the list by then */
};

/* Jobs, which wait in a queue of their own, and by bytes in the place of tokens (dispatcher.h). */
struct server_jobs {
    struct job_programs *programs; /* borrowed; NULL: there are none */
    struct job_worker *worker;     /* for figures; borrowed; NULL: a test stands behind the replica */
    struct replica *replica;       /* what runs them; NULL while there are none */
    struct chunk_limits limits;
    uint64_t ahead_bytes;          /* what it may hold, so that it never waits for the loop */
    uint32_t ahead_jobs;
    uint64_t running_bytes; /* what it holds */
    uint32_t running;
    struct waiting waiting;
    struct job_mappings mappings; /* memory that clients share */
    double wait_us; /* as below */
    time_us left_us;
};

struct server {
    const struct options *options;     /* borrowed; server_reload() puts another */
    struct background *background;     /* borrowed; NULL: long work is done at once */
    struct admission_limits limits;    /* made from options; those of a model: served_model.h */
    /* The first is there also while none is served, and knows nothing. */
    struct served_model models[MODEL_LIST_MAX];
    uint32_t model_count;
    struct served_adapters adapters;       /* of the first */
    struct adapter_tiers tiers;
    const struct sleep_api *sleep_api;     /* who puts models to sleep; NULL: none ever sleeps */
    void *sleep_context;
    const struct reload_api *reload_api;   /* who loads new versions; NULL: nobody */
    void *reload_context;
    struct model_reload reload;
    char device[GPU_DEVICES_MAX * 8 + 64]; /* its name, for WELCOME and HEALTH */
    uint32_t owner_uid;                    /* the daemon's */
    enum server_phase phase;
    bool leaving;         /* the process ends soon: not ready any more, and requests are still taken */
    bool draining;        /* asked for; the phase says so once the model is loaded */
    bool ending;          /* the process ends: nobody resumes it */
    bool drained;         /* a turn has seen that, and refused what was not accepted yet */
    struct error failure; /* why the phase is FAILED, and what sequences that were not sent get */
    time_us started_us, ready_us;
    time_us turn_us; /* of the present or last turn */

    struct replica *replicas[SERVER_REPLICAS_MAX];
    uint32_t replica_count;
    struct completion_queue *completions;
    /* Sockets that clients cannot reach by their path any more, with the reason; "" for others. */
    char lost[SERVER_SOCKETS_MAX][SERVER_LOST_MAX];

    struct server_jobs jobs;
    struct deadlines deadlines;
    struct users users;
    struct load load; /* of all users */
    struct grants grants;
    bool results_freed; /* parked connections may try again */
    struct index by_id, by_client;
    uint64_t next_request, next_seq;
    uint64_t seed;           /* state of what draws seeds */
    uint64_t loads; /* of models, since start: what one has cached is nothing to the next */
    uint32_t live_requests;  /* not freed */
    uint64_t live_sequences; /* accepted and not ended */

    struct conn_set conns;
    struct backlog backlog;            /* what waits for a thread */
    struct list errands;               /* errand.link, all there are */
    uint32_t encodings; /* how many: texts and bodies that are off the loop, and an adapter */
    bool encodings_heavy;              /* one of them left memory to be given back */
    struct list stats_waiters;
    time_us stats_asked_us; /* of the first; 0 = none */
    struct stats_loop counts;
};

/* seed: where drawn seeds begin. The options, the completion queue and, later, the replicas outlive
 * it. */
int server_init(struct server *server, const struct options *options,
                struct completion_queue *completions, uint64_t seed, time_us now_us,
                struct error *error);
/* Closes every connection and frees all requests; no replica holds a sequence any more. */
void server_destroy(struct server *server, time_us now_us);

/* Before the first connection: what is served, called as served-model-name says. kv_tokens: how
 * long a sequence can be in KV memory. */
void server_serve(struct server *server, const struct gpu_model *model, uint32_t context_max,
                  uint64_t kv_tokens, const char *device, struct replica *const *replicas,
                  uint32_t replica_count);
/* The same, called as `names` says (model_names_read). */
void server_serve_as(struct server *server, const char *names, const struct gpu_model *model,
                     uint32_t context_max, uint64_t kv_tokens, const char *device,
                     struct replica *const *replicas, uint32_t replica_count);
/* Then, one after the other, the models behind the first, and what they are called. */
int server_serve_beside(struct server *server, const struct gpu_model *model, const char *names,
                        uint32_t context_max, uint64_t kv_tokens, struct replica *const *replicas,
                        uint32_t replica_count, struct error *error);
/* Before the first connection: the programs, and what runs them. lanes: how many chunks are on the
 * device at a time. */
void server_serve_jobs(struct server *server, struct job_programs *programs, struct replica *replica,
                       const struct chunk_limits *limits, uint32_t lanes);
/* The weights are loaded: waiting work starts. */
void server_ready(struct server *server, time_us now_us);

/* What the workers told, deadlines, waiting work to replicas, output to connections. Returns what
 * the workers told beside their sequences, a set of enum completion_control. */
unsigned server_turn(struct server *server, time_us now_us);
/* When the next turn is due even if nothing happens; 0 = never. */
time_us server_due(const struct server *server);

/* No new work from now on; what was accepted goes on. And back, where the process does not end. */
void server_drain(struct server *server);
void server_resume(struct server *server);
/* server_end() follows: readiness falls, and nothing else changes yet. */
void server_leave(struct server *server);
/* As server_drain, for good. */
void server_end(struct server *server);
/* The workers are being stopped: what is accepted and not sent yet, or still comes of texts, ends
 * with an error. */
void server_halt(struct server *server, time_us now_us);
/* Nothing is accepted and not answered, and all answers are written: a drained daemon may end. */
bool server_idle(const struct server *server);
/* The device failed: nothing is accepted any more, and what waits ends with this error. What
 * replicas hold, they end themselves. */
void server_fail(struct server *server, const struct error *error, time_us now_us);
/* Cancels all that is live: the time for draining is over. */
void server_cancel_all(struct server *server, time_us now_us);
void server_reload(struct server *server, const struct options *options);
/* False where only a new process helps: a device failed or is stuck, or a model on its way there. */
bool server_healthy(const struct server *server, time_us now_us);

/* ---- between the files of the server ----------------------------------------------------------
 */

/* `done` is called once the workers' figures are fresh, or now where they cannot be. */
void server_ask_stats(struct server *server, struct stats_waiter *waiter, time_us now_us);
/* The replica lacks memory of its device: others there give back what they only have cached. */
void server_yield_to(struct server *server, const struct replica *replica);
/* How long a sequence that came now would wait for its first step, by the pace of late and the
 * replicas' own estimates. */
double server_wait_us(const struct server *server);
/* When somebody who was refused for now should come back. */
uint32_t server_retry_ms(const struct server *server);
/* Whether there is a model: else tokens and texts are refused. */
bool server_has_model(const struct server *server);
/* The model of that name; NULL: there is none. Any thread. */
struct served_model *server_find_model(struct server *server, const char *name);
/* What its requests are admitted by. */
struct admission_limits server_limits(const struct server *server,
                                      const struct served_model *model);
/* Sequences that wait for any model. */
uint64_t server_waiting(const struct server *server);
/* A job is the worker's, or is back. */
void server_job_sent(struct server *server, const struct seq *seq);
void server_job_back(struct server *server, const struct seq *seq);
/* The next of the drawn seeds. */
uint64_t server_draw(struct server *server);
