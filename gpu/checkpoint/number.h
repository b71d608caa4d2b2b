/* Numbers of a checkpoint as floats. Any thread. */
#pragma once

#include <stddef.h>

#include "gpu/checkpoint/model_dtype.h"

/* Of one of MODEL_NUMBERS; `from` of any alignment. */
void number_read(float *to, const void *from, enum model_dtype dtype, size_t count);
