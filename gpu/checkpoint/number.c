#include "gpu/checkpoint/number.h"

#include <math.h>
#include <string.h>

static float f16_value(uint16_t half)
{
    int exponent = half >> 10 & 31, fraction = half & 1023;
    float magnitude = exponent == 31 ? (fraction ? NAN : INFINITY)
                      : exponent     ? ldexpf((float)(1024 + fraction), exponent - 25)
                                     : ldexpf((float)fraction, -24);
    return half & 0x8000 ? -magnitude : magnitude;
}

void number_read(float *to, const void *from, enum model_dtype dtype, size_t count)
{
    const char *bytes = from;
    if (dtype == MODEL_F32) {
        memcpy(to, from, count * sizeof *to);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        uint16_t half;
        memcpy(&half, bytes + 2 * i, sizeof half);
        uint32_t bits = (uint32_t)half << 16;
        if (dtype == MODEL_BF16)
            memcpy(&to[i], &bits, sizeof bits);
        else
            to[i] = f16_value(half);
    }
}
