#include "daemon/api/session.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/api/control.h"
#include "daemon/api/job.h"
#include "daemon/api/job_timeline.h"
#include "daemon/api/reply.h"
#include "daemon/api/submit.h"
#include "daemon/api/tokenize.h"
#include "daemon/request/request_table.h"
#include "daemon/request/server.h"
#include "protocol/base/log.h"
#include "protocol/frame.h"
#include "protocol/message.h"

#define WELCOME_FRAME_MAX 2048u

static struct session *session_of(const struct conn *conn)
{
    return container_of(conn, struct session, conn);
}

/* ---- frames ------------------------------------------------------------------------------------
 */

static void welcome(struct session *session, time_us now_us)
{
    struct server *server = session->server;
    struct message_welcome welcome = {
        .version = FRAME_VERSION,
        .frame_max = server->options->frame_max,
        .batch_max = server->limits.batch_max,
        .context_max = server->models[0].context_max,
        .vocabulary = server->models[0].info.vocab,
        .logprobs_max = server->limits.logprobs_max,
        .n_max = server->limits.n_max,
        .text = model_text_texts(server->models[0].text, NULL) == 0,
    };
    snprintf(welcome.model, sizeof(welcome.model), "%.*s", MESSAGE_NAME_MAX - 1,
             server->models[0].info.id);
    snprintf(welcome.device, sizeof(welcome.device), "%.*s", MESSAGE_NAME_MAX - 1, server->device);
    void *room = conn_output(&session->conn, WELCOME_FRAME_MAX);
    if (room)
        conn_output_done(&session->conn, message_encode_welcome(room, WELCOME_FRAME_MAX, &welcome),
                         true, now_us);
}

static int hello(struct session *session, const struct frame *frame, time_us now_us,
                 struct error *error)
{
    struct message_hello hello;
    if (session->greeted)
        return error_set(error, ERR_BAD_STATE, "a second HELLO");
    int rc = message_decode_hello(frame, &hello, error);
    if (rc)
        return rc;
    if (hello.version_min > FRAME_VERSION || hello.version_max < FRAME_VERSION)
        return error_set(error, ERR_BAD_VERSION,
                         "the client speaks protocol versions %u to %u, this daemon %u",
                         hello.version_min, hello.version_max, (unsigned)FRAME_VERSION);
    session->greeted = true;
    conn_greeted(&session->conn);
    welcome(session, now_us);
    return 0;
}

/* Whose a type of frame is. What stands in no row is control's, which says so where a client does
 * not send it. */
static const struct route {
    uint8_t type;
    void (*take)(struct session *session, const struct frame *frame, time_us now_us);
} routes[] = {
    {FRAME_SUBMIT, submit_frame},
    {FRAME_TOKENIZE, tokenize_frame},
    {FRAME_DETOKENIZE, tokenize_frame},
    {FRAME_JOB, job_frame},
    {FRAME_PROGRAMS, job_programs},
    {FRAME_TIMELINE, job_timeline_frame},
};

static void take_frame(struct conn *conn, const struct frame *frame, time_us now_us)
{
    struct session *session = session_of(conn);
    struct error error;
    int rc = 0;
    if (frame->type == FRAME_HELLO)
        rc = hello(session, frame, now_us, &error);
    else if (!session->greeted)
        rc = error_set(&error, ERR_BAD_STATE, "the first message must be HELLO");
    if (rc)
        conn_refuse(conn, &error, now_us);
    if (rc || frame->type == FRAME_HELLO)
        return;
    for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++) {
        if (routes[i].type == frame->type) {
            routes[i].take(session, frame, now_us);
            return;
        }
    }
    control_frame(session, frame, now_us);
}

/* ---- answers -----------------------------------------------------------------------------------
 */

static void news(struct response_sink *sink, struct seq *seq)
{
    struct session *session = container_of(sink, struct session, sink);
    if (!list_linked(&seq->wait_link))
        list_append(&session->ready, &seq->wait_link);
    conn_mark_dirty(&session->conn);
}

static void fill(struct conn *conn, time_us now_us)
{
    struct session *session = session_of(conn);
    while (!list_empty(&session->ready) && conn_roomy(conn))
        reply_seq(session, container_of(session->ready.next, struct seq, wait_link), now_us);
}

static bool pending(const struct conn *conn)
{
    return !list_empty(&session_of(conn)->ready);
}

static bool answered(const struct conn *conn)
{
    const struct session *session = session_of(conn);
    return list_empty(&session->sink.requests) && list_empty(&session->submits) &&
           list_empty(&session->texts) && session->stats_asked == 0;
}

/* ---- the end -----------------------------------------------------------------------------------
 */

static void abandon(struct conn *conn, time_us now_us)
{
    struct session *session = session_of(conn);
    struct list *link;
    /* What has ended but was not told yet is released, the rest is cancelled and ends untold. */
    while ((link = list_take(&session->sink.requests)))
        request_table_orphan(session->server, container_of(link, struct request, sink_link),
                             now_us);
    assert(list_empty(&session->ready));
    submit_forget(session);
    tokenize_forget(session);
}

static void gone(struct conn *conn)
{
    struct session *session = session_of(conn);
    struct server *server = session->server;
    control_forget(session);
    server->load.connections--;
    session->sink.user->load.connections--;
    users_put(&server->users, session->sink.user);
    session->sink.user = NULL;
    response_sink_free(&session->sink);
}

static void release(struct conn *conn)
{
    free(session_of(conn));
}

static const struct conn_handler handler = {
    .frame = take_frame,
    .fill = fill,
    .pending = pending,
    .answered = answered,
    .abandon = abandon,
    .gone = gone,
    .release = release,
};

/* ---- the beginning -----------------------------------------------------------------------------
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

static int make(struct server *server, const struct peer *peer, struct session **ret_session,
                struct error *error)
{
    int rc = admission_conn(&server->limits, server->load.connections, error);
    if (rc)
        return rc;
    struct session *session = calloc(1, sizeof(*session));
    struct user *user = session ? users_get(&server->users, peer->uid, NULL) : NULL;
    if (!user) {
        free(session);
        return error_set(error, ERR_NO_MEMORY, "no memory for a connection");
    }
    session->server = server;
    session->sink.user = user;
    session->sink.news = news;
    session->sink.admin = peer->admin;
    list_init(&session->sink.requests);
    list_init(&session->ready);
    list_init(&session->submits);
    list_init(&session->texts);
    list_init(&session->stats_asks);
    *ret_session = session;
    return 0;
}

struct conn *session_accept(struct server *server, struct transport *transport,
                            const struct peer *peer, time_us now_us)
{
    struct error error;
    struct session *session = NULL;
    if (make(server, peer, &session, &error)) {
        error.retry_after_ms = server_retry_ms(server);
        server->counts.connections_refused_total++;
        log_line(LOG_INFO, "conn", "a connection of uid %u is refused: %s", peer->uid, error.text);
        turn_away(transport, &error);
        return NULL;
    }
    server->load.connections++;
    session->sink.user->load.connections++;
    server->counts.connections_total++;
    conn_open(&session->conn, &server->conns, &handler, transport, peer,
              &session->sink.user->load.input, now_us);
    session->sink.number = session->conn.number;
    return &session->conn;
}
