/* The host tier: what leaves the device comes back, is found by nobody before it has, and nothing
 * that a copy is at is written, moved, given back or trimmed. */
#include <stdlib.h>
#include <string.h>

#include "daemon/sched/sched_inner.h"
#include "tests/daemon/replica_suites.h"
#include "tests/daemon/sched/sched_rig.h"

#define BLOCK 8u
#define PROMPT 100u /* tokens; 12 blocks of it are found */
#define FOUND 96u

static struct rig rig;

/* 32 blocks of KV for each group, and room in host memory for many times as much. */
static struct fake_shape shape_of(uint32_t groups)
{
    struct fake_shape shape = rig_shape();
    shape.group_count = groups;
    shape.window = 20;
    shape.slabs_max = 4;
    shape.chunk_blocks = 4;
    shape.chunks_max = 200;
    return shape;
}

static void check(void)
{
    ck_assert_str_eq(sched_check(&rig.sched), "");
    ck_assert_str_eq(rig_check_kv(&rig), "");
    ck_assert_str_eq(fake_fault(rig.engine), "");
}

static void close_all(void)
{
    rig.copies_late = false;
    rig_finish(&rig);
    check();
    ck_assert_str_eq(rig_check_answers(&rig, true), "");
    while (rig_complete(&rig))
        continue;
    rig_rest(&rig);
    ck_assert_uint_eq(fake_counts(rig.engine).slabs, 0);
    sched_trim(&rig.sched);
    while (rig_tend(&rig), rig_chunk(&rig))
        continue;
    ck_assert_uint_eq(fake_counts(rig.engine).chunks, 0);
    ck_assert_uint_eq(rig.sched.tier.node_count, 0);
    check();
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

/* Prompts of others until nothing of this sequence's is on the device. */
static void push_out(const struct seq *seq)
{
    for (uint64_t seed = 1000; cache_find(&rig.sched.cache, &seq->keys[0]) != CACHE_NONE; seed++) {
        ck_assert_uint_lt(seed, 1100);
        run(seed);
    }
}

static bool is_in_tier(const struct seq *seq, uint32_t block)
{
    return tier_find(&rig.sched.tier, &seq->keys[block]) != TIER_NONE;
}

/* One sequence of it, whose blocks are in host memory alone, waits; copies are late from now on. */
static struct seq *wait_for(uint64_t seed)
{
    push_out(run(seed));
    rig.copies_late = true;
    return add(seed, PROMPT);
}

START_TEST(what_left_the_device_comes_back)
{
    struct fake_shape shape = shape_of(1 + (uint32_t)_i);
    rig_open_cached(&rig, &shape, 1, "salt");
    push_out(run(1));
    uint64_t read = rig.stats.prompt_tokens_total;
    ck_assert_uint_eq(run(1)->cached, FOUND);
    ck_assert_uint_eq(rig.stats.prompt_tokens_total - read, PROMPT - FOUND);
    /* Of a group with a window the last three come back, which the position behind them sees. */
    ck_assert_uint_eq(rig.stats.host_blocks_in_total, _i ? 12 + 3 : 12);
    ck_assert_uint_gt(rig.stats.host_blocks_out_total, 32);
    ck_assert_uint_gt(rig.stats.host_out.count, 0);
    ck_assert_uint_gt(rig.stats.host_in.count, 0);
    close_all();
}
END_TEST

/* Two come together: one call of a turn is for the first, and the second does not start meanwhile in
 * a step of others, but waits until its own is planned. */
START_TEST(who_is_next_but_one_comes_back_as_well)
{
    struct fake_shape shape = shape_of(1);
    rig_open_cached(&rig, &shape, 1, "salt");
    struct seq *before = run(1);
    push_out(run(2));
    push_out(before);
    ck_assert(is_in_tier(before, 0) && is_in_tier(before, 11));
    struct seq *other = add(3, 10);
    ck_assert(rig_submit(&rig) && rig_complete(&rig));
    rig.copies_late = true;
    struct seq *first = add(1, PROMPT), *second = add(2, PROMPT);
    ck_assert(rig_copy(&rig, GPU_FROM_HOST));
    ck_assert(rig_submit(&rig));
    ck_assert_int_eq(other->phase, PHASE_DECODE);
    ck_assert_int_eq(second->phase, PHASE_WAITING);
    ck_assert(rig_copy(&rig, GPU_FROM_HOST));
    rig.copies_late = false;
    rig_finish(&rig);
    ck_assert_uint_eq(first->cached, FOUND);
    ck_assert_uint_eq(second->cached, FOUND);
    close_all();
}
END_TEST

/* The loop is told of it, and what waits for it is expected to read less: not as little as if it
 * were on the device. */
START_TEST(what_left_the_device_is_counted_for_what_it_is_worth)
{
    struct fake_shape shape = shape_of(1);
    rig_open_cached(&rig, &shape, 1, "salt");
    const struct prefix_hint *host = &rig.sched.tier.hint, *here = &rig.sched.cache.hint;
    struct seq *seq = run(1);
    ck_assert_uint_eq(prefix_hint_count(here, seq->keys, 12, false), 12);
    push_out(seq);
    uint32_t there = prefix_hint_count(here, seq->keys, 12, false);
    ck_assert_uint_eq(there, 0);
    ck_assert_uint_eq(prefix_hint_count_behind(host, seq->keys, 0, 12), 12);
    ck_assert_uint_eq(prefix_hint_count_behind(host, seq->keys, 5, 12), 7);
    rig.copies_late = true;
    seq = add(1, PROMPT);
    ck_assert_uint_eq(seq->cache.expected, FOUND * 7 / 8); /* nobody knows what it takes */
    ck_assert_uint_eq(sched_backlog(&rig.sched), PROMPT - FOUND * 7 / 8);
    rig.copies_late = false;
    rig_finish(&rig);
    push_out(seq);
    rig_teach(&rig, 10);
    push_out(seq);
    rig.copies_late = true;
    uint64_t token_ns = sched_room(&rig.sched, rig.now_us).token_ns;
    ck_assert_uint_gt(token_ns, 0);
    rig.sched.copy_us = (double)token_ns * BLOCK / 4000; /* of a block: a quarter of its time */
    ck_assert_uint_eq(sched_room(&rig.sched, rig.now_us).copy_ns, token_ns / 4);
    seq = add(1, PROMPT);
    ck_assert_uint_eq(seq->cache.expected, FOUND * 3 / 4);
    rig.sched.copy_us *= 5; /* it is sooner computed */
    ck_assert_uint_eq(add(1, PROMPT)->cache.expected, FOUND); /* as who is before it reads it */
    sched_cancel(&rig.sched, rig.seqs[rig.seq_count - 1], FINISH_CANCELLED, rig.now_us);
    sched_cancel(&rig.sched, seq, FINISH_CANCELLED, rig.now_us);
    seq = add(1, PROMPT);
    ck_assert_uint_eq(seq->cache.expected, 0);
    ck_assert_uint_eq(prefix_hint_count_behind(host, seq->keys, 0, 12), 12);
    for (uint32_t i = 9; i < 12; i++)
        tier_spoil(&rig.sched.tier, &seq->keys[i]);
    ck_assert_uint_eq(prefix_hint_count_behind(host, seq->keys, 0, 12), 9);
    tier_give_up(&rig.sched.tier);
    ck_assert_uint_eq(prefix_hint_count_behind(host, seq->keys, 0, 12), 0);
    close_all();
}
END_TEST

/* Behind a window's block that is gone nothing is of use. */
START_TEST(no_more_comes_back_than_the_window_makes_use_of)
{
    struct fake_shape shape = shape_of(2);
    rig_open_cached(&rig, &shape, 1, "salt");
    rig.copies_late = true;
    struct seq *seq = run(1);
    struct cache *cache = &rig.sched.cache;
    uint32_t node = cache_find(cache, &seq->keys[10]);
    while (cache_block(cache, node, 1) != KV_NONE) { /* the oldest go first */
        for (uint32_t other = 0; other < 12; other++)
            if (other != 10)
                cache_touch(cache, cache_find(cache, &seq->keys[other]), 1);
        ck_assert(cache_evict(cache, 1));
    }
    rig.copies_late = false;
    push_out(seq);
    ck_assert_uint_eq(run(1)->cached, 10 * BLOCK);
    ck_assert_uint_eq(rig.stats.host_blocks_in_total, 10 + 3);
    close_all();
}
END_TEST

START_TEST(who_is_fetched_for_waits_and_others_do_not)
{
    struct fake_shape shape = shape_of(1);
    rig_open_cached(&rig, &shape, 1, "salt");
    struct seq *seq = wait_for(1);
    ck_assert(rig_copy(&rig, GPU_FROM_HOST));
    ck_assert(!rig_copy(&rig, GPU_FROM_HOST));
    ck_assert(!rig_submit(&rig));
    struct seq *other = add(2, 20);
    ck_assert(rig_submit(&rig));
    ck_assert_int_eq(seq->phase, PHASE_WAITING);
    ck_assert_int_ne(other->phase, PHASE_WAITING);
    check();
    ck_assert_uint_eq(cache_find(&rig.sched.cache, &seq->keys[0]), CACHE_NONE);
    ck_assert(rig_copied(&rig, GPU_FROM_HOST));
    ck_assert(rig_submit(&rig));
    ck_assert_int_ne(seq->phase, PHASE_WAITING);
    ck_assert_uint_eq(seq->cached, FOUND);
    close_all();
}
END_TEST

/* Its client leaves, or the device fails, while copies are under way. */
START_TEST(who_leaves_leaves_copies_behind_that_end_well)
{
    struct fake_shape shape = shape_of(2);
    rig_open_cached(&rig, &shape, 1, "salt");
    struct seq *seq = wait_for(1);
    ck_assert(rig_copy(&rig, GPU_FROM_HOST));
    sched_cancel(&rig.sched, seq, FINISH_CANCELLED, rig.now_us);
    check();
    rig_finish(&rig);
    seq->cache.fetching = true; /* its memory is another's by now */
    ck_assert(rig_copied(&rig, GPU_FROM_HOST));
    ck_assert(seq->cache.fetching);
    check();
    uint64_t back = rig.stats.host_blocks_in_total;
    rig.copies_late = false;
    ck_assert_uint_eq(run(1)->cached, FOUND);
    ck_assert_uint_eq(rig.stats.host_blocks_in_total, back);
    close_all();
}
END_TEST

START_TEST(when_the_device_fails_nothing_is_left)
{
    struct fake_shape shape = shape_of(2);
    struct error error = {.code = ERR_DEVICE};
    rig_open_cached(&rig, &shape, 1, "salt");
    struct seq *seq = wait_for(1);
    ck_assert(rig_copy(&rig, GPU_FROM_HOST));
    (void)rig_copy(&rig, GPU_TO_HOST);
    sched_end_all(&rig.sched, FINISH_ERROR, &error, rig.now_us);
    ck_assert_int_eq(seq->finish, FINISH_ERROR);
    ck_assert_uint_eq(sched_copies_in_flight(&rig.sched), 0);
    ck_assert_uint_eq(rig.sched.tier.node_count, 0);
    ck_assert_uint_eq(rig.sched.cache.node_count, 0);
    ck_assert_uint_eq(rig.sched.kv.group[0].used, 0);
    ck_assert_str_eq(tier_check(&rig.sched.tier), "");
    rig_close(&rig);
}
END_TEST

START_TEST(what_comes_for_one_is_not_fetched_for_another)
{
    struct fake_shape shape = shape_of(1);
    rig_open_cached(&rig, &shape, 1, "salt");
    struct seq *first = wait_for(1), *second = add(1, PROMPT);
    ck_assert(rig_copy(&rig, GPU_FROM_HOST));
    ck_assert(!rig_copy(&rig, GPU_FROM_HOST));
    ck_assert(!rig_submit(&rig)); /* nor read beside it */
    ck_assert(rig_copied(&rig, GPU_FROM_HOST));
    rig_finish(&rig);
    ck_assert_uint_eq(first->cached, FOUND);
    ck_assert_uint_eq(second->cached, FOUND);
    ck_assert_uint_eq(rig.stats.host_blocks_in_total, 12);
    close_all();
}
END_TEST

static struct seq *add_long(uint64_t seed, uint32_t max_tokens)
{
    struct fake_options options = {.job = JOB_GENERATE,
                                   .prompt_len = 9,
                                   .max_tokens = max_tokens,
                                   .ignore_eos = true,
                                   .logprobs = -1,
                                   .seed = seed};
    return rig.seqs[rig_add(&rig, &options)];
}

/* Somebody runs on, and of eight prompts that were read at once the first two blocks of each are
 * left, in as many slabs: they are to move into fewer. */
static void scatter(void)
{
    struct seq *seq = add_long(77, 200);
    for (uint64_t seed = 1; seed <= 8; seed++)
        add(seed, 60);
    while (rig.ended_count < 8)
        ck_assert(rig_submit(&rig) || rig_complete(&rig));
    for (uint32_t i = 0; i < 40; i++)
        ck_assert(cache_evict(&rig.sched.cache, 0));
    ck_assert_int_eq(seq->phase, PHASE_DECODE);
}

static void turns(uint32_t count)
{
    for (uint32_t turn = 0; turn < count; turn++) {
        rig.now_us += rig.sched.options.kv_idle_release_us;
        rig_tend(&rig);
        ck_assert(rig_submit(&rig) && rig_complete(&rig));
        check();
    }
}

START_TEST(nothing_is_moved_beside_a_copy)
{
    struct fake_shape shape = shape_of(1);
    shape.slabs_max = 16;
    shape.tokens_max = 600;
    rig_open_cached(&rig, &shape, 1, "salt");
    rig.copies_late = true;
    scatter();
    rig.sched.options.cache_idle_release_us = 1; /* so that they leave, and none has yet */
    (void)rig_copy(&rig, GPU_TO_HOST);
    for (int i = 0; i < 4; i++) /* a chunk holds four blocks */
        ck_assert(rig_chunk(&rig) && (i == 3 || rig_copy(&rig, GPU_TO_HOST)));
    rig.sched.options.cache_idle_release_us = RIG_CACHE_US;
    ck_assert_uint_gt(sched_copies_in_flight(&rig.sched), 0);
    turns(20);
    ck_assert_uint_eq(rig.stats.kv_moved_total, 0);
    while (rig_copied(&rig, GPU_TO_HOST))
        continue;
    turns(20);
    ck_assert_uint_gt(rig.stats.kv_moved_total, 0); /* as they would have been all the time */
    close_all();
}
END_TEST

START_TEST(memory_below_a_copy_is_neither_trimmed_nor_given_back)
{
    struct fake_shape shape = shape_of(1);
    rig_open_cached(&rig, &shape, 1, "salt");
    rig.copies_late = true;
    run(1);
    rig.now_us = sched_due_us(&rig.sched);
    rig_tend(&rig); /* slabs without what is cached go back */
    uint32_t trims = rig.trims;
    rig.now_us += RIG_CACHE_US;
    ck_assert(!rig_copy(&rig, GPU_TO_HOST));
    ck_assert(rig_chunk(&rig));
    ck_assert(rig_copy(&rig, GPU_TO_HOST));
    sched_trim(&rig.sched);
    for (int i = 0; i < 3; i++) {
        rig_tend(&rig);
        check();
        rig.now_us += RIG_CACHE_US;
    }
    ck_assert_uint_eq(rig.trims, trims);
    ck_assert_uint_gt(fake_counts(rig.engine).slabs, 0);
    ck_assert(rig_copied(&rig, GPU_TO_HOST));
    rig_tend(&rig);
    ck_assert_uint_eq(rig.trims, trims + 1);
    ck_assert_uint_eq(fake_counts(rig.engine).slabs, 0);
    close_all();
}
END_TEST

/* Nobody used it for long: it moves to host memory before it goes, all of it. */
START_TEST(what_is_idle_goes_to_host_memory_before_it_leaves)
{
    struct fake_shape shape = shape_of(1 + (uint32_t)_i);
    shape.slabs_max = 64;
    rig_open_cached(&rig, &shape, 1, "salt");
    struct seq *seqs[6];
    for (uint32_t i = 0; i < 6; i++)
        seqs[i] = run(1 + i);
    ck_assert_uint_eq(rig.stats.host_blocks_out_total, 0); /* there is memory enough */
    rig_rest(&rig);
    ck_assert_uint_eq(fake_counts(rig.engine).slabs, 0);
    for (uint32_t i = 0; i < 6; i++)
        for (uint32_t block = 0; block < PROMPT / BLOCK; block++)
            ck_assert(is_in_tier(seqs[i], block));
    ck_assert_uint_eq(run(3)->cached, FOUND);
    close_all();
}
END_TEST

/* Host memory for less than the device has: what is next to leave is there, not what came last. */
START_TEST(what_leaves_next_displaces_what_left_before)
{
    struct fake_shape shape = shape_of(1);
    shape.chunks_max = 4; /* 16 blocks */
    rig_open_cached(&rig, &shape, 1, "salt");
    struct seq *first = run(1);
    for (uint64_t seed = 2; seed < 10; seed++)
        run(seed);
    push_out(first);
    uint32_t there = 0;
    /* 32 blocks are on the device; those that left last are in host memory. */
    for (uint32_t i = 0; i < rig.seq_count; i++)
        for (uint32_t block = 0; block < 12; block++)
            there += is_in_tier(rig.seqs[i], block) &&
                     cache_find(&rig.sched.cache, &rig.seqs[i]->keys[block]) == CACHE_NONE;
    ck_assert_uint_ge(there, 4);
    ck_assert_uint_gt(rig.sched.tier.evicted, 0);
    close_all();
}
END_TEST

/* Nobody may get from host memory what the cache has given up as no number. */
START_TEST(what_is_no_number_goes_from_host_memory_too)
{
    struct fake_shape shape = shape_of(1);
    rig_open_cached(&rig, &shape, 1, "salt");
    struct seq *seq = run(1);
    push_out(seq);
    ck_assert(is_in_tier(seq, 0));
    fake_knobs(rig.engine)->overflow_from = 97; /* from now on it shows */
    ck_assert_int_eq(run(1)->finish, FINISH_ERROR);
    fake_knobs(rig.engine)->overflow_from = 0;
    for (uint32_t block = 0; block < 12; block++)
        ck_assert(!is_in_tier(seq, block));
    ck_assert_uint_eq(run(1)->cached, 0);
    close_all();
}
END_TEST

/* One whose blocks are on their way to host memory. */
static struct seq *leaving(void)
{
    struct fake_shape shape = shape_of(1);
    rig_open_cached(&rig, &shape, 1, "salt");
    rig.copies_late = true;
    struct seq *seq = run(1);
    rig.now_us += RIG_CACHE_US;
    (void)rig_copy(&rig, GPU_TO_HOST);
    ck_assert(rig_chunk(&rig));
    ck_assert(rig_copy(&rig, GPU_TO_HOST));
    return seq;
}

/* Nor by who might fetch it while it is on its way there. */
START_TEST(host_memory_has_nothing_before_its_copy_has_ended)
{
    struct seq *seq = leaving();
    uint32_t on_way = 0, there = 0;
    for (uint32_t block = 0; block < 12; block++) {
        on_way += tier_has(&rig.sched.tier, &seq->keys[block]);
        ck_assert(!is_in_tier(seq, block));
    }
    ck_assert_uint_gt(on_way, 0);
    ck_assert(rig_copied(&rig, GPU_TO_HOST));
    for (uint32_t block = 0; block < 12; block++)
        there += is_in_tier(seq, block);
    ck_assert_uint_eq(there, on_way);
    close_all();
}
END_TEST

/* Known while its copy out is in flight: it is not found when that has ended. */
START_TEST(what_is_no_number_is_not_found_after_its_copy)
{
    struct seq *seq = leaving();
    fake_knobs(rig.engine)->overflow_from = 97;
    ck_assert_int_eq(run(1)->finish, FINISH_ERROR);
    fake_knobs(rig.engine)->overflow_from = 0;
    ck_assert(rig_copied(&rig, GPU_TO_HOST));
    check();
    for (uint32_t block = 0; block < 12; block++)
        ck_assert(!is_in_tier(seq, block));
    close_all();
}
END_TEST

/* Asked for once in ten seconds, and the turns wait for nothing. */
START_TEST(host_memory_that_is_refused_stops_nobody)
{
    struct fake_shape shape = shape_of(1);
    rig_open_cached(&rig, &shape, 1, "salt");
    fake_knobs(rig.engine)->chunk_refused = 100;
    struct seq *seq = run(1);
    push_out(seq);
    ck_assert_uint_eq(rig.stats.host_refused_total, 1);
    ck_assert_uint_eq(run(1)->cached, 0);
    rig_rest(&rig);
    ck_assert_uint_eq(rig.stats.host_refused_total, 1);
    ck_assert_uint_eq(fake_counts(rig.engine).slabs, 0);
    fake_knobs(rig.engine)->chunk_refused = 0;
    rig.now_us += 10000000;
    push_out(run(1));
    ck_assert_uint_eq(run(1)->cached, FOUND);
    close_all();
}
END_TEST

/* Where it took longer than computing would it is computed; and tried again later, since one late
 * turn may have been all. */
START_TEST(what_is_sooner_computed_is_computed)
{
    struct fake_shape shape = shape_of(1);
    rig_open_cached(&rig, &shape, 1, "salt");
    rig_teach(&rig, 10);
    push_out(run(1));
    rig.sched.copy_us = 1e6; /* a block took a second */
    ck_assert_uint_eq(run(1)->cached, 0);
    uint32_t times = 1;
    for (uint64_t back = rig.stats.host_blocks_in_total; rig.stats.host_blocks_in_total == back;
         times++) {
        ck_assert_uint_lt(times, 400);
        push_out(run(1));
    }
    ck_assert_uint_gt(times, 10);
    close_all();
}
END_TEST

/* What a block takes is not what it waited for those before it. */
START_TEST(a_copy_behind_another_is_as_fast_as_that)
{
    struct fake_shape shape = shape_of(1);
    rig_open_cached(&rig, &shape, 1, "salt");
    struct seq *before = run(1);
    push_out(run(2));
    push_out(before);
    rig.copies_late = true;
    add(1, PROMPT);
    add(2, PROMPT);
    ck_assert(rig_copy(&rig, GPU_FROM_HOST) && rig_copy(&rig, GPU_FROM_HOST));
    rig.sched.copy_us = 0;
    for (int i = 0; i < 2; i++) {
        rig.now_us += 100 * (FOUND / BLOCK);
        ck_assert(rig_copied(&rig, GPU_FROM_HOST));
        ck_assert_double_eq_tol(rig.sched.copy_us, 100, 1e-6);
    }
    close_all();
}
END_TEST

/* Its blocks leave for others', and come back when it goes on. */
START_TEST(who_gave_way_goes_on_with_what_it_had)
{
    struct fake_shape shape = shape_of(1 + (uint32_t)_i);
    rig_open_cached(&rig, &shape, 1, "salt");
    struct fake_options options = {.job = JOB_GENERATE,
                                   .prompt_len = 96,
                                   .max_tokens = 80,
                                   .ignore_eos = true,
                                   .logprobs = -1,
                                   .seed = 1};
    for (uint32_t i = 0; i < 2; i++) { /* 44 blocks of 32 */
        options.seed = 1 + i;
        rig_add(&rig, &options);
    }
    rig_finish(&rig);
    check();
    ck_assert_uint_gt(rig.stats.preemptions_total, 0);
    ck_assert_uint_gt(rig.stats.host_blocks_in_total, 0);
    close_all();
}
END_TEST

/* All slots are those of lower priorities: it takes one, and has its blocks before it starts in it,
 * which nobody else does meanwhile. */
START_TEST(a_higher_priority_fetches_before_it_starts_in_anothers_place)
{
    struct fake_shape shape = shape_of(1);
    shape.slots_max = 2;
    shape.slabs_max = 8;
    rig_open_cached(&rig, &shape, 1, "salt");
    push_out(run(1));
    uint32_t low = rig.seq_count;
    for (uint64_t seed = 50; seed < 52; seed++)
        add(seed, 20)->sampling.max_tokens = 4;
    ck_assert(rig_submit(&rig));
    rig.copies_late = true;
    struct fake_options options = rig_generate(PROMPT, 4);
    options.seed = 1;
    options.priority = 1;
    struct seq *high = rig.seqs[rig_add(&rig, &options)];
    ck_assert(rig_copy(&rig, GPU_FROM_HOST));
    ck_assert(high->cache.fetching);
    ck_assert_uint_eq(rig.stats.preemptions_priority_total, 1);
    rig_complete(&rig);
    ck_assert(rig_submit(&rig));
    ck_assert_uint_eq(high->phase, PHASE_WAITING);
    ck_assert(rig.seqs[low]->phase != PHASE_WAITING || rig.seqs[low + 1]->phase != PHASE_WAITING);
    ck_assert_uint_eq(rig.sched.slot_count, 1);
    ck_assert(rig_copied(&rig, GPU_FROM_HOST));
    ck_assert(rig_submit(&rig));
    ck_assert_uint_eq(high->cache.found, FOUND / BLOCK);
    close_all();
    ck_assert_uint_eq(rig.stats.preemptions_priority_total, 1);
}
END_TEST

Suite *sched_tier_suite(void)
{
    Suite *suite = suite_create("sched, host tier");
    TCase *tcase = tcase_create("tier");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, who_is_next_but_one_comes_back_as_well);
    tcase_add_test(tcase, what_left_the_device_is_counted_for_what_it_is_worth);
    tcase_add_test(tcase, a_higher_priority_fetches_before_it_starts_in_anothers_place);
    tcase_add_loop_test(tcase, what_left_the_device_comes_back, 0, 2);
    tcase_add_test(tcase, no_more_comes_back_than_the_window_makes_use_of);
    tcase_add_test(tcase, who_is_fetched_for_waits_and_others_do_not);
    tcase_add_test(tcase, who_leaves_leaves_copies_behind_that_end_well);
    tcase_add_test(tcase, when_the_device_fails_nothing_is_left);
    tcase_add_test(tcase, what_comes_for_one_is_not_fetched_for_another);
    tcase_add_test(tcase, nothing_is_moved_beside_a_copy);
    tcase_add_test(tcase, memory_below_a_copy_is_neither_trimmed_nor_given_back);
    tcase_add_loop_test(tcase, what_is_idle_goes_to_host_memory_before_it_leaves, 0, 2);
    tcase_add_test(tcase, what_leaves_next_displaces_what_left_before);
    tcase_add_test(tcase, what_is_no_number_goes_from_host_memory_too);
    tcase_add_test(tcase, host_memory_has_nothing_before_its_copy_has_ended);
    tcase_add_test(tcase, what_is_no_number_is_not_found_after_its_copy);
    tcase_add_test(tcase, host_memory_that_is_refused_stops_nobody);
    tcase_add_test(tcase, what_is_sooner_computed_is_computed);
    tcase_add_test(tcase, a_copy_behind_another_is_as_fast_as_that);
    tcase_add_loop_test(tcase, who_gave_way_goes_on_with_what_it_had, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}
