/* How much of the host's memory this process may still take: by the machine, and by each control
 * group that it is in. What the system would give back for it (files read) counts as left. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct host_memory {
    uint64_t all, left; /* bytes, of whatever leaves the least */
};

/* `root`: "" for the system's own files. False: it tells nothing. Reads files: any thread but the
 * loop's and a worker's. */
bool host_memory_read(const char *root, struct host_memory *ret_memory);

/* Whether so many bytes may be taken for what can be done without: a part of the memory stays. */
bool host_memory_spares(const struct host_memory *memory, uint64_t bytes);
