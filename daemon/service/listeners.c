#include "daemon/service/listeners.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/service/event_loop.h"
#include "protocol/base/log.h"

#define RESUME_MS 100u /* when nobody can be accepted */
#define ACCEPTS_MAX 64 /* per iteration, so that accepting starves nobody */

/* Somebody waits and there is no descriptor for him: he is let in and out, not left to spin on. */
static bool turn_away(struct event_loop *loop, const struct listener *listener)
{
    if (loop->spare_fd >= 0)
        close(loop->spare_fd);
    int fd = listen_accept(listener);
    if (fd >= 0)
        close(fd);
    loop->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    log_line(LOG_WARNING, "conn", "no file descriptor is left: a connection was closed");
    loop->server.counts.connections_refused_total++;
    return true;
}

static void on_resume(uv_timer_t *timer);

/* Who waits goes on waiting: the socket stays readable, and the loop does not spin on it. */
static void pause_listener(struct event_loop_listener *listener, int why)
{
    log_line(LOG_WARNING, "conn", "accepting on %s failed, and is tried again in %u ms: %s",
             listener->socket.name, RESUME_MS, strerror(why));
    listener->paused = true;
    uv_poll_stop(&listener->poll);
    uv_timer_start(&listener->loop->resume, on_resume, RESUME_MS, 0);
}

/* The line and the end; what came, as agent-send's, is thrown away, so that the close destroys
 * nothing. */
static void answer_agent(struct event_loop *loop, int fd)
{
    char line[AGENT_LINE_MAX], sent[256];
    size_t length = agent_line(&loop->agent, &loop->server, clock_now_us(), line);
    if (send(fd, line, length, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)length)
        shutdown(fd, SHUT_WR);
    (void)!recv(fd, sent, sizeof(sent), MSG_DONTWAIT);
    close(fd);
}

static void take_client(struct event_loop *loop, const struct event_loop_listener *source, int fd)
{
    const struct listener *listener = &source->socket;
    struct peer peer = {0};
    struct error error;
    if (source->agent) {
        answer_agent(loop, fd);
        return;
    }
    if (listener->tcp) {
        peer.loopback = listener->loopback;
        http_server_accept(&loop->front, fd, source->kind, true, &peer);
        return;
    }
    if (listen_peer(fd, loop->admin_gid, &peer, &error)) {
        log_line(LOG_WARNING, "conn", "%s: the connection is closed", error.text);
        close(fd);
        return;
    }
    peer.via = listener->name;
    if (source->http)
        http_server_accept(&loop->front, fd, source->kind, false, &peer);
    else
        uv_transport_open(&loop->links, fd, &peer);
}

void listeners_accept(struct event_loop_listener *listener)
{
    struct event_loop *loop = listener->loop;
    event_loop_touch(loop);
    for (int i = 0; i < ACCEPTS_MAX; i++) {
        int fd = listen_accept(&listener->socket);
        if (fd >= 0) {
            take_client(loop, listener, fd);
            continue;
        }
        if (fd == -EAGAIN || fd == -EWOULDBLOCK)
            return;
        if ((fd != -EMFILE && fd != -ENFILE) || !turn_away(loop, &listener->socket))
            pause_listener(listener, -fd);
        return;
    }
}

static void on_listen(uv_poll_t *poll, int status, int events)
{
    (void)events;
    if (status >= 0)
        listeners_accept(container_of(poll, struct event_loop_listener, poll));
}

void listeners_watch(struct event_loop_listener *listener)
{
    uv_poll_start(&listener->poll, UV_READABLE, on_listen); /* fails for closing handles alone */
}

/* A socket of systemd's is left to the next daemon when this one is drained. */
static void on_resume(uv_timer_t *timer)
{
    struct event_loop *loop = timer->data;
    for (uint32_t i = 0; i < loop->listener_count; i++) {
        struct event_loop_listener *listener = &loop->listeners[i];
        bool left = loop->server.draining && listener->socket.passed;
        if (listener->open && listener->paused && !left)
            listeners_watch(listener);
        listener->paused = false;
    }
}

static int add_listener(struct event_loop *loop, const struct event_loop_listener *made,
                        struct error *error)
{
    if (loop->listener_count == LISTEN_MAX)
        return error_set(error, ERR_BAD_CONFIG, "more than %d listening sockets", LISTEN_MAX);
    struct event_loop_listener *entry = &loop->listeners[loop->listener_count];
    *entry = *made;
    entry->loop = loop;
    int rc = uv_poll_init(&loop->uv, &entry->poll, entry->socket.fd);
    if (rc == 0)
        rc = uv_poll_start(&entry->poll, UV_READABLE, on_listen);
    if (rc != 0)
        return error_set(error, ERR_IO, "cannot watch %s: %s", entry->socket.name, uv_strerror(rc));
    entry->open = true;
    loop->listener_count++;
    log_line(LOG_NOTICE, "loop", "listening on %s%s", entry->socket.name,
             entry->agent                         ? " (agent check)"
             : !entry->http                       ? ""
             : entry->kind == HTTP_SERVER_METRICS ? " (metrics)"
                                                  : " (http)");
    reach_open(entry);
    return 0;
}

int event_loop_listen(struct event_loop *loop, const struct listener *listener, struct error *error)
{
    const struct event_loop_listener made = {.socket = *listener};
    return add_listener(loop, &made, error);
}

int event_loop_listen_http(struct event_loop *loop, const struct listener *listener,
                           enum http_server_kind kind, struct error *error)
{
    const struct event_loop_listener made = {.socket = *listener, .http = true, .kind = kind};
    return add_listener(loop, &made, error);
}

int event_loop_listen_agent(struct event_loop *loop, const struct listener *listener,
                            struct error *error)
{
    const struct event_loop_listener made = {.socket = *listener, .agent = true};
    return add_listener(loop, &made, error);
}

void listeners_close(struct event_loop *loop)
{
    for (uint32_t i = 0; i < loop->listener_count; i++) {
        struct event_loop_listener *listener = &loop->listeners[i];
        if (!listener->open)
            continue;
        listener->open = false;
        reach_close(listener);
        uv_close((uv_handle_t *)&listener->poll, NULL);
        listen_close(&listener->socket);
    }
}
