#include "daemon/service/self_test.h"

#include <assert.h>
#include <string.h>
#include <unistd.h>

#include "daemon/api/session.h"
#include "daemon/request/server.h"
#include "protocol/message.h"

static struct self_test *of(struct transport *transport)
{
    return container_of(transport, struct self_test, transport);
}

static void refuse(struct self_test *probe, const struct error *error)
{
    probe->error = *error;
    probe->state = SELF_TEST_REFUSED;
}

/* Whoever may cancels others' requests, this one, too: that says nothing of the model. */
static bool is_answer(struct self_test *probe, const struct frame *frame)
{
    struct message_done done;
    struct error error;
    if (frame->type == FRAME_PROGRAMS)
        return true;
    if (message_decode_done(frame, &done, &error) < 0) {
        refuse(probe, &error);
        return false;
    }
    if (done.finish == FINISH_STOP || done.finish == FINISH_LENGTH)
        return true;
    error_set(&error, done.finish == FINISH_CANCELLED ? ERR_BUSY : ERR_DEADLINE, "it was %s",
              done.finish == FINISH_CANCELLED ? "cancelled" : "not answered in time");
    refuse(probe, &error);
    return false;
}

static void take_frame(struct self_test *probe, const struct frame *frame)
{
    struct message_error message;
    struct error error;
    if (frame->type == FRAME_DONE || frame->type == FRAME_PROGRAMS) {
        if (is_answer(probe, frame) && --probe->waits == 0 && probe->state == SELF_TEST_ASKED)
            probe->state = SELF_TEST_ANSWERED;
    } else if (frame->type == FRAME_ERROR) {
        int rc = message_decode_error(frame, &message, &error);
        refuse(probe, rc ? &error : &message.error);
    }
}

static void take_frames(struct self_test *probe)
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

static ssize_t self_test_send(struct transport *transport, const void *bytes, size_t length)
{
    struct self_test *probe = of(transport);
    size_t room = sizeof(probe->answers) - probe->length;
    size_t taken = length < room ? length : room;
    memcpy(probe->answers + probe->length, bytes, taken);
    probe->length += taken;
    take_frames(probe);
    return (ssize_t)taken;
}

static void self_test_watch(struct transport *transport, bool reading, bool writing)
{
    (void)transport; /* it has said all it has to say, and takes all it is sent */
    (void)reading;
    (void)writing;
}

static void self_test_closed(struct transport *transport)
{
    struct self_test *probe = of(transport);
    struct error error;
    probe->conn = NULL;
    if (probe->state == SELF_TEST_ASKED) {
        error_set(&error, ERR_CLOSED, "its connection was closed");
        refuse(probe, &error);
    }
}

static const struct transport_api self_test_api = {
    .send = self_test_send, .watch = self_test_watch, .close = self_test_closed};

/* only: NULL, or the one model that is asked. */
static bool is_asked(const struct served_model *model, const struct served_model *only)
{
    return only ? model == only : model->sleep.state == MODEL_AWAKE;
}

static size_t encode(unsigned char *buffer, size_t size, const struct server *server,
                     const struct served_model *only)
{
    static const int32_t token = 0; /* every vocabulary has it */
    const struct message_hello hello = {
        .version_min = FRAME_VERSION, .version_max = FRAME_VERSION, .client = "sluiced"};
    struct message_prompt prompt = {
        .sampling = sampling_unset(), .tokens = &token, .token_count = 1};
    prompt.sampling.max_tokens = 1;
    prompt.sampling.ignore_eos = true;
    struct message_submit_out submit = {.params.job = JOB_GENERATE,
                                        .params.priority = WAITING_PRIORITY_MAX,
                                        .params.normalize = true,
                                        .prompt_count = 1,
                                        .prompts = &prompt};
    size_t length = message_encode_hello(buffer, size, &hello);
    if (server->model_count == 0)
        return length + message_encode_control(buffer + length, size - length, FRAME_PROGRAMS, 0, 1, "", 0);
    for (uint32_t i = 0; i < server->model_count; i++) {
        if (!is_asked(&server->models[i], only))
            continue;
        submit.params.job =
            model_text_generates(server->models[i].text, NULL) ? JOB_EMBED : JOB_GENERATE;
        submit.params.model = server->models[i].names.names[0];
        length += message_encode_submit(buffer + length, size - length, i + 1, &submit);
    }
    return length;
}

/* The first is one of them; without a model it is the list of programs. */
static uint32_t count_asked(const struct server *server, const struct served_model *only)
{
    uint32_t count = server->model_count == 0;
    for (uint32_t i = 0; i < server->model_count; i++)
        count += is_asked(&server->models[i], only);
    return count;
}

void self_test_ask_one(struct self_test *probe, struct server *server,
                       const struct served_model *only, time_us now_us)
{
    const struct peer self = {.uid = geteuid(), .gid = getegid(), .admin = true, .via = "probe"};
    _Alignas(8) unsigned char bytes[512 * (MODEL_LIST_MAX + 1)]; /* names have 127 bytes at most */
    size_t length = encode(bytes, sizeof(bytes), server, only), room;
    self_test_close(probe, now_us);
    *probe = (struct self_test){.transport.api = &self_test_api,
                                .state = SELF_TEST_ASKED,
                                .waits = count_asked(server, only)};
    probe->conn = session_accept(server, &probe->transport, &self, now_us);
    void *place = probe->conn ? conn_room(probe->conn, &room) : NULL;
    if (!place) { /* what the server sent, if anything, said why */
        if (probe->state == SELF_TEST_ASKED)
            error_set(&probe->error, ERR_BUSY, "no room for a connection");
        probe->state = SELF_TEST_REFUSED;
        return;
    }
    assert(length <= room);
    memcpy(place, bytes, length);
    conn_received(probe->conn, length, now_us);
}

void self_test_ask(struct self_test *probe, struct server *server, time_us now_us)
{
    self_test_ask_one(probe, server, NULL, now_us);
}

void self_test_close(struct self_test *probe, time_us now_us)
{
    if (probe->conn)
        conn_close(probe->conn, now_us);
}
