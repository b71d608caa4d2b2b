#include "protocol/base/list.h"

#include "tests/protocol/base_suites.h"

struct item {
    int number;
    struct list link;
};

static int digits_of(struct list *head)
{
    int digits = 0;
    list_each(link, head) digits = digits * 10 + container_of(link, struct item, link)->number;
    return digits;
}

START_TEST(elements_keep_their_order)
{
    struct list head;
    struct item a = {.number = 1}, b = {.number = 2}, c = {.number = 3};
    list_init(&head);
    ck_assert(list_empty(&head));
    ck_assert(!list_linked(&b.link));
    list_append(&head, &b.link);
    list_append(&head, &c.link);
    list_prepend(&head, &a.link);
    ck_assert_int_eq(digits_of(&head), 123);
    ck_assert(list_linked(&b.link));
    ck_assert(!list_empty(&head));
}
END_TEST

START_TEST(a_removed_element_can_be_inserted_again)
{
    struct list head;
    struct item a = {.number = 1}, b = {.number = 2}, c = {.number = 3};
    list_init(&head);
    list_append(&head, &a.link);
    list_append(&head, &b.link);
    list_append(&head, &c.link);
    list_remove(&b.link);
    ck_assert(!list_linked(&b.link));
    ck_assert_int_eq(digits_of(&head), 13);
    list_insert_before(&a.link, &b.link);
    ck_assert_int_eq(digits_of(&head), 213);
}
END_TEST

START_TEST(taking_empties_the_list_from_the_front)
{
    struct list head;
    struct item a = {.number = 1}, b = {.number = 2};
    list_init(&head);
    list_append(&head, &a.link);
    list_append(&head, &b.link);
    ck_assert_ptr_eq(list_take(&head), &a.link);
    ck_assert_ptr_eq(list_take(&head), &b.link);
    ck_assert_ptr_null(list_take(&head));
    ck_assert(list_empty(&head));
    ck_assert(!list_linked(&a.link));
}
END_TEST

START_TEST(the_safe_walk_allows_removal)
{
    struct list head;
    struct item items[5];
    list_init(&head);
    for (int i = 0; i < 5; i++) {
        items[i].number = i + 1;
        list_append(&head, &items[i].link);
    }
    list_each_safe(link, &head) if (container_of(link, struct item, link)->number % 2 == 0)
        list_remove(link);
    ck_assert_int_eq(digits_of(&head), 135);
}
END_TEST

Suite *list_suite(void)
{
    Suite *suite = suite_create("list");
    TCase *tcase = tcase_create("list");
    tcase_add_test(tcase, elements_keep_their_order);
    tcase_add_test(tcase, a_removed_element_can_be_inserted_again);
    tcase_add_test(tcase, taking_empties_the_list_from_the_front);
    tcase_add_test(tcase, the_safe_walk_allows_removal);
    suite_add_tcase(suite, tcase);
    return suite;
}
