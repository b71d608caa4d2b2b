/* Choosing one token from scores: which are kept, and which of them is drawn. The CPU body of step
 * 3 of sample.h. Scores are logits over temperature; NaN is not among them. Any thread.
 */
#pragma once

#include <stdint.h>

#include "protocol/base/sampler.h"

struct choose {
    const float *scores;
    uint32_t vocab;
    const struct sampler *sampler; /* of which the temperature is in the scores, penalties, too */
    uint64_t seed;
    uint32_t position; /* of the token that is drawn */
};

uint32_t choose_draw(const struct choose *choose);

/* The greatest score's id, the lowest of equals; NaN is none. */
uint32_t choose_greatest(const float *scores, uint32_t vocab);

/* Four random words of a counter: Philox-4x32-10. */
void choose_random(uint64_t seed, uint32_t position, uint32_t block, uint32_t words[4]);
