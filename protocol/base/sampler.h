/* How one token is chosen of a model's logits: the same struct from the wire to the device. */
#pragma once

#include <stdint.h>

struct sampler {
    float temperature;                         /* 0: greedy */
    float top_p;                               /* 1: off */
    float min_p;                               /* 0: off */
    int32_t top_k;                             /* 0: off */
    float repetition_penalty;                  /* 1: off */
    float presence_penalty, frequency_penalty; /* 0: off */
};

/* Greedy, and all else off: as an initializer. */
#define SAMPLER_GREEDY                                                                             \
    {                                                                                              \
        .top_p = 1, .repetition_penalty = 1                                                        \
    }
