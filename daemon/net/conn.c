#include "daemon/net/conn.h"

#include <assert.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "protocol/base/log.h"
#include "protocol/frame.h"
#include "protocol/message.h"

/* Half frames up to this size count against no bound but the number of connections. */
#define INPUT_FREE 4096u
#define OUTPUT_START 2048u
#define TRIM_CONNECTIONS 64u /* fewer leave little */
/* What an ERROR frame takes at most, so that the reason still fits behind a full output. */
#define ERROR_FRAME_MAX 2048u
_Static_assert(ERROR_FRAME_MAX >= FRAME_HEADER_SIZE + 2 * ERROR_TEXT_MAX + 512,
               "an error's text doubles at most when it is escaped");
_Static_assert(CONN_RECEIVE_SIZE % 8 == 0, "frames in place stay aligned");

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

void conn_mark_dirty(struct conn *conn)
{
    if (!list_linked(&conn->dirty_link))
        list_append(&conn->set->dirty, &conn->dirty_link);
}

size_t conn_unsent(const struct conn *conn)
{
    return conn->out.end - conn->out.start;
}

static bool output_high(const struct conn *conn)
{
    return conn_unsent(conn) >= conn->set->options->output_high;
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
    *conn->set->input += counted - conn->in_counted;
    *conn->user_input += counted - conn->in_counted;
    conn->in_counted = counted;
}

static void drop_input(struct conn *conn)
{
    if (conn->in_counted > 0)
        conn->set->input_freed = true;
    count_input(conn, 0);
    free(conn->in.bytes);
    conn->in = (struct conn_buffer){0};
    conn->in_need = 0;
    unlink_if(&conn->half_link);
}

static bool input_fits(const struct conn *conn, size_t more)
{
    uint64_t max = conn->set->options->input_max;
    return *conn->set->input + more <= max && *conn->user_input + more <= max / 2;
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
            list_append(&conn->set->starved, &conn->starve_link);
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
        later(&conn->set->half, &conn->half_link, &conn->half_us, now_us);
        conn->half_bytes = 0;
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
    *ret_size = input_fits(conn, CONN_RECEIVE_SIZE) ? CONN_RECEIVE_SIZE : INPUT_FREE;
    return conn->set->receive;
}

/* ---- descriptors -------------------------------------------------------------------------------
 */

void conn_descriptor(struct conn *conn, int fd)
{
    if (conn->descriptor_count < CONN_DESCRIPTORS_MAX) {
        conn->descriptors[conn->descriptor_count++] = fd;
    } else {
        close(fd);
        conn->descriptors_lost = true;
    }
}

void conn_descriptor_lost(struct conn *conn)
{
    conn->descriptors_lost = true;
}

int conn_take_descriptor(struct conn *conn)
{
    if (conn->descriptor_count == 0)
        return -1;
    int fd = conn->descriptors[0];
    conn->descriptor_count--;
    memmove(conn->descriptors, conn->descriptors + 1, conn->descriptor_count * sizeof(int));
    return fd;
}

static void close_descriptors(struct conn *conn)
{
    while (conn->descriptor_count > 0)
        close(conn_take_descriptor(conn));
}

/* Once all whole frames were handled: those of a half one may be here, and nothing else. */
static int check_descriptors(const struct conn *conn, bool half, struct error *error)
{
    if (conn->descriptors_lost)
        return error_limit(error, ERR_TOO_LARGE, CONN_DESCRIPTORS_MAX, 0,
                           "descriptors came that cannot be kept: a message has at most %d",
                           CONN_DESCRIPTORS_MAX);
    if (conn->descriptor_count > 0 && !half)
        return error_set(error, ERR_BAD_FRAME, "descriptors came that no message asked for");
    return 0;
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
        switch (frame_decode(bytes + at, length - at, conn->set->options->frame_max, &frame, &used,
                             &error)) {
        case FRAME_OK:
            at += used;
            conn->handler->frame(conn, &frame, now_us);
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
    const unsigned char *bytes = own ? conn->in.bytes : conn->set->receive;
    size_t length = own ? conn->in.end : fresh;
    size_t used = parse(conn, bytes, length, now_us);
    if (conn->closed)
        return;
    if (!conn->closing && check_descriptors(conn, used < length, &error))
        conn_refuse(conn, &error, now_us);
    if (conn->closing)
        drop_input(conn);
    else if (keep_input(conn, bytes + used, length - used, used > 0 || !own, now_us, &error))
        conn_refuse(conn, &error, now_us);
    watch(conn);
}

void conn_received(struct conn *conn, size_t length, time_us now_us)
{
    assert(!conn->closed && length > 0);
    conn->set->counts->bytes_in_total += length;
    conn->half_bytes += length;
    conn->heard_us = now_us;
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
    conn_mark_dirty(conn);
}

/* Room for input was given back, `starved` ends. */
static void feed(struct conn *conn, time_us now_us)
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
    if (conn_unsent(conn) + size > conn->set->options->output_max) {
        struct error error;
        error_limit(&error, ERR_SLOW_READER, conn->set->options->output_max, conn_unsent(conn),
                    "%zu bytes of answers were not read (output-max)", conn_unsent(conn));
        conn->set->counts->slow_readers_total++;
        conn_refuse(conn, &error, conn->set->turn_us);
        return NULL;
    }
    if (grow_output(conn, size)) {
        conn_close(conn, conn->set->turn_us);
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
        later(&conn->set->held, &conn->held_link, &conn->held_us, now_us);
    conn_mark_dirty(conn);
}

/* What the reader did not take yet; since when it takes nothing is written down. */
static void sent(struct conn *conn, size_t length, time_us now_us)
{
    struct conn_buffer *out = &conn->out;
    conn->set->counts->bytes_out_total += length;
    out->start += length;
    conn->tokens_request = 0;
    if (length > 0 || !list_linked(&conn->stall_link)) {
        unlink_if(&conn->stall_link);
        if (out->start < out->end)
            later(&conn->set->stalled, &conn->stall_link, &conn->stall_us, now_us);
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
        !conn->urgent && list_linked(&conn->held_link) && now_us - conn->held_us < CONN_HOLD_US;
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

bool conn_roomy(const struct conn *conn)
{
    return !conn->closed && !conn->closing && !output_high(conn);
}

static void deliver(struct conn *conn, time_us now_us)
{
    unlink_if(&conn->dirty_link);
    if (conn->closed)
        return;
    conn->handler->fill(conn, now_us);
    if (!conn->closed)
        send_output(conn, now_us);
    if (conn->closed)
        return;
    bool over = conn->closing || (conn->ended && conn->handler->answered(conn));
    if (over && conn_unsent(conn) == 0) {
        conn_close(conn, now_us);
        return;
    }
    if (conn->handler->pending(conn) && !output_high(conn))
        conn_mark_dirty(conn);
    bool read_again = !conn->reading;
    watch(conn);
    /* Frames that were left in the buffer because their answers had no room. */
    if (read_again && conn->reading && conn->in.bytes && conn->in_need == 0)
        feed(conn, now_us);
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
        conn_mark_dirty(conn);
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

void conn_refuse(struct conn *conn, const struct error *error, time_us now_us)
{
    struct message_error message = {.sequence = MESSAGE_NO_SEQUENCE, .error = *error};
    if (conn->closed || conn->closing)
        return;
    /* The code and not the text, which may name a field that the client made up. */
    log_line(LOG_INFO, "conn", "connection %" PRIu64 " of uid %u is closed: %s", conn->number,
             conn->peer.uid, error_name(error->code));
    conn->closing = true;
    conn->tokens_request = 0;
    unlink_if(&conn->greet_link);
    conn->handler->abandon(conn, now_us);
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
    if (conn->closed)
        return;
    conn->closed = true;
    conn->handler->abandon(conn, now_us);
    drop_input(conn);
    close_descriptors(conn);
    free(conn->out.bytes);
    conn->out = (struct conn_buffer){0};
    unlink_if(&conn->dirty_link);
    unlink_if(&conn->held_link);
    unlink_if(&conn->stall_link);
    unlink_if(&conn->greet_link);
    unlink_if(&conn->starve_link);
    list_remove(&conn->conn_link);
    conn->set->count--;
    conn->handler->gone(conn);
    list_append(&conn->set->dead, &conn->conn_link);
    conn->transport->api->close(conn->transport);
}

void conn_lost(struct conn *conn, time_us now_us)
{
    conn_close(conn, now_us);
}

/* ---- all of them -------------------------------------------------------------------------------
 */

int conn_set_init(struct conn_set *set, const struct options *options, struct stats_loop *counts,
                  uint64_t *input, time_us now_us, struct error *error)
{
    *set = (struct conn_set){.options = options,
                             .counts = counts,
                             .input = input,
                             .turn_us = now_us,
                             .next_number = 1,
                             .receive = malloc(CONN_RECEIVE_SIZE)};
    if (!set->receive)
        return error_set(error, ERR_NO_MEMORY, "no memory for the receive buffer");
    struct list *const lists[] = {&set->conns,   &set->dirty, &set->dead,     &set->held,
                                  &set->stalled, &set->half,  &set->greeting, &set->starved};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        list_init(lists[i]);
    return 0;
}

void conn_set_destroy(struct conn_set *set, time_us now_us)
{
    while (!list_empty(&set->conns))
        conn_close(container_of(set->conns.next, struct conn, conn_link), now_us);
    conn_set_bury(set);
    free(set->receive);
    set->receive = NULL;
}

void conn_open(struct conn *conn, struct conn_set *set, const struct conn_handler *handler,
               struct transport *transport, const struct peer *peer, uint64_t *user_input,
               time_us now_us)
{
    conn->set = set;
    conn->handler = handler;
    conn->transport = transport;
    conn->number = set->next_number++;
    conn->peer = *peer;
    conn->user_input = user_input;
    conn->reading = true;
    list_append(&set->conns, &conn->conn_link);
    later(&set->greeting, &conn->greet_link, &conn->greet_us, now_us);
    if (set->peak < ++set->count)
        set->peak = set->count;
    transport->api->watch(transport, true, false);
}

void conn_greeted(struct conn *conn)
{
    unlink_if(&conn->greet_link);
}

/* Those of a list as it is now: what comes onto it meanwhile waits for the next round. */
static void take_round(struct list *round, struct list *list)
{
    list_init(round);
    while (!list_empty(list))
        list_append(round, list_take(list));
}

void conn_set_feed(struct conn_set *set, time_us now_us)
{
    struct list retry, *link;
    if (!set->input_freed)
        return;
    set->input_freed = false;
    take_round(&retry, &set->starved);
    while ((link = list_take(&retry)))
        feed(container_of(link, struct conn, starve_link), now_us);
}

void conn_set_deliver(struct conn_set *set, time_us now_us)
{
    struct list round;
    take_round(&round, &set->dirty);
    /* A connection that has more to say than one write takes comes again in the next turn. */
    while (!list_empty(&round))
        deliver(container_of(round.next, struct conn, dirty_link), now_us);
}

/* What many connections leave lies in holes below what still lives, and the allocator keeps it:
 * once most of them are gone, it is given back. */
void conn_set_bury(struct conn_set *set)
{
    struct list *link;
    bool any = !list_empty(&set->dead);
    while ((link = list_take(&set->dead))) {
        struct conn *conn = container_of(link, struct conn, conn_link);
        conn->handler->release(conn);
    }
    if (!any || set->peak < TRIM_CONNECTIONS || set->count >= set->peak / 8)
        return;
    malloc_trim(0);
    /* What is left of many goes the same way once it is gone. */
    set->peak = set->count;
    if (set->peak >= TRIM_CONNECTIONS / 8 && set->peak < TRIM_CONNECTIONS)
        set->peak = TRIM_CONNECTIONS;
}

bool conn_set_idle(const struct conn_set *set)
{
    list_each(link, &set->conns)
    {
        if (conn_unsent(container_of(link, struct conn, conn_link)) > 0)
            return false;
    }
    return true;
}
