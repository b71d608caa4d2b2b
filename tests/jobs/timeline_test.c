/* What the worker timed: the last chunks, by their numbers. */
#include <string.h>

#include "daemon/jobs/timeline.h"
#include "tests/jobs/daemon_suites.h"

static struct timeline timeline;
static struct timeline_chunk told[TIMELINE_CHUNKS_MAX];

static void take(uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        const struct gpu_chunk chunk = {.count = 1, .times.bytes_in = timeline.count};
        timeline_take(&timeline, NULL, &chunk);
    }
}

static void check_told(uint64_t from, uint32_t max, uint64_t first, uint32_t count)
{
    uint64_t got;
    ck_assert_uint_eq(timeline_read(&timeline, from, max, told, &got), count);
    ck_assert_uint_eq(got, first);
    for (uint32_t i = 0; i < count; i++)
        ck_assert_uint_eq(told[i].times.bytes_in, first + i);
}

START_TEST(the_last_chunks_are_kept_by_their_numbers)
{
    timeline_init(&timeline);
    check_told(0, 10, 0, 0);
    check_told(7, 10, 0, 0); /* there is no such number yet */
    take(20);
    check_told(0, 10, 0, 10);
    check_told(10, 100, 10, 10);
    check_told(20, 100, 20, 0);
    check_told(UINT64_MAX, 100, 20, 0);
    take(TIMELINE_CHUNKS_MAX);
    ck_assert_uint_eq(timeline_next(&timeline), TIMELINE_CHUNKS_MAX + 20);
    check_told(0, 5, 20, 5); /* 20 are lost */
    check_told(20, TIMELINE_CHUNKS_MAX, 20, TIMELINE_CHUNKS_MAX);
    check_told(TIMELINE_CHUNKS_MAX, 100, TIMELINE_CHUNKS_MAX, 20);
    timeline_destroy(&timeline);
}
END_TEST

START_TEST(chunks_are_timed_for_a_while_after_a_question)
{
    timeline_init(&timeline);
    ck_assert(!timeline_on(&timeline, 1));
    timeline_ask(&timeline, 1000);
    ck_assert(timeline_on(&timeline, 1000));
    ck_assert(timeline_on(&timeline, 999 + TIMELINE_LEASE_US));
    ck_assert(!timeline_on(&timeline, 1000 + TIMELINE_LEASE_US));
    timeline_destroy(&timeline);
}
END_TEST

Suite *timeline_suite(void)
{
    Suite *suite = suite_create("timeline");
    TCase *tests = tcase_create("timeline");
    tcase_add_test(tests, the_last_chunks_are_kept_by_their_numbers);
    tcase_add_test(tests, chunks_are_timed_for_a_while_after_a_question);
    suite_add_tcase(suite, tests);
    return suite;
}
