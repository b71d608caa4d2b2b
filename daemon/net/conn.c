#include "daemon/net/conn.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/api/control.h"
#include "daemon/request/request_table.h"
#include "daemon/api/reply.h"
#include "daemon/request/server.h"
#include "daemon/api/submit.h"
#include "daemon/api/tokenize.h"
#include "protocol/base/log.h"
#include "protocol/frame.h"
#include "protocol/message.h"

/* Half frames up to this size count against no bound but the number of connections. */
#define INPUT_FREE 4096u
#define OUTPUT_START 2048u
/* What an ERROR frame takes at most, so that the reason still fits behind a full output. */
#define ERROR_FRAME_MAX 2048u
_Static_assert(ERROR_FRAME_MAX >= FRAME_HEADER_SIZE + 2 * ERROR_TEXT_MAX + 512,
               "an error's text doubles at most when it is escaped");
_Static_assert(SERVER_RECEIVE_SIZE % 8 == 0, "frames in place stay aligned");

static void later(struct list *list, struct list *link, time_us *since_us, time_us now_us)
{
    list_append(list, link);
    *since_us = now_us;
}

static void unlink_if(struct list *link)
{
    if (list_linked(link))
        list_remove(link);
}

static void mark_dirty(struct conn *conn)
{
    if (!list_linked(&conn->dirty_link))
        list_append(&conn->server->dirty, &conn->dirty_link);
}

size_t conn_unsent(const struct conn *conn)
{
    return conn->out.end - conn->out.start;
}

static bool output_high(const struct conn *conn)
{
    return conn_unsent(conn) >= conn->server->options->output_high;
}

/* Tells the transport what the connection now waits for, if that has changed. */
static void watch(struct conn *conn)
{
    bool reading = !conn->closing && !conn->ended && !conn->starved && !output_high(conn);
    bool writing = conn_unsent(conn) > 0 && list_linked(&conn->stall_link);
    if (conn->closed || (reading == conn->reading && writing == conn->writing))
        return;
    conn->reading = reading;
    conn->writing = writing;
    conn->transport->api->watch(conn->transport, reading, writing);
}

/* ---- input -------------------------------------------------------------------------------------
 */

static void count_input(struct conn *conn, size_t counted)
{
    struct server *server = conn->server;
    server->load.input += counted - conn->in_counted;
    conn->sink.user->load.input += counted - conn->in_counted;
    conn->in_counted = counted;
}

static void drop_input(struct conn *conn)
{
    if (conn->in_counted > 0)
        conn->server->input_freed = true;
    count_input(conn, 0);
    free(conn->in.bytes);
    conn->in = (struct conn_buffer){0};
    conn->in_need = 0;
    unlink_if(&conn->half_link);
}

static bool input_fits(const struct conn *conn, size_t more)
{
    uint64_t max = conn->server->options->input_max;
    return conn->server->load.input + more <= max && conn->sink.user->load.input + more <= max / 2;
}

/* Makes the buffer of the half frame larger than what it holds. The size follows what has come, and
 * what a header promises only bounds it. */
static int grow_input(struct conn *conn, struct error *error)
{
    size_t held = conn->in.end, size = 2 * held > INPUT_FREE ? 2 * held : INPUT_FREE;
    if (conn->in_need > held && size > conn->in_need)
        size = frame_pad(conn->in_need);
    if (conn->in.size > held)
        return 0;
    size_t counted = size > INPUT_FREE ? size : 0;
    if (counted > conn->in_counted && !input_fits(conn, counted - conn->in_counted)) {
        if (!conn->starved)
            list_append(&conn->server->starved, &conn->starve_link);
        conn->starved = true;
        return 0;
    }
    unsigned char *bytes = realloc(conn->in.bytes, size);
    if (!bytes)
        return error_set(error, ERR_NO_MEMORY, "no memory for a message of %zu bytes", size);
    conn->in.bytes = bytes;
    conn->in.size = size;
    count_input(conn, counted);
    return 0;
}

/* Keeps what is left of the input after whole frames were handled. */
static int keep_input(struct conn *conn, const unsigned char *rest, size_t length, bool began,
                      time_us now_us, struct error *error)
{
    if (length == 0) {
        drop_input(conn);
        return 0;
    }
    if (began) {
        unlink_if(&conn->half_link);
        later(&conn->server->half, &conn->half_link, &conn->half_us, now_us);
    }
    if (conn->in.bytes) {
        memmove(conn->in.bytes, rest, length);
        conn->in.end = length;
        return grow_input(conn, error);
    }
    /* Bytes that were read must be kept, whatever the bounds say; conn_room() sees to it that they
     * are few once there is little room. */
    size_t size = frame_pad(length > INPUT_FREE ? length : INPUT_FREE);
    conn->in.bytes = malloc(size);
    if (!conn->in.bytes)
        return error_set(error, ERR_NO_MEMORY, "no memory for a message of %zu bytes", size);
    memcpy(conn->in.bytes, rest, length);
    conn->in.size = size;
    conn->in.end = length;
    count_input(conn, size > INPUT_FREE ? size : 0);
    return grow_input(conn, error);
}

void *conn_room(struct conn *conn, size_t *ret_size)
{
    if (conn->closed || !conn->reading)
        return NULL;
    if (conn->in.bytes) {
        *ret_size = conn->in.size - conn->in.end;
        return conn->in.bytes + conn->in.end;
    }
    *ret_size = input_fits(conn, SERVER_RECEIVE_SIZE) ? SERVER_RECEIVE_SIZE : INPUT_FREE;
    return conn->server->receive;
}

static int greet(struct conn *conn, const struct frame *frame, time_us now_us, struct error *error)
{
    struct message_hello hello;
    if (frame->type != FRAME_HELLO)
        return error_set(error, ERR_BAD_STATE, "the first message must be HELLO");
    int rc = message_decode_hello(frame, &hello, error);
    if (rc)
        return rc;
    if (hello.version_min > FRAME_VERSION || hello.version_max < FRAME_VERSION)
        return error_set(error, ERR_BAD_VERSION,
                         "the client speaks protocol versions %u to %u, this daemon %u",
                         hello.version_min, hello.version_max, (unsigned)FRAME_VERSION);
    conn->greeting = CONN_GREETED;
    list_remove(&conn->greet_link);
    server_welcome(conn, now_us);
    return 0;
}

static void handle(struct conn *conn, const struct frame *frame, time_us now_us)
{
    struct error error;
    int rc = 0;
    if (conn->greeting == CONN_NEW)
        rc = greet(conn, frame, now_us, &error);
    else if (frame->type == FRAME_SUBMIT)
        submit_frame(conn, frame, now_us);
    else if (frame->type == FRAME_TOKENIZE || frame->type == FRAME_DETOKENIZE)
        tokenize_frame(conn, frame, now_us);
    else if (frame->type == FRAME_HELLO)
        rc = error_set(&error, ERR_BAD_STATE, "a second HELLO");
    else
        control_frame(conn, frame, now_us);
    if (rc)
        conn_refuse(conn, &error, now_us);
}

/* Handles whole frames, as long as there is room for their answers; how many bytes they took. */
static size_t parse(struct conn *conn, const unsigned char *bytes, size_t length, time_us now_us)
{
    size_t at = 0;
    conn->in_need = 0;
    while (at < length && !conn->closing && !conn->closed && !output_high(conn)) {
        struct frame frame;
        struct error error;
        size_t used;
        switch (frame_decode(bytes + at, length - at, conn->server->options->frame_max, &frame,
                             &used, &error)) {
        case FRAME_OK:
            at += used;
            handle(conn, &frame, now_us);
            break;
        case FRAME_MORE:
            conn->in_need = used;
            return at;
        case FRAME_BAD:
            conn_refuse(conn, &error, now_us);
            return at;
        }
    }
    return at;
}

/* Frames of the connection's own buffer (then `fresh` is what was added to it), or of the shared.
 */
static void take(struct conn *conn, size_t fresh, time_us now_us)
{
    struct error error;
    bool own = conn->in.bytes != NULL;
    if (own)
        conn->in.end += fresh;
    const unsigned char *bytes = own ? conn->in.bytes : conn->server->receive;
    size_t length = own ? conn->in.end : fresh;
    size_t used = parse(conn, bytes, length, now_us);
    if (conn->closed)
        return;
    if (conn->closing)
        drop_input(conn);
    else if (keep_input(conn, bytes + used, length - used, used > 0 || !own, now_us, &error))
        conn_refuse(conn, &error, now_us);
    watch(conn);
}

void conn_received(struct conn *conn, size_t length, time_us now_us)
{
    assert(!conn->closed && length > 0);
    conn->server->counts.bytes_in_total += length;
    take(conn, length, now_us);
}

/* It is read only while no whole frame waits, so what is there is half of one. */
void conn_ended(struct conn *conn, time_us now_us)
{
    struct error error;
    if (conn->closed || conn->ended)
        return;
    conn->ended = true;
    if (conn->in.bytes) {
        error_set(&error, ERR_BAD_FRAME, "the client ended its side within a message");
        conn_refuse(conn, &error, now_us);
    }
    watch(conn);
    mark_dirty(conn);
}

void conn_feed(struct conn *conn, time_us now_us)
{
    if (conn->closed || conn->closing || !conn->in.bytes)
        return;
    conn->starved = false;
    unlink_if(&conn->starve_link);
    take(conn, 0, now_us);
}

/* ---- output ------------------------------------------------------------------------------------
 */

static int grow_output(struct conn *conn, size_t size)
{
    struct conn_buffer *out = &conn->out;
    size_t unsent = conn_unsent(conn), room = out->size ? out->size : OUTPUT_START;
    if (out->size - out->end >= size)
        return 0;
    if (out->start > 0) {
        memmove(out->bytes, out->bytes + out->start, unsent);
        conn->tokens_at -= conn->tokens_request ? out->start : 0;
        out->start = 0;
        out->end = unsent;
    }
    while (room - unsent < size)
        room *= 2;
    if (room == out->size)
        return 0;
    unsigned char *bytes = realloc(out->bytes, room);
    if (!bytes)
        return -ERR_NO_MEMORY;
    out->bytes = bytes;
    out->size = room;
    return 0;
}

void *conn_output(struct conn *conn, size_t size)
{
    if (conn->closed || conn->closing)
        return NULL;
    if (conn_unsent(conn) + size > conn->server->options->output_max) {
        struct error error;
        error_limit(&error, ERR_SLOW_READER, conn->server->options->output_max, conn_unsent(conn),
                    "%zu bytes of answers were not read (output-max)", conn_unsent(conn));
        conn->server->counts.slow_readers_total++;
        conn_refuse(conn, &error, conn->server->turn_us);
        return NULL;
    }
    if (grow_output(conn, size)) {
        conn_close(conn, conn->server->turn_us);
        return NULL;
    }
    return conn->out.bytes + conn->out.end;
}

void conn_output_done(struct conn *conn, size_t used, bool urgent, time_us now_us)
{
    assert(used > 0 && used % 8 == 0 && conn->out.size - conn->out.end >= used);
    conn->out.end += used;
    if (urgent)
        conn->urgent = true;
    else if (!list_linked(&conn->held_link))
        later(&conn->server->held, &conn->held_link, &conn->held_us, now_us);
    mark_dirty(conn);
}

/* What the reader did not take yet; since when it takes nothing is written down. */
static void sent(struct conn *conn, size_t length, time_us now_us)
{
    struct conn_buffer *out = &conn->out;
    conn->server->counts.bytes_out_total += length;
    out->start += length;
    conn->tokens_request = 0;
    if (length > 0 || !list_linked(&conn->stall_link)) {
        unlink_if(&conn->stall_link);
        if (out->start < out->end)
            later(&conn->server->stalled, &conn->stall_link, &conn->stall_us, now_us);
    }
    if (out->start < out->end)
        return;
    out->start = out->end = 0;
    if (out->size > OUTPUT_START) {
        free(out->bytes);
        *out = (struct conn_buffer){0};
    }
}

static void send_output(struct conn *conn, time_us now_us)
{
    bool hold =
        !conn->urgent && list_linked(&conn->held_link) && now_us - conn->held_us < SERVER_HOLD_US;
    if (conn_unsent(conn) == 0 || hold || conn->writing)
        return;
    unlink_if(&conn->held_link);
    conn->urgent = false;
    ssize_t taken = conn->transport->api->send(conn->transport, conn->out.bytes + conn->out.start,
                                               conn_unsent(conn));
    if (taken < 0) {
        conn_close(conn, now_us);
        return;
    }
    sent(conn, (size_t)taken, now_us);
}

/* Everything that was asked for: of somebody who will ask nothing more, the connection's end. */
static bool answered(const struct conn *conn)
{
    return list_empty(&conn->sink.requests) && list_empty(&conn->submits) &&
           list_empty(&conn->texts) && conn->stats_asked == 0;
}

void conn_deliver(struct conn *conn, time_us now_us)
{
    unlink_if(&conn->dirty_link);
    if (conn->closed)
        return;
    while (!list_empty(&conn->ready) && !output_high(conn) && !conn->closing)
        reply_seq(conn, container_of(conn->ready.next, struct seq, wait_link), now_us);
    if (!conn->closed)
        send_output(conn, now_us);
    if (conn->closed)
        return;
    bool over = conn->closing || (conn->ended && answered(conn));
    if (over && conn_unsent(conn) == 0) {
        conn_close(conn, now_us);
        return;
    }
    if (!list_empty(&conn->ready) && !output_high(conn))
        mark_dirty(conn);
    bool read_again = !conn->reading;
    watch(conn);
    /* Frames that were left in the buffer because their answers had no room. */
    if (read_again && conn->reading && conn->in.bytes && conn->in_need == 0)
        conn_feed(conn, now_us);
}

void conn_writable(struct conn *conn, time_us now_us)
{
    if (conn->closed)
        return;
    conn->writing = false;
    conn->urgent = true;
    conn->transport->api->watch(conn->transport, conn->reading, false);
    send_output(conn, now_us);
    if (!conn->closed)
        mark_dirty(conn);
}

void conn_news(struct response_sink *sink, struct seq *seq)
{
    struct conn *conn = container_of(sink, struct conn, sink);
    if (!list_linked(&seq->wait_link))
        list_append(&conn->ready, &seq->wait_link);
    mark_dirty(conn);
}

void conn_error(struct conn *conn, uint64_t client_id, uint32_t sequence, bool last,
                const struct error *error, time_us now_us)
{
    struct message_error message = {.sequence = sequence, .error = *error};
    void *room = conn_output(conn, ERROR_FRAME_MAX);
    if (!room)
        return;
    conn->tokens_request = 0;
    size_t used = message_encode_error(room, ERROR_FRAME_MAX, client_id, last ? FRAME_FLAG_LAST : 0,
                                       &message);
    conn_output_done(conn, used, true, now_us);
}

/* ---- the end -----------------------------------------------------------------------------------
 */

static void cancel_requests(struct conn *conn, time_us now_us)
{
    struct list *link;
    /* What has ended but was not told yet is released, the rest is cancelled and ends untold. */
    while ((link = list_take(&conn->sink.requests)))
        request_table_orphan(conn->server, container_of(link, struct request, sink_link), now_us);
    assert(list_empty(&conn->ready));
    submit_forget(conn);
    tokenize_forget(conn);
}

void conn_refuse(struct conn *conn, const struct error *error, time_us now_us)
{
    struct message_error message = {.sequence = MESSAGE_NO_SEQUENCE, .error = *error};
    if (conn->closed || conn->closing)
        return;
    /* The code and not the text, which may name a field that the client made up. */
    log_line(LOG_INFO, "conn", "connection %" PRIu64 " of uid %u is closed: %s", conn->sink.number,
             conn->peer.uid, error_name(error->code));
    conn->closing = true;
    conn->tokens_request = 0;
    unlink_if(&conn->greet_link);
    cancel_requests(conn, now_us);
    if (grow_output(conn, ERROR_FRAME_MAX)) {
        conn_close(conn, now_us);
        return;
    }
    size_t used = message_encode_error(conn->out.bytes + conn->out.end, ERROR_FRAME_MAX, 0,
                                       FRAME_FLAG_LAST, &message);
    conn_output_done(conn, used, true, now_us);
    watch(conn);
}

void conn_close(struct conn *conn, time_us now_us)
{
    struct server *server = conn->server;
    if (conn->closed)
        return;
    conn->closed = true;
    cancel_requests(conn, now_us);
    drop_input(conn);
    free(conn->out.bytes);
    conn->out = (struct conn_buffer){0};
    unlink_if(&conn->dirty_link);
    unlink_if(&conn->held_link);
    unlink_if(&conn->stall_link);
    unlink_if(&conn->greet_link);
    unlink_if(&conn->starve_link);
    server_forget(server, conn);
    conn->transport->api->close(conn->transport);
}

void conn_lost(struct conn *conn, time_us now_us)
{
    conn_close(conn, now_us);
}
