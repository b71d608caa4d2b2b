/* What the copy engine of an SM is told about a matrix, so that one instruction brings a box of it
 * and lays it out swizzled, as wgmma_operand() reads it. */
#pragma once

#include <cuda.h>

#include "gpu/kernels/common/kernel.h"

/* Whether the driver can make such maps. Asked once per process. Any thread. */
bool tensor_map_can();

/* A matrix of 16-bit values, [rows][k], rows `stride` elements apart (a multiple of 8, from a base
 * that is a multiple of 16 bytes). A box has `box_rows` rows, up to 256, of 64 values each; what
 * lies beyond the matrix comes as zeros. The map has no pointer to anything but `data`. */
cudaError_t tensor_map(CUtensorMap *map, const void *data, enum dtype dtype, uint32_t rows,
                       uint32_t k, uint32_t stride, uint32_t box_rows);

/* A matrix of bytes, [rows][bytes], rows `stride` apart, a multiple of 16 from such a base. A box
 * has `box_rows` rows, up to 256, of `box_bytes`, 64 or 128, each; unit u of 16 bytes of row r is
 * at u ^ (r / 2 % 4) of 64, u ^ (r % 8) of 128. Zeros beyond it, likewise. */
cudaError_t tensor_map_bytes(CUtensorMap *map, const void *data, uint32_t rows, uint32_t bytes,
                             uint32_t stride, uint32_t box_bytes, uint32_t box_rows);
