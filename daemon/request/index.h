/* A hash index of embedded links, for looking requests up by number. Owns nothing. loop thread
 */
#pragma once

#include <stdint.h>

#include "protocol/base/list.h"

#define INDEX_BUCKETS 4096

struct index {
    struct list buckets[INDEX_BUCKETS];
};

static inline void index_init(struct index *index)
{
    for (uint32_t i = 0; i < INDEX_BUCKETS; i++)
        list_init(&index->buckets[i]);
}

/* The bucket of a key: all links in it are to be compared. The multiplier is odd and mixes upwards.
 */
static inline struct list *index_bucket(struct index *index, uint64_t key)
{
    return &index->buckets[(key * 0x9e3779b97f4a7c15u) >> 52];
}
