/* What the CPU bodies share: launching, counts and addresses. Kernels only. */
#pragma once

#include "gpu/emu/emu.h"
#include "gpu/kernels/common/batch.h"
#include "gpu/kernels/cpu/number.h"
#include "gpu/kernels/cpu/simd.h"

/* Nothing to do is no launch. */
static inline cudaError_t body_launch(cudaStream_t stream, const char *name,
                                      void (*kernel)(const void *args, uint32_t index),
                                      const void *args, size_t size, uint64_t count)
{
    if (!count)
        return cudaSuccess;
    return count > UINT32_MAX ? cudaErrorInvalidValue
                              : emu_launch(stream, name, kernel, args, size, (uint32_t)count);
}

/* Rows of the range that exist. */
static inline uint32_t body_rows(const struct row_range *range)
{
    uint32_t count = *(const uint32_t *)dev(range->count);
    uint32_t rows = count > range->first ? count - range->first : 0;
    return rows < range->max ? rows : range->max;
}

/* Row `row` of a device buffer, `stride` elements a row. */
static inline void *body_at(const void *buffer, enum dtype dtype, size_t row, size_t stride)
{
    return number_at(dev(buffer), dtype, row * stride);
}

/* An index of a kernel takes several rows where one is too little to be worth a call. */
#define BODY_ELEMENTS 8192
static inline uint32_t body_share(uint32_t size)
{
    return size >= BODY_ELEMENTS ? 1 : BODY_ELEMENTS / (size ? size : 1);
}

static inline uint32_t body_shares(uint32_t rows, uint32_t size)
{
    return (uint32_t)(((uint64_t)rows + body_share(size) - 1) / body_share(size));
}

/* Where a block is, and position `offset` of a head inside it. */
static inline char *body_block(const struct batch_group *group, uint32_t block)
{
    void *const *slabs = dev(group->slabs);
    char *slab = dev(slabs[block / group->slab_blocks]);
    return slab + (block % group->slab_blocks) * group->block_bytes;
}

static inline uint32_t body_table(const struct batch_group *group, uint32_t slot, uint32_t index)
{
    return ((const uint32_t *)dev(group->tables))[(size_t)slot * group->blocks_max + index];
}
