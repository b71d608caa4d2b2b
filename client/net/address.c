#include "client/net/address.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static void add(struct address *address, const char *folder, const char *name)
{
    snprintf(address->paths[address->count], ADDRESS_PATH_MAX, "%s%s", folder, name);
    address->count++;
}

void address_find(const char *path, struct address *ret_address)
{
    const char *given = path ? path : secure_getenv("SLUICE_SOCKET");
    const char *folder = secure_getenv("XDG_RUNTIME_DIR");
    *ret_address = (struct address){0};
    if (given && (path || *given)) {
        add(ret_address, given, "");
        return;
    }
    if (folder && *folder)
        add(ret_address, folder, "/sluice.sock");
    add(ret_address, ADDRESS_SYSTEM, "");
}

/* A connect() waits for a full backlog as long as the socket's send timeout says. */
static int set_timeout(int fd, time_us until_us)
{
    struct timeval timeout = {0};
    if (until_us) {
        time_us now_us = clock_now_us();
        time_us left_us = until_us > now_us ? until_us - now_us : 1;
        timeout.tv_sec = (time_t)(left_us / 1000000);
        timeout.tv_usec = (suseconds_t)(left_us % 1000000);
    }
    return setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
}

static int connect_fd(int fd, const struct sockaddr_un *to, time_us until_us)
{
    for (;;) {
        if (set_timeout(fd, until_us))
            return -errno;
        if (!connect(fd, (const struct sockaddr *)to, sizeof(*to)))
            break;
        if (errno != EINTR)
            return -errno;
    }
    int flags = fcntl(fd, F_GETFL);
    return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) ? -errno : 0;
}

/* The descriptor, or a negative errno. */
static int try_path(const char *path, time_us until_us)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (!*path)
        return -EINVAL;
    if (strlen(path) >= sizeof(to.sun_path))
        return -ENAMETOOLONG;
    memcpy(to.sun_path, path, strlen(path));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    int rc = connect_fd(fd, &to, until_us);
    if (rc) {
        close(fd);
        return rc;
    }
    return fd;
}

/* Whose group opens the socket; only the name, or the number where it has none. */
static bool group_of(const char *path, char *ret_name, size_t size)
{
    struct stat status;
    struct group group, *found = NULL;
    char storage[1024];
    if (stat(path, &status) || !(status.st_mode & S_IWGRP))
        return false;
    if (!getgrgid_r(status.st_gid, &group, storage, sizeof(storage), &found) && found)
        snprintf(ret_name, size, "%s", found->gr_name);
    else
        snprintf(ret_name, size, "%u", (unsigned)status.st_gid);
    return true;
}

static void explain(const char *path, int number, char *text, size_t size)
{
    char group[64];
    switch (number) {
    case ENOENT:
        snprintf(text, size, "no such socket");
        break;
    case ECONNREFUSED:
        snprintf(text, size, "nobody listens there");
        break;
    case EAGAIN:
        snprintf(text, size, "the daemon does not accept connections");
        break;
    case EINVAL:
        snprintf(text, size, "an empty path");
        break;
    case ENAMETOOLONG:
        snprintf(text, size, "longer than the %zu bytes that a socket's path may have",
                 sizeof(((struct sockaddr_un *)0)->sun_path) - 1);
        break;
    case EACCES:
    case EPERM:
        if (group_of(path, group, sizeof(group)))
            snprintf(text, size,
                     "no permission: you need to be in group %s (usermod -aG %s USER, then log in "
                     "again)",
                     group, group);
        else
            snprintf(text, size, "no permission: only its owner may use it, or enter its folder");
        break;
    default:
        snprintf(text, size, "%s", strerrordesc_np(number) ? strerrordesc_np(number) : "failed");
    }
}

int address_connect(const struct address *address, time_us until_us, int *ret_fd,
                    struct error *error)
{
    char text[ERROR_TEXT_MAX] = "";
    size_t used = 0;
    bool absent = true;
    for (size_t i = 0; i < address->count; i++) {
        char why[224];
        int fd = try_path(address->paths[i], until_us);
        if (fd >= 0) {
            *ret_fd = fd;
            return 0;
        }
        explain(address->paths[i], -fd, why, sizeof(why));
        absent = absent && (fd == -ENOENT || fd == -ECONNREFUSED);
        /* Two paths as long as sockets have, and their reasons, always fit. */
        int length = snprintf(text + used, sizeof(text) - used, "%s%s: %s", i ? "; " : "",
                              address->paths[i], why);
        used = used + (size_t)length < sizeof(text) ? used + (size_t)length : sizeof(text) - 1;
    }
    return error_set(error, ERR_CONNECT, "%s%s", text, absent ? " (is sluiced running?)" : "");
}
