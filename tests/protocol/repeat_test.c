#include "protocol/base/repeat.h"

#include <stdio.h>

#include "tests/protocol/base_suites.h"

static struct repeat repeat;
static struct repeat_held held;

static const struct repeat_event bad_magic = {
    .place = "conn", .format = "%d: bad magic", .text = "7: bad magic", .level = 4};

static int passed_of(const struct repeat_event *event, int count, time_us now_us)
{
    int passed = 0;
    for (int i = 0; i < count; i++)
        passed += repeat_pass(&repeat, event, now_us, &held);
    return passed;
}

START_TEST(five_of_a_second_pass_and_the_rest_is_counted_once)
{
    ck_assert_int_eq(passed_of(&bad_magic, 100, 1000), REPEAT_BURST);
    ck_assert(!repeat_due(&repeat, 1000 + REPEAT_WINDOW_US - 1, false, &held));
    ck_assert(repeat_due(&repeat, 1000 + REPEAT_WINDOW_US, false, &held));
    ck_assert_uint_eq(held.count, 95);
    ck_assert_str_eq(held.text, "7: bad magic");
    ck_assert_str_eq(held.place, "conn");
    ck_assert_int_eq(held.level, 4);
    ck_assert(!repeat_due(&repeat, UINT64_MAX, false, &held));
}
END_TEST

START_TEST(the_next_second_begins_with_the_report)
{
    passed_of(&bad_magic, 8, 1000);
    ck_assert(repeat_pass(&repeat, &bad_magic, 1000 + REPEAT_WINDOW_US, &held));
    ck_assert_uint_eq(held.count, 3);
    ck_assert(repeat_pass(&repeat, &bad_magic, 1000 + REPEAT_WINDOW_US, &held));
    ck_assert_uint_eq(held.count, 0);
    ck_assert(!repeat_due(&repeat, 0, true, &held));
}
END_TEST

START_TEST(other_places_formats_and_levels_are_other_kinds)
{
    struct repeat_event place = bad_magic, format = bad_magic, level = bad_magic;
    place.place = "loop";
    format.format = "other";
    level.level = 3;
    passed_of(&bad_magic, 10, 1000);
    ck_assert_int_eq(passed_of(&place, 10, 1000), REPEAT_BURST);
    ck_assert_int_eq(passed_of(&format, 10, 1000), REPEAT_BURST);
    ck_assert_int_eq(passed_of(&level, 10, 1000), REPEAT_BURST);
}
END_TEST

START_TEST(the_text_counts_only_where_it_is_asked_to)
{
    struct repeat_event first = bad_magic, second = bad_magic;
    second.text = "8: bad magic";
    passed_of(&first, 10, 1000);
    ck_assert_int_eq(passed_of(&second, 10, 1000), 0);
    first.by_text = second.by_text = true;
    ck_assert_int_eq(passed_of(&first, 10, 1000), REPEAT_BURST);
    ck_assert_int_eq(passed_of(&second, 10, 1000), REPEAT_BURST);
}
END_TEST

START_TEST(a_kind_too_many_drives_out_the_oldest_and_its_count_is_told)
{
    char text[REPEAT_KINDS + 1][16];
    struct repeat_event event = bad_magic;
    event.by_text = true;
    for (int i = 0; i < REPEAT_KINDS; i++) {
        snprintf(text[i], sizeof(text[i]), "%d", i);
        event.text = text[i];
        ck_assert_int_eq(passed_of(&event, 6 + i, 1000 + (time_us)i), REPEAT_BURST);
    }
    event.text = "one more";
    ck_assert(repeat_pass(&repeat, &event, 2000, &held));
    ck_assert_str_eq(held.text, "0");
    ck_assert_uint_eq(held.count, 1);
    uint64_t rest = 0;
    while (repeat_due(&repeat, 2000, true, &held))
        rest += held.count;
    ck_assert_uint_eq(rest, REPEAT_KINDS * (REPEAT_KINDS + 1) / 2 - 1);
}
END_TEST

Suite *repeat_suite(void)
{
    Suite *suite = suite_create("repeat");
    TCase *tcase = tcase_create("repeat");
    tcase_add_test(tcase, five_of_a_second_pass_and_the_rest_is_counted_once);
    tcase_add_test(tcase, the_next_second_begins_with_the_report);
    tcase_add_test(tcase, other_places_formats_and_levels_are_other_kinds);
    tcase_add_test(tcase, the_text_counts_only_where_it_is_asked_to);
    tcase_add_test(tcase, a_kind_too_many_drives_out_the_oldest_and_its_count_is_told);
    suite_add_tcase(suite, tcase);
    return suite;
}
