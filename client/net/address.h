/* Which socket: where a daemon may listen, and how to get to it. */
#pragma once

#include <stddef.h>

#include "protocol/base/clock.h"
#include "protocol/base/error.h"

#define ADDRESS_PATHS_MAX 2
#define ADDRESS_PATH_MAX 512 /* longer ones are cut for the text; no socket has such a path */
#define ADDRESS_SYSTEM "/run/sluice/sluice.sock"

struct address {
    size_t count;
    char paths[ADDRESS_PATHS_MAX][ADDRESS_PATH_MAX];
};

/* `path` when there is one, else SLUICE_SOCKET, else the user's and the system's. */
void address_find(const char *path, struct address *ret_address);
/* Connects to the first that accepts. A full backlog is waited for until then (0 = no limit). The
 * error names every path and why. */
int address_connect(const struct address *address, time_us until_us, int *ret_fd,
                    struct error *error);
