#include "daemon/request/server.h"

#include <assert.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/api/control.h"
#include "daemon/net/timeouts.h"
#include "daemon/request/dispatcher.h"
#include "daemon/request/errand.h"
#include "daemon/request/request_builder.h"
#include "daemon/request/request_table.h"
#include "daemon/text/tokenizer.h"
#include "protocol/base/log.h"
#include "protocol/frame.h"
#include "protocol/message.h"

#define RETRY_MIN_MS 10u
#define RETRY_MAX_MS 10000u
#define WELCOME_FRAME_MAX 2048u
#define TRIM_CONNECTIONS 64u /* fewer leave little */

static void limits_from_options(struct server *server)
{
    const struct options *options = server->options;
    struct admission_limits *limits = &server->limits;
    limits->connections_max = (uint32_t)options->connections_max;
    limits->sequences_max = options->queue_sequences;
    limits->tokens_max = options->queue_tokens;
    limits->batch_max = (uint32_t)options->batch_max;
    limits->n_max = (uint32_t)options->n_max;
    limits->logprobs_max = (uint32_t)options->logprobs_max;
    limits->stop_max = (uint32_t)options->stop_max;
    limits->results_max = options->results_max;
    server->waiting.share = (uint32_t)options->min_share;
    server->results_freed = true;                             /* there may be more room */
    (void)grants_read(&server->grants, options->users, NULL); /* options_check() has read it */
}

int server_init(struct server *server, const struct options *options,
                struct completion_queue *completions, uint64_t seed, time_us now_us,
                struct error *error)
{
    *server = (struct server){.options = options,
                              .completions = completions,
                              .seed = seed,
                              .next_request = 1,
                              .next_seq = 1,
                              .next_conn = 1,
                              .started_us = now_us,
                              .turn_us = now_us};
    server->receive = malloc(SERVER_RECEIVE_SIZE);
    if (!server->receive)
        return error_set(error, ERR_NO_MEMORY, "no memory for the receive buffer");
    struct list *const lists[] = {&server->conns,         &server->dirty,   &server->dead,
                                  &server->held,          &server->stalled, &server->half,
                                  &server->greeting,      &server->starved, &server->stats_asks,
                                  &server->stats_waiters, &server->errands};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        list_init(lists[i]);
    waiting_init(&server->waiting);
    deadlines_init(&server->deadlines);
    backlog_init(&server->backlog, 1);
    users_init(&server->users);
    index_init(&server->by_id);
    index_init(&server->by_client);
    server->limits.kv_tokens = UINT64_MAX; /* not known before a model is served */
    limits_from_options(server);
    return 0;
}

void server_serve(struct server *server, const struct gpu_model *model, uint32_t context_max,
                  uint64_t kv_tokens, const char *device, struct replica *const *replicas,
                  uint32_t replica_count)
{
    assert(replica_count > 0 && replica_count <= SERVER_REPLICAS_MAX);
    server->model = *model;
    server->limits.context_max = context_max;
    server->limits.kv_tokens = kv_tokens;
    snprintf(server->device, sizeof(server->device), "%s", device);
    memcpy(server->replicas, replicas, replica_count * sizeof(*replicas));
    server->replica_count = replica_count;
}

void server_ready(struct server *server, time_us now_us)
{
    if (server->phase != SERVER_LOADING)
        return;
    server->phase = server->draining ? SERVER_DRAINING : SERVER_READY;
    server->ready_us = now_us;
}

void server_drain(struct server *server)
{
    server->draining = true;
    if (server->phase == SERVER_READY)
        server->phase = SERVER_DRAINING;
}

void server_end(struct server *server)
{
    server->ending = true;
    server_drain(server);
}

void server_halt(struct server *server, time_us now_us)
{
    struct error error;
    error_set(&error, ERR_DRAINING, "the daemon ends");
    server_fail(server, &error, now_us);
}

void server_resume(struct server *server)
{
    if (server->ending)
        return;
    server->draining = false;
    if (server->phase == SERVER_DRAINING)
        server->phase = SERVER_READY;
}

bool server_idle(const struct server *server)
{
    if (server->live_requests > 0 || server->encodings > 0)
        return false;
    list_each(link, &server->conns)
    {
        if (conn_unsent(container_of(link, struct conn, conn_link)) > 0)
            return false;
    }
    return true;
}

void server_reload(struct server *server, const struct options *options)
{
    server->options = options;
    limits_from_options(server);
}

uint32_t server_retry_ms(const struct server *server)
{
    /* Half of what waits now is gone by then, at the pace of late. */
    double us = server->wait_us * (double)server->waiting.count;
    double texts_us = backlog_wait_us(&server->backlog);
    double ms = (us > texts_us ? us : texts_us) / 2000.0;
    return ms < RETRY_MIN_MS ? RETRY_MIN_MS : ms > RETRY_MAX_MS ? RETRY_MAX_MS : (uint32_t)ms;
}

uint64_t server_draw(struct server *server)
{
    uint64_t x = server->seed += 0x9e3779b97f4a7c15u; /* splitmix64 */
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* ---- connections -------------------------------------------------------------------------------
 */

/* The reason to somebody who got no connection, as far as it can be said by one write. */
static void turn_away(struct transport *transport, const struct error *error)
{
    struct message_error message = {.sequence = MESSAGE_NO_SEQUENCE, .error = *error};
    unsigned char frame[2048];
    size_t length = message_encode_error(frame, sizeof(frame), 0, FRAME_FLAG_LAST, &message);
    transport->api->send(transport, frame, length);
    transport->api->close(transport);
}

struct conn *server_accept(struct server *server, struct transport *transport,
                           const struct peer *peer, time_us now_us)
{
    struct error error;
    struct conn *conn = NULL;
    struct user *user = NULL;
    int rc = admission_conn(&server->limits, server->load.connections, &error);
    if (!rc) {
        conn = calloc(1, sizeof(*conn));
        user = users_get(&server->users, peer->uid);
        if (!conn || !user)
            rc = error_set(&error, ERR_NO_MEMORY, "no memory for a connection");
    }
    if (rc) {
        free(conn);
        if (user)
            users_put(&server->users, user);
        error.retry_after_ms = server_retry_ms(server);
        server->counts.connections_refused_total++;
        turn_away(transport, &error);
        return NULL;
    }
    conn->server = server;
    conn->transport = transport;
    conn->sink.number = server->next_conn++;
    conn->peer = *peer;
    conn->sink.user = user;
    conn->sink.news = conn_news;
    conn->sink.admin = peer->admin;
    conn->reading = true;
    list_init(&conn->ready);
    list_init(&conn->sink.requests);
    list_init(&conn->submits);
    list_init(&conn->texts);
    list_append(&server->conns, &conn->conn_link);
    list_append(&server->greeting, &conn->greet_link);
    conn->greet_us = now_us;
    server->load.connections++;
    if (server->connections_peak < server->load.connections)
        server->connections_peak = server->load.connections;
    user->load.connections++;
    server->counts.connections_total++;
    transport->api->watch(transport, true, false);
    return conn;
}

void server_welcome(struct conn *conn, time_us now_us)
{
    struct server *server = conn->server;
    struct message_welcome welcome = {
        .version = FRAME_VERSION,
        .frame_max = server->options->frame_max,
        .batch_max = server->limits.batch_max,
        .context_max = server->limits.context_max,
        .vocabulary = server->model.vocab,
        .logprobs_max = server->limits.logprobs_max,
        .n_max = server->limits.n_max,
        .text = model_text_texts(server->language, NULL) == 0,
    };
    snprintf(welcome.model, sizeof(welcome.model), "%.*s", MESSAGE_NAME_MAX - 1, server->model.id);
    snprintf(welcome.device, sizeof(welcome.device), "%.*s", MESSAGE_NAME_MAX - 1, server->device);
    void *room = conn_output(conn, WELCOME_FRAME_MAX);
    if (room)
        conn_output_done(conn, message_encode_welcome(room, WELCOME_FRAME_MAX, &welcome), true,
                         now_us);
}

void server_forget(struct server *server, struct conn *conn)
{
    list_each(link, &server->stats_asks)
    {
        struct stats_ask *ask = container_of(link, struct stats_ask, link);
        if (ask->conn == conn)
            ask->conn = NULL;
    }
    list_remove(&conn->conn_link);
    server->load.connections--;
    conn->sink.user->load.connections--;
    users_put(&server->users, conn->sink.user);
    conn->sink.user = NULL;
    list_append(&server->dead, &conn->conn_link);
}

/* What many connections leave lies in holes below what still lives, and the allocator keeps it:
 * once most of them are gone, it is given back. */
static void bury(struct server *server)
{
    struct list *link;
    bool any = !list_empty(&server->dead);
    while ((link = list_take(&server->dead)))
        free(container_of(link, struct conn, conn_link));
    if (any && server->connections_peak >= TRIM_CONNECTIONS &&
        server->load.connections < server->connections_peak / 8) {
        malloc_trim(0);
        /* What is left of many goes the same way once it is gone. */
        server->connections_peak = server->load.connections;
        if (server->connections_peak >= TRIM_CONNECTIONS / 8 &&
            server->connections_peak < TRIM_CONNECTIONS)
            server->connections_peak = TRIM_CONNECTIONS;
    }
}

void server_cancel_all(struct server *server, time_us now_us)
{
    struct error error;
    error_set(&error, ERR_DRAINING, "the daemon ends");
    error.retry_after_ms = 1000;
    errands_end(server, true, &error, now_us);
    for (uint32_t i = 0; i < INDEX_BUCKETS; i++)
        list_each_safe(link, &server->by_id.buckets[i]) request_table_cancel_request(
            server, container_of(link, struct request, id_link), now_us);
}

void server_fail(struct server *server, const struct error *error, time_us now_us)
{
    struct seq *seq;
    if (server->phase == SERVER_FAILED)
        return;
    server->phase = SERVER_FAILED;
    server->failure = *error;
    struct error told = *error;
    told.retry_after_ms = 1000;
    errands_end(server, true, &told, now_us);
    waiting_unpark(&server->waiting);
    while ((seq = waiting_first(&server->waiting))) {
        waiting_remove(&server->waiting, seq);
        seq->finish = FINISH_ERROR;
        seq->failure = &server->failure;
        request_table_end(server, seq, now_us);
    }
}

/* ---- the turn ----------------------------------------------------------------------------------
 */

static unsigned take_outbox(struct server *server, time_us now_us)
{
    unsigned control = 0, flags;
    struct mailbox_link *chain = completion_drain(server->completions, &control);
    struct seq *seq;
    while ((seq = completion_next(&chain, &flags))) {
        bool owned =
            flags & COMPLETION_ENDED && (!seq->cancel_sent || flags & COMPLETION_CANCEL_SEEN);
        if (owned)
            request_table_end(server, seq, now_us);
        else if (!(flags & COMPLETION_ENDED))
            request_table_progress(server, seq, now_us);
    }
    return control;
}

static void expire_deadlines(struct server *server, time_us now_us)
{
    struct deadline *first;
    while ((first = deadlines_first(&server->deadlines)) && first->at_us <= now_us)
        request_table_cancel(server, container_of(first, struct seq, deadline), FINISH_DEADLINE,
                             now_us);
}

static void feed_starved(struct server *server, time_us now_us)
{
    if (!server->input_freed)
        return;
    server->input_freed = false;
    struct list retry;
    list_init(&retry);
    while (!list_empty(&server->starved))
        list_append(&retry, list_take(&server->starved));
    struct list *link;
    while ((link = list_take(&retry)))
        conn_feed(container_of(link, struct conn, starve_link), now_us);
}

/* Once a turn, and before output is written: the device works meanwhile. */
static void wake_replicas(struct server *server)
{
    for (uint32_t i = 0; i < server->replica_count; i++) {
        struct replica *replica = server->replicas[i];
        if (replica->mailed)
            replica->api->wake(replica);
        replica->mailed = false;
    }
}

static void deliver(struct server *server, time_us now_us)
{
    struct list round;
    list_init(&round);
    while (!list_empty(&server->dirty))
        list_append(&round, list_take(&server->dirty));
    /* A connection that has more to say than one write takes comes again in the next turn. */
    while (!list_empty(&round))
        conn_deliver(container_of(round.next, struct conn, dirty_link), now_us);
}

/* What comes of them would be refused. */
static void refuse_drained(struct server *server, time_us now_us)
{
    struct error error;
    if (server->draining && !server->drained && request_builder_phase(server, &error))
        errands_end(server, false, &error, now_us);
    server->drained = server->draining;
}

unsigned server_turn(struct server *server, time_us now_us)
{
    server->turn_us = now_us;
    unsigned control = take_outbox(server, now_us);
    expire_deadlines(server, now_us);
    errands_expire(server, now_us);
    refuse_drained(server, now_us);
    timeouts_expire(server, now_us);
    feed_starved(server, now_us);
    dispatch(server, now_us);
    wake_replicas(server);
    if (control & COMPLETION_STATS && server->stats_awaited > 0)
        server->stats_awaited--;
    if (server->stats_asked_us &&
        (server->stats_awaited == 0 || server->stats_asked_us + SERVER_STATS_US <= now_us))
        control_stats(server, now_us);
    deliver(server, now_us);
    wake_replicas(server); /* who was found gone while writing is cancelled */
    bury(server);
    return control;
}

time_us server_due(const struct server *server)
{
    const struct deadline *first = deadlines_first(&server->deadlines);
    time_us due_us = timeouts_due(server);
    bool unpark = server->results_freed && !list_empty(&server->waiting.parked);
    if (!list_empty(&server->dirty) || unpark)
        return server->turn_us;
    if (first && (!due_us || first->at_us < due_us))
        due_us = first->at_us;
    time_us texts_us = backlog_due(&server->backlog);
    if (texts_us && (!due_us || texts_us < due_us))
        due_us = texts_us;
    time_us stats_us = server->stats_asked_us ? server->stats_asked_us + SERVER_STATS_US : 0;
    if (stats_us && (!due_us || stats_us < due_us))
        due_us = stats_us;
    return due_us;
}

void server_destroy(struct server *server, time_us now_us)
{
    while (!list_empty(&server->conns))
        conn_close(container_of(server->conns.next, struct conn, conn_link), now_us);
    take_outbox(server, now_us);
    bury(server);
    struct list *link;
    while ((link = list_take(&server->stats_asks)))
        free(container_of(link, struct stats_ask, link));
    assert(server->live_requests == 0 && server->encodings == 0);
    deadlines_destroy(&server->deadlines);
    backlog_destroy(&server->backlog);
    tokenizer_scratch_free(server->scratch);
    free(server->receive);
    server->receive = NULL;
}
