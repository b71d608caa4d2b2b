#include "protocol/base/log_ring.h"

#include <stdio.h>
#include <string.h>

#include "tests/protocol/base_suites.h"

#define CAPACITY 20000u

static char room[CAPACITY], taken[LOG_LINE_MAX];
static struct log_ring ring;

/* A line of `length` bytes that begins with its number. */
static bool put(enum log_level level, uint32_t number, size_t length)
{
    char line[LOG_LINE_MAX];
    memset(line, '.', length);
    int used = snprintf(line, sizeof(line), "%u", number);
    line[used] = ' ';
    line[length - 1] = '\n';
    return log_ring_put(&ring, level, line, length);
}

/* How many lines were taken; they are numbered on from `first`. */
static uint32_t take(uint32_t first)
{
    uint32_t count = 0;
    size_t length = log_ring_take(&ring, taken, sizeof(taken));
    for (const char *line = taken; line < taken + length; count++) {
        unsigned number;
        ck_assert_int_eq(sscanf(line, "%u", &number), 1);
        ck_assert_uint_eq(number, first + count);
        line = (const char *)memchr(line, '\n', (size_t)(taken + length - line)) + 1;
    }
    return count;
}

START_TEST(lines_come_out_whole_and_in_order_however_the_ring_turns)
{
    uint32_t in = 0, out = 0;
    log_ring_init(&ring, room, sizeof(room));
    for (uint32_t round = 0; round < 2000; round++) {
        for (uint32_t i = 0; i < round % 7; i++)
            ck_assert(put(LOG_INFO, in, 12 + (in * 37) % 900)), in++;
        while (in - out > 8)
            out += take(out);
    }
    while (out < in)
        out += take(out);
    ck_assert_uint_eq(log_ring_take(&ring, taken, sizeof(taken)), 0);
    ck_assert_uint_eq(log_ring_gap(&ring), 0);
    ck_assert_uint_eq(ring.dropped, 0);
}
END_TEST

START_TEST(after_a_dropped_line_further_ones_are_until_the_gap_is_told)
{
    uint32_t kept = 0, count;
    log_ring_init(&ring, room, sizeof(room));
    while (put(LOG_INFO, kept, 100))
        kept++;
    ck_assert_uint_eq(kept, CAPACITY / 8 * 7 / 100);
    count = take(0);
    ck_assert(!put(LOG_INFO, 999, 100));
    ck_assert(!put(LOG_DEBUG, 999, 100));
    ck_assert_uint_eq(log_ring_gap(&ring), 0); /* not yet its place */
    while (count < kept)
        count += take(count);
    ck_assert(!put(LOG_INFO, 999, 100));
    ck_assert_uint_eq(log_ring_gap(&ring), 4);
    ck_assert_uint_eq(log_ring_gap(&ring), 0);
    ck_assert(put(LOG_INFO, 0, 100));
    ck_assert_uint_eq(take(0), 1);
    ck_assert_uint_eq(ring.dropped, 4);
}
END_TEST

START_TEST(a_flood_leaves_room_for_graver_lines)
{
    uint32_t number = 0;
    log_ring_init(&ring, room, sizeof(room));
    while (put(LOG_INFO, number, 100))
        number++;
    uint32_t grave = number;
    while (put(LOG_NOTICE, number, 100))
        number++;
    ck_assert_uint_eq(number - grave, CAPACITY / 100 - grave);
    ck_assert(!put(LOG_ERROR, number, 100));
    for (uint32_t out = 0; out < number;)
        out += take(out);
    ck_assert_uint_eq(log_ring_gap(&ring), 3);
}
END_TEST

Suite *log_ring_suite(void)
{
    Suite *suite = suite_create("log_ring");
    TCase *tcase = tcase_create("log_ring");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, lines_come_out_whole_and_in_order_however_the_ring_turns);
    tcase_add_test(tcase, after_a_dropped_line_further_ones_are_until_the_gap_is_told);
    tcase_add_test(tcase, a_flood_leaves_room_for_graver_lines);
    suite_add_tcase(suite, tcase);
    return suite;
}
