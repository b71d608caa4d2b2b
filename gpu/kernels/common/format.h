/* How the elements of a weight lie in memory, as a table: what a matrix costs, where it can be cut,
 * and which of a matmul's backends may read it (matmul.h) follow from a row of it.
 *
 * Scales are not part of a format but of a weight (kernel.h): the same elements come with one scale
 * for all, for a row, or for a block of rows and columns of any size. Any thread. */
#pragma once

#include <stdint.h>

#include "gpu/kernels/common/dtype.h"

/* Plain ones have the numbers of their dtypes, by which kernels read them. */
enum format {
    FORMAT_F32,
    FORMAT_BF16,
    FORMAT_F16,
    FORMAT_E4M3,
    FORMAT_U4,
    FORMAT_U8,
    FORMAT_E2M1,
    FORMATS
};

struct format_info {
    const char *name;
    uint32_t block_elements; /* of a row, that lie together and are not cut */
    uint32_t block_bytes;
    enum dtype dtype; /* of an element, once it is read */
};

static inline struct format_info format_info(enum format format)
{
    static const struct format_info table[FORMATS] = {
        {"f32", 1, 4, DTYPE_F32},  {"bf16", 1, 2, DTYPE_BF16}, {"f16", 1, 2, DTYPE_F16},
        {"e4m3", 1, 1, DTYPE_F32}, /* OCP, without infinities: +-448, and one NaN of each sign */
        {"u4", 2, 1, DTYPE_F32}, /* whole numbers from 0, the first in the low half; see whole.h */
        {"u8", 1, 1, DTYPE_F32},   {"e2m1", 2, 1, DTYPE_F32}, /* OCP: +-0, 0.5, 1, 1.5, 2, 3, 4 and
                                                                 6; low half first */
    };
    return table[format];
}

/* A matrix whose elements are numbers of that dtype. */
static inline enum format format_plain(enum dtype dtype)
{
    return dtype == DTYPE_F32 ? FORMAT_F32 : dtype == DTYPE_BF16 ? FORMAT_BF16 : FORMAT_F16;
}

static inline uint64_t format_bytes(enum format format, uint64_t n, uint64_t k)
{
    struct format_info info = format_info(format);
    return n * ((k + info.block_elements - 1) / info.block_elements) * info.block_bytes;
}
