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

/* Matrices of bytes, [rows][bytes], behind one another, a multiple of 16 bytes wide, from such a
 * base; their rows, a multiple of 16, are two halves. A box has 128 bytes each of `box_rows` rows
 * of a matrix: by turns eight of the first half and the same of the second. Likewise. */
cudaError_t tensor_map_halves(CUtensorMap *map, const void *data, uint32_t matrices, uint32_t rows,
                              uint32_t bytes, uint32_t box_rows);
