#include "protocol/base/hist.h"

#include <string.h>

#define SUB_BITS 5
#define LAST (HIST_BUCKETS - 1)

_Static_assert(HIST_SUB == 1 << SUB_BITS, "sub-buckets are a power of two");

/* Below 32 each value has its bucket; above, the five bits after the leading one choose it. */
static uint32_t bucket_of(uint64_t value)
{
    if (value < HIST_SUB)
        return (uint32_t)value;
    uint32_t shift = 63u - (uint32_t)__builtin_clzll(value) - SUB_BITS;
    uint64_t bucket = (uint64_t)shift * HIST_SUB + (value >> shift);
    return bucket < LAST ? (uint32_t)bucket : LAST;
}

/* The greatest value of a bucket; the last one has none, it takes all that is left. */
static uint64_t bucket_edge(uint32_t bucket)
{
    if (bucket < HIST_SUB)
        return bucket;
    if (bucket == LAST)
        return UINT64_MAX;
    uint32_t shift = bucket / HIST_SUB - 1;
    uint64_t first = (uint64_t)(HIST_SUB + bucket % HIST_SUB) << shift;
    return first + ((uint64_t)1 << shift) - 1;
}

static uint32_t add_saturated(uint32_t a, uint32_t b)
{
    return a > UINT32_MAX - b ? UINT32_MAX : a + b;
}

void hist_clear(struct hist *hist)
{
    memset(hist, 0, sizeof(*hist));
}

void hist_add(struct hist *hist, uint64_t value_us)
{
    uint32_t *bucket = &hist->bucket[bucket_of(value_us)];
    *bucket = add_saturated(*bucket, 1);
    if (hist->count == 0 || value_us < hist->min_us)
        hist->min_us = value_us;
    if (value_us > hist->max_us)
        hist->max_us = value_us;
    hist->sum_us += value_us;
    hist->count++;
}

void hist_merge(struct hist *into, const struct hist *from)
{
    if (from->count == 0)
        return;
    for (uint32_t i = 0; i < HIST_BUCKETS; i++)
        into->bucket[i] = add_saturated(into->bucket[i], from->bucket[i]);
    if (into->count == 0 || from->min_us < into->min_us)
        into->min_us = from->min_us;
    if (from->max_us > into->max_us)
        into->max_us = from->max_us;
    into->sum_us += from->sum_us;
    into->count += from->count;
}

/* How many samples must lie at or below the answer: at least one, at most all. */
static uint64_t rank_of(uint64_t count, double fraction)
{
    double exact = fraction * (double)count;
    if (!(exact > 1.0))
        return 1;
    if (exact >= (double)count)
        return count;
    uint64_t whole = (uint64_t)exact;
    return whole + ((double)whole < exact);
}

uint64_t hist_percentile(const struct hist *hist, double fraction)
{
    if (hist->count == 0)
        return 0;
    uint64_t rank = rank_of(hist->count, fraction), seen = 0;
    for (uint32_t i = 0; i < HIST_BUCKETS; i++) {
        seen += hist->bucket[i];
        if (seen >= rank) {
            uint64_t edge = bucket_edge(i);
            return edge < hist->max_us ? edge : hist->max_us;
        }
    }
    return hist->max_us; /* a bucket is saturated, so that the sum falls short of the count */
}

uint64_t hist_count_below(const struct hist *hist, uint64_t value_us, struct hist_walk *walk)
{
    if (value_us >= hist->max_us)
        return hist->count;
    for (; walk->bucket < HIST_BUCKETS && bucket_edge(walk->bucket) <= value_us; walk->bucket++)
        walk->seen += hist->bucket[walk->bucket];
    return walk->seen;
}
