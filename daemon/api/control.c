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
#define ANSWER_ROOM ((size_t)16 << 10) /* what most answers take */
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
    request_builder_log_refusal(session->server, session->sink.user->name, 0, error);
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

/* However long it is: most have room at once, the others are written twice. */
void control_answer(struct session *session, uint8_t type, uint64_t client_id, out_writer write,
                    const void *context, time_us now_us)
{
    struct out out = {0};
    out.failed = !buffer_reserve(&out.buffer, ANSWER_ROOM, SIZE_MAX);
    if (!out.failed)
        out_json(&out, write, context);
    if (out.failed)
        refuse_memory(session, client_id, now_us);
    else
        answer(session, type, client_id, out.buffer.data, out.buffer.length, now_us);
    out_clear(&out);
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
    struct out page = {0};
    metrics_write(&page, session->server, now_us);
    if (page.failed)
        refuse_memory(session, client_id, now_us);
    else
        control_answer(session, FRAME_STATS, client_id, write_page, &page, now_us);
    out_clear(&page);
}

struct telling {
    struct session *session;
    const struct message_stats *want;
    time_us now_us;
};

static void write_stats(struct json_writer *writer, const void *context)
{
    const struct telling *telling = context;
    const struct session *session = telling->session;
    status_stats(session->server, &session->conn.peer, telling->want, writer, telling->now_us);
}

static void answer_stats(struct session *session, uint64_t client_id,
                         const struct message_stats *want, time_us now_us)
{
    const struct telling telling = {session, want, now_us};
    if (want->prometheus)
        answer_prometheus(session, client_id, now_us);
    else
        control_answer(session, FRAME_STATS, client_id, write_stats, &telling, now_us);
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

struct served_model *control_model(struct server *server, const char *name, struct error *error)
{
    struct served_model *model =
        name && name[0] ? server_find_model(server, name) : &server->models[0];
    if (!model)
        error_set(error, ERR_NOT_FOUND, "there is no model %.64s here", name);
    return model;
}

struct asked_model {
    const struct server *server;
    const struct served_model *model;
};

static void write_model(struct json_writer *writer, const void *context)
{
    const struct asked_model *asked = context;
    status_model(asked->server, asked->model, writer);
}

/* Its answer says how it stands: what was asked comes about soon. */
static int change_model(struct session *session, struct served_model *model, bool sleep,
                        time_us now_us, struct error *error)
{
    const char *word = sleep ? "sleep" : "wake";
    if (!session->conn.peer.admin)
        return error_set(error, ERR_DENIED,
                         "%s is for root, the daemon's user and members of admin-group", word);
    int rc = sleep ? model_sleep_ask(session->server, model, error) : 0;
    if (!sleep)
        model_wake_ask(session->server, model, now_us);
    if (!rc)
        log_line(LOG_NOTICE, "server", "uid %u lets %s %s", session->conn.peer.uid, model->info.id,
                 word);
    return rc;
}

/* Likewise: its answers say what has come of it. */
static int reload_model(struct session *session, struct served_model *model, const char *directory,
                        struct error *error)
{
    if (!session->conn.peer.admin)
        return error_set(error, ERR_DENIED,
                         "reload is for root, the daemon's user and members of admin-group");
    int rc = model_reload_ask(session->server, model, directory, error);
    if (!rc)
        log_line(LOG_NOTICE, "server", "uid %u reloads %s", session->conn.peer.uid, model->info.id);
    return rc;
}

static int answer_model(struct session *session, const struct frame *frame, time_us now_us,
                        struct error *error)
{
    struct message_model message;
    int rc = message_decode_model(frame, &message, error);
    if (rc)
        return rc;
    struct served_model *model = control_model(session->server, message.model, error);
    if (!model)
        return -ERR_NOT_FOUND;
    if (message.change)
        rc = change_model(session, model, message.sleep, now_us, error);
    if (message.reload)
        rc = reload_model(session, model, message.directory, error);
    const struct asked_model asked = {session->server, model};
    if (!rc)
        control_answer(session, frame->type, frame->id, write_model, &asked, now_us);
    return rc;
}

static void write_health(struct json_writer *writer, const void *context)
{
    const struct telling *telling = context;
    status_health(telling->session->server, writer, telling->now_us);
}

static void answer_status(struct session *session, const struct frame *frame, time_us now_us)
{
    const struct telling telling = {.session = session, .now_us = now_us};
    control_answer(session, frame->type, frame->id, write_health, &telling, now_us);
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
    case FRAME_MODEL:
        return answer_model(session, frame, now_us, error);
    case FRAME_HEALTH:
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
