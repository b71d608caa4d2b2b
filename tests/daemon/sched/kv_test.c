#include "daemon/sched/kv.h"

#include <stdlib.h>

#include "tests/daemon/replica_suites.h"
#include "tests/daemon/rig/fake_device.h"

static struct kv kv;

static void open_kv(uint32_t slab_blocks, uint32_t slabs_max, uint32_t window)
{
    struct gpu_model model = {.block_tokens = 4, .group_count = window > 0 ? 2 : 1};
    model.groups[0] = (struct gpu_group){.slab_blocks = slab_blocks, .slabs_max = slabs_max};
    model.groups[1] = model.groups[0];
    model.groups[1].window = window;
    ck_assert_int_eq(kv_init(&kv, &model), 0);
}

START_TEST(a_slab_gives_each_of_its_blocks_once)
{
    bool seen[24] = {false};
    open_kv(8, 3, 0);
    ck_assert_uint_eq(kv_take(&kv, 0), KV_NONE);
    kv_slab_add(&kv, 0, 2);
    kv_slab_add(&kv, 0, 0);
    for (int i = 0; i < 16; i++) {
        uint32_t block = kv_take(&kv, 0);
        ck_assert_uint_lt(block, 24);
        ck_assert(block < 8 || block >= 16);
        ck_assert(!seen[block]);
        seen[block] = true;
    }
    ck_assert_uint_eq(kv_take(&kv, 0), KV_NONE);
    ck_assert_uint_eq(kv.group[0].used, 16);
    ck_assert_uint_eq(kv.group[0].free, 0);
    kv_destroy(&kv);
}
END_TEST

START_TEST(new_blocks_come_from_the_fullest_slab)
{
    open_kv(70, 3, 0); /* more than the bits of a word */
    for (uint32_t slab = 0; slab < 3; slab++)
        kv_slab_add(&kv, 0, slab);
    uint32_t first = kv_take(&kv, 0) / 70;
    for (int i = 1; i < 70; i++)
        ck_assert_uint_eq(kv_take(&kv, 0) / 70, first);
    uint32_t second = kv_take(&kv, 0) / 70;
    ck_assert_uint_ne(second, first);
    kv_retire(&kv, 0, first * 70, 0); /* now the first has one free, and is still the fuller */
    ck_assert_uint_eq(kv_take(&kv, 0) / 70, first);
    ck_assert_uint_eq(kv_take(&kv, 0) / 70, second);
    kv_destroy(&kv);
}
END_TEST

START_TEST(a_retired_block_is_free_only_when_its_step_has_ended)
{
    open_kv(2, 1, 0);
    kv_slab_add(&kv, 0, 0);
    uint32_t a = kv_take(&kv, 0), b = kv_take(&kv, 0);
    kv_retire(&kv, 0, a, 2);
    kv_retire(&kv, 0, b, 1);
    ck_assert_uint_eq(kv_take(&kv, 0), KV_NONE);
    ck_assert_uint_eq(kv.group[0].retired, 2);
    kv_completed(&kv, 1);
    ck_assert_uint_eq(kv_take(&kv, 0), b);
    ck_assert_uint_eq(kv_take(&kv, 0), KV_NONE);
    kv_completed(&kv, 2);
    ck_assert_uint_eq(kv_take(&kv, 0), a);
    kv_retire(&kv, 0, a, 2);
    ck_assert_uint_eq(kv.group[0].free, 1);
    kv_destroy(&kv);
}
END_TEST

/* For a step behind those that touch it; and given back it is free no sooner than it would be. */
START_TEST(a_retired_block_may_be_taken_for_a_step)
{
    open_kv(2, 1, 0);
    kv_slab_add(&kv, 0, 0);
    uint32_t a = kv_take(&kv, 0), b = kv_take(&kv, 0);
    ck_assert_uint_eq(kv_take_retired(&kv, 0), KV_NONE);
    kv_retire(&kv, 0, a, 2);
    kv_retire(&kv, 0, b, 1);
    kv_slab_close(&kv, 0, 0);
    ck_assert_uint_eq(kv_take_retired(&kv, 0), KV_NONE);
    kv_slab_open(&kv, 0, 0);
    ck_assert_uint_eq(kv_take_retired(&kv, 0), b);
    ck_assert_uint_eq(kv_take_retired(&kv, 0), a);
    ck_assert_uint_eq(kv_take_retired(&kv, 0), KV_NONE);
    ck_assert_uint_eq(kv.group[0].retired, 0);
    kv_put_back(&kv, 0, a);
    ck_assert_uint_eq(kv.group[0].retired, 1);
    ck_assert_uint_eq(kv.group[0].free, 0);
    kv_completed(&kv, 1);
    kv_retire(&kv, 0, b, 3);
    kv_completed(&kv, 2);
    ck_assert_uint_eq(kv_take(&kv, 0), a);
    ck_assert_uint_eq(kv_take(&kv, 0), KV_NONE);
    kv_completed(&kv, 3);
    ck_assert_uint_eq(kv_take(&kv, 0), b);
    kv_destroy(&kv);
}
END_TEST

START_TEST(a_shared_block_is_free_when_its_last_holder_and_step_are_gone)
{
    open_kv(2, 1, 0);
    kv_slab_add(&kv, 0, 0);
    uint32_t block = kv_take(&kv, 0);
    kv_share(&kv, 0, block);
    kv_share(&kv, 0, block);
    kv_put_back(&kv, 0, block);
    kv_retire(&kv, 0, block, 2); /* one of two: step 2 may read it, and the other, too */
    kv_completed(&kv, 1);
    kv_completed(&kv, 2);
    ck_assert_uint_eq(kv.group[0].used, 1);
    kv_retire(&kv, 0, block, 3);
    ck_assert_uint_eq(kv.group[0].retired, 1);
    kv_completed(&kv, 3);
    ck_assert_uint_eq(kv.group[0].used, 0);
    kv_destroy(&kv);
}
END_TEST

START_TEST(a_moved_block_takes_its_holders_along)
{
    open_kv(2, 1, 0);
    kv_slab_add(&kv, 0, 0);
    uint32_t from = kv_take(&kv, 0), to = kv_take(&kv, 0);
    kv_share(&kv, 0, from);
    kv_share(&kv, 0, from);
    kv_move(&kv, 0, from, to);
    kv_move_back(&kv, 0, from, to);
    ck_assert_uint_eq(kv.group[0].references[from], 3);
    ck_assert_uint_eq(kv.group[0].used, 1);
    ck_assert_uint_eq(kv_take(&kv, 0), to);
    kv_move(&kv, 0, from, to);
    kv_moved(&kv, 0, from, to, 0);
    for (int i = 0; i < 3; i++) {
        ck_assert_uint_eq(kv.group[0].used, 1);
        kv_retire(&kv, 0, to, 0);
    }
    ck_assert_uint_eq(kv.group[0].used, 0);
    kv_destroy(&kv);
}
END_TEST

/* Blocks that only the cache holds are counted, and are free once the last step that touched them
 * has ended, whoever gives them up last. */
START_TEST(a_kept_block_is_free_when_its_last_step_has_ended)
{
    open_kv(2, 1, 0);
    kv_slab_add(&kv, 0, 0);
    uint32_t block = kv_take(&kv, 0);
    kv_keep(&kv, 0, block);
    ck_assert_uint_eq(kv.group[0].alone, 0);
    kv_retire(&kv, 0, block, 2);
    ck_assert_uint_eq(kv.group[0].alone, 1);
    kv_share(&kv, 0, block);
    ck_assert_uint_eq(kv.group[0].alone, 0);
    kv_put_back(&kv, 0, block);
    ck_assert_uint_eq(kv.group[0].alone, 1);
    kv_keep_end(&kv, 0, block);
    ck_assert_uint_eq(kv.group[0].alone, 0);
    ck_assert_uint_eq(kv.group[0].retired, 1);
    kv_completed(&kv, 1);
    ck_assert_uint_eq(kv.group[0].used, 1);
    kv_completed(&kv, 2);
    ck_assert_uint_eq(kv.group[0].used, 0);
    kv_destroy(&kv);
}
END_TEST

/* The cache gives the block up while the plan that moves it is made: taken back or not, it is free
 * once. */
START_TEST(a_block_that_is_given_up_while_it_is_moved)
{
    open_kv(2, 1, 0);
    kv_slab_add(&kv, 0, 0);
    uint32_t from = kv_take(&kv, 0), to = kv_take(&kv, 0);
    kv_keep(&kv, 0, from);
    kv_put_back(&kv, 0, from);
    kv_move(&kv, 0, from, to);
    ck_assert_uint_eq(kv.group[0].alone, 0);
    kv_keep_end(&kv, 0, to);
    ck_assert_uint_eq(kv.group[0].used, 2);
    if (_i)
        kv_moved(&kv, 0, from, to, 0);
    else
        kv_move_back(&kv, 0, from, to);
    ck_assert_uint_eq(kv.group[0].used, 0);
    kv_destroy(&kv);
}
END_TEST

START_TEST(a_closed_slab_gives_no_block_but_takes_them_back)
{
    open_kv(4, 2, 0);
    kv_slab_add(&kv, 0, 0);
    uint32_t a = kv_take(&kv, 0), b = kv_take(&kv, 0);
    ck_assert_uint_eq(kv_slab_sparsest(&kv, 0), 0);
    kv_slab_close(&kv, 0, 0);
    ck_assert_uint_eq(kv_take(&kv, 0), KV_NONE);
    ck_assert_uint_eq(kv.group[0].free, 0);
    kv_retire(&kv, 0, a, 0);
    kv_retire(&kv, 0, b, 0);
    ck_assert_uint_eq(kv.group[0].slab[0].used, 0);
    ck_assert_uint_eq(kv.group[0].free, 0);
    kv_slab_remove(&kv, 0, 0);
    ck_assert_uint_eq(kv.group[0].slabs, 0);
    ck_assert_uint_eq(kv.group[0].free, 0);
    kv_destroy(&kv);
}
END_TEST

START_TEST(random_use_keeps_the_books)
{
    enum { BLOCKS = 5 * 7 };
    uint64_t random = (uint64_t)_i, step = 0;
    uint32_t held[BLOCKS], count = 0;
    uint8_t owned[BLOCKS] = {0};
    open_kv(7, 5, 0);
    for (int turn = 0; turn < 3000; turn++) {
        uint32_t slab = fake_below(&random, 5), empty, taken;
        switch (fake_below(&random, 6)) {
        case 0:
            if (!kv.group[0].slab[slab].exists)
                kv_slab_add(&kv, 0, slab);
            break;
        case 1:
            if ((empty = kv_slab_empty(&kv, 0)) != KV_NONE)
                kv_slab_remove(&kv, 0, empty);
            break;
        case 2:
            if (step > kv.completed)
                kv_completed(&kv, kv.completed + 1);
            break;
        case 3:
            step += step - kv.completed < 2;
            if (count > 0) {
                uint32_t at = fake_below(&random, count);
                owned[held[at]] = 0;
                kv_retire(&kv, 0, held[at], step);
                held[at] = held[--count];
            }
            break;
        default:
            taken = kv_take(&kv, 0);
            if (taken != KV_NONE) {
                ck_assert_uint_eq(owned[taken]++, 0);
                held[count++] = taken;
            }
            break;
        }
        ck_assert_uint_eq(count + kv.group[0].retired, kv.group[0].used);
        ck_assert_uint_eq(kv.group[0].used + kv.group[0].free, 7 * kv.group[0].slabs);
    }
    kv_destroy(&kv);
}
END_TEST

START_TEST(a_window_drops_what_no_later_position_sees)
{
    uint32_t blocks[2][8];
    struct kv_table table = {.group = {{.blocks = blocks[0]}, {.blocks = blocks[1]}}};
    open_kv(8, 2, 6); /* position p sees p - 5 .. p; blocks of 4 */
    for (uint32_t g = 0; g < 2; g++) {
        kv_slab_add(&kv, g, 0);
        for (uint32_t i = 0; i < 5; i++)
            blocks[g][table.group[g].end++] = kv_take(&kv, g);
    }
    kv_table_drop(&kv, &table, 8, 0); /* sees 3 */
    ck_assert_uint_eq(table.group[1].first, 0);
    kv_table_drop(&kv, &table, 9, 0); /* sees 4 */
    ck_assert_uint_eq(table.group[1].first, 1);
    kv_table_drop(&kv, &table, 16, 0); /* sees 11 */
    ck_assert_uint_eq(table.group[1].first, 2);
    ck_assert_uint_eq(table.group[0].first, 0);
    ck_assert_uint_eq(kv.group[1].used, 3);
    kv_table_clear(&kv, &table, 0);
    ck_assert_uint_eq(kv.group[0].used + kv.group[1].used, 0);
    ck_assert_uint_eq(table.group[1].end, 0);
    kv_destroy(&kv);
}
END_TEST

START_TEST(a_sequence_is_as_long_as_its_groups_can_ever_hold)
{
    struct gpu_limits limits = {.context_max = 1000};
    struct gpu_model model = {.block_tokens = 4, .group_count = 2};
    model.groups[0] = (struct gpu_group){.slab_blocks = 10, .slabs_max = 3};
    model.groups[1] = (struct gpu_group){.slab_blocks = 4, .slabs_max = 1, .window = 8};
    ck_assert_uint_eq(kv_length_max(&model, &limits), 120);
    model.groups[0].slabs_max = 300;
    ck_assert_uint_eq(kv_length_max(&model, &limits), 1000);
    model.groups[1].slab_blocks = 3; /* the window of 8 can lie over 4 blocks */
    ck_assert_uint_eq(kv_length_max(&model, &limits), 12);
}
END_TEST

Suite *kv_suite(void)
{
    Suite *suite = suite_create("kv");
    TCase *tcase = tcase_create("blocks");
    tcase_add_test(tcase, a_slab_gives_each_of_its_blocks_once);
    tcase_add_test(tcase, new_blocks_come_from_the_fullest_slab);
    tcase_add_test(tcase, a_retired_block_is_free_only_when_its_step_has_ended);
    tcase_add_test(tcase, a_retired_block_may_be_taken_for_a_step);
    tcase_add_test(tcase, a_shared_block_is_free_when_its_last_holder_and_step_are_gone);
    tcase_add_test(tcase, a_moved_block_takes_its_holders_along);
    tcase_add_test(tcase, a_kept_block_is_free_when_its_last_step_has_ended);
    tcase_add_loop_test(tcase, a_block_that_is_given_up_while_it_is_moved, 0, 2);
    tcase_add_test(tcase, a_closed_slab_gives_no_block_but_takes_them_back);
    tcase_add_loop_test(tcase, random_use_keeps_the_books, 0, 20);
    tcase_add_test(tcase, a_window_drops_what_no_later_position_sees);
    tcase_add_test(tcase, a_sequence_is_as_long_as_its_groups_can_ever_hold);
    suite_add_tcase(suite, tcase);
    return suite;
}
