/* What somebody waits for is given up after what nobody does: from the device, and from host memory
 * for others. */
#include <stdlib.h>

#include "daemon/sched/sched_inner.h"
#include "tests/daemon/replica_suites.h"
#include "tests/daemon/sched/sched_rig.h"

#define PROMPT 100u /* tokens, of which 12 whole blocks are found */
#define BLOCKS 12u

static struct rig rig;

/* ---- the book of host memory -------------------------------------------------------------------
 */

static struct tier tier;
static struct prefix_wants wants[2];

static struct prefix_key key_of(uint64_t number)
{
    return (struct prefix_key){.word = {number * 8, number << 8}};
}

static bool want(uint32_t table, uint64_t number, bool more)
{
    struct prefix_key key = key_of(number);
    if (more)
        return prefix_wants_add(&wants[table], &key, 1);
    prefix_wants_drop(&wants[table], &key, 1);
    return true;
}

static bool put(uint64_t number)
{
    struct prefix_key key = key_of(number);
    uint32_t node = tier_put(&tier, &key, 1);
    if (node != TIER_NONE)
        tier_put_ended(&tier, node, true);
    ck_assert_str_eq(tier_check(&tier), "");
    return node != TIER_NONE;
}

static bool is_there(uint64_t number)
{
    struct prefix_key key = key_of(number);
    return tier_find(&tier, &key) != TIER_NONE;
}

/* Blocks from 0 on, as many as there are places. */
static void open_tier(uint32_t places)
{
    struct gpu_model model = {.group_count = 1, .groups = {{.chunk_blocks = places}}};
    ck_assert_int_eq(tier_init(&tier, &model, 1), 0);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(prefix_wants_init(&wants[i], 2 * places), 0);
    tier.wants = wants;
    tier.want_count = 2;
    ck_assert_uint_ne(tier_chunk_ask(&tier, 0), TIER_NONE);
    tier_chunk_told(&tier, true);
    tier_turn(&tier);
    for (uint32_t i = 0; i < places; i++)
        ck_assert(put(i));
}

static void close_tier(void)
{
    tier_give_up(&tier); /* whoever waits */
    ck_assert_uint_eq(tier.node_count, 0);
    tier_destroy(&tier);
    for (int i = 0; i < 2; i++)
        prefix_wants_destroy(&wants[i]);
}

START_TEST(host_memory_keeps_what_somebody_waits_for)
{
    open_tier(4);
    ck_assert(want(0, 0, true) && want(1, 1, true));
    tier_turn(&tier);
    ck_assert(put(4) && put(5));
    ck_assert(is_there(0) && is_there(1) && !is_there(2) && !is_there(3));
    tier_turn(&tier);
    ck_assert(want(0, 4, true) && want(0, 5, true));
    ck_assert(!put(6)); /* it would be at the cost of who came before */
    want(0, 0, false);
    ck_assert(put(6)); /* of which nobody made use in this turn */
    ck_assert(!is_there(0) && is_there(1));
    close_tier();
}
END_TEST

START_TEST(a_turn_passes_over_so_many_and_the_next_goes_on)
{
    open_tier(1500);
    for (uint32_t i = 0; i < 1400; i++)
        ck_assert(want(0, i, true));
    tier_turn(&tier);
    ck_assert(!put(2000));
    tier_turn(&tier);
    ck_assert(put(2000) && put(2001));
    ck_assert(is_there(0) && is_there(1399) && !is_there(1400) && !is_there(1401));
    close_tier();
}
END_TEST

/* ---- sequences ---------------------------------------------------------------------------------
 */

/* 32 blocks of KV. */
static void open_rig(uint32_t chunks)
{
    struct fake_shape shape = rig_shape();
    shape.slabs_max = 4;
    shape.chunk_blocks = chunks > 0 ? 4 : 0;
    shape.chunks_max = chunks;
    rig_open_cached(&rig, &shape, 1, "salt");
}

static void check(void)
{
    ck_assert_str_eq(sched_check(&rig.sched), "");
    ck_assert_str_eq(rig_check_kv(&rig), "");
    ck_assert_str_eq(fake_fault(rig.engine), "");
}

static void close_rig(void)
{
    rig.copies_late = false;
    rig_finish(&rig);
    check();
    ck_assert_str_eq(rig_check_answers(&rig, true), "");
    rig_close(&rig);
}

static struct seq *add(uint64_t seed, uint32_t prompt_len)
{
    return rig_add_prompt(&rig, seed, prompt_len);
}

static struct seq *run(uint64_t seed)
{
    struct seq *seq = add(seed, PROMPT);
    rig_finish(&rig);
    check();
    return seq;
}

static uint32_t on_device(const struct seq *seq)
{
    uint32_t node;
    struct cache_names names = {.prompt = seq->keys, .prompt_count = seq->key_count};
    return cache_hit(&rig.sched.cache, &names, BLOCKS, &node);
}

static bool is_wanted_here(const struct seq *seq)
{
    return prefix_wants_any(&rig.sched.wants[SCHED_WAITS_HERE], 1, &seq->keys[0]);
}

/* As the loop says, which has one that waits and begins as this did. */
static void wait_for(const struct seq *seq, bool more)
{
    struct prefix_wants *table = &rig.sched.wants[SCHED_WAITS_TO_COME];
    if (more)
        ck_assert(prefix_wants_add(table, seq->keys, seq->key_count));
    else
        prefix_wants_drop(table, seq->keys, seq->key_count);
}

START_TEST(the_device_keeps_what_somebody_waits_for)
{
    open_rig(0);
    const struct seq *wanted = run(1), *other = run(2);
    wait_for(wanted, true);
    run(3);
    ck_assert_uint_eq(on_device(wanted), BLOCKS);
    ck_assert_uint_lt(on_device(other), BLOCKS);
    for (uint64_t seed = 4; seed < 10; seed++)
        run(seed);
    ck_assert_uint_eq(on_device(wanted), BLOCKS);
    wait_for(wanted, false);
    run(10);
    run(11);
    ck_assert_uint_lt(on_device(wanted), BLOCKS);
    close_rig();
}
END_TEST

/* Where all of it is waited for some goes all the same, of each a part. */
START_TEST(what_is_waited_for_stands_in_nobodys_way)
{
    open_rig(0);
    const struct seq *first = run(1), *second = run(2);
    wait_for(first, true);
    wait_for(second, true);
    ck_assert_uint_eq(run(3)->finish, FINISH_LENGTH);
    ck_assert_uint_eq(rig.stats.preemptions_total, 0);
    ck_assert_uint_gt(on_device(first), 0);
    ck_assert_uint_gt(on_device(second), 0);
    ck_assert_uint_lt(on_device(first) + on_device(second), 2 * BLOCKS);
    close_rig();
}
END_TEST

/* It comes back from there: the least recently used goes first, as ever. */
START_TEST(what_host_memory_has_goes_from_the_device)
{
    open_rig(200);
    const struct seq *wanted = run(1), *other = run(2);
    wait_for(wanted, true);
    for (uint64_t seed = 3; on_device(wanted) > 0; seed++) {
        ck_assert_uint_lt(seed, 20);
        run(seed);
    }
    ck_assert_uint_ne(tier_find(&rig.sched.tier, &wanted->keys[BLOCKS - 1]), TIER_NONE);
    ck_assert_uint_gt(on_device(other), 0);
    close_rig();
}
END_TEST

/* 24 blocks of host memory: two sessions of which one waits, and others come and go. */
START_TEST(who_waits_finds_in_host_memory_what_left_the_device)
{
    open_rig(6);
    const struct seq *wanted = run(1);
    wait_for(wanted, true);
    for (uint64_t seed = 2; seed < 12; seed++)
        run(seed);
    uint64_t read = rig.stats.prompt_tokens_total;
    ck_assert_uint_gt(rig.sched.tier.evicted, BLOCKS);
    ck_assert_uint_eq(run(1)->cached, BLOCKS * 8);
    ck_assert_uint_eq(rig.stats.prompt_tokens_total - read, PROMPT - BLOCKS * 8);
    close_rig();
}
END_TEST

START_TEST(who_waits_here_is_one_of_them_until_it_starts_or_leaves)
{
    open_rig(0);
    run(1);
    struct seq *starts = add(1, PROMPT), *leaves = add(2, PROMPT);
    ck_assert(is_wanted_here(starts) && is_wanted_here(leaves));
    check();
    sched_cancel(&rig.sched, leaves, FINISH_CANCELLED, rig.now_us);
    ck_assert(!is_wanted_here(leaves));
    check();
    ck_assert(rig_submit(&rig));
    ck_assert_int_ne(starts->phase, PHASE_WAITING);
    ck_assert(!is_wanted_here(starts));
    close_rig();
}
END_TEST

Suite *wants_suite(void)
{
    Suite *suite = suite_create("sched, who waits");
    TCase *tcase = tcase_create("wants");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, host_memory_keeps_what_somebody_waits_for);
    tcase_add_test(tcase, a_turn_passes_over_so_many_and_the_next_goes_on);
    tcase_add_test(tcase, the_device_keeps_what_somebody_waits_for);
    tcase_add_test(tcase, what_is_waited_for_stands_in_nobodys_way);
    tcase_add_test(tcase, what_host_memory_has_goes_from_the_device);
    tcase_add_test(tcase, who_waits_finds_in_host_memory_what_left_the_device);
    tcase_add_test(tcase, who_waits_here_is_one_of_them_until_it_starts_or_leaves);
    suite_add_tcase(suite, tcase);
    return suite;
}
