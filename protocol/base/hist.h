/* A latency histogram of fixed size: relative error under 1/32 from 1 us to 2^40 us, no allocation.
 *
 * One writer. Buckets: 32 linear sub-buckets per power of two, as HdrHistogram does with two
 * digits. A reader takes a copy under whatever lock or message the owner uses; hist_add may not run
 * beside it.
 */
#pragma once

#include <stdint.h>

#define HIST_SUB 32
#define HIST_BUCKETS (HIST_SUB * 37)

struct hist {
    uint64_t count;
    uint64_t sum_us; /* exact */
    uint64_t max_us; /* exact */
    uint64_t min_us;
    uint32_t bucket[HIST_BUCKETS];
};

void hist_clear(struct hist *hist);
void hist_add(struct hist *hist, uint64_t value_us);
void hist_merge(struct hist *into, const struct hist *from);
/* The value at or below which `fraction` (0..1) of the samples lie: the upper edge of its bucket,
 * never above the exact maximum. 0 for an empty histogram. */
uint64_t hist_percentile(const struct hist *hist, double fraction);
/* How far counts have come; begins as {0}. */
struct hist_walk {
    uint32_t bucket;
    uint64_t seen;
};
/* Samples at or below the value, for cumulative (Prometheus) buckets; exact at bucket edges. With
 * one walk values ascend, so that all of them together pass each bucket once. */
uint64_t hist_count_below(const struct hist *hist, uint64_t value_us, struct hist_walk *walk);
