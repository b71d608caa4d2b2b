/* Choosing one token from scores: which are kept, and which of them is drawn. The CPU body of step
 * 3 of sample.h. Scores are logits over temperature; NaN is not among them. Any thread.
 */
#pragma once

#include <stdint.h>

struct choose {
    const float *scores;
    uint32_t vocab;
    uint32_t top_k;     /* 0: off */
    float top_p, min_p; /* 1 and 0: off */
    uint64_t seed;
    uint32_t position; /* of the token that is drawn */
};

uint32_t choose_draw(const struct choose *choose);

/* The greatest score's id, the lowest of equals; NaN is none. */
uint32_t choose_greatest(const float *scores, uint32_t vocab);

/* Four random words of a counter: Philox-4x32-10. */
void choose_random(uint64_t seed, uint32_t position, uint32_t block, uint32_t words[4]);
