/* Where the elements of u4 and u8 lie in a row. As format.h has them while they load, and on the
 * CPU device for good. On CUDA op_repack() gives rows of whole blocks of 32 another order, so that
 * a lane of the tensor cores' instructions (mma.cuh) has its columns in one word, and what it takes
 * from the word with one mask is a pair of them:
 *
 *     u4: word t of a block's four has pair 8 j + 2 t, 8 j + 2 t + 1 in its nibbles j and j + 4
 *     u8: word t of a half's four has pair 8 j + 2 t, 8 j + 2 t + 1 in its bytes 2 j and 2 j + 1
 *
 * Rows of another length stay as they are: nothing fast reads them; and so do those of experts
 * (kernels/experts). Any thread. */
#pragma once

#include "gpu/kernels/common/kernel.h"

#define WHOLE_BLOCK 32 /* elements */

#ifdef __CUDACC__
#define WHOLE_RULE static inline __host__ __device__
#else
#define WHOLE_RULE static inline
#endif

WHOLE_RULE bool whole_is(enum format format)
{
    return format == FORMAT_U4 || format == FORMAT_U8;
}

WHOLE_RULE bool whole_repacked(const struct weight *w)
{
    return w->k % WHOLE_BLOCK == 0;
}

/* Nibble of u4, byte of u8, within the row, of column k of a repacked one. */
WHOLE_RULE uint32_t whole_place(enum format format, uint32_t k)
{
    uint32_t pair = k % 8 / 2, high = k % 2;
    if (format == FORMAT_U8)
        return k / 16 * 16 + pair * 4 + k % 16 / 8 * 2 + high;
    return k / 32 * 32 + pair * 8 + k % 32 / 8 + high * 4;
}
