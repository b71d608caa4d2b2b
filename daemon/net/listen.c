#include "daemon/net/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 1024
#define PASSED_FIRST 3 /* SD_LISTEN_FDS_START */
#define GROUPS_MAX 256
#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71 /* Linux 5.14 */
#endif

int listen_default_path(char path[LISTEN_PATH_MAX], struct error *error)
{
    const char *directory = getenv("XDG_RUNTIME_DIR");
    bool service = geteuid() == 0 || getenv("INVOCATION_ID"); /* systemd sets the latter */
    if (!service && (!directory || !*directory))
        return error_set(error, ERR_BAD_CONFIG,
                         "no socket is given, and XDG_RUNTIME_DIR is not set: use --socket PATH");
    const char *base = service ? "/run/sluice" : directory;
    int length = snprintf(path, LISTEN_PATH_MAX, "%s/sluice.sock", base);
    if (length >= LISTEN_PATH_MAX)
        return error_set(error, ERR_BAD_CONFIG, "the socket path in %s is longer than %d bytes",
                         base, LISTEN_PATH_MAX - 1);
    /* Root's directory may be made here; a user's is the session's business. */
    if (service && mkdir(base, 0755) != 0 && errno != EEXIST)
        return error_set(error, error_of_system(errno, ERR_BAD_CONFIG),
                         "cannot make %s: %s (use --socket PATH)", base, strerror(errno));
    return 0;
}

/* ---- lock --------------------------------------------------------------------------------------
 */

/* Whether the locked file still has its name: its last owner may have unlinked it before we had the
 * lock. */
static bool lock_is_named(int fd, const char *path)
{
    struct stat ours, named;
    return fstat(fd, &ours) == 0 && stat(path, &named) == 0 && ours.st_dev == named.st_dev &&
           ours.st_ino == named.st_ino;
}

static int take_lock(struct listener *listener, struct error *error)
{
    char path[LISTEN_PATH_MAX + 8];
    snprintf(path, sizeof(path), "%s.lock", listener->path);
    for (;;) {
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0)
            return error_set(error, error_of_system(errno, ERR_BAD_CONFIG), "cannot make %s: %s",
                             path, strerror(errno));
        if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
            int why = errno;
            close(fd);
            if (why == EWOULDBLOCK)
                return error_set(error, ERR_BAD_CONFIG, "another daemon listens on %s",
                                 listener->path);
            return error_set(error, error_of_system(why, ERR_BAD_CONFIG), "cannot lock %s: %s",
                             path, strerror(why));
        }
        if (lock_is_named(fd, path)) {
            listener->lock_fd = fd;
            return 0;
        }
        close(fd);
    }
}

static void drop_lock(struct listener *listener)
{
    char path[LISTEN_PATH_MAX + 8];
    if (listener->lock_fd < 0)
        return;
    snprintf(path, sizeof(path), "%s.lock", listener->path);
    if (lock_is_named(listener->lock_fd, path)) /* else it is another's */
        unlink(path);                           /* while it is locked: see lock_is_named() */
    close(listener->lock_fd);
    listener->lock_fd = -1;
}

/* ---- own socket --------------------------------------------------------------------------------
 */

static struct sockaddr_un address_of(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, path, strlen(path)); /* the length was checked */
    return address;
}

/* Whether somebody answers there: 1 or 0, negative errno when that cannot be asked. A full backlog
 * is somebody, too. */
static int answers(const char *path)
{
    struct sockaddr_un address = address_of(path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    int rc = connect(fd, (const struct sockaddr *)&address, sizeof(address));
    bool refused = rc != 0 && (errno == ECONNREFUSED || errno == ENOENT);
    close(fd);
    return !refused;
}

static int clear_path(const char *path, struct error *error)
{
    struct stat status;
    if (lstat(path, &status) != 0)
        return errno == ENOENT ? 0
                               : error_set(error, error_of_system(errno, ERR_BAD_CONFIG),
                                           "cannot look at %s: %s", path, strerror(errno));
    if (!S_ISSOCK(status.st_mode))
        return error_set(error, ERR_BAD_CONFIG, "%s is there and is no socket", path);
    int rc = answers(path);
    if (rc < 0)
        return error_set(error, ERR_IO, "cannot make a socket: %s", strerror(-rc));
    if (rc > 0)
        return error_set(error, ERR_BAD_CONFIG, "somebody listens on %s already", path);
    if (unlink(path) != 0 && errno != ENOENT)
        return error_set(error, ERR_BAD_CONFIG, "cannot replace the stale socket %s: %s", path,
                         strerror(errno));
    return 0;
}

static void note_file(struct listener *listener, const struct stat *status)
{
    listener->device = status->st_dev;
    listener->inode = status->st_ino;
    listener->mode = status->st_mode & 07777;
    listener->uid = status->st_uid;
    listener->gid = status->st_gid;
}

static int bind_path(struct listener *listener, struct error *error)
{
    struct sockaddr_un address = address_of(listener->path);
    struct stat status;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return error_set(error, ERR_IO, "cannot make a socket: %s", strerror(errno));
    /* Before bind: the file never has another mode, not for a moment. */
    if (fchmod(fd, 0600) != 0 ||
        bind(fd, (const struct sockaddr *)&address, sizeof(address)) != 0 ||
        listen(fd, BACKLOG) != 0 || lstat(listener->path, &status) != 0) {
        int why = errno;
        close(fd);
        return error_set(error, error_of_system(why, ERR_BAD_CONFIG), "cannot listen on %s: %s",
                         listener->path, strerror(why));
    }
    listener->fd = fd;
    note_file(listener, &status);
    return 0;
}

int listen_open(const char *path, struct listener *ret_listener, struct error *error)
{
    struct listener listener = {.fd = -1, .lock_fd = -1};
    size_t length = strlen(path);
    if (length == 0)
        return error_set(error, ERR_BAD_CONFIG, "the path of a socket is empty");
    if (length >= sizeof(listener.path))
        return error_limit(error, ERR_BAD_CONFIG, sizeof(listener.path) - 1, length,
                           "the socket path has %zu bytes, the system takes %zu", length,
                           sizeof(listener.path) - 1);
    memcpy(listener.path, path, length + 1);
    snprintf(listener.name, sizeof(listener.name), "%.63s", path);
    int rc = take_lock(&listener, error);
    if (!rc)
        rc = clear_path(path, error);
    if (!rc)
        rc = bind_path(&listener, error);
    if (rc) {
        drop_lock(&listener);
        return rc;
    }
    *ret_listener = listener;
    return 0;
}

bool listen_in_place(struct listener *listener)
{
    struct stat status;
    if (!*listener->path)
        return true;
    if (lstat(listener->path, &status) != 0 || status.st_dev != listener->device ||
        status.st_ino != listener->inode)
        return false;
    note_file(listener, &status); /* somebody may have opened it to a group */
    return true;
}

/* What somebody had made of the file: first whose it is, then who may use it. */
static void dress(const struct listener *before)
{
    if (before->uid != geteuid() || before->gid != getegid())
        (void)!lchown(before->path, before->uid, before->gid);
    (void)!chmod(before->path, before->mode);
}

int listen_again(struct listener *listener, struct error *error)
{
    struct listener next = *listener;
    char lock[LISTEN_PATH_MAX + 8];
    snprintf(lock, sizeof(lock), "%s.lock", listener->path);
    bool locked = lock_is_named(listener->lock_fd, lock);
    int rc = locked ? 0 : take_lock(&next, error);
    if (rc)
        return rc;
    rc = clear_path(listener->path, error);
    if (!rc)
        rc = bind_path(&next, error);
    if (rc) {
        if (!locked)
            drop_lock(&next);
        return rc;
    }
    dress(listener);
    (void)dup3(next.fd, listener->fd, O_CLOEXEC); /* both are open: it cannot fail */
    close(next.fd);
    if (!locked)
        close(listener->lock_fd);
    next.fd = listener->fd;
    *listener = next;
    (void)listen_in_place(listener);
    return 0;
}

void listen_close(struct listener *listener)
{
    struct stat status;
    if (listener->fd < 0)
        return;
    if (!listener->passed && lstat(listener->path, &status) == 0 &&
        status.st_dev == listener->device && status.st_ino == listener->inode)
        unlink(listener->path);
    close(listener->fd);
    listener->fd = -1;
    drop_lock(listener);
}

/* ---- sockets of systemd ------------------------------------------------------------------------
 */

/* The socket's domain when it is a listening stream socket, else -1. */
static int listens(int fd)
{
    int domain = 0, type = 0, accepting = 0;
    socklen_t length = sizeof(int);
    bool good = getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 &&
                getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 &&
                getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &accepting, &length) == 0;
    return good && type == SOCK_STREAM && accepting ? domain : -1;
}

/* Where it was bound, if it has a place in the file system. */
static void find_path(struct listener *listener, const struct sockaddr_un *address)
{
    struct stat status;
    if (address->sun_path[0] != '/')
        return;
    snprintf(listener->path, sizeof(listener->path), "%.*s", (int)sizeof(listener->path) - 1,
             address->sun_path);
    snprintf(listener->name, sizeof(listener->name), "%.63s", listener->path);
    if (lstat(listener->path, &status) == 0 && S_ISSOCK(status.st_mode))
        note_file(listener, &status);
}

void listen_describe(struct listener *listener, const struct sockaddr_storage *address)
{
    char host[INET6_ADDRSTRLEN] = "";
    if (address->ss_family == AF_INET) {
        const struct sockaddr_in *four = (const struct sockaddr_in *)(const void *)address;
        inet_ntop(AF_INET, &four->sin_addr, host, sizeof(host));
        snprintf(listener->name, sizeof(listener->name), "%s:%u", host, ntohs(four->sin_port));
        listener->loopback = ntohl(four->sin_addr.s_addr) >> 24 == 127;
    } else {
        const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)(const void *)address;
        inet_ntop(AF_INET6, &six->sin6_addr, host, sizeof(host));
        snprintf(listener->name, sizeof(listener->name), "[%s]:%u", host, ntohs(six->sin6_port));
        listener->loopback = IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
    }
    listener->tcp = true;
}

static uint64_t network_of(int fd)
{
    uint64_t cookie = 0;
    socklen_t length = sizeof(cookie);
    return getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &length) == 0 ? cookie : 0;
}

bool listen_is_apart(const struct listener *passed)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    uint64_t own = fd >= 0 ? network_of(fd) : 0, its = network_of(passed->fd);
    if (fd >= 0)
        close(fd);
    return own && its && own != its;
}

static int take_passed(int fd, const char *name, size_t name_length, struct listener *listener,
                       struct error *error)
{
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof(address);
    *listener = (struct listener){.fd = fd, .lock_fd = -1, .passed = true};
    snprintf(listener->given, sizeof(listener->given), "%.*s",
             (int)(name_length < 63 ? name_length : 63), name);
    memcpy(listener->name, listener->given, sizeof(listener->name));
    int domain = listens(fd);
    if (getsockname(fd, (struct sockaddr *)&address, &length) != 0)
        domain = -1;
    if (domain == AF_UNIX)
        find_path(listener, (const struct sockaddr_un *)(const void *)&address);
    else if (domain == AF_INET || domain == AF_INET6)
        listen_describe(listener, &address);
    else
        return error_set(error, ERR_BAD_CONFIG,
                         "the passed socket \"%s\" is no listening stream socket", listener->name);
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
        fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
        return error_set(error, ERR_IO, "cannot use the passed socket \"%s\": %s", listener->name,
                         strerror(errno));
    return 0;
}

int listen_passed(struct listener listeners[LISTEN_MAX], uint32_t *ret_count, struct error *error)
{
    const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
    const char *names = getenv("LISTEN_FDNAMES");
    long passed =
        count && pid && strtol(pid, NULL, 10) == (long)getpid() ? strtol(count, NULL, 10) : 0;
    if (passed < 0 || passed > LISTEN_MAX)
        return error_limit(error, ERR_BAD_CONFIG, LISTEN_MAX, (uint64_t)passed,
                           "%ld sockets were passed, at most %d are taken", passed, LISTEN_MAX);
    for (long i = 0; i < passed; i++) {
        size_t length = names ? strcspn(names, ":") : 0;
        int rc =
            take_passed(PASSED_FIRST + (int)i, names ? names : "", length, &listeners[i], error);
        if (rc)
            return rc;
        if (names)
            names += length + (names[length] == ':');
    }
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    *ret_count = (uint32_t)passed;
    return 0;
}

/* ---- connections -------------------------------------------------------------------------------
 */

int listen_accept(const struct listener *listener)
{
    int fd;
    do
        fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    while (fd < 0 && (errno == EINTR || errno == ECONNABORTED));
    return fd < 0 ? -errno : fd;
}

int listen_group(const char *name, uint32_t *ret_gid, struct error *error)
{
    errno = 0;
    const struct group *group = *name ? getgrnam(name) : NULL;
    if (*name && !group)
        return error_set(error, error_of_system(errno, ERR_BAD_CONFIG),
                         "there is no group %s (admin-group)", name);
    *ret_gid = group ? group->gr_gid : LISTEN_NO_GROUP;
    return 0;
}

static bool in_group(int fd, uint32_t gid, uint32_t admin_gid)
{
    gid_t groups[GROUPS_MAX];
    socklen_t length = sizeof(groups);
    if (admin_gid == LISTEN_NO_GROUP)
        return false;
    if (gid == admin_gid)
        return true;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &length) != 0)
        return false;
    for (size_t i = 0; i < length / sizeof(groups[0]); i++)
        if (groups[i] == admin_gid)
            return true;
    return false;
}

int listen_peer(int fd, uint32_t admin_gid, struct peer *ret_peer, struct error *error)
{
    struct ucred ucred;
    socklen_t length = sizeof(ucred);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &ucred, &length) != 0)
        return error_set(error, ERR_IO, "cannot ask who connected: %s", strerror(errno));
    *ret_peer = (struct peer){.uid = ucred.uid, .gid = ucred.gid, .pid = ucred.pid};
    ret_peer->admin =
        ucred.uid == 0 || ucred.uid == geteuid() || in_group(fd, ucred.gid, admin_gid);
    return 0;
}
