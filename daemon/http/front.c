#include "daemon/http/front.h"

#include <microhttpd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/http/exchange.h"
#include "daemon/loop.h"
#include "protocol/base/log.h"

#define CONNECTION_MEMORY ((size_t)32 << 10) /* a request's head, and the piece of a body */
#define STREAM_BLOCK ((size_t)16 << 10)
/* Newer versions else queue what MHD_add_connection() is given, and tell of it after it has
 * returned. */
#if MHD_VERSION >= 0x00097707
#define ONE_THREAD MHD_USE_NO_THREAD_SAFETY
#else
#define ONE_THREAD MHD_NO_FLAG
#endif
#define BACK_LIMIT 4096u /* seconds: libmicrohttpd's own type is unsigned */

struct front_conn {
    struct front *front;
    struct list link, wait_link;
    time_us wait_us; /* since when it is on heads or bodies */
    struct MHD_Connection *mhd;
    struct exchange *exchange; /* NULL between requests */
    bool begun, suspended, gone;
    enum front_kind kind;
    bool tcp;
    uint64_t user;
    int fd;
    uv_poll_t watch; /* while suspended */
};

static void run(struct front *front);

/* ---- waiting -----------------------------------------------------------------------------------
 */

static void wait_for(struct front_conn *conn, struct list *list)
{
    if (list_linked(&conn->wait_link))
        list_remove(&conn->wait_link);
    if (list)
        list_append(list, &conn->wait_link);
    conn->wait_us = clock_now_us();
}

static void resume(struct front_conn *conn)
{
    if (!conn->suspended)
        return;
    conn->suspended = false;
    uv_poll_stop(&conn->watch);
    MHD_resume_connection(conn->mhd);
    conn->front->due = true;
}

static void on_gone(uv_poll_t *poll, int status, int events)
{
    struct front_conn *conn = container_of(poll, struct front_conn, watch);
    (void)status;
    (void)events;
    conn->gone = true;
    resume(conn);
    run(conn->front);
}

static void suspend(struct front_conn *conn)
{
    conn->suspended = true;
    MHD_suspend_connection(conn->mhd);
    uv_poll_start(&conn->watch, UV_DISCONNECT, on_gone); /* fails for closing handles alone */
}

static void wake(struct http *http, struct exchange *exchange)
{
    (void)http;
    if (exchange->carrier && (exchange_ready(exchange) || exchange->streaming))
        resume(exchange->carrier);
}

/* ---- answers -----------------------------------------------------------------------------------
 */

static ssize_t on_read(void *context, uint64_t position, char *bytes, size_t max)
{
    struct front_conn *conn = context;
    (void)position;
    if (conn->gone || !conn->exchange)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    size_t count = exchange_read(conn->exchange, bytes, max);
    loop_touch(conn->front->loop);
    if (count == EXCHANGE_READ_END)
        return MHD_CONTENT_READER_END_OF_STREAM;
    if (count == 0)
        suspend(conn);
    return (ssize_t)count;
}

static void put_header(struct MHD_Response *response, const char *name, const char *value)
{
    MHD_add_response_header(response, name,
                            value); /* fails for want of memory: then it is absent */
}

static void put_headers(struct MHD_Response *response, const struct exchange *exchange)
{
    char text[32];
    put_header(response, "Content-Type", exchange->content_type);
    put_header(response, "x-request-id", exchange->request_id);
    if (exchange->allow)
        put_header(response, "Allow", exchange->allow);
    if (exchange->status == 401)
        put_header(response, "WWW-Authenticate", "Bearer");
    if (exchange->streaming)
        put_header(response, "Cache-Control", "no-cache");
    if (exchange->retry_after_ms > 0) {
        snprintf(text, sizeof(text), "%u", (exchange->retry_after_ms + 999) / 1000);
        put_header(response, "Retry-After", text);
        snprintf(text, sizeof(text), "%u", exchange->retry_after_ms);
        put_header(response, "retry-after-ms", text);
    }
}

static enum MHD_Result answer(struct front_conn *conn)
{
    struct exchange *exchange = conn->exchange;
    struct MHD_Response *response;
    if (exchange->streaming) {
        response =
            MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, on_read, conn, NULL);
    } else {
        struct buffer *buffer = &exchange->out.buffer;
        conn->front->http.server->counts.bytes_out_total += buffer->length;
        response = MHD_create_response_from_buffer_with_free_callback(
            buffer->length, buffer->data ? buffer->data : (void *)"", buffer->data ? free : NULL);
        if (response)
            *buffer = (struct buffer){0};
    }
    if (!response)
        return MHD_NO;
    put_headers(response, exchange);
    enum MHD_Result result = MHD_queue_response(conn->mhd, exchange->status, response);
    MHD_destroy_response(response);
    return result;
}

/* ---- requests ----------------------------------------------------------------------------------
 */

static const char *header(struct front_conn *conn, const char *name)
{
    return MHD_lookup_connection_value(conn->mhd, MHD_HEADER_KIND, name);
}

static enum MHD_Result start(struct front_conn *conn, const char *method, const char *path)
{
    struct front *front = conn->front;
    const char *length = header(conn, "Content-Length");
    const struct exchange_peer peer = {
        .user = conn->user,
        .tcp = conn->tcp,
        .metrics_only = conn->kind == FRONT_METRICS,
        .metrics_apart = front->loop->options->metrics[0] != '\0',
    };
    const struct exchange_head head = {
        .method = method,
        .path = path,
        .host = header(conn, "Host"),
        .content_type = header(conn, "Content-Type"),
        .authorization = header(conn, "Authorization"),
        .request_id = header(conn, "x-request-id"),
        .content_length = length ? strtoull(length, NULL, 10) : 0,
    };
    conn->exchange = exchange_open(&front->http, &peer, clock_now_us());
    if (!conn->exchange)
        return MHD_NO;
    conn->exchange->carrier = conn;
    wait_for(conn, &front->bodies);
    return exchange_head(conn->exchange, &head) ? MHD_YES : answer(conn);
}

static enum MHD_Result on_request(void *context, struct MHD_Connection *mhd, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_size, void **request)
{
    struct front_conn *conn =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    (void)context;
    (void)version;
    loop_touch(conn->front->loop);
    if (conn->gone)
        return MHD_NO;
    if (!*request) {
        *request = conn;
        return start(conn, method, url);
    }
    if (*upload_size > 0) {
        exchange_body(conn->exchange, upload, *upload_size);
        *upload_size = 0;
        return MHD_YES;
    }
    if (!conn->begun) {
        conn->begun = true;
        wait_for(conn, NULL);
        exchange_begin(conn->exchange, clock_now_us());
    }
    if (exchange_ready(conn->exchange))
        return answer(conn);
    suspend(conn);
    return MHD_YES;
}

static void on_completed(void *context, struct MHD_Connection *mhd, void **request,
                         enum MHD_RequestTerminationCode code)
{
    struct front_conn *conn = *request;
    (void)context;
    (void)mhd;
    (void)code;
    if (!conn)
        return;
    if (conn->exchange) {
        conn->exchange->carrier = NULL;
        exchange_close(conn->exchange, clock_now_us());
    }
    conn->exchange = NULL;
    conn->begun = false;
    *request = NULL;
    wait_for(conn, &conn->front->heads);
    loop_touch(conn->front->loop);
}

/* ---- connections -------------------------------------------------------------------------------
 */

static void on_closed(uv_handle_t *handle)
{
    free(container_of((uv_poll_t *)handle, struct front_conn, watch));
}

static void drop(struct front_conn *conn)
{
    struct server *server = conn->front->http.server;
    wait_for(conn, NULL);
    list_remove(&conn->link);
    server->load.connections--;
    uv_close((uv_handle_t *)&conn->watch, on_closed);
}

static void on_connection(void *context, struct MHD_Connection *mhd, void **socket_context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct front *front = context;
    struct front_conn *conn = *socket_context;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        front->accepted->mhd = mhd;
        *socket_context = front->accepted;
        front->accepted = NULL;
    } else if (conn) {
        *socket_context = NULL;
        drop(conn);
    }
}

static struct front_conn *make(struct front *front, int fd)
{
    struct front_conn *conn = calloc(1, sizeof(*conn));
    if (!conn)
        return NULL;
    if (uv_poll_init(&front->loop->uv, &conn->watch, fd) != 0) {
        free(conn);
        return NULL;
    }
    conn->front = front;
    conn->fd = fd;
    return conn;
}

void front_accept(struct front *front, int fd, enum front_kind kind, bool tcp,
                  const struct peer *peer)
{
    struct server *server = front->http.server;
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof(address);
    struct error error;
    struct front_conn *conn = NULL;
    if (admit_conn(&server->limits, server->load.connections, &error) ||
        !(conn = make(front, fd))) {
        server->counts.connections_refused_total++;
        close(fd);
        return;
    }
    if (tcp)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    if (getpeername(fd, (struct sockaddr *)&address, &length) != 0 || length < sizeof(sa_family_t))
        length = sizeof(struct sockaddr_un);
    if (length == sizeof(sa_family_t))
        address.ss_family = AF_UNIX; /* an unnamed client */
    conn->kind = kind;
    conn->tcp = tcp;
    conn->user = tcp ? KEY_USER_FIRST : peer->uid;
    list_append(&front->conns, &conn->link);
    wait_for(conn, &front->heads);
    server->load.connections++;
    server->counts.connections_total++;
    front->accepted = conn;
    MHD_add_connection(front->daemon, fd, (struct sockaddr *)&address, length); /* it closes fd */
    if (front->accepted) {
        front->accepted = NULL;
        drop(conn);
    }
    front->due = true;
}

/* ---- the loop ----------------------------------------------------------------------------------
 */

static struct front_conn *first_late(struct list *list, time_us delay_us, time_us now_us)
{
    struct front_conn *conn =
        list_empty(list) ? NULL : container_of(list->next, struct front_conn, wait_link);
    return conn && conn->wait_us + delay_us <= now_us ? conn : NULL;
}

/* libmicrohttpd finds the end of the stream and closes. */
static void expire(struct front *front, struct list *list, time_us now_us)
{
    struct front_conn *conn;
    while ((conn = first_late(list, front->loop->options->frame_timeout, now_us))) {
        wait_for(conn, NULL);
        shutdown(conn->fd, SHUT_RDWR);
        front->due = true;
    }
}

static void on_timer(uv_timer_t *timer)
{
    struct front *front = timer->data;
    run(front);
    loop_turn(front->loop);
}

static void earlier(uint64_t *ms, const struct list *list, time_us delay_us, time_us now_us)
{
    if (list_empty(list))
        return;
    time_us due_us = container_of(list->next, struct front_conn, wait_link)->wait_us + delay_us;
    uint64_t left_ms = due_us > now_us ? (due_us - now_us + 999) / 1000 : 0;
    if (left_ms < *ms)
        *ms = left_ms;
}

static void arm(struct front *front, time_us now_us)
{
    MHD_UNSIGNED_LONG_LONG own_ms;
    uint64_t ms = UINT64_MAX;
    time_us delay_us = front->loop->options->frame_timeout;
    if (MHD_get_timeout(front->daemon, &own_ms) == MHD_YES)
        ms = own_ms;
    earlier(&ms, &front->heads, delay_us, now_us);
    earlier(&ms, &front->bodies, delay_us, now_us);
    if (ms == UINT64_MAX)
        uv_timer_stop(&front->timer);
    else
        uv_timer_start(&front->timer, on_timer, ms, 0);
}

static void run(struct front *front)
{
    time_us now_us = clock_now_us();
    expire(front, &front->heads, now_us);
    expire(front, &front->bodies, now_us);
    front->due = false;
    MHD_run(front->daemon);
    if (!list_empty(&front->http.dirty))
        loop_touch(front->loop);
    arm(front, now_us);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    run(poll->data);
}

void front_turn(struct front *front, time_us now_us)
{
    if (!front->daemon)
        return;
    if (http_turn(&front->http, now_us))
        loop_touch(
            front->loop); /* what was told frees places, and what was cancelled is to be sent */
    if (front->due)
        run(front);
}

/* libmicrohttpd would say it on stderr itself, however long that takes. */
static void on_panic(void *context, const char *file, unsigned line, const char *reason)
{
    char message[LOG_MESSAGE_MAX];
    (void)context;
    snprintf(message, sizeof(message), "libmicrohttpd gives up: %s:%u: %s", file ? file : "?", line,
             reason ? reason : "no reason");
    log_die("http", message);
}

int front_open(struct front *front, struct loop *loop, uint64_t salt, struct error *error)
{
    const struct options *options = loop->options;
    uint64_t stall_s = options->stall_timeout / 1000000 + 1;
    *front = (struct front){.loop = loop};
    http_init(&front->http, &loop->server, salt, wake);
    list_init(&front->conns);
    list_init(&front->heads);
    list_init(&front->bodies);
    front->http.free_loopback = options->insecure_loopback;
    int rc =
        options->api_key_file[0] ? keys_load(&front->http.keys, options->api_key_file, error) : 0;
    if (rc)
        return rc;
    MHD_set_panic_func(on_panic, NULL);
    front->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_NO_LISTEN_SOCKET | ONE_THREAD, 0, NULL,
        NULL, on_request, front, MHD_OPTION_NOTIFY_COMPLETED, on_completed, front,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, front, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        CONNECTION_MEMORY, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)(stall_s < BACK_LIMIT ? stall_s : BACK_LIMIT), MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)options->connections_max, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
    if (!front->daemon)
        return error_set(error, ERR_IO, "cannot start HTTP");
    int fd = MHD_get_daemon_info(front->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    rc = uv_poll_init(&loop->uv, &front->poll, fd);
    if (rc != 0) {
        MHD_stop_daemon(front->daemon);
        front->daemon = NULL;
        return error_set(error, ERR_IO, "cannot watch HTTP: %s", uv_strerror(rc));
    }
    uv_timer_init(&loop->uv, &front->timer);
    front->timer.data = front->poll.data = front;
    uv_poll_start(&front->poll, UV_READABLE, on_readable);
    return 0;
}

void front_close(struct front *front)
{
    if (!front->daemon)
        return;
    list_each(link, &front->conns)
    {
        struct front_conn *conn = container_of(link, struct front_conn, link);
        conn->gone = true;
        resume(conn);
    }
    uv_close((uv_handle_t *)&front->poll, NULL);
    uv_close((uv_handle_t *)&front->timer, NULL);
    MHD_stop_daemon(front->daemon);
    front->daemon = NULL;
}
