#include "protocol/base/hist.h"

#include <math.h>
#include <stdlib.h>

#include "tests/protocol/base_suites.h"

#define SAMPLES 5000

static struct hist hist, other; /* each test runs in a process of its own */
static uint64_t sorted[SAMPLES];

static uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static int compare(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

/* Samples spread over all powers of two up to 2^bits. */
static void fill(struct hist *into, uint64_t *samples, size_t count, uint64_t seed, unsigned bits)
{
    for (size_t i = 0; i < count; i++) {
        samples[i] = random_next(&seed) >> (64 - 1 - random_next(&seed) % bits);
        hist_add(into, samples[i]);
    }
}

static const double fractions[] = {0.0, 0.001, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0};

START_TEST(percentiles_are_those_of_a_sorted_array_within_a_32nd)
{
    fill(&hist, sorted, SAMPLES, 0x9e3779b97f4a7c15u + (uint64_t)_i, 40);
    qsort(sorted, SAMPLES, sizeof(sorted[0]), compare);
    for (size_t i = 0; i < sizeof(fractions) / sizeof(fractions[0]); i++) {
        size_t rank = (size_t)ceil(fractions[i] * SAMPLES);
        uint64_t exact = sorted[rank > 0 ? rank - 1 : 0];
        uint64_t told = hist_percentile(&hist, fractions[i]);
        ck_assert_uint_ge(told, exact);
        ck_assert_uint_le(told - exact, exact / 32);
    }
}
END_TEST

START_TEST(count_sum_minimum_and_maximum_are_exact)
{
    uint64_t sum = 0;
    fill(&hist, sorted, SAMPLES, 42, 40);
    for (size_t i = 0; i < SAMPLES; i++)
        sum += sorted[i];
    qsort(sorted, SAMPLES, sizeof(sorted[0]), compare);
    ck_assert_uint_eq(hist.count, SAMPLES);
    ck_assert_uint_eq(hist.sum_us, sum);
    ck_assert_uint_eq(hist.min_us, sorted[0]);
    ck_assert_uint_eq(hist.max_us, sorted[SAMPLES - 1]);
    ck_assert_uint_eq(hist_percentile(&hist, 1.0), sorted[SAMPLES - 1]);
}
END_TEST

START_TEST(small_values_have_a_bucket_each)
{
    for (uint64_t value = 0; value < 64; value++) {
        hist_clear(&hist);
        hist_add(&hist, value);
        hist_add(&hist, 1000);
        ck_assert_uint_eq(hist_percentile(&hist, 0.5), value);
    }
}
END_TEST

START_TEST(counts_below_never_exceed_the_truth_and_meet_it_at_edges)
{
    struct hist_walk walk = {0};
    fill(&hist, sorted, SAMPLES, 7, 30);
    for (unsigned shift = 0; shift < 30; shift++) {
        uint64_t edge = ((uint64_t)1 << shift) - 1, inside = edge + edge / 3;
        uint64_t at_edge = 0, at_inside = 0;
        for (size_t i = 0; i < SAMPLES; i++) {
            at_edge += sorted[i] <= edge;
            at_inside += sorted[i] <= inside;
        }
        struct hist_walk alone = {0}, again = {0};
        ck_assert_uint_eq(hist_count_below(&hist, edge, &walk), at_edge);
        ck_assert_uint_eq(hist_count_below(&hist, edge, &alone), at_edge);
        ck_assert_uint_le(hist_count_below(&hist, inside, &again), at_inside);
        ck_assert_uint_ge(hist_count_below(&hist, inside, &again), at_edge);
    }
    ck_assert_uint_eq(hist_count_below(&hist, hist.max_us, &walk), SAMPLES);
}
END_TEST

START_TEST(merging_equals_adding_to_one)
{
    static struct hist both;
    fill(&hist, sorted, SAMPLES / 2, 1, 40);
    fill(&other, sorted + SAMPLES / 2, SAMPLES / 2, 2, 20);
    for (size_t i = 0; i < SAMPLES; i++)
        hist_add(&both, sorted[i]);
    hist_merge(&hist, &other);
    ck_assert_mem_eq(&hist, &both, sizeof(both));
    hist_clear(&other);
    hist_merge(&hist, &other);
    ck_assert_mem_eq(&hist, &both, sizeof(both));
    hist_merge(&other, &hist);
    ck_assert_mem_eq(&other, &both, sizeof(both));
}
END_TEST

START_TEST(an_empty_histogram_tells_zeros)
{
    struct hist_walk walk = {0};
    hist_clear(&hist);
    ck_assert_uint_eq(hist_percentile(&hist, 0.5), 0);
    ck_assert_uint_eq(hist_count_below(&hist, 100, &walk), 0);
    ck_assert_uint_eq(hist.min_us, 0);
}
END_TEST

START_TEST(values_beyond_the_last_bucket_are_counted_in_it)
{
    struct hist_walk walk = {0};
    hist_add(&hist, UINT64_MAX);
    hist_add(&hist, (uint64_t)1 << 41);
    hist_add(&hist, 3);
    ck_assert_uint_eq(hist_percentile(&hist, 0.3), 3);
    ck_assert_uint_eq(hist_percentile(&hist, 0.9), UINT64_MAX);
    ck_assert_uint_eq(hist_count_below(&hist, (uint64_t)1 << 60, &walk), 1);
    ck_assert_uint_eq(hist_count_below(&hist, UINT64_MAX, &walk), 3);
}
END_TEST

START_TEST(a_full_bucket_stays_full)
{
    hist_add(&hist, 5);
    hist.bucket[5] = UINT32_MAX;
    hist_add(&hist, 5);
    ck_assert_uint_eq(hist.bucket[5], UINT32_MAX);
    hist_merge(&hist, &hist);
    ck_assert_uint_eq(hist.bucket[5], UINT32_MAX);
    ck_assert_uint_eq(hist_percentile(&hist, 1.0), 5);
}
END_TEST

Suite *hist_suite(void)
{
    Suite *suite = suite_create("hist");
    TCase *tcase = tcase_create("hist");
    tcase_add_loop_test(tcase, percentiles_are_those_of_a_sorted_array_within_a_32nd, 0, 8);
    tcase_add_test(tcase, count_sum_minimum_and_maximum_are_exact);
    tcase_add_test(tcase, small_values_have_a_bucket_each);
    tcase_add_test(tcase, counts_below_never_exceed_the_truth_and_meet_it_at_edges);
    tcase_add_test(tcase, merging_equals_adding_to_one);
    tcase_add_test(tcase, an_empty_histogram_tells_zeros);
    tcase_add_test(tcase, values_beyond_the_last_bucket_are_counted_in_it);
    tcase_add_test(tcase, a_full_bucket_stays_full);
    suite_add_tcase(suite, tcase);
    return suite;
}
