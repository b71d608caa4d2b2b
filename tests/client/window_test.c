/* How a long batch adapts to the room that the daemon has. */
#include "client/job/window.h"
#include "tests/client/command_suites.h"

#define START_US 1000000u

START_TEST(a_window_grows_with_what_ends)
{
    struct window window;
    window_init(&window);
    for (uint32_t i = 0; i < WINDOW_FIRST; i++) {
        ck_assert(window_has_room(&window, START_US));
        window_sent(&window, START_US);
    }
    ck_assert(!window_has_room(&window, START_US));
    window_ended(&window, START_US);
    for (int i = 0; i < 2; i++) {
        ck_assert(window_has_room(&window, START_US));
        window_sent(&window, START_US);
    }
    ck_assert(!window_has_room(&window, START_US));
}
END_TEST

START_TEST(a_window_is_bounded)
{
    struct window window;
    window_init(&window);
    for (uint32_t i = 0; i < 5 * WINDOW_MAX; i++) {
        window_sent(&window, START_US);
        window_ended(&window, START_US);
    }
    ck_assert_uint_eq(window.size, WINDOW_MAX);
}
END_TEST

START_TEST(refusals_shrink_it_to_what_was_taken_and_close_it_for_the_hint)
{
    struct window window;
    const time_us open_us = START_US + 40000, steady_us = open_us + WINDOW_STEADY * 40000;
    window_init(&window);
    for (uint32_t i = 0; i < WINDOW_FIRST; i++)
        window_sent(&window, START_US);
    for (uint32_t i = 0; i < WINDOW_FIRST - 8; i++)
        ck_assert(window_refused(&window, 40, START_US));
    ck_assert_uint_eq(window.size, 8);
    ck_assert_uint_eq(window.used, 8);
    window_ended(&window, START_US);
    ck_assert(!window_has_room(&window, open_us - 1));
    ck_assert(window_has_room(&window, open_us));
    window_sent(&window, open_us);
    window_ended(&window, steady_us - 1);
    ck_assert_uint_eq(window.size, 8);
    window_ended(&window, steady_us);
    ck_assert_uint_eq(window.size, 9);
}
END_TEST

START_TEST(a_window_that_was_refused_everything_still_tries_one)
{
    struct window window;
    window_init(&window);
    window_sent(&window, START_US);
    ck_assert(window_refused(&window, 0, START_US));
    ck_assert(!window_has_room(&window, START_US));
    ck_assert(window_has_room(&window, START_US + WINDOW_HINT_MS * 1000));
    ck_assert(window_refused((window_sent(&window, START_US), &window), UINT32_MAX, START_US));
    ck_assert(window_has_room(&window, START_US + WINDOW_HINT_MAX_MS * 1000));
}
END_TEST

START_TEST(patience_ends_when_nothing_else_happens)
{
    struct window window;
    window_init(&window);
    window_sent(&window, START_US);
    window_sent(&window, START_US);
    ck_assert(window_refused(&window, 10, START_US + WINDOW_TIMEOUT_US - 1));
    ck_assert(!window_refused(&window, 10, START_US + WINDOW_TIMEOUT_US));
    window_sent(&window, START_US);
    window_ended(&window, START_US + WINDOW_TIMEOUT_US);
    window_sent(&window, START_US);
    ck_assert(window_refused(&window, 10, START_US + WINDOW_TIMEOUT_US + 1));
}
END_TEST

Suite *window_suite(void)
{
    Suite *suite = suite_create("window");
    TCase *tcase = tcase_create("window");
    tcase_add_test(tcase, a_window_grows_with_what_ends);
    tcase_add_test(tcase, a_window_is_bounded);
    tcase_add_test(tcase, refusals_shrink_it_to_what_was_taken_and_close_it_for_the_hint);
    tcase_add_test(tcase, a_window_that_was_refused_everything_still_tries_one);
    tcase_add_test(tcase, patience_ends_when_nothing_else_happens);
    suite_add_tcase(suite, tcase);
    return suite;
}
