#include "daemon/http/http_address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/base/option.h"

#define BACKLOG 1024
#define TEXT_MAX 256

struct place {
    struct sockaddr_storage address;
    socklen_t length; /* 0: a path */
    char path[TEXT_MAX];
};

static bool read_port(const char *text, uint16_t *ret)
{
    char *end;
    errno = 0;
    unsigned long port = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || port == 0 || port > UINT16_MAX)
        return false;
    *ret = htons((uint16_t)port);
    return true;
}

static int read_place(const char *text, struct place *place, struct error *error)
{
    struct sockaddr_in *four = (struct sockaddr_in *)(void *)&place->address;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)(void *)&place->address;
    char host[TEXT_MAX];
    uint16_t port;
    const char *colon = strrchr(text, ':');
    bool bracket = text[0] == '[';
    if (!colon || !read_port(colon + 1, &port) || (bracket && colon[-1] != ']'))
        return error_set(error, ERR_BAD_CONFIG, "%.128s: unix:PATH or HOST:PORT is expected", text);
    snprintf(host, sizeof(host), "%.*s", (int)(colon - text) - 2 * bracket, text + bracket);
    if (strcmp(host, "localhost") == 0)
        snprintf(host, sizeof(host), "127.0.0.1");
    if (!bracket && inet_pton(AF_INET, host, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        four->sin_port = port;
        place->length = sizeof(*four);
    } else if (bracket && inet_pton(AF_INET6, host, &six->sin6_addr) == 1) {
        six->sin6_family = AF_INET6;
        six->sin6_port = port;
        place->length = sizeof(*six);
    } else {
        return error_set(error, ERR_BAD_CONFIG, "%.128s: the host must be a number or localhost",
                         text);
    }
    return 0;
}

/* The first of the list. */
static int next_place(const char **list, struct place *place, struct error *error)
{
    char text[TEXT_MAX];
    struct option_word word = {0};
    memset(place, 0, sizeof(*place));
    if (!option_next(list, &word) || word.length == 0 || word.length >= sizeof(text))
        return error_set(error, ERR_BAD_CONFIG,
                         "a list of unix:PATH and HOST:PORT with commas between is expected");
    memcpy(text, word.text, word.length);
    text[word.length] = '\0';
    *list = *list ? *list : "";
    if (strncmp(text, "unix:", 5) != 0)
        return read_place(text, place, error);
    memcpy(place->path, text + 5, word.length - 4);
    return 0;
}

/* A service that may not open sockets of TCP is passed one. */
static const char *hint(int why)
{
    bool service = why == EAFNOSUPPORT && getenv("INVOCATION_ID");
    return service ? ": the service's sandbox allows none (RestrictAddressFamilies=); "
                     "systemctl enable sluiced-tcp.socket passes one to it"
                   : "";
}

static int open_tcp(const struct place *place, struct listener *listener, struct error *error)
{
    int fd = socket(place->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return error_set(error, ERR_IO, "cannot make a socket for %s: %s%s", listener->name,
                         strerror(errno), hint(errno));
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (bind(fd, (const struct sockaddr *)&place->address, place->length) != 0 ||
        listen(fd, BACKLOG) != 0) {
        int why = errno;
        close(fd);
        return error_set(error, error_of_system(why, ERR_BAD_CONFIG), "cannot listen on %s: %s",
                         listener->name, strerror(why));
    }
    listener->fd = fd;
    return 0;
}

static int name_option(const char *option, struct error *error)
{
    const struct error inner = *error;
    return error_set(error, inner.code, "%s: %.480s", option, inner.text);
}

int address_read(const char **list, const char *option, struct listener *ret_listener,
                 struct error *error)
{
    struct place place;
    if (next_place(list, &place, error))
        return name_option(option, error);
    if (!place.length && (!place.path[0] || strlen(place.path) >= LISTEN_PATH_MAX))
        return error_set(error, ERR_BAD_CONFIG, "%s: the path of a socket has 1 to %d bytes",
                         option, LISTEN_PATH_MAX - 1);
    *ret_listener = (struct listener){.fd = -1, .lock_fd = -1};
    if (place.length)
        listen_describe(ret_listener, &place.address);
    else
        snprintf(ret_listener->path, sizeof(ret_listener->path), "%.107s", place.path);
    return 0;
}

int address_open(const char **list, const char *option, struct listener *ret_listener,
                 struct error *error)
{
    struct listener listener = {.fd = -1, .lock_fd = -1};
    const char *rest = *list;
    struct place place;
    int rc = next_place(&rest, &place, error);
    if (!rc && place.length) {
        listen_describe(&listener, &place.address);
        rc = open_tcp(&place, &listener, error);
    } else if (!rc) {
        rc = listen_open(place.path, &listener, error);
    }
    if (rc)
        return name_option(option, error);
    *list = rest;
    *ret_listener = listener;
    return 0;
}
