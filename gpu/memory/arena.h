/* Cuts aligned pieces off one allocation. The first pass, without a base, only counts what is
 * needed. Any thread; owns nothing. */
#pragma once

#include "gpu/memory/pools.h"

struct arena {
    char *base; /* NULL: count only, pieces are NULL */
    uint64_t at;
};

static inline void *cut(struct arena *cutter, uint64_t bytes)
{
    void *piece = cutter->base ? cutter->base + cutter->at : NULL;
    cutter->at += mem_round(bytes);
    return piece;
}
