/* The slabs of one layer group: which numbers exist, and where each lies on the device.
 *
 * A slab is slab_blocks blocks in one allocation of the KV pool. Numbers are small and used again,
 * lowest first. The device keeps a table of its own, number to address, which the expand kernel
 * changes as plans name new slabs; freeing is ordered behind the steps in flight by the compute
 * stream, so a slab's number and memory may be reused at once.
 *
 * Thread: the rank's own. Owns the slabs.
 */
#pragma once

#include <stdint.h>

#include "gpu/memory/pools.h"

struct slabs {
    struct mem *mem;
    uint64_t slab_bytes, block_bytes;
    uint32_t slab_blocks, slabs_max;
    uint32_t count;  /* that exist */
    uint32_t lowest; /* no number below this is free */
    void **base;     /* [slabs_max], NULL where there is none; device addresses */
};

int slabs_open(struct slabs *table, struct mem *mem, const struct gpu_group *group,
               struct error *error);
/* Frees all slabs. One that cannot be freed stays in use, and its pool with it. */
int slabs_close(struct slabs *table, struct error *error);

int slabs_grow(struct slabs *table, uint32_t *ret_slab, struct error *error);
int slabs_shrink(struct slabs *table, uint32_t slab, struct error *error);
