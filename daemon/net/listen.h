/* Listening sockets: made here, or passed by systemd.
 *
 * A socket made here has mode 0600. A file "PATH.lock" is locked as long as it listens, so that of
 * two daemons started at once one is refused. A stale socket file is replaced; one behind which
 * somebody answers, and a file that is no socket, are not. A socket passed by systemd is never
 * unlinked.
 *
 * What is unlinked while we listen is found by daemon/service/reach.h, and made again here.
 *
 * Loop thread, or any before the loop starts.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/net/conn.h"
#include "protocol/base/error.h"

#define LISTEN_MAX 8
#define LISTEN_PATH_MAX 108 /* with the terminator, as the kernel has it */

struct listener {
    int fd; /* -1 = closed */
    int lock_fd;
    bool passed;   /* by systemd */
    bool tcp;      /* no Unix socket: nobody's uid is known there */
    bool loopback; /* of tcp: none but this machine's users */
    dev_t device;  /* of the socket file, so that only ours is unlinked */
    ino_t inode;
    mode_t mode; /* and owner, as they were last seen */
    uid_t uid;
    gid_t gid;
    char path[LISTEN_PATH_MAX]; /* "" where there is none */
    char name[64];              /* for the log: the path or the address */
    char given[64];             /* systemd's name (FileDescriptorName=) */
};

/* The path that holds when none was given. */
int listen_default_path(char path[LISTEN_PATH_MAX], struct error *error);
int listen_open(const char *path, struct listener *ret_listener, struct error *error);
/* Takes over what LISTEN_FDS passes, and clears those variables. *ret_count may be 0. */
int listen_passed(struct listener listeners[LISTEN_MAX], uint32_t *ret_count, struct error *error);
/* Whether this process has a network of its own, apart from the one where systemd made the socket:
 * what listens by TCP here is reached by nobody. False where the kernel does not say. */
bool listen_is_apart(const struct listener *passed);
/* An address of TCP: its name for the log, and whether it is on the loopback. */
struct sockaddr_storage;
void listen_describe(struct listener *listener, const struct sockaddr_storage *address);
/* Whether the path still leads to this socket. True where there is no path. */
bool listen_in_place(struct listener *listener);
/* Listens once more on the path, which leads nowhere any more, with the same descriptor and mode.
 * Another daemon's socket there is left alone: ERR_BAD_CONFIG, and all is as it was. Not for what
 * systemd passed. */
int listen_again(struct listener *listener, struct error *error);
/* Closes; unlinks what was made here. Once is enough, more does nothing. */
void listen_close(struct listener *listener);

/* The next connection, nonblocking; negative errno, -EAGAIN when there is none. */
int listen_accept(const struct listener *listener);
/* The number of a group; LISTEN_NO_GROUP for "". Asks the system's databases, and may block. */
#define LISTEN_NO_GROUP UINT32_MAX
int listen_group(const char *name, uint32_t *ret_gid, struct error *error);
/* Who is at the other end of a connection, and whether he is root, ourselves, or in that group. */
int listen_peer(int fd, uint32_t admin_gid, struct peer *ret_peer, struct error *error);
