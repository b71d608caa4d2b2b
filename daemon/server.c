#include "daemon/server.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/base/log.h"
#include "protocol/frame.h"
#include "protocol/message.h"

#define RETRY_MIN_MS 10u
#define RETRY_MAX_MS 10000u
#define WELCOME_FRAME_MAX 2048u

static void limits_from_options(struct server *server)
{
    const struct options *options = server->options;
    struct admit_limits *limits = &server->limits;
    limits->connections_max = (uint32_t)options->connections_max;
    limits->sequences_max = options->queue_sequences;
    limits->tokens_max = options->queue_tokens;
    limits->batch_max = (uint32_t)options->batch_max;
    limits->n_max = (uint32_t)options->n_max;
    limits->logprobs_max = (uint32_t)options->logprobs_max;
    limits->stop_max = (uint32_t)options->stop_max;
}

int server_init(struct server *server, const struct options *options, struct outbox *outbox,
                uint64_t seed, time_us now_us, struct error *error)
{
    *server = (struct server){.options = options,
                              .outbox = outbox,
                              .seed = seed,
                              .next_request = 1,
                              .next_seq = 1,
                              .next_conn = 1,
                              .started_us = now_us,
                              .turn_us = now_us};
    server->receive = malloc(SERVER_RECEIVE_SIZE);
    if (!server->receive)
        return error_set(error, ERR_NO_MEMORY, "no memory for the receive buffer");
    struct list *const lists[] = {&server->conns,   &server->dirty, &server->dead,
                                  &server->held,    &server->stalled, &server->half,
                                  &server->greeting, &server->starved, &server->stats_asks};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        list_init(lists[i]);
    waiting_init(&server->waiting);
    deadlines_init(&server->deadlines);
    users_init(&server->users);
    index_init(&server->by_id);
    index_init(&server->by_client);
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

void server_resume(struct server *server)
{
    server->draining = false;
    if (server->phase == SERVER_DRAINING)
        server->phase = SERVER_READY;
}

bool server_idle(const struct server *server)
{
    if (server->live_requests > 0)
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
    double ms = server->wait_us * (double)server->waiting.count / 2000.0;
    return ms < RETRY_MIN_MS ? RETRY_MIN_MS : ms > RETRY_MAX_MS ? RETRY_MAX_MS : (uint32_t)ms;
}

uint64_t server_draw(struct server *server)
{
    uint64_t x = server->seed += 0x9e3779b97f4a7c15u; /* splitmix64 */
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* ---- connections ------------------------------------------------------------------------------- */

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
    int rc = admit_conn(&server->limits, server->load.connections, &error);
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
    conn->number = server->next_conn++;
    conn->peer = *peer;
    conn->user = user;
    conn->reading = true;
    list_init(&conn->ready);
    list_init(&conn->requests);
    list_append(&server->conns, &conn->conn_link);
    list_append(&server->greeting, &conn->greet_link);
    conn->greet_us = now_us;
    server->load.connections++;
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
    conn->user->load.connections--;
    users_put(&server->users, conn->user);
    conn->user = NULL;
    list_append(&server->dead, &conn->conn_link);
}

static void bury(struct server *server)
{
    struct list *link;
    while ((link = list_take(&server->dead)))
        free(container_of(link, struct conn, conn_link));
}

/* ---- sequences --------------------------------------------------------------------------------- */

static uint64_t client_key(const struct conn *conn, uint64_t client_id)
{
    return conn->number * 0x100000001b3u ^ client_id;
}

struct request *server_find(struct server *server, uint64_t id)
{
    list_each(link, index_bucket(&server->by_id, id))
    {
        struct request *request = container_of(link, struct request, id_link);
        if (request->id == id)
            return request;
    }
    return NULL;
}

struct request *server_find_client(struct server *server, const struct conn *conn,
                                   uint64_t client_id)
{
    list_each(link, index_bucket(&server->by_client, client_key(conn, client_id)))
    {
        struct request *request = container_of(link, struct request, client_link);
        if (request->conn == conn && request->client_id == client_id)
            return request;
    }
    return NULL;
}

/* Sequences that are not on a device hold a place in the queue: before, and until they are told. */
static void hold(struct server *server, const struct seq *seq)
{
    uint64_t tokens = seq_tokens(seq);
    server->load.sequences++;
    server->load.tokens += tokens;
    seq->request->user->load.sequences++;
    seq->request->user->load.tokens += tokens;
}

static void unhold(struct server *server, const struct seq *seq)
{
    uint64_t tokens = seq_tokens(seq);
    server->load.sequences--;
    server->load.tokens -= tokens;
    seq->request->user->load.sequences--;
    seq->request->user->load.tokens -= tokens;
}

void server_enqueue(struct server *server, struct request *request, struct conn *conn)
{
    request->conn = conn;
    request->user = conn->user;
    conn->user->references++;
    list_append(&conn->requests, &request->conn_link);
    list_append(&conn->user->requests, &request->user_link);
    list_append(index_bucket(&server->by_id, request->id), &request->id_link);
    list_append(index_bucket(&server->by_client, client_key(conn, request->client_id)),
                &request->client_link);
    conn->request_count++;
    server->live_requests++;
    server->live_sequences += request->seq_count;
    server->counts.requests_total++;
    server->counts.sequences_total += request->seq_count;
    for (uint32_t i = 0; i < request->seq_count; i++) {
        struct seq *seq = &request->seqs[i];
        waiting_push(&server->waiting, &conn->user->waiting, seq);
        hold(server, seq);
        if (seq->deadline_us)
            deadlines_add(&server->deadlines, seq);
    }
}

static void count_end(struct server *server, const struct seq *seq)
{
    uint64_t *const totals[] = {
        [FINISH_STOP] = &server->counts.finished_stop_total,
        [FINISH_LENGTH] = &server->counts.finished_length_total,
        [FINISH_CANCELLED] = &server->counts.finished_cancelled_total,
        [FINISH_DEADLINE] = &server->counts.finished_deadline_total,
        [FINISH_ERROR] = &server->counts.finished_error_total,
    };
    struct request *request = seq->request;
    uint32_t out = seq->job == JOB_GENERATE
                       ? atomic_load_explicit(&seq->out_count, memory_order_acquire)
                       : 0;
    (*totals[seq->finish])++;
    request->finished[seq->finish]++;
    request->prompt_tokens += seq->prompt_len;
    request->out_tokens += out;
    request->user->sequences_done++;
    request->user->tokens_in += seq->prompt_len;
    request->user->tokens_out += out;
}

static void log_request(const struct server *server, const struct request *request, time_us now_us)
{
    static const char *const names[] = {"stop", "length", "cancelled", "deadline", "error"};
    char ends[96] = "";
    size_t used = 0;
    time_us scheduled = 0;
    if (!server->options->log_requests || !log_enabled(LOG_INFO))
        return;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (request->finished[i] > 0)
            used += (size_t)snprintf(ends + used, sizeof(ends) - used, " %s=%u", names[i],
                                     request->finished[i]);
    for (uint32_t i = 0; i < request->seq_count; i++) {
        time_us at = request->seqs[i].stamps.scheduled_us;
        if (at && (!scheduled || at < scheduled))
            scheduled = at;
    }
    log_line(LOG_INFO, "request",
             "%" PRIu64 " uid=%" PRIu64 " job=%s priority=%d sequences=%u%s prompt_tokens=%" PRIu64
             " tokens=%" PRIu64 " queued_us=%" PRIu64 " total_us=%" PRIu64,
             request->id, request->user->id, job_name(request->job), request->priority,
             request->seq_count, ends, request->prompt_tokens, request->out_tokens,
             (scheduled ? scheduled : now_us) - request->arrived_us, now_us - request->arrived_us);
}

/* The sequence has ended and is the loop's, with finish (and failure) set: counts, the log, and news
 * for its connection. */
static void server_end(struct server *server, struct seq *seq, time_us now_us)
{
    struct request *request = seq->request;
    bool queued = seq->state == SEQ_WAITING;
    seq_state_set(seq, SEQ_ENDED);
    if (!seq->stamps.ended_us)
        seq->stamps.ended_us = now_us;
    deadlines_remove(&server->deadlines, seq);
    if (!queued)
        hold(server, seq);
    count_end(server, seq);
    server->live_sequences--;
    if (--request->seq_unended == 0)
        log_request(server, request, now_us);
    if (request->conn)
        conn_news(request->conn, seq);
    else
        server_release(server, seq);
}

static void retire(struct server *server, struct request *request)
{
    if (request->conn) {
        list_remove(&request->conn_link);
        request->conn->request_count--;
        list_remove(&request->client_link);
    }
    list_remove(&request->user_link);
    list_remove(&request->id_link);
    server->live_requests--;
    users_put(&server->users, request->user);
    request_free(request);
}

void server_release(struct server *server, struct seq *seq)
{
    struct request *request = seq->request;
    assert(seq->state == SEQ_ENDED && !seq->released);
    seq->released = true;
    unhold(server, seq);
    seq_free_room(seq);
    if (--request->seq_unfreed == 0)
        retire(server, request);
}

void server_cancel(struct server *server, struct seq *seq, enum finish reason, time_us now_us)
{
    if (seq->state == SEQ_WAITING) {
        waiting_remove(&server->waiting, &seq->request->user->waiting, seq);
        seq->finish = reason;
        server_end(server, seq, now_us);
    } else if (seq->state == SEQ_SENT && !seq->cancel_sent) {
        seq->cancel_sent = true;
        seq->cancel_reason = reason;
        deadlines_remove(&server->deadlines, seq);
        seq->replica->api->cancel(seq->replica, seq);
        seq->replica->mailed = true;
    }
}

/* A sequence's end may free the request: it stays until the walk is over. */
static void walk_begin(struct request *request)
{
    request->seq_unfreed++;
}

static void walk_end(struct server *server, struct request *request)
{
    if (--request->seq_unfreed == 0)
        retire(server, request);
}

void server_cancel_request(struct server *server, struct request *request, time_us now_us)
{
    walk_begin(request);
    for (uint32_t i = 0; i < request->seq_count; i++)
        server_cancel(server, &request->seqs[i], FINISH_CANCELLED, now_us);
    walk_end(server, request);
}

void server_orphan(struct server *server, struct request *request, time_us now_us)
{
    request->conn = NULL;
    list_remove(&request->client_link);
    walk_begin(request);
    for (uint32_t i = 0; i < request->seq_count; i++) {
        struct seq *seq = &request->seqs[i];
        if (seq->state != SEQ_WAITING && list_linked(&seq->wait_link))
            list_remove(&seq->wait_link); /* from the connection's news */
        if (seq->state != SEQ_ENDED)
            server_cancel(server, seq, FINISH_CANCELLED, now_us);
        else if (!seq->released)
            server_release(server, seq);
    }
    walk_end(server, request);
}

void server_cancel_all(struct server *server, time_us now_us)
{
    for (uint32_t i = 0; i < INDEX_BUCKETS; i++)
        list_each_safe(link, &server->by_id.buckets[i])
            server_cancel_request(server, container_of(link, struct request, id_link), now_us);
}

void server_fail(struct server *server, const struct error *error, time_us now_us)
{
    struct seq *seq;
    if (server->phase == SERVER_FAILED)
        return;
    server->phase = SERVER_FAILED;
    server->failure = *error;
    while ((seq = waiting_first(&server->waiting))) {
        waiting_remove(&server->waiting, &seq->request->user->waiting, seq);
        seq->finish = FINISH_ERROR;
        seq->failure = &server->failure;
        server_end(server, seq, now_us);
    }
}

/* ---- the turn ---------------------------------------------------------------------------------- */

static unsigned take_outbox(struct server *server, time_us now_us)
{
    unsigned control = 0, flags;
    struct queue_link *chain = outbox_drain(server->outbox, &control);
    struct seq *seq;
    while ((seq = outbox_next(&chain, &flags))) {
        bool owned = flags & OUTBOX_ENDED && (!seq->cancel_sent || flags & OUTBOX_CANCEL_SEEN);
        if (owned)
            server_end(server, seq, now_us);
        else if (!(flags & OUTBOX_ENDED) && seq->request->conn && seq->request->stream)
            conn_news(seq->request->conn, seq);
    }
    return control;
}

static void expire_deadlines(struct server *server, time_us now_us)
{
    struct seq *seq;
    while ((seq = deadlines_first(&server->deadlines)) && seq->deadline_us <= now_us)
        server_cancel(server, seq, FINISH_DEADLINE, now_us);
}

static void close_late(struct conn *conn, int code, const char *what, time_us now_us)
{
    struct error error;
    error_set(&error, code, "%s", what);
    conn_refuse(conn, &error, now_us);
}

/* The first of a list in order of time, when its delay is over. */
static struct conn *late(struct list *list, size_t link_offset, size_t since_offset,
                         time_us delay_us, time_us now_us)
{
    if (list_empty(list))
        return NULL;
    char *conn = (char *)list->next - link_offset;
    time_us since_us = *(time_us *)(void *)(conn + since_offset);
    return since_us + delay_us <= now_us ? (struct conn *)(void *)conn : NULL;
}
#define LATE(server, list, link, since, delay, now)                                                \
    late(&(server)->list, offsetof(struct conn, link), offsetof(struct conn, since), delay, now)

static void expire_conns(struct server *server, time_us now_us)
{
    const struct options *options = server->options;
    struct conn *conn;
    while ((conn = LATE(server, greeting, greet_link, greet_us, options->handshake_timeout,
                        now_us)))
        close_late(conn, ERR_TIMEOUT, "no HELLO came in time (handshake-timeout)", now_us);
    while ((conn = LATE(server, half, half_link, half_us, options->frame_timeout, now_us))) {
        if (conn->in_need == 0) { /* it waits for us, not for the client */
            list_remove(&conn->half_link);
            list_append(&server->half, &conn->half_link);
            conn->half_us = now_us;
            continue;
        }
        list_remove(&conn->half_link);
        close_late(conn, ERR_TIMEOUT, "the rest of a message did not come in time (frame-timeout)",
                   now_us);
    }
    while ((conn = LATE(server, stalled, stall_link, stall_us, options->stall_timeout, now_us))) {
        /* There is no telling somebody who does not read. */
        log_line(LOG_NOTICE, "conn", "connection %" PRIu64 " of uid %u did not read its answers for "
                                     "%" PRIu64 " ms and is closed",
                 conn->number, conn->peer.uid, options->stall_timeout / 1000);
        server->counts.slow_readers_total++;
        conn_close(conn, now_us);
    }
    while ((conn = LATE(server, held, held_link, held_us, SERVER_HOLD_US, now_us))) {
        conn->urgent = true;
        list_remove(&conn->held_link);
        if (!list_linked(&conn->dirty_link))
            list_append(&server->dirty, &conn->dirty_link);
    }
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

static void send_seq(struct server *server, struct replica *replica, struct seq *seq,
                     time_us now_us)
{
    waiting_remove(&server->waiting, &seq->request->user->waiting, seq);
    if (seq_make_room(seq, server->model.hidden, &server->failure)) {
        seq->finish = FINISH_ERROR;
        seq->failure = &server->failure;
        server_end(server, seq, now_us);
        return;
    }
    unhold(server, seq);
    seq_state_set(seq, SEQ_SENT);
    seq->replica = replica;
    replica->api->send(replica, seq);
    replica->mailed = true;
}

static void note_pace(struct server *server, uint32_t sent, time_us now_us)
{
    if (sent == 0)
        return;
    if (server->left_us) {
        double each = (double)(now_us - server->left_us) / sent;
        server->wait_us += (each - server->wait_us) / 8;
    }
    server->left_us = now_us;
}

static void dispatch(struct server *server, time_us now_us)
{
    struct place_room rooms[SERVER_REPLICAS_MAX];
    struct seq *seq = waiting_first(&server->waiting);
    uint32_t sent = 0;
    if (!seq || server->phase == SERVER_LOADING || server->phase == SERVER_FAILED)
        return;
    for (uint32_t i = 0; i < server->replica_count; i++)
        rooms[i] = server->replicas[i]->api->room(server->replicas[i]);
    for (; seq; seq = waiting_first(&server->waiting), sent++) {
        uint32_t pick = place_pick(rooms, server->replica_count, seq->prompt_len);
        if (pick == PLACE_NONE)
            break;
        send_seq(server, server->replicas[pick], seq, now_us);
        rooms[pick] = server->replicas[pick]->api->room(server->replicas[pick]);
    }
    note_pace(server, sent, now_us);
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

unsigned server_turn(struct server *server, time_us now_us)
{
    server->turn_us = now_us;
    unsigned control = take_outbox(server, now_us);
    expire_deadlines(server, now_us);
    expire_conns(server, now_us);
    feed_starved(server, now_us);
    dispatch(server, now_us);
    wake_replicas(server);
    if (control & OUTBOX_STATS && server->stats_awaited > 0)
        server->stats_awaited--;
    if (server->stats_asked_us &&
        (server->stats_awaited == 0 || server->stats_asked_us + SERVER_STATS_US <= now_us))
        control_stats(server, now_us);
    deliver(server, now_us);
    wake_replicas(server); /* who was found gone while writing is cancelled */
    bury(server);
    return control;
}

static void earlier(time_us *due_us, time_us at_us)
{
    if (*due_us == 0 || at_us < *due_us)
        *due_us = at_us;
}

#define FIRST(list, link, since)                                                                   \
    (container_of((list)->next, struct conn, link)->since)

time_us server_due(const struct server *server)
{
    const struct options *options = server->options;
    const struct seq *seq = deadlines_first(&server->deadlines);
    time_us due_us = 0;
    if (!list_empty(&server->dirty))
        return server->turn_us ? server->turn_us : 1;
    if (seq)
        earlier(&due_us, seq->deadline_us);
    if (!list_empty(&server->greeting))
        earlier(&due_us, FIRST(&server->greeting, greet_link, greet_us) +
                             options->handshake_timeout);
    if (!list_empty(&server->half))
        earlier(&due_us, FIRST(&server->half, half_link, half_us) + options->frame_timeout);
    if (!list_empty(&server->stalled))
        earlier(&due_us, FIRST(&server->stalled, stall_link, stall_us) + options->stall_timeout);
    if (!list_empty(&server->held))
        earlier(&due_us, FIRST(&server->held, held_link, held_us) + SERVER_HOLD_US);
    if (server->stats_asked_us)
        earlier(&due_us, server->stats_asked_us + SERVER_STATS_US);
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
    assert(server->live_requests == 0);
    deadlines_destroy(&server->deadlines);
    free(server->receive);
    server->receive = NULL;
}
