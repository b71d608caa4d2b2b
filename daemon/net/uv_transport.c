#include "daemon/net/uv_transport.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "protocol/base/list.h"
#include "protocol/base/log.h"

struct link {
    struct transport transport;
    struct uv_transports *set;
    struct conn *conn; /* NULL once it is closed */
    uv_poll_t poll;
    int fd;
};

static struct link *of(struct transport *transport)
{
    return container_of(transport, struct link, transport);
}

/* Hands on what came beside the bytes. The kernel has closed what found no room. */
static void take_control(struct link *link, struct msghdr *message)
{
    struct cmsghdr *control = CMSG_FIRSTHDR(message);
    for (; control; control = CMSG_NXTHDR(message, control)) {
        if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(control) + i * sizeof(int), sizeof(fd));
            conn_descriptor(link->conn, fd);
        }
    }
    if (message->msg_flags & MSG_CTRUNC)
        conn_descriptor_lost(link->conn);
}

static ssize_t receive(struct link *link, void *bytes, size_t room)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(CONN_DESCRIPTORS_MAX * sizeof(int))];
    struct iovec part = {.iov_base = bytes, .iov_len = room};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof(control)};
    ssize_t got = recvmsg(link->fd, &message, MSG_CMSG_CLOEXEC);
    if (got >= 0)
        take_control(link, &message);
    return got;
}

static void read_some(struct link *link)
{
    size_t room;
    void *bytes = conn_room(link->conn, &room);
    ssize_t got;
    if (!bytes)
        return;
    do
        got = receive(link, bytes, room);
    while (got < 0 && errno == EINTR);
    if (got > 0)
        conn_received(link->conn, (size_t)got, clock_now_us());
    else if (got == 0)
        conn_ended(link->conn, clock_now_us());
    else if (errno != EAGAIN && errno != EWOULDBLOCK)
        conn_lost(link->conn, clock_now_us());
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct link *link = container_of(poll, struct link, poll);
    *link->set->loop.touched = true;
    if (status < 0) {
        conn_lost(link->conn, clock_now_us());
        return;
    }
    if (events & UV_WRITABLE)
        conn_writable(link->conn, clock_now_us());
    if (link->conn && events & UV_READABLE)
        read_some(link);
    else if (link->conn && events & UV_PRIORITIZED)
        conn_lost(link->conn, clock_now_us()); /* unread input of somebody who is gone is moot */
}

static ssize_t link_send(struct transport *transport, const void *bytes, size_t length)
{
    ssize_t sent;
    do
        sent = send(of(transport)->fd, bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    if (sent < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -ERR_CLOSED;
    return sent;
}

/* UV_DISCONNECT would also tell of a client that has ended only its own side, again and again. A
 * hang-up of both sides epoll tells unasked, and libuv hands it on to whoever waits for anything:
 * here for urgent bytes, which nobody sends us. */
static void link_watch(struct transport *transport, bool reading, bool writing)
{
    struct link *link = of(transport);
    int events = UV_PRIORITIZED | (reading ? UV_READABLE : 0) | (writing ? UV_WRITABLE : 0);
    uv_poll_start(&link->poll, events, on_poll); /* fails for closing handles alone */
}

static void on_closed(uv_handle_t *handle)
{
    struct link *link = container_of((uv_poll_t *)handle, struct link, poll);
    link->set->count--;
    free(link);
}

static void link_close(struct transport *transport)
{
    struct link *link = of(transport);
    link->conn = NULL;
    uv_close((uv_handle_t *)&link->poll, on_closed);
    close(link->fd); /* libuv no longer looks at it */
}

static const struct transport_api link_api = {
    .send = link_send, .watch = link_watch, .close = link_close};

void uv_transport_open(struct uv_transports *set, int fd, const struct peer *peer)
{
    struct link *link = calloc(1, sizeof(*link));
    if (!link || uv_poll_init(set->loop.uv, &link->poll, fd) != 0) {
        log_line(LOG_WARNING, "conn", "a connection of uid %u is closed: no memory for it",
                 peer->uid);
        free(link);
        close(fd);
        return;
    }
    link->transport.api = &link_api;
    link->set = set;
    link->fd = fd;
    set->count++;
    link->conn = set->accept(set->context, &link->transport, peer);
}
