/* The dtypes of activations, vectors, keys and values. */
#pragma once

#include <stdint.h>

enum dtype { DTYPE_F32, DTYPE_BF16, DTYPE_F16 };

static inline uint32_t dtype_bytes(enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_F32:
        return 4;
    case DTYPE_BF16:
    case DTYPE_F16:
        break;
    }
    return 2;
}
