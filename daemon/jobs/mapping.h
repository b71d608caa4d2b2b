/* Mappings of memory that clients share, kept for a while once no job needs them: who shares the
 * same memory for one request after another pays for its pages once. Making and taking down a
 * mapping costs the loop milliseconds for tens of mebibytes.
 *
 * A mapping is found again by the user and the file, and only after that was looked at as if it
 * were new (memory.h): numbers of files may come again, so what one user shared serves no other.
 * What is smaller than JOB_MAPPING_KEPT_BYTES is mapped each time, so that looking costs little.
 * Kept are JOB_MAPPINGS_IDLE_MAX, and the bytes of idle_bytes_max, for JOB_MAPPINGS_IDLE_US: until
 * then the memory of a client that has gone is not free. loop thread
 */
#pragma once

#include "daemon/jobs/memory.h"
#include "protocol/base/clock.h"
#include "protocol/base/list.h"

#define JOB_MAPPING_KEPT_BYTES ((uint64_t)1 << 20)
#define JOB_MAPPINGS_IDLE_MAX 64u
#define JOB_MAPPINGS_IDLE_US 1000000u

struct job_mapping; /* opaque */

struct job_mappings {
    struct list used, idle; /* idle: the longest first */
    uint64_t idle_bytes, idle_bytes_max;
    uint32_t idle_count;
    time_us turn_us; /* of the present turn */
};

void job_mappings_init(struct job_mappings *mappings, uint64_t idle_bytes_max);
void job_mappings_destroy(struct job_mappings *mappings); /* none is used any more */

/* As job_memory_map(); what is given back by job_mappings_give(). */
int job_mappings_take(struct job_mappings *mappings, uint64_t user, int fd, uint64_t bytes,
                      bool writable, const char *what, struct job_mapping **ret_mapping,
                      struct error *error);
void *job_mapping_address(const struct job_mapping *mapping); /* NULL of NULL */
void job_mappings_give(struct job_mappings *mappings, struct job_mapping *mapping); /* or NULL */

/* Takes down what was kept long enough. */
void job_mappings_turn(struct job_mappings *mappings, time_us now_us);
time_us job_mappings_due(const struct job_mappings *mappings); /* 0: nothing is kept */
