/* Host memory for KV blocks: chunks that are mapped and registered while steps run, and given back.
 *
 * A chunk holds blocks of one group, of every rank: a part for each rank, and in it a place for
 * each block. A thread that does nothing else makes them (host_pages.h).
 *
 * Thread: host_chunks_make and host_chunks_drop one thread's at a time, host_chunks_at any's that
 * learned of the chunk from that one, host_chunks_bytes any. Owns the chunks.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "gpu/gpu.h"

struct host_chunk {
    char *base; /* NULL: not there */
    uint64_t bytes;
    uint32_t group;
};

struct host_chunks {
    uint32_t count, ranks;
    uint64_t limit; /* of host_pages_reserve() */
    uint32_t blocks[GPU_GROUPS_MAX];                       /* of a chunk */
    uint64_t block_bytes[GPU_GROUPS_MAX][GPU_DEVICES_MAX]; /* of each rank */
    uint64_t part_at[GPU_GROUPS_MAX][GPU_DEVICES_MAX + 1];
    struct host_chunk *chunks; /* [count] */
    _Atomic uint64_t bytes;
};

/* `sizes`: count, ranks, limit, blocks and block_bytes are filled in. */
int host_chunks_open(struct host_chunks *chunks, const struct host_chunks *sizes,
                     struct error *error);
/* Drops all that are there; after the last copy has ended. */
void host_chunks_close(struct host_chunks *chunks);

/* ERR_NO_MEMORY as host_pages_reserve() and host_pages_make() have it. */
int host_chunks_make(struct host_chunks *chunks, uint32_t group, uint32_t chunk,
                     struct error *error);
void host_chunks_drop(struct host_chunks *chunks, uint32_t chunk);

/* Where a rank's part of a block is; the chunk is there and is the group's. */
void *host_chunks_at(const struct host_chunks *chunks, uint32_t group, uint32_t rank,
                     uint32_t place);
uint64_t host_chunks_bytes(const struct host_chunks *chunks);
