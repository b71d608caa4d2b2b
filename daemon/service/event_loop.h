/* The loop: libuv around the server. Callbacks check status, move bytes and call one function of
 * the logic; once per iteration the server takes its turn, which writes each connection's output by
 * one write. The only timer that runs for requests is one for the earliest due time of all; idle,
 * none does but the watchdog's.
 *
 * loop thread. Lifetime: event_loop_init, event_loop_run until it returns, event_loop_destroy.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/api/agent.h"
#include "daemon/base/background.h"
#include "daemon/http/http_server.h"
#include "daemon/jobs/job_worker.h"
#include "daemon/net/listen.h"
#include "daemon/net/uv_transport.h"
#include "daemon/request/model_text.h"
#include "daemon/request/server.h"
#include "daemon/service/ending.h"
#include "daemon/service/reach.h"
#include "daemon/service/reloader.h"
#include "daemon/service/self_test.h"
#include "daemon/service/sleeper.h"
#include "daemon/service/threadpool.h"
#include "daemon/worker/trace_file.h"
#include "daemon/worker/replica.h"

/* Exit codes: <sysexits.h>'s, as service managers know them. */
#define EXIT_DEVICE 75 /* EX_TEMPFAIL: a restart may help */
#define EXIT_CONFIG 78 /* EX_CONFIG: it will not */

struct event_loop_listener {
    struct event_loop *loop;
    struct listener socket;
    bool http, agent; /* neither: the native protocol */
    enum http_server_kind kind; /* of HTTP */
    uv_poll_t poll;
    bool open, paused; /* paused: nobody can be accepted now, and is looked for a little later */
    struct reach reach;
};

struct event_loop {
    uv_loop_t uv;
    struct server server;
    struct completion_queue completions;
    struct replica_list replicas; /* those of a model that sleeps have no worker */
    struct job_worker *jobs; /* NULL: no programs */
    struct uv_transports links;
    struct threadpool pool; /* the server's background */
    struct model_text texts[MODEL_LIST_MAX]; /* of each model */
    struct sleeper sleeper;
    struct reloader reloader;
    struct http_server front; /* HTTP */
    struct agent agent;
    struct trace_file trace_file;

    uv_async_t wake;  /* the completion queue was written to */
    uv_async_t asked; /* SIGTERM or SIGINT */
    uv_check_t check;
    uv_timer_t due;   /* the earliest of what server and stages wait for */
    uv_idle_t again;   /* active: a turn is due at once, after a look at the descriptors */
    uv_timer_t resume; /* of listeners that are paused */
    uv_timer_t pulse;  /* watchdog, word that loading goes on, the probe once more */
    uv_signal_t hangup;
    struct event_loop_listener listeners[LISTEN_MAX];
    uint32_t listener_count;
    int spare_fd; /* given up for a moment to turn somebody away when descriptors run out */
    uint32_t admin_gid;

    bool touched;   /* something happened: the server takes a turn */
    time_us due_us; /* what the timer stands at; 0 = not armed */
    struct ending ending;
    unsigned heard; /* signals that asked for the end */
    int exit_code;
    bool told_loaded, told_ready, told_stuck, reload_failed;
    struct self_test probe;
    uint32_t loading_progress; /* as it last moved */
    time_us loading_moved_us;

    /* SIGHUP: new options, or an error and nothing has changed. */
    int (*reload)(void *context, const struct options *now, struct options **ret_next,
                  struct error *error);
    void *context;
    struct options *options; /* owned from event_loop_init on */
};

/* Takes the options over. reload may be NULL. */
int event_loop_init(struct event_loop *loop, struct options *options, uint64_t seed,
              int (*reload)(void *context, const struct options *now, struct options **ret_next,
                            struct error *error),
              void *context, struct error *error);
/* Makes the listeners that come next able to speak HTTP. */
int event_loop_serve_http(struct event_loop *loop, uint64_t salt, struct error *error);
/* The same for a listener of HTTP. */
int event_loop_listen_http(struct event_loop *loop, const struct listener *listener, enum http_server_kind kind,
                           struct error *error);
/* The same for one that tells load balancers how much work may come (daemon/api/agent.h). */
int event_loop_listen_agent(struct event_loop *loop, const struct listener *listener,
                            struct error *error);
/* Takes the socket over. */
int event_loop_listen(struct event_loop *loop, const struct listener *listener, struct error *error);
/* Takes the replicas over, starts the workers that they have, and meanwhile reads the models'
 * tokenizers. */
int event_loop_start(struct event_loop *loop, const struct model_list *models,
                     struct replica_worker *const *replicas, uint32_t count, struct error *error);
/* Versions of these models may be loaded while they are served; after the sleeper has begun. */
void event_loop_take_models(struct event_loop *loop, struct model_list *list, reloader_open open,
                            void *context);
/* Takes the worker of jobs over; before event_loop_start(), which starts it. */
void event_loop_take_jobs(struct event_loop *loop, struct job_worker *jobs);
/* Until the end; the exit code. Does not return after the device has failed, or when asked a second
 * time to end: then the process does. */
int event_loop_run(struct event_loop *loop);
void event_loop_destroy(struct event_loop *loop);

/* For callbacks of timers: the turn comes in this iteration, after descriptors were looked at and
 * without a sleep. Should the loop have been late, because the machine or the process stood still,
 * then what clients did meanwhile is seen before anybody's time is over. What is due again at once
 * comes that way, too, never by a timer of 0 ms: libuv calls timers until none is due, and one that
 * arms itself so keeps it from looking at anything else. */
void event_loop_soon(struct event_loop *loop);

/* A turn is due in this iteration. */
static inline void event_loop_touch(struct event_loop *loop)
{
    loop->touched = true;
}
