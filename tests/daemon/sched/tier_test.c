/* The host tier's book: what is found, what goes for others, and that no place is given twice. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/sched/tier.h"
#include "tests/daemon/replica_suites.h"
#include "tests/daemon/rig/fake_device.h"

#define CHUNKS 3u

static struct tier tier;

static struct prefix_key key_of(uint64_t number)
{
    return (struct prefix_key){.word = {number * 3, number}};
}

static uint32_t put(uint64_t number, uint32_t groups)
{
    struct prefix_key key = key_of(number);
    tier_turn(&tier);
    return tier_put(&tier, &key, groups);
}

static uint32_t find(uint64_t number)
{
    struct prefix_key key = key_of(number);
    return tier_find(&tier, &key);
}

static void open_tier(uint32_t groups)
{
    struct gpu_model model = {.group_count = groups,
                              .groups = {{.chunk_blocks = 4}, {.chunk_blocks = 2}}};
    ck_assert_int_eq(tier_init(&tier, &model, CHUNKS), 0);
}

static void make_chunk(uint32_t group)
{
    ck_assert_uint_ne(tier_chunk_ask(&tier, group), TIER_NONE);
    tier_chunk_told(&tier, true);
}

START_TEST(a_block_is_found_once_its_copy_has_ended)
{
    open_tier(1);
    ck_assert_uint_eq(put(1, 1), TIER_NONE); /* there is no chunk */
    ck_assert_uint_eq(tier_lacks(&tier, 1), 0);
    make_chunk(0);
    ck_assert_uint_eq(tier_lacks(&tier, 1), TIER_NONE);
    uint32_t node = put(1, 1);
    struct prefix_key key = key_of(1);
    ck_assert_uint_ne(node, TIER_NONE);
    ck_assert_uint_eq(find(1), TIER_NONE);
    ck_assert(tier_has(&tier, &key));
    tier_put_ended(&tier, node, true);
    ck_assert_uint_eq(find(1), node);
    ck_assert_str_eq(tier_check(&tier), "");
    tier_destroy(&tier);
}
END_TEST

START_TEST(the_least_recently_used_goes_and_none_that_a_copy_is_at)
{
    open_tier(1);
    make_chunk(0);
    for (uint32_t i = 0; i < 4; i++)
        tier_put_ended(&tier, put(i, 1), true);
    tier_read(&tier, find(0)); /* the oldest */
    tier_touch(&tier, find(1));
    uint32_t leaving = put(4, 1);
    ck_assert_uint_ne(leaving, TIER_NONE);
    ck_assert_uint_eq(find(2), TIER_NONE);
    ck_assert_uint_ne(put(5, 1), TIER_NONE);
    ck_assert_uint_eq(find(3), TIER_NONE);
    ck_assert_uint_ne(put(6, 1), TIER_NONE);
    ck_assert_uint_eq(find(1), TIER_NONE);
    ck_assert_uint_eq(put(7, 1), TIER_NONE); /* one is read, three are leaving */
    tier_read_ended(&tier, find(0));
    ck_assert_uint_ne(put(7, 1), TIER_NONE);
    ck_assert_uint_eq(find(0), TIER_NONE);
    ck_assert_uint_eq(tier.evicted, 4);
    ck_assert_str_eq(tier_check(&tier), "");
    tier_destroy(&tier);
}
END_TEST

/* Else what is written in one turn would push out what was written in the same, and so on. */
START_TEST(what_a_turn_uses_is_not_given_up_in_it)
{
    struct prefix_key key = key_of(9);
    open_tier(1);
    make_chunk(0);
    for (uint32_t i = 0; i < 4; i++)
        tier_put_ended(&tier, put(i, 1), true);
    tier_turn(&tier);
    for (uint32_t i = 0; i < 4; i++)
        tier_touch(&tier, find(i));
    ck_assert_uint_eq(tier_put(&tier, &key, 1), TIER_NONE);
    tier_turn(&tier);
    ck_assert_uint_ne(tier_put(&tier, &key, 1), TIER_NONE);
    ck_assert_uint_eq(find(0), TIER_NONE);
    tier_destroy(&tier);
}
END_TEST

START_TEST(what_is_spoiled_is_found_by_nobody_and_goes_when_no_copy_is_at_it)
{
    struct prefix_key key = key_of(1);
    open_tier(1);
    make_chunk(0);
    uint32_t node = put(1, 1);
    tier_spoil(&tier, &key); /* while it is leaving */
    ck_assert(!tier_has(&tier, &key));
    ck_assert_uint_eq(tier.used_places, 1);
    uint32_t second = put(1, 1); /* anew, of the same name */
    tier_put_ended(&tier, node, true);
    ck_assert_uint_eq(tier.used_places, 1);
    tier_put_ended(&tier, second, true);
    tier_read(&tier, find(1));
    tier_spoil(&tier, &key);
    ck_assert_uint_eq(find(1), TIER_NONE);
    ck_assert_uint_eq(tier.used_places, 1);
    tier_read_ended(&tier, second);
    ck_assert_uint_eq(tier.used_places, 0);
    tier_spoil(&tier, &key);                 /* it is not there: nothing */
    tier_put_ended(&tier, put(2, 1), false); /* its copy failed */
    ck_assert_uint_eq(tier.node_count, 0);
    ck_assert_str_eq(tier_check(&tier), "");
    tier_destroy(&tier);
}
END_TEST

/* Else one would take all chunks, and nodes that want a place in both found none. */
START_TEST(each_group_has_chunks_for_as_many_places)
{
    struct gpu_model model = {.group_count = 2,
                              .groups = {{.chunk_blocks = 12}, {.chunk_blocks = 3}}};
    ck_assert_int_eq(tier_init(&tier, &model, 12), 0);
    ck_assert_uint_eq(tier.chunk_most[0], 3);
    ck_assert_uint_eq(tier.chunk_most[1], 9);
    for (uint32_t i = 0; i < 3; i++)
        make_chunk(0);
    ck_assert_uint_eq(tier_chunk_ask(&tier, 0), TIER_NONE);
    for (uint32_t i = 0; i < 9; i++)
        make_chunk(1);
    ck_assert_uint_eq(tier_chunk_ask(&tier, 1), TIER_NONE);
    ck_assert_str_eq(tier_check(&tier), "");
    tier_destroy(&tier);
    ck_assert_int_eq(tier_init(&tier, &model, 1), 0); /* not one for each */
    ck_assert_uint_eq(tier.node_max, 0);
    ck_assert_uint_eq(put(1, 1), TIER_NONE);
    tier_destroy(&tier);
}
END_TEST

START_TEST(chunks_come_one_at_a_time_and_go_when_they_are_empty)
{
    open_tier(1);
    ck_assert_uint_eq(tier_chunk_ask(&tier, 0), 0);
    ck_assert_uint_eq(tier_chunk_ask(&tier, 0), TIER_NONE);
    tier_chunk_told(&tier, false); /* refused: the same again */
    ck_assert_uint_eq(tier_chunk_ask(&tier, 0), 0);
    tier_chunk_told(&tier, true);
    make_chunk(0);
    tier_put_ended(&tier, put(1, 1), true);
    ck_assert_uint_eq(tier_chunk_spare(&tier), 1);
    ck_assert_uint_eq(tier_chunk_spare(&tier), TIER_NONE);
    tier_chunk_told(&tier, true);
    ck_assert_uint_eq(tier_chunk_spare(&tier), TIER_NONE); /* the other holds a block */
    tier_give_up(&tier);
    ck_assert_uint_eq(tier_chunk_spare(&tier), 0);
    ck_assert_uint_eq(put(2, 1), TIER_NONE); /* one that is going gives no place */
    tier_chunk_told(&tier, true);
    ck_assert_str_eq(tier_check(&tier), "");
    tier_destroy(&tier);
}
END_TEST

/* Two groups, of which blocks have the second one sometimes. */
START_TEST(no_place_is_given_twice)
{
    uint64_t random = (uint64_t)_i + 1;
    open_tier(2);
    make_chunk(0);
    make_chunk(1);
    make_chunk(1);
    for (uint32_t turn = 0; turn < 3000; turn++) {
        uint32_t number = fake_below(&random, 40), node = find(number);
        struct prefix_key key = key_of(number);
        uint32_t what = fake_below(&random, 4);
        if (!tier_has(&tier, &key))
            (void)put(number, 1 + 2 * fake_below(&random, 2));
        else if (node == TIER_NONE && what == 0)
            for (node = tier.oldest; node != TIER_NONE; node = tier.nodes[node].newer)
                if (tier.nodes[node].leaving)
                    tier_put_ended(&tier, node, true);
        if (node != TIER_NONE && what == 1)
            tier_touch(&tier, node);
        if (node != TIER_NONE && what == 2 && find(number) == node && !tier.nodes[node].readers)
            tier_drop(&tier, node);
        ck_assert_str_eq(tier_check(&tier), "");
        uint32_t seen[GPU_GROUPS_MAX] = {0};
        for (node = tier.oldest; node != TIER_NONE; node = tier.nodes[node].newer)
            for (uint32_t g = 0; g < 2; g++) {
                uint32_t place = tier_place(&tier, node, g);
                if (place == TIER_NONE)
                    continue;
                ck_assert_uint_eq(seen[g] >> place & 1, 0);
                seen[g] |= 1u << place;
            }
    }
    ck_assert_uint_gt(tier.evicted, 100);
    tier_destroy(&tier);
}
END_TEST

Suite *tier_suite(void)
{
    Suite *suite = suite_create("tier");
    TCase *tcase = tcase_create("tier");
    tcase_add_test(tcase, a_block_is_found_once_its_copy_has_ended);
    tcase_add_test(tcase, the_least_recently_used_goes_and_none_that_a_copy_is_at);
    tcase_add_test(tcase, what_a_turn_uses_is_not_given_up_in_it);
    tcase_add_test(tcase, what_is_spoiled_is_found_by_nobody_and_goes_when_no_copy_is_at_it);
    tcase_add_test(tcase, each_group_has_chunks_for_as_many_places);
    tcase_add_test(tcase, chunks_come_one_at_a_time_and_go_when_they_are_empty);
    tcase_add_loop_test(tcase, no_place_is_given_twice, 0, 4);
    suite_add_tcase(suite, tcase);
    return suite;
}
