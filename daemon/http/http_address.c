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

#define BACKLOG 1024
#define TEXT_MAX 256

struct place {
    struct sockaddr_storage address;
    socklen_t length;
    bool loopback;
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
        return error_set(error, ERR_BAD_CONFIG,
                         "%.128s: unix:PATH or HOST:PORT is expected (http, metrics)", text);
    snprintf(host, sizeof(host), "%.*s", (int)(colon - text) - 2 * bracket, text + bracket);
    if (strcmp(host, "localhost") == 0)
        snprintf(host, sizeof(host), "127.0.0.1");
    memset(place, 0, sizeof(*place));
    if (!bracket && inet_pton(AF_INET, host, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        four->sin_port = port;
        place->length = sizeof(*four);
        place->loopback = ntohl(four->sin_addr.s_addr) >> 24 == 127;
    } else if (bracket && inet_pton(AF_INET6, host, &six->sin6_addr) == 1) {
        six->sin6_family = AF_INET6;
        six->sin6_port = port;
        place->length = sizeof(*six);
        place->loopback = IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
    } else {
        return error_set(error, ERR_BAD_CONFIG,
                         "%.128s: the host must be a number or localhost (http, metrics)", text);
    }
    return 0;
}

static int open_tcp(const char *text, struct address *address, struct error *error)
{
    struct place place;
    int rc = read_place(text, &place, error);
    if (rc)
        return rc;
    int fd = socket(place.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return error_set(error, ERR_IO, "cannot make a socket: %s", strerror(errno));
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (bind(fd, (const struct sockaddr *)&place.address, place.length) != 0 ||
        listen(fd, BACKLOG) != 0) {
        int why = errno;
        close(fd);
        return error_set(error, error_of_system(why, ERR_BAD_CONFIG), "cannot listen on %.128s: %s",
                         text, strerror(why));
    }
    address->listener = (struct listener){.fd = fd, .lock_fd = -1};
    snprintf(address->listener.name, sizeof(address->listener.name), "%.63s", text);
    address->tcp = true;
    address->loopback = place.loopback;
    return 0;
}

int address_open(const char **list, struct address *ret_address, struct error *error)
{
    struct address address = {0};
    char text[TEXT_MAX];
    size_t length = strcspn(*list, ",");
    if (length == 0 || length >= sizeof(text))
        return error_set(error, ERR_BAD_CONFIG,
                         "a list of unix:PATH and HOST:PORT with commas between is expected "
                         "(http, metrics)");
    memcpy(text, *list, length);
    text[length] = '\0';
    int rc = strncmp(text, "unix:", 5) == 0 ? listen_open(text + 5, &address.listener, error)
                                            : open_tcp(text, &address, error);
    if (rc)
        return rc;
    *list += length + ((*list)[length] == ',');
    *ret_address = address;
    return 0;
}
