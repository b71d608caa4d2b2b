/* Memory that a client shares for large tensors: a memfd, whose descriptor came with a message.
 *
 * What it is is looked at before it is mapped, so that no client can make the daemon fault: it is a
 * memfd of small pages; it is sealed against shrinking, and for inputs against writing, too; and
 * all of it is there already, so that no page is made, and charged, when it is looked at. Any
 * thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "protocol/base/error.h"

struct job_memory {
    void *address; /* NULL: none */
    uint64_t bytes;
};

/* Whether it may be mapped; what job_memory_map() looks at first. */
int job_memory_check(int fd, uint64_t bytes, bool writable, const char *what, struct error *error);
/* The descriptor stays the caller's, and may be closed once this returns. what: "inputs" or
 * "outputs", for errors, which are ERR_BAD_VALUE for what the client can mend. `bytes` is at
 * least 1. */
int job_memory_map(int fd, uint64_t bytes, bool writable, const char *what,
                   struct job_memory *ret_memory, struct error *error);
void job_memory_unmap(struct job_memory *memory);
