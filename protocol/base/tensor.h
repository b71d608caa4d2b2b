/* Tensors as all sides name them: numbers, names and sizes of element types. The numbers are those
 * of gpu/sluice_program.h (gpu/jobs/program.c asserts it) and are never used again. Pure. Any
 * thread.
 */
#pragma once

#include <stdint.h>

enum tensor_dtype {
    TENSOR_BOOL = 1,
    TENSOR_U8 = 2,
    TENSOR_U16 = 3,
    TENSOR_U32 = 4,
    TENSOR_U64 = 5,
    TENSOR_I8 = 6,
    TENSOR_I16 = 7,
    TENSOR_I32 = 8,
    TENSOR_I64 = 9,
    TENSOR_F16 = 10,
    TENSOR_BF16 = 11,
    TENSOR_F32 = 12,
    TENSOR_F64 = 13
};

#define TENSOR_RANK_MAX 6
#define TENSOR_NAME_MAX 63 /* bytes of a program's, a tensor's or a parameter's name */
#define TENSOR_ALIGN                                                                               \
    8u /* where tensors lie one behind the other in a message, or in shared memory */

/* Bytes of an element, and its name ("f32", "bool"); 0 and NULL for a number that is no dtype. */
uint32_t tensor_dtype_bytes(uint32_t dtype);
const char *tensor_dtype_name(uint32_t dtype);
/* 0: there is none of that name. */
uint32_t tensor_dtype_find(const char *name);

/* Bytes of a tensor of that shape; 0 and negative as functions do. -ERR_BAD_VALUE: a dimension is
 * 0; -ERR_TOO_LARGE: more than 2^53. */
int tensor_bytes(uint32_t dtype, uint32_t rank, const uint64_t *shape, uint64_t *ret_bytes);

static inline uint64_t tensor_pad(uint64_t bytes)
{
    return (bytes + TENSOR_ALIGN - 1) / TENSOR_ALIGN * TENSOR_ALIGN;
}
