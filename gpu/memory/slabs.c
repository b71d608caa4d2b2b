#include "gpu/memory/slabs.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/base/cuda_error.h"

int slabs_open(struct slabs *table, struct mem *mem, const struct gpu_group *group,
               struct error *error)
{
    memset(table, 0, sizeof *table);
    void **base = calloc(group->slabs_max, sizeof *base);
    if (!base)
        return error_set(error, ERR_NO_MEMORY, "no memory for a table of %u slabs",
                         group->slabs_max);
    *table = (struct slabs){
        .mem = mem,
        .slab_bytes = group->block_bytes * group->slab_blocks,
        .block_bytes = group->block_bytes,
        .slab_blocks = group->slab_blocks,
        .slabs_max = group->slabs_max,
        .base = base,
    };
    return 0;
}

int slabs_close(struct slabs *table, struct error *error)
{
    int status = 0;
    for (uint32_t i = 0; table->base && i < table->slabs_max; i++) {
        if (table->base[i])
            status = first_failure(status, slabs_shrink(table, i, status ? NULL : error));
    }
    free(table->base);
    table->base = NULL;
    return status;
}

int slabs_grow(struct slabs *table, uint32_t *ret_slab, struct error *error)
{
    uint32_t slab = table->lowest;
    while (slab < table->slabs_max && table->base[slab])
        slab++;
    table->lowest = slab;
    if (slab == table->slabs_max)
        return error_limit(error, ERR_DEVICE_MEMORY, table->slabs_max, table->slabs_max,
                           "all %u slabs exist", table->slabs_max);
    void *base = NULL;
    int status = mem_slab(table->mem, table->slab_bytes, &base, error);
    if (status)
        return status;
    table->base[slab] = base;
    table->count++;
    *ret_slab = slab;
    return 0;
}

int slabs_shrink(struct slabs *table, uint32_t slab, struct error *error)
{
    assert(slab < table->slabs_max && table->base[slab]);
    int status = mem_slab_free(table->mem, table->base[slab], table->slab_bytes, error);
    if (status)
        return status;
    table->base[slab] = NULL;
    table->count--;
    if (slab < table->lowest)
        table->lowest = slab;
    return 0;
}
