#include "daemon/base/stats.h"

#include <stdbool.h>
#include <string.h>

#include "tests/daemon/replica_suites.h"

static struct stats_worker one, two;

START_TEST(names_are_unique_and_usable_as_metrics)
{
    for (size_t i = 0; i < stats_table_count; i++) {
        const struct stats_entry *entry = &stats_table[i];
        ck_assert_uint_eq(strspn(entry->name, "abcdefghijklmnopqrstuvwxyz_"), strlen(entry->name));
        ck_assert_uint_gt(strlen(entry->help), 0);
        const char *end = entry->name + strlen(entry->name);
        bool total = strlen(entry->name) > 6 && strcmp(end - 6, "_total") == 0;
        ck_assert_msg(total == (entry->kind == STATS_COUNTER), "%s", entry->name);
        for (size_t j = 0; j < i; j++)
            ck_assert_str_ne(stats_table[j].name, entry->name);
    }
}
END_TEST

START_TEST(the_table_reaches_every_field_of_the_worker)
{
    size_t bytes = 0;
    for (size_t i = 0; i < stats_table_count; i++)
        if (stats_table[i].owner == STATS_WORKER)
            bytes += stats_table[i].kind == STATS_HIST ? sizeof(struct hist) : sizeof(uint64_t);
    ck_assert_uint_eq(bytes, sizeof(struct stats_worker));
}
END_TEST

START_TEST(replicas_are_summed)
{
    one.steps_total = 3;
    two.steps_total = 4;
    one.kv_slabs = 5;
    two.kv_slabs = 6;
    hist_clear(&one.step_time);
    hist_clear(&two.step_time);
    hist_add(&one.step_time, 10);
    hist_add(&two.step_time, 30);
    stats_worker_merge(&one, &two);
    ck_assert_uint_eq(one.steps_total, 7);
    ck_assert_uint_eq(one.kv_slabs, 11);
    ck_assert_uint_eq(one.step_time.count, 2);
    ck_assert_uint_eq(one.step_time.max_us, 30);
    for (size_t i = 0; i < stats_table_count; i++)
        if (strcmp(stats_table[i].name, "steps_total") == 0)
            ck_assert_uint_eq(stats_value(&stats_table[i], &one), 7);
        else if (strcmp(stats_table[i].name, "step_time") == 0)
            ck_assert_uint_eq(stats_hist(&stats_table[i], &one)->sum_us, 40);
}
END_TEST

Suite *stats_suite(void)
{
    Suite *suite = suite_create("stats");
    TCase *tcase = tcase_create("table");
    tcase_add_test(tcase, names_are_unique_and_usable_as_metrics);
    tcase_add_test(tcase, the_table_reaches_every_field_of_the_worker);
    tcase_add_test(tcase, replicas_are_summed);
    suite_add_tcase(suite, tcase);
    return suite;
}
