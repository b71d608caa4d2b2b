/* Chunks of jobs as the daemon tells of them (TIMELINE): when their stages ran. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "protocol/base/error.h"
#include "protocol/base/json.h"

enum stage { STAGE_IN, STAGE_KERNELS, STAGE_OUT, STAGES };
extern const char *const stage_names[STAGES]; /* as in the daemon's answers */

#define CHUNK_NAME_MAX 63
#define CHUNK_LANES_MAX 64

struct stage_span {
    uint64_t begin_ns, end_ns;
};

struct timed_chunk {
    char program[CHUNK_NAME_MAX + 1]; /* of a-z, 0-9, _ and - */
    uint32_t lane, items;
    uint64_t bytes_in, bytes_out;
    struct stage_span stages[STAGES];
};

struct chunk_list {
    struct timed_chunk *chunks; /* owned */
    size_t count, room;
    uint64_t lost; /* that the daemon did not keep until they were asked for */
};

/* Room for so many. */
int chunk_list_init(struct chunk_list *list, size_t room, struct error *error);
void chunk_list_free(struct chunk_list *list);
/* Adds those of an answer, as far as there is room. *ret_next: where to go on. An answer that cannot
 * be one is ERR_INTERNAL. */
int chunk_list_read(struct chunk_list *list, const json *answer, uint64_t *ret_next,
                    struct error *error);
/* In the order in which they began, on a clock that begins with the first. */
void chunk_list_sort(struct chunk_list *list);
