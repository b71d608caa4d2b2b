#include "daemon/probe.h"

#include <assert.h>
#include <string.h>
#include <unistd.h>

#include "daemon/server.h"
#include "protocol/message.h"

static struct probe *of(struct transport *transport)
{
    return container_of(transport, struct probe, transport);
}

static void refuse(struct probe *probe, const struct error *error)
{
    probe->error = *error;
    probe->state = PROBE_REFUSED;
}

static void take_frame(struct probe *probe, const struct frame *frame)
{
    struct message_error message;
    struct error error;
    if (frame->type == FRAME_DONE) {
        probe->state = PROBE_ANSWERED;
    } else if (frame->type == FRAME_ERROR) {
        int rc = message_decode_error(frame, &message, &error);
        refuse(probe, rc ? &error : &message.error);
    }
}

static void take_frames(struct probe *probe)
{
    size_t at = 0, used;
    struct frame frame;
    struct error error;
    for (;;) {
        enum frame_status status = frame_decode(probe->answers + at, probe->length - at,
                                                sizeof(probe->answers), &frame, &used, &error);
        if (status == FRAME_BAD)
            refuse(probe, &error);
        if (status != FRAME_OK)
            break;
        take_frame(probe, &frame);
        at += used;
    }
    probe->length -= at;
    memmove(probe->answers, probe->answers + at, probe->length);
}

static ssize_t probe_send(struct transport *transport, const void *bytes, size_t length)
{
    struct probe *probe = of(transport);
    size_t room = sizeof(probe->answers) - probe->length;
    size_t taken = length < room ? length : room;
    memcpy(probe->answers + probe->length, bytes, taken);
    probe->length += taken;
    take_frames(probe);
    return (ssize_t)taken;
}

static void probe_watch(struct transport *transport, bool reading, bool writing)
{
    (void)transport; /* it has said all it has to say, and takes all it is sent */
    (void)reading;
    (void)writing;
}

static void probe_closed(struct transport *transport)
{
    struct probe *probe = of(transport);
    struct error error;
    probe->conn = NULL;
    if (probe->state == PROBE_ASKED) {
        error_set(&error, ERR_CLOSED, "its connection was closed");
        refuse(probe, &error);
    }
}

static const struct transport_api probe_api = {
    .send = probe_send, .watch = probe_watch, .close = probe_closed};

static size_t encode(unsigned char *buffer, size_t size)
{
    static const int32_t token = 0; /* every vocabulary has it */
    const struct message_hello hello = {
        .version_min = FRAME_VERSION, .version_max = FRAME_VERSION, .client = "sluiced"};
    struct message_prompt prompt = {
        .sampling = sampling_unset(), .tokens = &token, .token_count = 1};
    prompt.sampling.max_tokens = 1;
    prompt.sampling.ignore_eos = true;
    const struct message_submit_out submit = {.job = JOB_GENERATE,
                                              .priority = WAITING_PRIORITY_MAX,
                                              .normalize = true,
                                              .prompt_count = 1,
                                              .prompts = &prompt};
    size_t length = message_encode_hello(buffer, size, &hello);
    return length + message_encode_submit(buffer + length, size - length, 1, &submit);
}

void probe_ask(struct probe *probe, struct server *server, time_us now_us)
{
    const struct peer self = {.uid = geteuid(), .gid = getegid(), .admin = true, .via = "probe"};
    _Alignas(8) unsigned char bytes[1024];
    size_t length = encode(bytes, sizeof(bytes)), room;
    probe_close(probe, now_us);
    *probe = (struct probe){.transport.api = &probe_api, .state = PROBE_ASKED};
    probe->conn = server_accept(server, &probe->transport, &self, now_us);
    void *place = probe->conn ? conn_room(probe->conn, &room) : NULL;
    if (!place) { /* what the server sent, if anything, said why */
        if (probe->state == PROBE_ASKED)
            error_set(&probe->error, ERR_BUSY, "no room for a connection");
        probe->state = PROBE_REFUSED;
        return;
    }
    assert(length <= room);
    memcpy(place, bytes, length);
    conn_received(probe->conn, length, now_us);
}

void probe_close(struct probe *probe, time_us now_us)
{
    if (probe->conn)
        conn_close(probe->conn, now_us);
}
