/* The dtypes that a checkpoint's tensors may have. Any thread. */
#pragma once

#include <stdint.h>

/* The first three are numbers that are computed with as they are. */
enum model_dtype {
    MODEL_F32,
    MODEL_F16,
    MODEL_BF16,
    MODEL_E4M3,
    MODEL_I32,
    MODEL_I64,
    MODEL_U8,
    MODEL_DTYPES
};
#define MODEL_NUMBERS (1u << MODEL_F32 | 1u << MODEL_F16 | 1u << MODEL_BF16)

static inline const char *model_dtype_name(enum model_dtype dtype) /* as in safetensors */
{
    static const char *const names[MODEL_DTYPES] = {"F32", "F16", "BF16", "F8_E4M3",
                                                    "I32", "I64", "U8"};
    return names[dtype];
}

static inline uint32_t model_dtype_bytes(enum model_dtype dtype)
{
    static const uint8_t bytes[MODEL_DTYPES] = {4, 2, 2, 1, 4, 8, 1};
    return bytes[dtype];
}
