#include "tests/hostile/http_rig.h"

#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct scene scene;

static char http_option[160];
static int tcp_port;

int http_connect(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/http", scene.spawn.directory);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

/* False when the other side takes no more: it may have answered before all was there. */
bool http_send(int fd, const void *bytes, size_t length)
{
    const char *at = bytes;
    while (length > 0) {
        ssize_t sent = send(fd, at, length, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return false;
        at += sent;
        length -= (size_t)sent;
    }
    return true;
}

/* The status, 0 when it was closed without one; text: the first bytes of the answer. */
int http_status(int fd, char *text, size_t size)
{
    size_t used = 0;
    int status = 0;
    while (used + 1 < size) {
        struct pollfd ready = {fd, POLLIN, 0};
        ck_assert_msg(poll(&ready, 1, 3 * SPAWN_PATIENCE_MS) == 1, "no answer in time");
        ssize_t got = recv(fd, text + used, size - 1 - used, 0);
        if (got <= 0)
            break;
        used += (size_t)got;
        text[used] = '\0';
        const char *body = strstr(text, "\r\n\r\n");
        const char *length = strcasestr(text, "content-length: ");
        if (body && length && strlen(body + 4) >= strtoul(length + 16, NULL, 10))
            break;
    }
    text[used] = '\0';
    sscanf(text, "HTTP/1.1 %d", &status);
    return status;
}

int http_head(const char *path, size_t length)
{
    char head[256];
    int fd = http_connect();
    snprintf(head, sizeof(head),
             "POST %s HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
             "Content-Length: %zu\r\n\r\n",
             path, length);
    ck_assert(http_send(fd, head, strlen(head)));
    return fd;
}

int http_post(const char *path, const char *body, size_t length, char *text, size_t size)
{
    int fd = http_head(path, length);
    http_send(fd, body, length);
    int status = http_status(fd, text, size);
    close(fd);
    return status;
}

void http_expect(const char *path, const char *body, size_t length, int status, const char *says)
{
    char text[4096];
    int seen = http_post(path, body, length, text, sizeof(text));
    ck_assert_msg(seen == status, "%s: %d, must be %d: %s", says, seen, status, text);
    ck_assert_msg(strstr(text, says) != NULL, "not \"%s\": %s", says, text);
    scene_check(&scene);
}

bool http_raise_descriptors(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur >= DESCRIPTORS)
        return true;
    limit.rlim_cur = limit.rlim_max < DESCRIPTORS ? limit.rlim_max : DESCRIPTORS;
    setrlimit(RLIMIT_NOFILE, &limit); /* the daemon has it from here */
    return limit.rlim_cur >= DESCRIPTORS;
}

void http_start(const char *model, const char *input_max, const struct canary_song *song)
{
    const char *const arguments[] = {"--model",
                                     model,
                                     "--device",
                                     "cpu",
                                     "--http",
                                     http_option,
                                     "--log-level",
                                     "debug",
                                     "--frame-timeout",
                                     "1s",
                                     "--stall-timeout",
                                     "1s",
                                     "--connections-max",
                                     "2000",
                                     "--frame-max",
                                     "16MiB",
                                     "--input-max",
                                     input_max,
                                     "--kv-idle-release",
                                     "100ms",
                                     "--cache-idle-release",
                                     "100ms",
                                     "--cpu-threads",
                                     "1",
                                     "--score-tokens",
                                     "n,y",
                                     "--score-template",
                                     "tests/http/templates/pair.jinja",
                                     "--insecure-loopback",
                                     "yes",
                                     NULL};
    scene_start(&scene, arguments, song);
}

/* Below those that the kernel hands out (ip_local_port_range), and by the process' number, so that
 * nobody else takes it before the daemon does. */
static int free_port(void)
{
    int port = 10000 + (int)getpid() % 20000;
    for (;; port++) {
        struct sockaddr_in address = {.sin_family = AF_INET,
                                      .sin_port = htons((uint16_t)port),
                                      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        ck_assert_int_ge(fd, 0);
        bool taken = bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0;
        close(fd);
        if (!taken)
            return port;
        ck_assert_int_lt(port, 32767);
    }
}

void http_make(void)
{
    http_raise_descriptors();
    spawn_make(&scene.spawn);
    tcp_port = free_port();
    snprintf(http_option, sizeof(http_option), "unix:%s/http,127.0.0.1:%d", scene.spawn.directory,
             tcp_port);
}

void http_setup(void)
{
    http_make();
    http_start("synthetic:null", "256MiB", NULL);
    /* What the first of everything takes stays: a thread for long bodies, its heap. */
    static char body[64 << 10];
    memset(body, ' ', sizeof(body));
    memcpy(body, "{\"prompt\":\"a\",\"max_tokens\":1}", 29);
    http_expect("/v1/completions", body, sizeof(body), 200, "\"object\":\"text_completion\"");
    scene.resident = spawn_resident(&scene.spawn);
    scene.slack = 8 * MIB; /* four threads with a heap each */
}

void http_teardown(void)
{
    scene_free(&scene);
}

/* `head`, then `length` bytes of a pattern, then `tail`. */
char *http_body_of(const char *head, const char *pattern, size_t length, const char *tail,
                   size_t *ret_length)
{
    size_t before = strlen(head), after = strlen(tail), step = strlen(pattern);
    char *body = malloc(before + length + after);
    ck_assert_ptr_nonnull(body);
    memcpy(body, head, before);
    for (size_t i = 0; i < length; i++)
        body[before + i] = pattern[i % step];
    memcpy(body + before + length, tail, after);
    *ret_length = before + length + after;
    return body;
}

int http_tcp_connect(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)tcp_port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}
