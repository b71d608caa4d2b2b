#include "daemon/http/http_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/http/http_server_inner.h"
#include "daemon/net/timeouts.h"
#include "daemon/request/server.h"
#include "protocol/base/log.h"

/* What is left of a client's bytes after the last answer is thrown away for so long. */
#define LINGER_US 1000000u

/* ---- lists -------------------------------------------------------------------------------------
 */

void http_server_wait(struct http_conn *conn, struct list *list)
{
    if (list_linked(&conn->wait_link))
        list_remove(&conn->wait_link);
    if (list)
        list_append(list, &conn->wait_link);
    conn->wait_us = clock_now_us();
    conn->wait_bytes = 0;
}

void http_server_mark(struct http_conn *conn)
{
    if (!list_linked(&conn->due_link))
        list_append(&conn->front->due, &conn->due_link);
    *conn->front->loop.touched = true;
}

static void wake(struct http *http, struct exchange *exchange)
{
    (void)http;
    if (exchange->carrier && exchange_ready(exchange))
        http_server_mark(exchange->carrier);
}

/* ---- connections -------------------------------------------------------------------------------
 */

static void on_closed(uv_handle_t *handle)
{
    free(container_of((uv_poll_t *)handle, struct http_conn, poll));
}

void http_server_drop(struct http_conn *conn)
{
    if (conn->closed)
        return;
    conn->closed = true;
    if (conn->exchange) {
        conn->exchange->carrier = NULL;
        exchange_close(conn->exchange, clock_now_us());
        conn->exchange = NULL;
    }
    http_server_wait(conn, NULL);
    if (list_linked(&conn->due_link))
        list_remove(&conn->due_link);
    list_remove(&conn->link);
    free(conn->in);
    buffer_free(&conn->out);
    buffer_free(&conn->body);
    conn->front->http.server->load.connections--;
    uv_close((uv_handle_t *)&conn->poll, on_closed);
    close(conn->fd); /* libuv no longer looks at it */
    *conn->front->loop.touched = true;
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct http_conn *conn = container_of(poll, struct http_conn, poll);
    *conn->front->loop.touched = true;
    if (status < 0 || events == UV_PRIORITIZED)
        http_server_drop(conn); /* an error, or both sides are closed */
    else if (events & UV_READABLE)
        http_server_read(conn);
    else if (events & UV_DISCONNECT)
        http_server_ended(conn);
    if (!conn->closed)
        http_server_go(conn);
}

void http_server_watch(struct http_conn *conn, int events)
{
    conn->events = events;
    uv_poll_start(&conn->poll, events, on_poll); /* fails for closing handles alone */
}

static struct http_conn *make(struct http_server *front, int fd)
{
    struct http_conn *conn = calloc(1, sizeof(*conn));
    if (!conn)
        return NULL;
    if (uv_poll_init(front->loop.uv, &conn->poll, fd) != 0) {
        free(conn);
        return NULL;
    }
    conn->front = front;
    conn->fd = fd;
    return conn;
}

void http_server_accept(struct http_server *front, int fd, enum http_server_kind kind, bool tcp,
                        const struct peer *peer)
{
    struct server *server = front->http.server;
    struct error error;
    struct http_conn *conn = NULL;
    if (admission_conn(&server->limits, server->load.connections, &error) ||
        !(conn = make(front, fd))) {
        server->counts.connections_refused_total++;
        log_line(LOG_INFO, "http", "a connection is refused: connections-max, or no memory");
        close(fd);
        return;
    }
    if (tcp)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    conn->kind = kind;
    conn->tcp = tcp;
    conn->loopback = peer->loopback;
    conn->user = tcp ? KEY_USER_ANONYMOUS : peer->uid;
    conn->admin = !tcp && peer->admin;
    list_append(&front->conns, &conn->link);
    http_server_wait(conn, &front->heads);
    server->load.connections++;
    server->counts.connections_total++;
    http_server_go(conn); /* watches it */
}

/* ---- timeouts ----------------------------------------------------------------------------------
 */

static struct http_conn *first_late(struct list *list, time_us delay_us, time_us now_us)
{
    struct http_conn *conn =
        list_empty(list) ? NULL : container_of(list->next, struct http_conn, wait_link);
    return conn && conn->wait_us + delay_us <= now_us ? conn : NULL;
}

/* Who has more time after all, as timeouts.h says, waits on: in the order of time. */
static bool give_time(struct http_conn *conn, struct list *list, time_us now_us)
{
    struct http_server *front = conn->front;
    time_us over_us = conn->wait_us + front->http.server->options->frame_timeout;
    bool ours = !conn->wait_bytes && conn->heard_us > front->expired_us &&
                over_us + TIMEOUTS_LATE_US <= now_us;
    time_us more_us = timeouts_given(&conn->wait_bytes, now_us - conn->wait_us, ours);
    if (!more_us)
        return false;
    conn->wait_us += more_us;
    list_remove(&conn->wait_link);
    struct list *last = list->prev;
    while (last != list && container_of(last, struct http_conn, wait_link)->wait_us > conn->wait_us)
        last = last->prev;
    list_insert_before(last->next, &conn->wait_link);
    return true;
}

static void give_up(struct http_conn *conn)
{
    static const struct framing_refusal late = {
        408, ERR_TIMEOUT, "the rest of the request did not come in time (frame-timeout)"};
    if (conn->state == HTTP_CONN_HEAD && conn->in_length == 0) {
        http_server_drop(conn); /* it asked for nothing */
        return;
    }
    http_server_refuse(conn, &late);
    if (!conn->closed)
        http_server_go(conn);
}

static void expire(struct http_server *front, time_us now_us)
{
    const struct options *options = front->http.server->options;
    struct list *const halves[] = {&front->heads, &front->bodies};
    struct http_conn *conn;
    for (int i = 0; i < 2; i++)
        while ((conn = first_late(halves[i], options->frame_timeout, now_us)))
            if (!give_time(conn, halves[i], now_us))
                give_up(conn);
    while ((conn = first_late(&front->stalled, options->stall_timeout, now_us))) {
        front->http.server->counts.slow_readers_total++;
        http_server_drop(conn);
    }
    while ((conn = first_late(&front->lingering, LINGER_US, now_us)))
        http_server_drop(conn);
    front->expired_us = now_us;
}

static void earlier(time_us *due_us, const struct list *list, time_us delay_us)
{
    if (list_empty(list))
        return;
    time_us at_us = container_of(list->next, struct http_conn, wait_link)->wait_us + delay_us;
    if (!*due_us || at_us < *due_us)
        *due_us = at_us;
}

static void on_timer(uv_timer_t *timer)
{
    struct http_server *front = timer->data;
    front->armed_us = 0;
    *front->loop.touched = true;
    front->loop.soon(front->loop.context);
}

/* A timer that stands earlier than needed stays: it costs one empty turn, moving it costs more. */
static void arm(struct http_server *front, time_us now_us)
{
    const struct options *options = front->http.server->options;
    time_us due_us = 0;
    earlier(&due_us, &front->heads, options->frame_timeout);
    earlier(&due_us, &front->bodies, options->frame_timeout);
    earlier(&due_us, &front->stalled, options->stall_timeout);
    earlier(&due_us, &front->lingering, LINGER_US);
    if (!due_us || (front->armed_us && front->armed_us <= due_us))
        return;
    front->armed_us = due_us;
    uv_update_time(front->loop.uv);
    /* Never 0: libuv does not leave its timers while a callback arms one that is due at once. */
    uv_timer_start(&front->timer, on_timer, due_us > now_us ? (due_us - now_us + 999) / 1000 : 1,
                   0);
}

/* ---- the loop ----------------------------------------------------------------------------------
 */

void http_server_turn(struct http_server *front, time_us now_us)
{
    struct list round;
    struct list *link;
    if (!front->open)
        return;
    if (http_turn(&front->http, now_us))
        *front->loop.touched =
            true; /* what was told frees places, and what was cancelled is to be sent */
    expire(front, now_us);
    list_init(&round);
    while ((link = list_take(&front->due)))
        list_append(&round, link);
    while ((link = list_take(&round)))
        http_server_go(container_of(link, struct http_conn, due_link));
    if (!list_empty(&front->http.dirty))
        *front->loop.touched = true;
    arm(front, now_us);
}

/* Who is trusted must be somebody. */
static int check_trusted(const struct keys *keys, const struct options *options,
                         struct error *error)
{
    const char *list = options->trusted_keys;
    struct option_word word;
    while (option_next(&list, &word))
        if (!keys_have(keys, word.text, word.length))
            return error_set(error, ERR_BAD_CONFIG, "trusted-keys: %.256s has no key of %.*s",
                             options->api_key_file, (int)word.length, word.text);
    return 0;
}

int http_server_read_keys(struct http_server *front, const struct options *options,
                          struct error *error)
{
    struct keys keys;
    if (!front->open || !options->api_key_file[0])
        return 0;
    int rc = keys_load(&keys, options->api_key_file, error);
    if (rc)
        return rc;
    rc = check_trusted(&keys, options, error);
    if (rc) {
        keys_free(&keys);
        return rc;
    }
    keys_free(&front->http.keys);
    front->http.keys = keys;
    return 0;
}

int http_server_open(struct http_server *front, const struct loop_ref *loop, struct server *server,
                     const struct routes *routes, uint64_t salt, struct error *error)
{
    const struct options *options = server->options;
    struct list *const lists[] = {&front->conns,  &front->due,     &front->heads,
                                  &front->bodies, &front->stalled, &front->lingering};
    *front = (struct http_server){.loop = *loop};
    http_init(&front->http, server, routes, salt, wake);
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        list_init(lists[i]);
    front->http.free_loopback = options->insecure_loopback;
    front->open = true;
    int rc = http_server_read_keys(front, options, error);
    front->open = rc == 0;
    if (rc)
        return rc;
    uv_timer_init(loop->uv, &front->timer);
    front->timer.data = front;
    return 0;
}

void http_server_close(struct http_server *front)
{
    if (!front->open)
        return;
    while (!list_empty(&front->conns))
        http_server_drop(container_of(front->conns.next, struct http_conn, link));
    uv_close((uv_handle_t *)&front->timer, NULL);
    front->open = false;
}
