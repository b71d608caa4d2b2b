#include "daemon/api/control.h"

#include <inttypes.h>
#include <stdlib.h>

#include "daemon/api/metrics.h"
#include "daemon/api/session.h"
#include "daemon/api/status.h"
#include "daemon/api/submit.h"
#include "daemon/request/request_builder.h"
#include "daemon/request/request_table.h"
#include "daemon/request/server.h"
#include "protocol/base/log.h"
#include "protocol/frame.h"
#include "protocol/message.h"

/* STATS that one connection may have waiting. */
#define ASKS_MAX 16u

static void answer(struct session *session, uint8_t type, uint64_t client_id, const char *head,
                   size_t length, time_us now_us)
{
    size_t size = FRAME_HEADER_SIZE + frame_pad(length);
    void *room = conn_output(&session->conn, size);
    if (!room)
        return;
    session->conn.tokens_request = 0;
    size_t used = message_encode_control(room, size, type, FRAME_FLAG_ANSWER | FRAME_FLAG_LAST,
                                         client_id, head, length);
    conn_output_done(&session->conn, used, true, now_us);
}

static void refuse(struct session *session, const struct frame *frame, const struct error *error,
                   time_us now_us)
{
    request_builder_log_refusal(session->server, session->sink.user, 0, error);
    conn_error(&session->conn, frame->id, MESSAGE_NO_SEQUENCE, true, error, now_us);
}

/* ---- cancel ------------------------------------------------------------------------------------
 */

/* By the client's own number there is no answer but the ends of its sequences. What has ended
 * already is a race and no mistake, by either number. */
static int cancel(struct session *session, const struct frame *frame, time_us now_us,
                  struct error *error)
{
    struct server *server = session->server;
    uint64_t id;
    int rc = message_decode_cancel(frame, &id, error);
    if (rc)
        return rc;
    struct request *request = id ? request_table_find(server, id)
                                 : request_table_find_client(server, &session->sink, frame->id);
    if (!request && id >= server->next_request)
        return error_set(error, ERR_NOT_FOUND, "there is no request %" PRIu64, id);
    if (request && id && !session->conn.peer.admin && request->user != session->sink.user)
        return error_set(error, ERR_DENIED, "request %" PRIu64 " is another user's", id);
    if (request)
        request_table_cancel_request(server, request, now_us);
    else if (!id)
        submit_cancel(session, frame->id, now_us);
    if (id)
        answer(session, FRAME_CANCEL, frame->id, "", 0, now_us);
    return 0;
}

/* ---- stats -------------------------------------------------------------------------------------
 */

static void refuse_memory(struct session *session, uint64_t client_id, time_us now_us)
{
    struct error error;
    error_set(&error, ERR_NO_MEMORY, "no memory for the answer");
    conn_error(&session->conn, client_id, MESSAGE_NO_SEQUENCE, true, &error, now_us);
}

static void write_page(struct json_writer *writer, const void *context)
{
    const struct out *page = context;
    json_open(writer, NULL, '{');
    json_put_string(writer, "prometheus", page->buffer.data, page->buffer.length);
    json_close(writer, '}');
}

static void answer_prometheus(struct session *session, uint64_t client_id, time_us now_us)
{
    struct out page = {0}, answered = {0};
    metrics_write(&page, session->server, now_us);
    out_json(&answered, write_page, &page);
    if (page.failed || answered.failed)
        refuse_memory(session, client_id, now_us);
    else
        answer(session, FRAME_STATS, client_id, answered.buffer.data, answered.buffer.length,
               now_us);
    out_clear(&page);
    out_clear(&answered);
}

static void answer_stats(struct session *session, uint64_t client_id,
                         const struct message_stats *want, time_us now_us)
{
    struct server *server = session->server;
    uint32_t listed =
        server->live_requests < STATUS_REQUESTS_MAX ? server->live_requests : STATUS_REQUESTS_MAX;
    size_t size = STATUS_SIZE_MAX + (want->requests ? listed * STATUS_REQUEST_SIZE_MAX : 0) +
                  (want->buckets ? STATUS_BUCKETS_SIZE_MAX : 0);
    if (want->prometheus) {
        answer_prometheus(session, client_id, now_us);
        return;
    }
    char *text = malloc(size);
    if (!text) {
        refuse_memory(session, client_id, now_us);
        return;
    }
    struct json_writer writer;
    json_writer_init(&writer, text, size);
    status_stats(server, &session->conn.peer, want, &writer, now_us);
    answer(session, FRAME_STATS, client_id, text, writer.used < size ? writer.used : size, now_us);
    free(text);
}

/* A STATS that waits for the workers' figures. */
struct stats_ask {
    struct stats_waiter waiter;
    struct list link;        /* session.stats_asks */
    struct session *session; /* NULL once the client is gone */
    uint64_t client_id;
    struct message_stats want;
};

static void fresh(struct stats_waiter *waiter, time_us now_us)
{
    struct stats_ask *ask = container_of(waiter, struct stats_ask, waiter);
    if (ask->session) {
        list_remove(&ask->link);
        ask->session->stats_asked--;
        answer_stats(ask->session, ask->client_id, &ask->want, now_us);
    }
    free(ask);
}

void control_forget(struct session *session)
{
    struct list *link;
    while ((link = list_take(&session->stats_asks)))
        container_of(link, struct stats_ask, link)->session = NULL;
    session->stats_asked = 0;
}

static int stats(struct session *session, const struct frame *frame, time_us now_us,
                 struct error *error)
{
    struct message_stats want;
    int rc = message_decode_stats(frame, &want, error);
    if (rc)
        return rc;
    if (session->stats_asked >= ASKS_MAX)
        return error_limit(error, ERR_BUSY, ASKS_MAX, session->stats_asked,
                           "%u answers are on their way already", ASKS_MAX);
    struct stats_ask *ask = malloc(sizeof(*ask));
    if (!ask)
        return error_set(error, ERR_NO_MEMORY, "no memory for the answer");
    *ask = (struct stats_ask){
        .waiter.done = fresh, .session = session, .client_id = frame->id, .want = want};
    list_append(&session->stats_asks, &ask->link);
    session->stats_asked++;
    server_ask_stats(session->server, &ask->waiter, now_us);
    return 0;
}

/* ---- the rest ----------------------------------------------------------------------------------
 */

static void answer_status(struct session *session, const struct frame *frame, time_us now_us)
{
    char text[STATUS_SIZE_MAX / 4];
    struct json_writer writer;
    json_writer_init(&writer, text, sizeof(text));
    if (frame->type == FRAME_MODEL)
        status_model(session->server, &writer);
    else
        status_health(session->server, &writer, now_us);
    answer(session, frame->type, frame->id, text, writer.used, now_us);
}

static int drain_or_resume(struct session *session, const struct frame *frame, time_us now_us,
                           struct error *error)
{
    bool drain = frame->type == FRAME_DRAIN;
    if (!session->conn.peer.admin)
        return error_set(error, ERR_DENIED,
                         "%s is for root, the daemon's user and members of admin-group",
                         drain ? "drain" : "resume");
    if (!drain && session->server->ending)
        return error_set(error, ERR_DRAINING, "the daemon ends: there is no going back");
    if (drain)
        server_drain(session->server);
    else
        server_resume(session->server);
    log_line(LOG_NOTICE, "server", "uid %u %s", session->conn.peer.uid,
             drain ? "lets the daemon drain: no new work is accepted"
                   : "ended the draining: work is accepted again");
    answer_status(session, frame, now_us);
    return 0;
}

static int control(struct session *session, const struct frame *frame, time_us now_us,
                   struct error *error)
{
    switch (frame->type) {
    case FRAME_CANCEL:
        return cancel(session, frame, now_us, error);
    case FRAME_STATS:
        return stats(session, frame, now_us, error);
    case FRAME_HEALTH:
    case FRAME_MODEL:
        answer_status(session, frame, now_us);
        return 0;
    case FRAME_DRAIN:
    case FRAME_RESUME:
        return drain_or_resume(session, frame, now_us, error);
    default:
        return error_set(error, ERR_BAD_STATE, "a client does not send messages of type %u",
                         frame->type);
    }
}

void control_frame(struct session *session, const struct frame *frame, time_us now_us)
{
    struct error error;
    if (control(session, frame, now_us, &error))
        refuse(session, frame, &error, now_us);
}
