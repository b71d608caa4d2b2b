/* The logic of the loop: what happens between bytes that came and bytes that go. No libuv here.
 *
 * Whoever drives it (daemon/loop.c, a test, the simulation) hands in connections (server_accept,
 * conn_received, conn_writable, conn_lost) and calls server_turn() once after each batch of them, when
 * the outbox was written to, and when server_due() has come. A turn never blocks. Time comes in as a
 * parameter, and nothing here asks the system for anything but memory.
 *
 * Way of a sequence: request_make() -> waiting queue -> replica's mailbox -> outbox -> its
 * connection's `ready` list -> frames -> freed with its request. Whatever happens, it ends exactly
 * once, in server_end().
 *
 * loop thread, all of it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/admit.h"
#include "daemon/conn.h"
#include "daemon/deadline.h"
#include "daemon/index.h"
#include "daemon/option.h"
#include "daemon/request.h"
#include "daemon/user.h"
#include "daemon/waiting.h"

/* Bytes that one read takes at most; frames that come whole are handled where they were read. */
#define SERVER_RECEIVE_SIZE (256u << 10)
#define SERVER_REPLICAS_MAX 16

struct outbox;
struct stats;

enum server_phase { SERVER_LOADING, SERVER_READY, SERVER_DRAINING };

/* How the server reaches a replica. daemon/worker.c stands behind it; a test puts its own. Ownership
 * of the sequence goes with send, and comes back through the outbox. */
struct replica {
    const struct replica_api *api;
    uint32_t held;     /* sequences sent and not ended */
    uint32_t held_max; /* how many it may hold: what runs, and what starts next */
    bool dirty;        /* sent to or cancelled in this turn: is woken at its end */
};
struct replica_api {
    void (*send)(struct replica *replica, struct seq *seq);
    void (*cancel)(struct replica *replica, struct seq *seq); /* seq->cancel_reason is set */
    void (*wake)(struct replica *replica);                    /* once, after any number of these */
};

/* Counters since start, for stats and for the tests' books. accepted = done + failed + cancelled +
 * deadline when nothing is live. */
struct server_counts {
    uint64_t connections, connections_refused;
    uint64_t requests, requests_refused_busy, requests_refused_other;
    uint64_t accepted, done, failed, cancelled, deadline; /* sequences */
    uint64_t tokens_in, tokens_out;
    uint64_t frames_in, frames_bad, bytes_in, bytes_out;
    uint64_t slow_readers;
};

struct server {
    const struct options *options; /* borrowed; server_reload() puts another */
    struct admit_limits limits;    /* made from options and model */
    struct gpu_model model;
    const char *device; /* its name, for WELCOME; borrowed */
    uint32_t owner_uid; /* the daemon's */
    enum server_phase phase;
    time_us started_us, ready_us;
    time_us turn_us; /* of the present or last turn */

    struct replica *replicas[SERVER_REPLICAS_MAX];
    uint32_t replica_count;
    struct outbox *outbox;
    struct stats *stats;

    struct waiting waiting;
    struct deadlines deadlines;
    struct users users;
    struct load load; /* of all users */
    struct index by_id, by_client;
    uint64_t next_request, next_seq, next_conn, next_seed;
    uint32_t live_requests, live_sequences; /* not freed; accepted and not ended */
    double wait_us; /* smoothed time between two sequences that leave the waiting queue */
    time_us left_us; /* when the last one did */

    struct list conns, dirty, held, stalled, half, starved, dead;
    unsigned char *receive; /* the shared receive buffer */
    struct server_counts counts;
};

int server_init(struct server *server, const struct options *options, struct outbox *outbox,
                struct stats *stats, time_us now_us, struct error *error);
/* Closes every connection and frees all requests; no replica holds a sequence any more. */
void server_destroy(struct server *server, time_us now_us);

/* Before the first turn: what is served. */
void server_serve(struct server *server, const struct gpu_model *model, const char *device,
                  struct replica *const *replicas, uint32_t replica_count);
/* The weights are loaded and a probe was answered: waiting work starts. */
void server_ready(struct server *server, time_us now_us);

/* A connection over this transport. NULL when it is refused: then the reason was sent, and the
 * transport closed. */
struct conn *server_accept(struct server *server, struct transport *transport,
                           const struct peer *peer, time_us now_us);

/* Outbox, deadlines, waiting work to replicas, output to connections. */
void server_turn(struct server *server, time_us now_us);
/* When the next turn is due even if nothing happens; 0 = never. */
time_us server_due(const struct server *server);

/* No new work from now on; what was accepted goes on. And back. */
void server_drain(struct server *server);
void server_resume(struct server *server);
/* Nothing is accepted and unanswered: a drained daemon may end. */
bool server_idle(const struct server *server);
/* Ends all that is live with this error, as far as the loop can tell the clients: the device failed,
 * or the time for draining is over. Replicas are not asked. */
void server_fail(struct server *server, const struct error *error, time_us now_us);
void server_reload(struct server *server, const struct options *options);

/* ---- between the files of the server ---------------------------------------------------------- */

/* daemon/submit.c, daemon/control.c: one whole frame of a greeted connection. */
struct frame;
void submit_frame(struct conn *conn, const struct frame *frame, time_us now_us);
void control_frame(struct conn *conn, const struct frame *frame, time_us now_us);

/* Asks for the end of a sequence that has not ended, wherever it is now. */
void server_cancel(struct server *server, struct seq *seq, enum finish reason, time_us now_us);
void server_cancel_request(struct server *server, struct request *request, time_us now_us);
/* The sequence has ended and is the loop's: counts, log line, then news for its connection. */
void server_end(struct server *server, struct seq *seq, time_us now_us);
/* Its last frame is written, or nobody waits for it: the books are closed, and the request freed
 * with its last sequence. */
void server_release(struct server *server, struct seq *seq);
uint32_t server_retry_ms(const struct server *server);
