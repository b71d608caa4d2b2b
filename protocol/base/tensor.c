#include "protocol/base/tensor.h"

#include <stddef.h>
#include <string.h>

#include "protocol/base/error.h"

#define BYTES_MAX ((uint64_t)1 << 53)

static const struct {
    const char *name;
    uint32_t bytes;
} dtypes[] = {
    [TENSOR_BOOL] = {"bool", 1}, [TENSOR_U8] = {"u8", 1},     [TENSOR_U16] = {"u16", 2},
    [TENSOR_U32] = {"u32", 4},   [TENSOR_U64] = {"u64", 8},   [TENSOR_I8] = {"i8", 1},
    [TENSOR_I16] = {"i16", 2},   [TENSOR_I32] = {"i32", 4},   [TENSOR_I64] = {"i64", 8},
    [TENSOR_F16] = {"f16", 2},   [TENSOR_BF16] = {"bf16", 2}, [TENSOR_F32] = {"f32", 4},
    [TENSOR_F64] = {"f64", 8},
};
#define COUNT (sizeof(dtypes) / sizeof(dtypes[0]))

uint32_t tensor_dtype_bytes(uint32_t dtype)
{
    return dtype < COUNT ? dtypes[dtype].bytes : 0;
}

const char *tensor_dtype_name(uint32_t dtype)
{
    return dtype < COUNT ? dtypes[dtype].name : NULL;
}

uint32_t tensor_dtype_find(const char *name)
{
    for (uint32_t i = 1; i < COUNT; i++)
        if (strcmp(dtypes[i].name, name) == 0)
            return i;
    return 0;
}

int tensor_bytes(uint32_t dtype, uint32_t rank, const uint64_t *shape, uint64_t *ret_bytes)
{
    uint64_t bytes = tensor_dtype_bytes(dtype);
    for (uint32_t i = 0; i < rank; i++) {
        if (shape[i] == 0)
            return -ERR_BAD_VALUE;
        if (shape[i] > BYTES_MAX / bytes)
            return -ERR_TOO_LARGE;
        bytes *= shape[i];
    }
    *ret_bytes = bytes;
    return 0;
}
