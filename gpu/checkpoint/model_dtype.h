/* The dtypes that a checkpoint's tensors may have. Any thread. */
#pragma once

#include <stdint.h>

/* The first three are numbers that are computed with as they are. */
enum model_dtype { MODEL_F32, MODEL_F16, MODEL_BF16, MODEL_E4M3, MODEL_DTYPES };
#define MODEL_NUMBERS (1u << MODEL_F32 | 1u << MODEL_F16 | 1u << MODEL_BF16)

static inline const char *model_dtype_name(enum model_dtype dtype) /* as in safetensors */
{
    static const char *const names[MODEL_DTYPES] = {"F32", "F16", "BF16", "F8_E4M3"};
    return names[dtype];
}

static inline uint32_t model_dtype_bytes(enum model_dtype dtype)
{
    return dtype == MODEL_F32 ? 4 : dtype == MODEL_E4M3 ? 1 : 2;
}
