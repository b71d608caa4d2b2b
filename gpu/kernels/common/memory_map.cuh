/* What the copy engine of an SM is told about all memory, so that one instruction brings rows from
 * wherever they are and lays them out swizzled, as wgmma_operand() reads them: for what stands in
 * blocks that come and go, while a map stays as it was when a step was captured. */
#pragma once

#include <cuda.h>

#include "gpu/kernels/common/kernel.h"

#define MEMORY_PART_SHIFT 31 /* of bytes of a part; a box is within one */

/* All that a device can address, as rows of `columns` 16-bit values, 64 or 128, at multiples of
 * their size. A box has 64 values each of `box_rows` rows, up to 256. In tensor_map.cu. */
cudaError_t tensor_map_memory(CUtensorMap *map, enum dtype dtype, uint32_t columns,
                              uint32_t box_rows);

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* The box of such rows from `from` on, their 64 columns number `half`; `to` is a multiple of
 * 1024. */
template <int COLUMNS>
__device__ __forceinline__ void copy_box_memory(uint32_t to, const CUtensorMap *map, uint32_t half,
                                                uint64_t from, uint32_t barrier)
{
    uint32_t row = ((uint32_t)from & ((1u << MEMORY_PART_SHIFT) - 1)) / (COLUMNS * 2);
    uint32_t part = (uint32_t)(from >> MEMORY_PART_SHIFT);
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(to),
                 "l"(map), "r"(0), "r"(row), "r"(half), "r"(part), "r"(barrier)
                 : "memory");
}

/* The same to that place of each of two blocks, counted on each one's barrier. */
template <int COLUMNS>
__device__ __forceinline__ void copy_box_memory_both(uint32_t to, const CUtensorMap *map,
                                                     uint32_t half, uint64_t from, uint32_t barrier)
{
    uint32_t row = ((uint32_t)from & ((1u << MEMORY_PART_SHIFT) - 1)) / (COLUMNS * 2);
    uint32_t part = (uint32_t)(from >> MEMORY_PART_SHIFT);
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes."
                 "multicast::cluster [%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(to),
                 "l"(map), "r"(0), "r"(row), "r"(half), "r"(part), "r"(barrier), "h"((uint16_t)3)
                 : "memory");
}

#endif
