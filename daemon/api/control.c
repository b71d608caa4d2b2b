#include "daemon/api/control.h"

#include <inttypes.h>
#include <stdlib.h>

#include "daemon/api/metrics.h"
#include "daemon/api/status.h"
#include "daemon/api/submit.h"
#include "daemon/request/request_table.h"
#include "daemon/request/server.h"
#include "protocol/base/log.h"
#include "protocol/frame.h"
#include "protocol/message.h"

/* STATS that one connection may have waiting. */
#define ASKS_MAX 16u

static void answer(struct conn *conn, uint8_t type, uint64_t client_id, const char *head,
                   size_t length, time_us now_us)
{
    size_t size = FRAME_HEADER_SIZE + frame_pad(length);
    void *room = conn_output(conn, size);
    if (!room)
        return;
    conn->tokens_request = 0;
    size_t used = message_encode_control(room, size, type, FRAME_FLAG_ANSWER | FRAME_FLAG_LAST,
                                         client_id, head, length);
    conn_output_done(conn, used, true, now_us);
}

static void refuse(struct conn *conn, const struct frame *frame, const struct error *error,
                   time_us now_us)
{
    conn_error(conn, frame->id, MESSAGE_NO_SEQUENCE, true, error, now_us);
}

/* ---- cancel ------------------------------------------------------------------------------------
 */

/* By the client's own number there is no answer but the ends of its sequences. What has ended
 * already is a race and no mistake, by either number. */
static int cancel(struct conn *conn, const struct frame *frame, time_us now_us, struct error *error)
{
    struct server *server = conn->server;
    uint64_t id;
    int rc = message_decode_cancel(frame, &id, error);
    if (rc)
        return rc;
    struct request *request = id ? request_table_find(server, id)
                                 : request_table_find_client(server, &conn->sink, frame->id);
    if (!request && id >= server->next_request)
        return error_set(error, ERR_NOT_FOUND, "there is no request %" PRIu64, id);
    if (request && id && !conn->peer.admin && request->user != conn->sink.user)
        return error_set(error, ERR_DENIED, "request %" PRIu64 " is another user's", id);
    if (request)
        request_table_cancel_request(server, request, now_us);
    else if (!id)
        submit_cancel(conn, frame->id, now_us);
    if (id)
        answer(conn, FRAME_CANCEL, frame->id, "", 0, now_us);
    return 0;
}

/* ---- stats -------------------------------------------------------------------------------------
 */

static void refuse_memory(struct conn *conn, uint64_t client_id, time_us now_us)
{
    struct error error;
    error_set(&error, ERR_NO_MEMORY, "no memory for the answer");
    conn_error(conn, client_id, MESSAGE_NO_SEQUENCE, true, &error, now_us);
}

static void write_page(struct json_writer *writer, const void *context)
{
    const struct out *page = context;
    json_open(writer, NULL, '{');
    json_put_string(writer, "prometheus", page->buffer.data, page->buffer.length);
    json_close(writer, '}');
}

static void answer_prometheus(struct conn *conn, uint64_t client_id, time_us now_us)
{
    struct out page = {0}, answered = {0};
    metrics_write(&page, conn->server, now_us);
    out_json(&answered, write_page, &page);
    if (page.failed || answered.failed)
        refuse_memory(conn, client_id, now_us);
    else
        answer(conn, FRAME_STATS, client_id, answered.buffer.data, answered.buffer.length, now_us);
    out_clear(&page);
    out_clear(&answered);
}

static void answer_stats(struct conn *conn, uint64_t client_id, const struct message_stats *want,
                         time_us now_us)
{
    struct server *server = conn->server;
    uint32_t listed =
        server->live_requests < STATUS_REQUESTS_MAX ? server->live_requests : STATUS_REQUESTS_MAX;
    size_t size = STATUS_SIZE_MAX + (want->requests ? listed * STATUS_REQUEST_SIZE_MAX : 0) +
                  (want->buckets ? STATUS_BUCKETS_SIZE_MAX : 0);
    if (want->prometheus) {
        answer_prometheus(conn, client_id, now_us);
        return;
    }
    char *text = malloc(size);
    if (!text) {
        refuse_memory(conn, client_id, now_us);
        return;
    }
    struct json_writer writer;
    json_writer_init(&writer, text, size);
    status_stats(server, &conn->peer, want, &writer, now_us);
    answer(conn, FRAME_STATS, client_id, text, writer.used < size ? writer.used : size, now_us);
    free(text);
}

static void ask_workers(struct server *server, time_us now_us)
{
    server->stats_asked_us = now_us;
    server->stats_awaited = server->replica_count;
    for (uint32_t i = 0; i < server->replica_count; i++)
        server->replicas[i]->api->ask_stats(server->replicas[i]);
}

void control_stats(struct server *server, time_us now_us)
{
    struct list *link;
    server->stats_asked_us = 0;
    while ((link = list_take(&server->stats_asks))) {
        struct stats_ask *ask = container_of(link, struct stats_ask, link);
        if (ask->conn) {
            ask->conn->stats_asked--;
            answer_stats(ask->conn, ask->client_id, &ask->want, now_us);
        }
        free(ask);
    }
    while ((link = list_take(&server->stats_waiters))) {
        struct stats_waiter *waiter = container_of(link, struct stats_waiter, link);
        waiter->done(waiter, now_us);
    }
}

void control_wait_stats(struct server *server, struct stats_waiter *waiter, time_us now_us)
{
    if (server->phase == SERVER_LOADING || server->phase == SERVER_FAILED) {
        waiter->done(waiter, now_us);
        return;
    }
    list_append(&server->stats_waiters, &waiter->link);
    if (!server->stats_asked_us)
        ask_workers(server, now_us);
}

static int stats(struct conn *conn, const struct frame *frame, time_us now_us, struct error *error)
{
    struct server *server = conn->server;
    struct message_stats want;
    int rc = message_decode_stats(frame, &want, error);
    if (rc)
        return rc;
    if (server->phase == SERVER_LOADING || server->phase == SERVER_FAILED) {
        answer_stats(conn, frame->id, &want, now_us);
        return 0;
    }
    if (conn->stats_asked >= ASKS_MAX)
        return error_limit(error, ERR_BUSY, ASKS_MAX, conn->stats_asked,
                           "%u answers are on their way already", ASKS_MAX);
    struct stats_ask *ask = malloc(sizeof(*ask));
    if (!ask)
        return error_set(error, ERR_NO_MEMORY, "no memory for the answer");
    *ask = (struct stats_ask){.conn = conn, .client_id = frame->id, .want = want};
    list_append(&server->stats_asks, &ask->link);
    conn->stats_asked++;
    if (!server->stats_asked_us)
        ask_workers(server, now_us);
    return 0;
}

/* ---- the rest ----------------------------------------------------------------------------------
 */

static void answer_status(struct conn *conn, const struct frame *frame, time_us now_us)
{
    char text[STATUS_SIZE_MAX / 4];
    struct json_writer writer;
    json_writer_init(&writer, text, sizeof(text));
    if (frame->type == FRAME_MODEL)
        status_model(conn->server, &writer);
    else
        status_health(conn->server, &writer, now_us);
    answer(conn, frame->type, frame->id, text, writer.used, now_us);
}

static int drain_or_resume(struct conn *conn, const struct frame *frame, time_us now_us,
                           struct error *error)
{
    bool drain = frame->type == FRAME_DRAIN;
    if (!conn->peer.admin)
        return error_set(error, ERR_DENIED,
                         "%s is for root, the daemon's user and members of admin-group",
                         drain ? "drain" : "resume");
    if (!drain && conn->server->ending)
        return error_set(error, ERR_DRAINING, "the daemon ends: there is no going back");
    if (drain)
        server_drain(conn->server);
    else
        server_resume(conn->server);
    log_line(LOG_NOTICE, "server", "uid %u %s", conn->peer.uid,
             drain ? "lets the daemon drain: no new work is accepted"
                   : "ended the draining: work is accepted again");
    answer_status(conn, frame, now_us);
    return 0;
}

static int control(struct conn *conn, const struct frame *frame, time_us now_us,
                   struct error *error)
{
    switch (frame->type) {
    case FRAME_CANCEL:
        return cancel(conn, frame, now_us, error);
    case FRAME_STATS:
        return stats(conn, frame, now_us, error);
    case FRAME_HEALTH:
    case FRAME_MODEL:
        answer_status(conn, frame, now_us);
        return 0;
    case FRAME_DRAIN:
    case FRAME_RESUME:
        return drain_or_resume(conn, frame, now_us, error);
    default:
        return error_set(error, ERR_BAD_STATE, "a client does not send messages of type %u",
                         frame->type);
    }
}

void control_frame(struct conn *conn, const struct frame *frame, time_us now_us)
{
    struct error error;
    if (control(conn, frame, now_us, &error))
        refuse(conn, frame, &error, now_us);
}
