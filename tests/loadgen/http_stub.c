#include "tests/loadgen/http_stub.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/client/door.h"

#define CONNS 32
#define INPUT_MAX 65536

struct peer {
    int fd; /* -1 = free */
    size_t used;
    char input[INPUT_MAX];
};

struct http_stub {
    struct door door;
    uint32_t fail_every, count;
    const char *key; /* NULL: none is asked for */
    struct http_stamps stamps[HTTP_STUB_MAX];
    struct peer peers[CONNS];
};

static void put(int fd, const char *text)
{
    size_t left = strlen(text);
    while (left > 0) {
        ssize_t sent = send(fd, text, left, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR)
            return;
        if (sent > 0) {
            text += sent;
            left -= (size_t)sent;
        }
    }
}

static void put_chunk(int fd, const char *text)
{
    char chunk[512];
    snprintf(chunk, sizeof(chunk), "%zx\r\n%s\r\n", strlen(text), text);
    put(fd, chunk);
}

static void stream(int fd, struct http_stamps *stamps)
{
    put(fd, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            "Transfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < HTTP_STUB_TOKENS; i++) {
        usleep(1000);
        stamps->before_us[i] = clock_now_us();
        put_chunk(fd, "data: {\"choices\":[{\"text\":\"a\"}]}\n\n");
        stamps->after_us[i] = clock_now_us();
    }
    put_chunk(fd, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":3}}"
                  "\n\n");
    put_chunk(fd, "data: [DONE]\n\n");
    put(fd, "0\r\n\r\n");
}

static void answer(struct http_stub *stub, struct peer *peer)
{
    static const char models[] = "{\"data\":[{\"id\":\"stub-model\"}]}";
    char head[256];
    if (stub->key) {
        snprintf(head, sizeof(head), "\r\nAuthorization: Bearer %s\r\n", stub->key);
        if (!strstr(peer->input, head)) {
            put(peer->fd, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 6\r\n\r\nno key");
            return;
        }
    }
    if (!strncmp(peer->input, "GET ", 4)) {
        snprintf(head, sizeof(head), "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s",
                 sizeof(models) - 1, models);
        put(peer->fd, head);
        return;
    }
    uint32_t number = stub->count++;
    struct http_stamps *stamps = &stub->stamps[number % HTTP_STUB_MAX];
    stamps->heard_us = clock_now_us();
    if (stub->fail_every && number % stub->fail_every == 0)
        put(peer->fd, "HTTP/1.1 429 Too Many\r\nContent-Length: 7\r\n\r\nno room");
    else
        stream(peer->fd, stamps);
}

static void take(struct http_stub *stub, struct peer *peer)
{
    ssize_t count = recv(peer->fd, peer->input + peer->used, INPUT_MAX - 1 - peer->used, 0);
    if (count <= 0) {
        close(peer->fd);
        peer->fd = -1;
        return;
    }
    peer->used += (size_t)count;
    peer->input[peer->used] = 0;
    const char *body = strstr(peer->input, "\r\n\r\n");
    const char *length = strcasestr(peer->input, "content-length:");
    size_t whole = length ? (size_t)atol(length + 15) : 0;
    if (!body || peer->used < (size_t)(body + 4 - peer->input) + whole)
        return;
    answer(stub, peer);
    peer->used = 0;
}

static void take_peer(struct http_stub *stub)
{
    int fd = accept(stub->door.listener, NULL, NULL);
    for (int i = 0; i < CONNS && fd >= 0; i++) {
        if (stub->peers[i].fd < 0) {
            stub->peers[i].fd = fd;
            stub->peers[i].used = 0;
            return;
        }
    }
    if (fd >= 0)
        close(fd);
}

static void *run(void *context)
{
    struct http_stub *stub = context;
    struct pollfd fds[CONNS + 2];
    for (;;) {
        fds[0] = (struct pollfd){stub->door.stop[0], POLLIN, 0};
        fds[1] = (struct pollfd){stub->door.listener, POLLIN, 0};
        for (int i = 0; i < CONNS; i++)
            fds[i + 2] = (struct pollfd){stub->peers[i].fd, POLLIN, 0};
        poll(fds, CONNS + 2, -1);
        if (fds[0].revents)
            return NULL;
        if (fds[1].revents)
            take_peer(stub);
        for (int i = 0; i < CONNS; i++)
            if (fds[i + 2].revents && stub->peers[i].fd >= 0)
                take(stub, &stub->peers[i]);
    }
}

struct http_stub *http_stub_start(uint32_t fail_every, const char **ret_path)
{
    struct http_stub *stub = calloc(1, sizeof(*stub));
    if (!stub)
        abort();
    stub->fail_every = fail_every;
    for (int i = 0; i < CONNS; i++)
        stub->peers[i].fd = -1;
    door_open(&stub->door, run, stub);
    *ret_path = stub->door.path;
    return stub;
}

void http_stub_ask_key(struct http_stub *stub, const char *key)
{
    stub->key = key;
}

void http_stub_stop(struct http_stub *stub)
{
    door_close(&stub->door);
    for (int i = 0; i < CONNS; i++)
        if (stub->peers[i].fd >= 0)
            close(stub->peers[i].fd);
}

uint32_t http_stub_stamps(const struct http_stub *stub, const struct http_stamps **ret_stamps)
{
    *ret_stamps = stub->stamps;
    return stub->count;
}

void http_stub_free(struct http_stub *stub)
{
    free(stub);
}
