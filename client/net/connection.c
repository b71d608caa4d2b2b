#include "client/net/connection.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/net/failure.h"
#include "protocol/message.h"

#define READ_SIZE (64u << 10)
#define READS_MAX 16 /* of one turn, so that a fast daemon does not keep the program's loop */
#define KEEP_MAX (256u << 10) /* memory that an empty buffer keeps */
#define HELLO_MAX 512

/* ---- making and closing ------------------------------------------------------------------------
 */

static int say_hello(sluice_client *client)
{
    struct message_hello hello = {FRAME_VERSION, FRAME_VERSION, "libsluice " SLUICE_VERSION};
    void *room = connection_room(client, HELLO_MAX);
    if (!room)
        return -ERR_NO_MEMORY;
    size_t used = message_encode_hello(room, HELLO_MAX, &hello);
    assert(used > 0);
    connection_wrote(client, used);
    return 0;
}

int connection_make(int fd, const struct connection_handler *handler, sluice_client **ret_client,
                    struct error *error)
{
    sluice_client *client = calloc(1, sizeof(*client));
    if (client) {
        client->fd = fd;
        client->handler = handler;
        client->next_id = 1;
        list_init(&client->batches);
        list_init(&client->asks);
        list_init(&client->parcels);
    }
    if (!client || say_hello(client)) {
        if (client)
            connection_free(client);
        else
            close(fd);
        return error_set(error, ERR_NO_MEMORY, "no memory for a connection");
    }
    *ret_client = client;
    return 0;
}

int connection_greet(sluice_client *client, time_us until_us, struct error *error)
{
    int rc = 0;
    while (!client->greeted && !rc)
        rc = connection_wait(client, until_us);
    if (rc == 1)
        return error_set(error, ERR_TIMEOUT, "the daemon did not answer in time");
    if (rc)
        *error = client->lost;
    return rc;
}

/* The first, sent or not. */
static void drop_parcel(sluice_client *client)
{
    struct parcel *parcel = container_of(list_take(&client->parcels), struct parcel, link);
    for (uint32_t i = 0; i < parcel->count; i++)
        close(parcel->fds[i]);
    free(parcel);
}

int connection_attach(sluice_client *client, const int *fds, uint32_t count)
{
    struct parcel *parcel = calloc(1, sizeof(*parcel));
    assert(count > 0 && count <= CONNECTION_DESCRIPTORS_MAX);
    if (!parcel)
        return -ERR_NO_MEMORY;
    parcel->at = client->sent_bytes + buffer_used(&client->out);
    parcel->count = count;
    memcpy(parcel->fds, fds, count * sizeof(*fds));
    list_append(&client->parcels, &parcel->link);
    return 0;
}

void connection_free(sluice_client *client)
{
    assert(!client->turning);
    client->handler->closed(client);
    while (!list_empty(&client->parcels))
        drop_parcel(client);
    buffer_free(&client->in);
    buffer_free(&client->out);
    free(client->answer);
    close(client->fd);
    free(client);
}

/* ---- what it is --------------------------------------------------------------------------------
 */

const sluice_error *sluice_client_error(const sluice_client *client)
{
    return &client->error;
}

const sluice_info *sluice_client_info(const sluice_client *client)
{
    return &client->info;
}

int sluice_client_fd(const sluice_client *client)
{
    return client->fd;
}

short sluice_client_events(const sluice_client *client)
{
    if (client->lost.code)
        return 0;
    return (short)(POLLIN | (buffer_used(&client->out) > 0 && !client->mute ? POLLOUT : 0));
}

size_t sluice_open_sequences(const sluice_client *client)
{
    return client->open_sequences;
}

int connection_fail(sluice_client *client, const struct error *error)
{
    failure_publish(error, &client->error);
    return -error->code;
}

/* ---- bytes out ---------------------------------------------------------------------------------
 */

/* What is queued, up to where the next parcel begins; with the one that begins here. */
static ssize_t send_part(sluice_client *client)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(CONNECTION_DESCRIPTORS_MAX * sizeof(int))] = {0};
    struct iovec part = {client->out.bytes + client->out.start, buffer_used(&client->out)};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    struct list *first = client->parcels.next, *bound = first;
    struct parcel *parcel = first == &client->parcels ? NULL : container_of(first, struct parcel, link);
    bool now = parcel && parcel->at == client->sent_bytes;
    if (now) {
        struct cmsghdr *header = (struct cmsghdr *)(void *)control;
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(parcel->count * sizeof(int));
        *header = (struct cmsghdr){.cmsg_len = CMSG_LEN(parcel->count * sizeof(int)),
                                   .cmsg_level = SOL_SOCKET,
                                   .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(header), parcel->fds, parcel->count * sizeof(int));
        bound = first->next;
    }
    if (bound != &client->parcels) {
        uint64_t left = container_of(bound, struct parcel, link)->at - client->sent_bytes;
        part.iov_len = left < part.iov_len ? (size_t)left : part.iov_len;
    }
    ssize_t sent = sendmsg(client->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0 && now)
        drop_parcel(client);
    return sent;
}

/* A daemon that takes nothing more may have said why: that is still read. */
static void send_some(sluice_client *client)
{
    while (buffer_used(&client->out) > 0 && !client->mute) {
        ssize_t sent = send_part(client);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0) {
            client->mute = errno != EAGAIN && errno != EWOULDBLOCK;
            return;
        }
        buffer_consume(&client->out, (size_t)sent, KEEP_MAX);
        client->sent_bytes += (uint64_t)sent;
    }
    if (client->ending && !client->ended && !client->mute) {
        client->ended = true;
        shutdown(client->fd, SHUT_WR); /* fails where the daemon is gone: reading tells */
    }
}

int connection_check_speaking(sluice_client *client)
{
    struct error error;
    if (client->lost.code)
        return connection_fail(client, &client->lost);
    if (!client->ending)
        return 0;
    error_set(&error, ERR_USAGE, "nothing may follow sluice_end_input()");
    return connection_fail(client, &error);
}

int sluice_end_input(sluice_client *client)
{
    if (client->lost.code)
        return connection_fail(client, &client->lost);
    client->ending = true;
    if (!client->turning)
        send_some(client);
    return 0;
}

void *connection_room(sluice_client *client, size_t size)
{
    if (buffer_reserve(&client->out, size))
        return NULL;
    return client->out.bytes + client->out.end;
}

int connection_check_room(const sluice_client *client, size_t size, struct error *error)
{
    if (size > client->info.frame_max)
        return error_limit(error, ERR_TOO_LARGE, client->info.frame_max, size,
                           "the message takes %zu bytes, the daemon takes %" PRIu64 " at a time",
                           size, client->info.frame_max);
    if (size > CONNECTION_UNSENT_MAX || buffer_used(&client->out) > CONNECTION_UNSENT_MAX - size)
        return error_limit(error, ERR_BUSY, CONNECTION_UNSENT_MAX, buffer_used(&client->out) + size,
                           "%zu bytes wait to be sent already", buffer_used(&client->out));
    return 0;
}

void connection_wrote(sluice_client *client, size_t used)
{
    client->out.end += used;
    /* Within a turn what several callbacks submit leaves together, at its end. */
    if (!client->turning)
        send_some(client);
}

/* ---- bytes in ----------------------------------------------------------------------------------
 */

static void lose(sluice_client *client, const struct error *error)
{
    if (client->lost.code)
        return;
    client->lost = *error;
    failure_publish(error, &client->error);
    client->handler->lost(client, error);
}

static int take_welcome(sluice_client *client, const struct frame *frame, struct error *error)
{
    struct message_welcome welcome;
    struct message_error refusal;
    int rc;
    if (frame->type == FRAME_ERROR) {
        rc = message_decode_error(frame, &refusal, error);
        if (rc)
            return rc;
        *error = refusal.error;
        return -error->code;
    }
    if (frame->type != FRAME_WELCOME)
        return error_set(error, ERR_BAD_STATE, "the daemon did not begin with a welcome");
    rc = message_decode_welcome(frame, &welcome, error);
    if (rc)
        return rc;
    if (welcome.version != FRAME_VERSION)
        return error_set(error, ERR_BAD_VERSION,
                         "the daemon speaks version %u of the protocol, this client %d",
                         welcome.version, FRAME_VERSION);
    sluice_info *info = &client->info;
    _Static_assert(sizeof(info->model) == MESSAGE_NAME_MAX, "names are copied whole");
    _Static_assert(sizeof(info->device) == MESSAGE_NAME_MAX, "names are copied whole");
    memcpy(info->model, welcome.model, sizeof(info->model));
    memcpy(info->device, welcome.device, sizeof(info->device));
    info->context_max = welcome.context_max;
    info->vocabulary = welcome.vocabulary;
    info->batch_max = welcome.batch_max;
    info->logprobs_max = welcome.logprobs_max;
    info->n_max = welcome.n_max;
    info->frame_max = welcome.frame_max;
    info->text = welcome.text;
    client->greeted = true;
    return 0;
}

/* Takes whole frames off the input. */
static int take_frames(sluice_client *client, struct error *error)
{
    for (;;) {
        struct frame frame;
        size_t used;
        switch (frame_decode(client->in.bytes + client->in.start, buffer_used(&client->in),
                             CONNECTION_FRAME_MAX, &frame, &used, error)) {
        case FRAME_MORE:
            client->in_need = used;
            return 0;
        case FRAME_BAD:
            return -error->code;
        case FRAME_OK:
            break;
        }
        int rc = client->greeted ? client->handler->frame(client, &frame, error)
                                 : take_welcome(client, &frame, error);
        if (rc)
            return rc;
        buffer_consume(&client->in, used, KEEP_MAX);
        client->in_need = 0;
        if (buffer_used(&client->in) == 0)
            return 0;
    }
}

static int set_gone(sluice_client *client, int number, struct error *error)
{
    if (number && number != ECONNRESET && number != EPIPE)
        return error_set(error, ERR_CLOSED, "the connection to the daemon broke: %s",
                         strerrordesc_np(number));
    return error_set(error, ERR_CLOSED, "the daemon closed the connection%s",
                     client->greeted ? "" : " before its welcome");
}

/* 1 when nothing is there now. */
static int receive(sluice_client *client, struct error *error)
{
    size_t room = client->in_need > buffer_used(&client->in) + READ_SIZE
                      ? client->in_need - buffer_used(&client->in)
                      : READ_SIZE;
    if (buffer_reserve(&client->in, room))
        return error_set(error, ERR_NO_MEMORY, "no memory for an answer of %zu bytes",
                         client->in_need);
    room = client->in.size - client->in.end;
    ssize_t count = recv(client->fd, client->in.bytes + client->in.end, room, MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return errno == EINTR ? 0 : 1;
    if (count <= 0)
        return set_gone(client, count < 0 ? errno : 0, error);
    client->in.end += (size_t)count;
    int rc = take_frames(client, error);
    return rc || (size_t)count == room ? rc : 1;
}

int connection_turn(sluice_client *client)
{
    struct error error = {0};
    int rc = 0;
    assert(!client->turning);
    if (client->lost.code)
        return -client->lost.code;
    client->turning = true;
    send_some(client);
    for (int i = 0; i < READS_MAX && rc == 0; i++)
        rc = receive(client, &error);
    if (rc < 0)
        lose(client, &error);
    else
        send_some(client);
    client->turning = false;
    return client->lost.code ? -client->lost.code : 0;
}

/* ---- waiting -----------------------------------------------------------------------------------
 */

time_us connection_until(int timeout_ms)
{
    return timeout_ms < 0 ? 0 : clock_now_us() + (time_us)timeout_ms * 1000 + 1;
}

/* Rounded up, so that a wait does not end early and spin. */
static int left_ms(time_us until_us)
{
    time_us now_us = clock_now_us();
    if (until_us == 0)
        return -1;
    if (until_us <= now_us)
        return 0;
    time_us left = (until_us - now_us + 999) / 1000;
    return left < INT32_MAX ? (int)left : INT32_MAX;
}

int connection_wait(sluice_client *client, time_us until_us)
{
    struct pollfd ready = {client->fd, sluice_client_events(client), 0};
    if (client->lost.code)
        return -client->lost.code;
    int count = poll(&ready, 1, left_ms(until_us));
    if (count < 0 && errno == EINTR)
        return 0;
    if (count == 0)
        return 1;
    return connection_turn(client);
}

int connection_check_blocking(sluice_client *client)
{
    struct error error;
    if (!client->turning)
        return 0;
    error_set(&error, ERR_USAGE, "a callback may not wait");
    return connection_fail(client, &error);
}

int sluice_client_process(sluice_client *client)
{
    int rc = connection_check_blocking(client);
    return rc ? rc : connection_turn(client);
}
