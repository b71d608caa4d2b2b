#include "daemon/request/backlog.h"

#include <stdlib.h>
#include <string.h>

#include "tests/daemon/daemon_suites.h"

#define USERS 4
#define ITEMS 400
#define LARGE (BACKLOG_SMALL + 1)

static struct backlog backlog;
static struct backlog_user users[USERS];
static struct backlog_source sources[USERS], others[USERS]; /* two of each user's */
static struct backlog_item items[ITEMS];
static uint32_t used;

static void begin(uint32_t threads)
{
    backlog_init(&backlog, threads);
    memset(items, 0, sizeof(items));
    memset(sources, 0, sizeof(sources));
    memset(others, 0, sizeof(others));
    for (uint32_t i = 0; i < USERS; i++)
        backlog_user_init(&users[i]);
    used = 0;
}

static struct backlog_item *push(uint32_t user, size_t size, time_us deadline_us)
{
    struct error error;
    struct backlog_item *item = &items[used++];
    ck_assert_int_eq(
        backlog_push(&backlog, &users[user], &sources[user], item, size, deadline_us, &error), 0);
    return item;
}

/* Starts what may be: a letter per item, of its user, small ones in lower case; then '-'. */
static const char *starts(void)
{
    static char text[ITEMS + 1];
    size_t length = 0;
    struct backlog_item *item;
    while ((item = backlog_take(&backlog)))
        text[length++] =
            (char)((item->class == BACKLOG_IS_LARGE ? 'A' : 'a') + (item->user - users));
    text[length++] = '-';
    text[length] = '\0';
    return text;
}

/* The oldest that runs ends; false when none does. */
static bool end_first(time_us now_us)
{
    if (list_empty(&backlog.running))
        return false;
    backlog_remove(&backlog, container_of(backlog.running.next, struct backlog_item, link), now_us);
    return true;
}

/* One after the other on the threads there are. */
static void expect(const char *order)
{
    char all[2 * ITEMS];
    size_t length = 0;
    do {
        const char *next = starts();
        for (; *next != '-'; next++)
            all[length++] = *next;
    } while (end_first(1));
    all[length] = '\0';
    ck_assert_str_eq(all, order);
    ck_assert_uint_eq(backlog.waiting_count, 0);
    ck_assert_uint_eq(backlog.running_count, 0);
    ck_assert_uint_eq(backlog.running_large, 0);
    backlog_destroy(&backlog);
}

START_TEST(users_take_turns_and_each_is_served_in_order)
{
    begin(1);
    for (int i = 0; i < 6; i++)
        push(0, 100, 0);
    push(1, 100, 0);
    push(2, 100, 0);
    push(1, 100, 0);
    expect("abcabaaaa");
}
END_TEST

START_TEST(a_users_connections_take_turns)
{
    struct error error;
    begin(1);
    for (int i = 0; i < 50; i++)
        push(0, 100, 0);
    struct backlog_item *item = &items[used++], *of_another = push(1, 100, 0);
    ck_assert_int_eq(backlog_push(&backlog, &users[0], &others[0], item, 100, 0, &error), 0);
    const struct backlog_item *order[] = {&items[0], of_another, item, &items[1]};
    for (int i = 0; i < 4; i++) {
        ck_assert_ptr_eq(backlog_take(&backlog), order[i]);
        end_first(1);
    }
    while (starts(), end_first(1))
        continue;
    backlog_destroy(&backlog);
}
END_TEST

START_TEST(small_ones_go_first_and_large_ones_are_not_starved)
{
    begin(1);
    for (int i = 0; i < 2; i++)
        push(0, LARGE, 0);
    for (int i = 0; i < 10; i++)
        push(1, BACKLOG_SMALL, 0);
    expect("bbbbAbbbbAbb");
}
END_TEST

START_TEST(large_ones_leave_a_thread_to_small_ones)
{
    begin(4);
    for (int i = 0; i < 8; i++)
        push((uint32_t)i % 3, LARGE, 0);
    ck_assert_str_eq(starts(), "ABC-");
    push(3, 100, 0);
    ck_assert_str_eq(starts(), "d-");
    expect("ABCAB"); /* behind those that run */
}
END_TEST

START_TEST(one_user_leaves_a_thread_to_the_others)
{
    begin(4);
    for (int i = 0; i < 8; i++)
        push(0, 100, 0);
    ck_assert_str_eq(starts(), "aaa-");
    push(1, 100, 0);
    push(1, 100, 0);
    ck_assert_str_eq(starts(), "b-");
    ck_assert_uint_eq(users[0].running, 3);
    expect("abaaaa");
}
END_TEST

START_TEST(with_one_thread_all_of_it_is_anybodys)
{
    begin(1);
    push(0, LARGE, 0);
    push(0, 10, 0);
    expect("aA");
}
END_TEST

START_TEST(what_is_taken_out_is_never_started_and_costs_no_turn)
{
    begin(1);
    struct backlog_item *gone = push(0, 10, 5);
    push(0, 10, 0);
    push(1, 10, 0);
    backlog_remove(&backlog, gone, 1);
    ck_assert_int_eq(gone->state, BACKLOG_OUT);
    ck_assert_uint_eq(backlog_due(&backlog), 0);
    expect("ab");
}
END_TEST

START_TEST(deadlines_are_told_of_what_waits_and_of_what_runs)
{
    begin(1);
    struct backlog_item *runs = push(0, 10, 70), *waits = push(0, 10, 50), *other = push(1, 10, 60);
    ck_assert_str_eq(starts(), "a-");
    ck_assert_uint_eq(backlog_due(&backlog), 50);
    ck_assert_ptr_null(backlog_late(&backlog, 49));
    ck_assert_ptr_eq(backlog_late(&backlog, 50), waits);
    backlog_remove(&backlog, waits, 50);
    backlog_forget(&backlog, other);
    ck_assert_ptr_null(backlog_late(&backlog, 69));
    ck_assert_ptr_eq(backlog_late(&backlog, 70), runs);
    backlog_forget(&backlog, runs);
    ck_assert_uint_eq(backlog_due(&backlog), 0);
    expect("b");
}
END_TEST

START_TEST(the_pace_of_late_tells_how_long_a_newcomer_waits)
{
    begin(1);
    for (int i = 0; i < 41; i++)
        push(0, 10, 0);
    ck_assert(backlog_wait_us(&backlog) == 0);
    for (time_us now_us = 1000; now_us <= 31000; now_us += 1000) {
        starts();
        end_first(now_us);
    }
    double wait_us = backlog_wait_us(&backlog); /* of 10 that wait */
    ck_assert_msg(wait_us > 9000 && wait_us <= 10000, "%g", wait_us);
    while (starts(), end_first(32000))
        continue;
    ck_assert(backlog_wait_us(&backlog) == 0);
    backlog_destroy(&backlog);
}
END_TEST

/* Whatever the others do: drawn. A user whose small item stands first in its lane waits for no more
 * than a turn of each other user and the large ones between, and for a large one the small ones
 * between, too. */
START_TEST(nobody_waits_for_more_than_a_round)
{
    static uint32_t since[USERS][BACKLOG_CLASSES];
    static const struct backlog_item *heads[USERS][BACKLOG_CLASSES];
    uint32_t state = (uint32_t)_i + 1, started = 0;
    begin((uint32_t)_i % 5 + 1);
    memset(heads, 0, sizeof(heads));
    for (int step = 0; step < 6000; step++) {
        state = state * 1664525u + 1013904223u;
        uint32_t draw = state >> 16;
        struct backlog_item *free = NULL;
        for (uint32_t i = 0; i < ITEMS && !free; i++)
            if (items[i].state == BACKLOG_OUT)
                free = &items[i];
        if (free && draw % 3 > 0) {
            struct error error;
            uint32_t user = draw % 16 < 10 ? 0 : draw % USERS;
            size_t size = draw / 16 % 4 == 0 ? LARGE : 10;
            ck_assert_int_eq(backlog_push(&backlog, &users[user],
                                          draw % 5 ? &sources[user] : &others[user], free, size, 0,
                                          &error),
                             0);
        } else if (draw % 7 == 0 && items[draw % ITEMS].state == BACKLOG_WAITS) {
            backlog_remove(&backlog, &items[draw % ITEMS], 1);
        } else {
            end_first(1);
        }
        while (backlog_take(&backlog))
            started++;
        for (uint32_t u = 0; u < USERS; u++)
            for (uint32_t c = 0; c < BACKLOG_CLASSES; c++) {
                const struct backlog_item *head = backlog_first(&users[u].lanes[c]);
                bool may = users[u].running < backlog_share(&backlog);
                if (!head || head != heads[u][c] || !may)
                    since[u][c] = started;
                heads[u][c] = head;
                uint32_t most = c == BACKLOG_IS_SMALL ? 2 * USERS : USERS * (BACKLOG_SMALL_RUN + 1);
                ck_assert_msg(started - since[u][c] <= most, "user %u, class %u: %u were started",
                              u, c, started - since[u][c]);
            }
    }
    while (starts(), end_first(1))
        continue;
    backlog_destroy(&backlog);
}
END_TEST

Suite *backlog_suite(void)
{
    Suite *suite = suite_create("backlog");
    TCase *tcase = tcase_create("backlog");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, users_take_turns_and_each_is_served_in_order);
    tcase_add_test(tcase, a_users_connections_take_turns);
    tcase_add_test(tcase, small_ones_go_first_and_large_ones_are_not_starved);
    tcase_add_test(tcase, large_ones_leave_a_thread_to_small_ones);
    tcase_add_test(tcase, one_user_leaves_a_thread_to_the_others);
    tcase_add_test(tcase, with_one_thread_all_of_it_is_anybodys);
    tcase_add_test(tcase, what_is_taken_out_is_never_started_and_costs_no_turn);
    tcase_add_test(tcase, deadlines_are_told_of_what_waits_and_of_what_runs);
    tcase_add_test(tcase, the_pace_of_late_tells_how_long_a_newcomer_waits);
    tcase_add_loop_test(tcase, nobody_waits_for_more_than_a_round, 0, 20);
    suite_add_tcase(suite, tcase);
    return suite;
}
