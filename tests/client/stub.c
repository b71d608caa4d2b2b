#include "tests/client/stub.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gpu/kernels/step/null_rule.h"
#include "protocol/message.h"
#include "tests/client/door.h"
#include "tests/client/stub_seq.h"

#define CONNS_MAX 64
#define INPUT_MAX (1u << 20)

struct conn {
    int fd; /* -1 = free */
    bool doomed;
    unsigned char *input;
    size_t used;
};

struct stub {
    struct stub_options options;
    struct door door;
    struct conn conns[CONNS_MAX];
    struct stub_seq *seqs; /* list of all that are open */
    uint32_t open;
    uint64_t next_request;
    bool draining;
    struct stub_counts counts;
};

/* ---- bytes out ---------------------------------------------------------------------------------
 */

static void send_bytes(struct stub *stub, struct conn *conn, const void *bytes, size_t length)
{
    const unsigned char *at = bytes;
    while (length > 0 && conn->fd >= 0) {
        ssize_t sent = send(conn->fd, at, stub->options.split ? 1 : length, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return;
        at += sent;
        length -= (size_t)sent;
    }
}

static void send_error(struct stub *stub, struct conn *conn, uint64_t id, uint32_t sequence,
                       uint16_t flags, const struct error *error)
{
    unsigned char frame[2048];
    struct message_error message = {sequence, *error};
    send_bytes(stub, conn, frame, message_encode_error(frame, sizeof(frame), id, flags, &message));
}

static void send_control(struct stub *stub, struct conn *conn, const struct frame *to,
                         const char *head)
{
    unsigned char frame[2048];
    send_bytes(stub, conn, frame,
               message_encode_control(frame, sizeof(frame), to->type,
                                      FRAME_FLAG_ANSWER | FRAME_FLAG_LAST, to->id, head,
                                      strlen(head)));
}

/* ---- sequences ---------------------------------------------------------------------------------
 */

static void drop(struct stub *stub, struct stub_seq **place)
{
    struct stub_seq *seq = *place;
    *place = seq->next;
    free(seq);
    stub->open--;
}

/* The last sequence of its request that is open carries the flag. */
static uint16_t last_flag(const struct stub *stub, const struct stub_seq *seq)
{
    for (const struct stub_seq *other = stub->seqs; other; other = other->next)
        if (other != seq && other->request == seq->request)
            return 0;
    return FRAME_FLAG_LAST;
}

static void end_seq(struct stub *stub, struct stub_seq **place, enum finish finish)
{
    struct stub_seq *seq = *place;
    struct conn *conn = &stub->conns[seq->conn];
    unsigned char frame[1024];
    struct message_done done = {
        .sequence = seq->number,
        .finish = finish,
        .prompt_tokens = seq->prompt_count,
        .completion_tokens = seq->made,
        .queued_us = 1,
        .first_token_us = 2,
        .total_us = 3,
    };
    /* Counted first: who reads the answer may be gone, and be asked about, at once. */
    atomic_fetch_add(&stub->counts.ended, 1);
    if (finish == FINISH_CANCELLED)
        atomic_fetch_add(&stub->counts.cancelled, 1);
    send_bytes(stub, conn, frame,
               message_encode_done(frame, sizeof(frame), seq->id, last_flag(stub, seq), &done));
    drop(stub, place);
}

static void fail_seq(struct stub *stub, struct stub_seq **place)
{
    struct error error;
    error_set(&error, ERR_DEVICE, "the stub fails this one");
    send_error(stub, &stub->conns[(*place)->conn], (*place)->id, (*place)->number,
               last_flag(stub, *place), &error);
    drop(stub, place);
}

static void close_conn(struct stub *stub, struct conn *conn)
{
    for (struct stub_seq **place = &stub->seqs; *place;) {
        if (&stub->conns[(*place)->conn] == conn) {
            atomic_fetch_add(&stub->counts.lost, 1);
            drop(stub, place);
        } else {
            place = &(*place)->next;
        }
    }
    if (conn->fd >= 0)
        close(conn->fd);
    conn->fd = -1;
    free(conn->input);
    conn->input = NULL;
    conn->used = 0;
    conn->doomed = false;
}

/* One token, or the results, of one sequence. Returns whether it is still on the list. */
static bool turn_seq(struct stub *stub, struct stub_seq **place)
{
    struct stub_seq *seq = *place;
    struct conn *conn = &stub->conns[seq->conn];
    size_t size = 0;
    unsigned char *frame;
    if (seq->first_token == STUB_FAIL_TOKEN) {
        fail_seq(stub, place);
        return false;
    }
    if (seq->first_token == STUB_HANG_TOKEN && seq->made > 0)
        return true;
    frame = stub_seq_step(seq, &size);
    send_bytes(stub, conn, frame, size);
    free(frame);
    conn->doomed = conn->doomed || seq->first_token == STUB_KILL_TOKEN;
    if (!seq->finished)
        return true;
    end_seq(stub, place, seq->finish);
    return false;
}

static void turn_all(struct stub *stub)
{
    for (struct stub_seq **place = &stub->seqs; *place;) {
        struct stub_seq *seq = *place;
        if (turn_seq(stub, place))
            place = &seq->next;
    }
    for (size_t i = 0; i < CONNS_MAX; i++)
        if (stub->conns[i].doomed)
            close_conn(stub, &stub->conns[i]);
}

/* ---- frames in ---------------------------------------------------------------------------------
 */

static int read_submit(struct stub *stub, size_t conn, const struct frame *frame,
                       struct message_submit *submit, struct error *error)
{
    uint64_t request = stub->next_request;
    uint32_t number = 0;
    struct stub_seq *made = NULL;
    int rc = 0;
    for (uint32_t i = 0; i < submit->prompt_count && !rc; i++) {
        struct message_prompt prompt;
        rc = message_submit_prompt(submit, i, &prompt, error);
        for (uint32_t r = 0; !rc && r < prompt.sampling.n; r++) {
            struct stub_seq *seq = stub_seq_make(submit, &prompt);
            seq->conn = conn;
            seq->id = frame->id;
            seq->request = request;
            seq->number = number++;
            seq->next = made;
            made = seq;
        }
    }
    if (!rc && stub->draining)
        rc = error_set(error, ERR_DRAINING, "the stub drains");
    if (!rc && stub->options.queue_max && stub->open + number > stub->options.queue_max) {
        rc = error_limit(error, ERR_BUSY, stub->options.queue_max, stub->open + number,
                         "%u sequences are open", stub->open);
        error->retry_after_ms = 2;
    }
    while (made) {
        struct stub_seq *next = made->next;
        if (rc) {
            free(made);
        } else {
            made->next = stub->seqs;
            stub->seqs = made;
            stub->open++;
        }
        made = next;
    }
    return rc;
}

static void take_submit(struct stub *stub, size_t index, const struct frame *frame)
{
    static const struct message_limits limits = {.batch_max = 4096,
                                                 .n_max = 128,
                                                 .logprobs_max = 20,
                                                 .stop_max = 16,
                                                 .json_depth_max = 8,
                                                 .vocabulary = NULL_VOCAB};
    const struct sampling defaults = {.logprobs = -1, .n = 1, .max_tokens = 16, .sampler.top_p = 1};
    struct conn *conn = &stub->conns[index];
    struct message_submit submit;
    struct error error;
    unsigned char out[128];
    int rc = message_decode_submit(frame, &limits, &defaults, &submit, &error);
    if (!rc) {
        rc = read_submit(stub, index, frame, &submit, &error);
        message_submit_free(&submit);
    }
    if (rc) {
        atomic_fetch_add(&stub->counts.refused, 1);
        send_error(stub, conn, frame->id, MESSAGE_NO_SEQUENCE, FRAME_FLAG_LAST, &error);
        return;
    }
    atomic_fetch_add(&stub->counts.accepted, 1);
    if (stub->open > atomic_load(&stub->counts.open_most))
        atomic_store(&stub->counts.open_most, stub->open);
    send_bytes(stub, conn, out,
               message_encode_accept(out, sizeof(out), frame->id, stub->next_request++));
}

static void take_cancel(struct stub *stub, size_t index, const struct frame *frame)
{
    struct error error;
    uint64_t request;
    bool found = false;
    if (message_decode_cancel(frame, &request, &error))
        return;
    for (struct stub_seq **place = &stub->seqs; *place;) {
        struct stub_seq *seq = *place;
        if (request ? seq->request == request : seq->conn == index && seq->id == frame->id) {
            found = true;
            end_seq(stub, place, FINISH_CANCELLED);
        } else {
            place = &seq->next;
        }
    }
    if (request && !found) {
        error_set(&error, ERR_NOT_FOUND, "there is no request %" PRIu64, request);
        send_error(stub, &stub->conns[index], frame->id, MESSAGE_NO_SEQUENCE, FRAME_FLAG_LAST,
                   &error);
    } else if (request) {
        send_control(stub, &stub->conns[index], frame, "");
    }
}

/* A token is a byte. */
static void take_tokenize(struct stub *stub, struct conn *conn, const struct frame *frame)
{
    struct message_tokenize question;
    struct error error;
    int rc = message_decode_tokenize(frame, &question, &error);
    if (!rc && !stub->options.text)
        rc = error_set(&error, ERR_UNSUPPORTED, "the stub has no tokenizer");
    if (rc) {
        send_error(stub, conn, frame->id, MESSAGE_NO_SEQUENCE, FRAME_FLAG_LAST, &error);
        return;
    }
    size_t size = message_text_size(question.length * sizeof(int32_t));
    int32_t *tokens = malloc(question.length * sizeof(*tokens));
    void *out = malloc(size);
    for (uint32_t i = 0; tokens && i < question.length; i++)
        tokens[i] = (unsigned char)question.text[i];
    if (tokens && out)
        send_bytes(stub, conn, out,
                   message_encode_tokenized(out, size, frame->id, tokens, question.length));
    free(tokens);
    free(out);
}

static void take_detokenize(struct stub *stub, struct conn *conn, const struct frame *frame)
{
    struct message_detokenize question;
    struct error error;
    if (message_decode_detokenize(frame, 256, &question, &error)) {
        send_error(stub, conn, frame->id, MESSAGE_NO_SEQUENCE, FRAME_FLAG_LAST, &error);
        return;
    }
    size_t size = message_text_size(question.count);
    char *text = malloc(question.count + 1);
    void *out = malloc(size);
    for (uint32_t i = 0; text && i < question.count; i++)
        text[i] = (char)question.tokens[i];
    if (text && out)
        send_bytes(stub, conn, out,
                   message_encode_detokenized(out, size, frame->id, text, question.count));
    free(text);
    free(out);
}

static void take_hello(struct stub *stub, struct conn *conn)
{
    unsigned char out[1024];
    struct error error;
    struct message_welcome welcome = {
        .version = 1,
        .frame_max = INPUT_MAX,
        .batch_max = 4096,
        .context_max = stub->options.loading ? 0 : NULL_CONTEXT,
        .vocabulary = NULL_VOCAB,
        .logprobs_max = 20,
        .n_max = 128,
        .text = stub->options.text,
        .model = "synthetic:null",
        .device = "stub",
    };
    if (stub->options.refuse) {
        error_set(&error, ERR_BUSY, "no connection is left");
        error.retry_after_ms = 7;
        send_error(stub, conn, 0, MESSAGE_NO_SEQUENCE, FRAME_FLAG_LAST, &error);
        close_conn(stub, conn);
        return;
    }
    send_bytes(stub, conn, out, message_encode_welcome(out, sizeof(out), &welcome));
}

static void take_frame(struct stub *stub, size_t index, const struct frame *frame)
{
    struct conn *conn = &stub->conns[index];
    switch (frame->type) {
    case FRAME_HELLO:
        take_hello(stub, conn);
        break;
    case FRAME_SUBMIT:
        take_submit(stub, index, frame);
        break;
    case FRAME_CANCEL:
        take_cancel(stub, index, frame);
        break;
    case FRAME_TOKENIZE:
        take_tokenize(stub, conn, frame);
        break;
    case FRAME_DETOKENIZE:
        take_detokenize(stub, conn, frame);
        break;
    case FRAME_STATS:
        send_control(stub, conn, frame,
                     "{\"uptime_us\":5000000,\"counters\":{\"requests_total\":3},\"gauges\":{"
                     "\"waiting\":1},\"histograms\":{\"ttft\":{\"count\":2,\"mean_us\":1500,"
                     "\"p50_us\":1000,\"p90_us\":2000,\"p99_us\":2000,\"p999_us\":2000,\"max_us\":"
                     "2000}},\"memory\":{\"weights\":1048576},\"formats\":{\"weights\":{"
                     "\"e4m3\":3145728,\"bf16\":1048576},\"kv\":\"fp8\","
                     "\"kv_token_bytes\":132}}");
        break;
    case FRAME_HEALTH:
        send_control(stub, conn, frame,
                     stub->options.loading ? "{\"status\":\"loading\",\"ready\":false}"
                                           : "{\"status\":\"ok\",\"ready\":true}");
        break;
    case FRAME_DRAIN:
    case FRAME_RESUME:
        stub->draining = frame->type == FRAME_DRAIN;
        send_control(stub, conn, frame, "{\"status\":\"draining\",\"ready\":false}");
        break;
    default:
        send_control(stub, conn, frame, "{\"model\":\"synthetic:null\",\"layers\":0}");
    }
}

static void take_input(struct stub *stub, size_t index)
{
    struct conn *conn = &stub->conns[index];
    struct error error;
    struct frame frame;
    size_t used;
    ssize_t count = recv(conn->fd, conn->input + conn->used, INPUT_MAX - conn->used, 0);
    if (count <= 0) {
        close_conn(stub, conn);
        return;
    }
    conn->used += (size_t)count;
    while (conn->fd >= 0 && !stub->options.silent &&
           frame_decode(conn->input, conn->used, INPUT_MAX, &frame, &used, &error) == FRAME_OK) {
        take_frame(stub, index, &frame);
        if (conn->fd < 0)
            return;
        conn->used -= used;
        memmove(conn->input, conn->input + used, conn->used);
    }
}

static void take_conn(struct stub *stub)
{
    int fd = accept(stub->door.listener, NULL, NULL);
    for (size_t i = 0; fd >= 0 && i < CONNS_MAX; i++) {
        if (stub->conns[i].fd < 0) {
            stub->conns[i] = (struct conn){.fd = fd, .input = malloc(INPUT_MAX)};
            atomic_fetch_add(&stub->counts.connections, 1);
            return;
        }
    }
    if (fd >= 0)
        close(fd);
}

static void *run(void *argument)
{
    struct stub *stub = argument;
    struct pollfd fds[CONNS_MAX + 2];
    for (;;) {
        fds[0] = (struct pollfd){stub->door.stop[0], POLLIN, 0};
        fds[1] = (struct pollfd){stub->door.listener, POLLIN, 0};
        for (size_t i = 0; i < CONNS_MAX; i++)
            fds[i + 2] = (struct pollfd){stub->conns[i].fd, POLLIN, 0};
        poll(fds, CONNS_MAX + 2, stub->open ? 1 : -1);
        if (fds[0].revents)
            return NULL;
        if (fds[1].revents)
            take_conn(stub);
        for (size_t i = 0; i < CONNS_MAX; i++)
            if (fds[i + 2].revents && stub->conns[i].fd >= 0)
                take_input(stub, i);
        turn_all(stub);
    }
}

/* ---- start and stop ----------------------------------------------------------------------------
 */

struct stub *stub_start(const struct stub_options *options, const char **ret_path)
{
    struct stub *stub = calloc(1, sizeof(*stub));
    if (!stub)
        abort();
    stub->options = *options;
    stub->next_request = STUB_REQUEST_FIRST;
    for (size_t i = 0; i < CONNS_MAX; i++)
        stub->conns[i].fd = -1;
    door_open(&stub->door, run, stub);
    *ret_path = stub->door.path;
    return stub;
}

void stub_stop(struct stub *stub)
{
    door_close(&stub->door);
    for (size_t i = 0; i < CONNS_MAX; i++)
        close_conn(stub, &stub->conns[i]);
    free(stub);
}

const struct stub_counts *stub_counts(const struct stub *stub)
{
    return &stub->counts;
}
