/* The dtypes that a checkpoint's tensors may have. Any thread. */
#pragma once

#include <stdint.h>

enum model_dtype { MODEL_F32, MODEL_F16, MODEL_BF16 };

static inline const char *model_dtype_name(enum model_dtype dtype) /* as in safetensors */
{
    return dtype == MODEL_F32 ? "F32" : dtype == MODEL_F16 ? "F16" : "BF16";
}

static inline uint32_t model_dtype_bytes(enum model_dtype dtype)
{
    return dtype == MODEL_F32 ? 4 : 2;
}
