/* Closed-loop load on a daemon that serves synthetic:null, for overhead.sh:
 *     bench_overhead SOCKET CONNECTIONS REQUESTS
 *
 * Each connection has one request open: 32 random tokens in, one out, checked by the rule of
 * null_rule.h. Prints requests per second; any answer that is missing or wrong is a failure.
 *
 * It shares its cores with the daemon and stands against redis-benchmark, so it costs little: one
 * thread, one epoll, one write and mostly one read per request. The SUBMIT is encoded once; each
 * request patches its id and tokens.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "gpu/kernels/step/null_rule.h"
#include "protocol/base/clock.h"
#include "protocol/message.h"

#define PROMPT_TOKENS 32
#define INPUT_SIZE 4096
#define FRAME_SIZE 512
#define EVENTS 64
#define ID_OFFSET 8

struct conn {
    int fd;
    uint64_t id;    /* of the open request */
    uint64_t state; /* after its prompt */
    bool answered;  /* its token has come */
    size_t used;
    _Alignas(8) unsigned char input[INPUT_SIZE];
    _Alignas(8) unsigned char submit[FRAME_SIZE];
};

struct load {
    struct conn *conns;
    unsigned conn_count;
    uint64_t sent, ended, wanted, random;
    size_t submit_size;
    int epoll;
};

static void fail(const char *what)
{
    fprintf(stderr, "bench_overhead: %s\n", what);
    exit(EXIT_FAILURE);
}

/* ---- out ---------------------------------------------------------------------------------------
 */

static uint64_t draw(struct load *load)
{
    load->random ^= load->random << 13;
    load->random ^= load->random >> 7;
    load->random ^= load->random << 17;
    return load->random;
}

/* Writes whole: what is sent is small beside a socket's buffer, and it has one request at a time.
 */
static void send_all(const struct conn *conn, const void *bytes, size_t length)
{
    if (send(conn->fd, bytes, length, MSG_NOSIGNAL) != (ssize_t)length)
        fail("the daemon does not take requests");
}

static void send_request(struct load *load, struct conn *conn)
{
    int32_t tokens[PROMPT_TOKENS];
    uint64_t bits = 0;
    conn->state = NULL_START;
    for (int i = 0; i < PROMPT_TOKENS; i++, bits >>= 8) {
        if (i % 8 == 0)
            bits = draw(load);
        tokens[i] = (int32_t)(bits & 255);
        conn->state = null_state(conn->state, tokens[i]);
    }
    conn->id++;
    conn->answered = false;
    memcpy(conn->submit + ID_OFFSET, &conn->id, sizeof(conn->id));
    memcpy(conn->submit + load->submit_size - sizeof(tokens), tokens, sizeof(tokens));
    load->sent++;
    send_all(conn, conn->submit, load->submit_size);
}

/* ---- in ----------------------------------------------------------------------------------------
 */

static void take_tokens(struct conn *conn, const struct frame *frame)
{
    struct message_tokens record;
    size_t offset = 0;
    if (message_next_tokens(frame, &offset, &record, NULL) || offset != frame->payload_length)
        fail("not one record of tokens");
    if (conn->answered || record.sequence != 0 || record.count != 1 ||
        record.tokens[0] != null_byte(conn->state))
        fail("a wrong answer");
    conn->answered = true;
}

static void take_done(struct load *load, struct conn *conn, const struct frame *frame)
{
    static const char reason[] = "\"finish_reason\":\"length\"";
    if (!conn->answered || !(frame->flags & FRAME_FLAG_LAST) ||
        !memmem(frame->head, frame->head_length, reason, sizeof(reason) - 1))
        fail("a request ended without its answer");
    load->ended++;
    if (load->sent < load->wanted)
        send_request(load, conn);
}

static void take_frame(struct load *load, struct conn *conn, const struct frame *frame)
{
    if (frame->id != conn->id)
        fail("an answer to no request");
    switch (frame->type) {
    case FRAME_ACCEPT:
        return;
    case FRAME_TOKENS:
        take_tokens(conn, frame);
        return;
    case FRAME_DONE:
        take_done(load, conn, frame);
        return;
    default:
        fprintf(stderr, "%.*s\n", (int)frame->head_length, frame->head);
        fail("a request was refused");
    }
}

static void take_input(struct load *load, struct conn *conn)
{
    ssize_t count = recv(conn->fd, conn->input + conn->used, INPUT_SIZE - conn->used, 0);
    struct frame frame;
    size_t taken, start = 0;
    if (count <= 0)
        fail("the daemon closed a connection");
    conn->used += (size_t)count;
    while (frame_decode(conn->input + start, conn->used - start, INPUT_SIZE, &frame, &taken,
                        NULL) == FRAME_OK) {
        take_frame(load, conn, &frame);
        start += taken;
    }
    conn->used -= start;
    memmove(conn->input, conn->input + start, conn->used);
}

/* ---- start -------------------------------------------------------------------------------------
 */

static void greet(struct conn *conn)
{
    const struct message_hello hello = {1, 1, "bench_overhead"};
    unsigned char out[FRAME_SIZE];
    struct frame frame;
    size_t taken;
    send_all(conn, out, message_encode_hello(out, sizeof(out), &hello));
    do {
        ssize_t count = recv(conn->fd, conn->input + conn->used, INPUT_SIZE - conn->used, 0);
        if (count <= 0)
            fail("the daemon does not answer");
        conn->used += (size_t)count;
    } while (frame_decode(conn->input, conn->used, INPUT_SIZE, &frame, &taken, NULL) != FRAME_OK);
    if (frame.type != FRAME_WELCOME)
        fail("the daemon does not welcome");
    conn->used = 0;
}

static void open_conn(struct load *load, struct conn *conn, const char *path)
{
    static const int32_t zeros[PROMPT_TOKENS];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct message_prompt prompt = {
        .sampling = sampling_unset(), .tokens = zeros, .token_count = PROMPT_TOKENS};
    const struct message_submit_out submit = {
        .params.job = JOB_GENERATE, .prompt_count = 1, .prompts = &prompt};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = conn};
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    conn->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (conn->fd < 0 || connect(conn->fd, (struct sockaddr *)&address, sizeof(address)))
        fail("cannot connect");
    greet(conn);
    prompt.sampling.max_tokens = 1;
    prompt.sampling.ignore_eos = true;
    load->submit_size = message_encode_submit(conn->submit, sizeof(conn->submit), 1, &submit);
    if (load->submit_size == 0 || epoll_ctl(load->epoll, EPOLL_CTL_ADD, conn->fd, &event))
        fail("cannot start");
}

static void run(struct load *load)
{
    struct epoll_event events[EVENTS];
    for (unsigned i = 0; i < load->conn_count && load->sent < load->wanted; i++)
        send_request(load, &load->conns[i]);
    while (load->ended < load->wanted) {
        int count = epoll_wait(load->epoll, events, EVENTS, 10000);
        if (count == 0)
            fail("no answer within 10 s");
        if (count < 0 && errno != EINTR)
            fail("epoll_wait");
        for (int i = 0; i < count; i++)
            take_input(load, events[i].data.ptr);
    }
}

int main(int argc, char **argv)
{
    struct load load = {.random = UINT64_C(0x9e3779b97f4a7c15)};
    if (argc != 4 || atoi(argv[2]) < 1 || atoll(argv[3]) < 1)
        fail("usage: bench_overhead SOCKET CONNECTIONS REQUESTS");
    load.conn_count = (unsigned)atoi(argv[2]);
    load.wanted = (uint64_t)atoll(argv[3]);
    load.conns = calloc(load.conn_count, sizeof(*load.conns));
    load.epoll = epoll_create1(EPOLL_CLOEXEC);
    if (!load.conns || load.epoll < 0)
        fail("cannot start");
    for (unsigned i = 0; i < load.conn_count; i++)
        open_conn(&load, &load.conns[i], argv[1]);
    time_us start_us = clock_now_us();
    run(&load);
    double seconds = (double)(clock_now_us() - start_us) / 1e6;
    printf("%.0f requests per second, %llu answers checked\n", (double)load.ended / seconds,
           (unsigned long long)load.ended);
    free(load.conns);
    return 0;
}
