/* The prefix cache: what was computed is found again by who may, is nobody's to write, goes before
 * anybody gives way, and is waited for where somebody is at it. */
#include <stdlib.h>
#include <string.h>

#include "daemon/sched/sched_inner.h"
#include "tests/daemon/replica_suites.h"
#include "tests/daemon/sched/sched_rig.h"

#define BLOCK 8u

static struct rig rig;

static struct fake_shape shape_of(uint32_t groups)
{
    struct fake_shape shape = rig_shape();
    shape.group_count = groups;
    shape.window = 20;
    return shape;
}

static void check(void)
{
    ck_assert_str_eq(sched_check(&rig.sched), "");
    ck_assert_str_eq(rig_check_kv(&rig), "");
    ck_assert_str_eq(fake_fault(rig.engine), "");
}

static void finish(void)
{
    for (uint32_t turn = 0; rig.ended_count < rig.seq_count; turn++) {
        ck_assert_msg(turn < 100000, "it never ends");
        if (!rig_submit(&rig) && !rig_complete(&rig))
            rig.now_us = sched_due_us(&rig.sched);
        check();
    }
    while (rig_complete(&rig))
        check();
}

/* Everything goes back in the end, however it was kept. */
static void close_all(void)
{
    ck_assert_str_eq(rig_check_answers(&rig, true), "");
    ck_assert(list_empty(&rig.sched.readers));
    rig_tend(&rig);
    for (int i = 0; i < 4; i++) {
        time_us due = sched_due_us(&rig.sched);
        rig.now_us = due == SCHED_NEVER ? rig.now_us : due;
        rig_tend(&rig);
        check();
    }
    ck_assert_uint_eq(sched_due_us(&rig.sched), SCHED_NEVER);
    ck_assert_uint_eq(fake_counts(rig.engine).slabs, 0);
    ck_assert_uint_eq(rig.sched.cache.node_count, 0);
    rig_close(&rig);
}

static struct fake_options prompt_of(uint64_t seed, uint32_t prompt_len, uint32_t max_tokens)
{
    return (struct fake_options){.job = JOB_GENERATE,
                                 .prompt_len = prompt_len,
                                 .max_tokens = max_tokens,
                                 .ignore_eos = true,
                                 .logprobs = -1,
                                 .seed = seed};
}

static struct seq *add(const struct fake_options *options)
{
    return rig.seqs[rig_add(&rig, options)];
}

static struct seq *run(const struct fake_options *options)
{
    struct seq *seq = add(options);
    finish();
    return seq;
}

START_TEST(a_prompt_is_found_again)
{
    struct fake_shape shape = shape_of(1 + (uint32_t)_i % 2);
    struct fake_options options = prompt_of(1, 100, 12);
    options.penalty = _i >= 2; /* then the device is told the tokens that it does not read */
    rig_open_cached(&rig, &shape, 1, "salt");
    ck_assert_uint_eq(run(&options)->cached, 0);
    ck_assert_uint_eq(run(&options)->cached, 96);
    ck_assert_uint_eq(rig.stats.prompt_tokens_total, 100 + 4);
    ck_assert_uint_eq(rig.stats.prompt_tokens_cached_total, 96);
    ck_assert_uint_eq(rig.stats.cache_hits_total, 1);
    ck_assert_uint_eq(rig.stats.cache_misses_total, 1);
    close_all();
}
END_TEST

/* However long it is a token is left, from whose place on it is computed. */
START_TEST(a_token_is_always_computed)
{
    struct fake_shape shape = shape_of(1);
    struct fake_options options = prompt_of(1, (uint32_t)_i, 10);
    rig_open_cached(&rig, &shape, 1, "salt");
    for (uint32_t time = 0; time < 3; time++) {
        uint32_t found = ((uint32_t)_i - 1) / BLOCK * BLOCK;
        ck_assert_uint_eq(run(&options)->cached, time == 0 ? 0 : found);
    }
    close_all();
}
END_TEST

/* A turn of a conversation: all that was said, what was answered, and more. */
static struct seq *next_turn(const struct seq *before, uint32_t more, uint32_t max_tokens)
{
    uint32_t out = atomic_load(&before->out_count), len = before->prompt_len + out;
    struct fake_options options = prompt_of(before->id + 1, len + more, max_tokens);
    struct seq *seq = fake_seq(&options, rig.now_us);
    int32_t *prompt = (int32_t *)(uintptr_t)seq->prompt;
    memcpy(prompt, before->prompt, before->prompt_len * sizeof(*prompt));
    memcpy(prompt + before->prompt_len, before->out_tokens, out * sizeof(*prompt));
    fake_seq_cache(seq, fake_model(rig.engine), rig.salt);
    rig.seqs[rig.seq_count++] = seq;
    sched_add(&rig.sched, seq, rig.now_us);
    finish();
    return seq;
}

/* Its last token is never read, and so nobody has its KV. */
START_TEST(what_was_answered_is_found_as_well)
{
    struct fake_shape shape = shape_of(1 + (uint32_t)_i % 2);
    rig_open_cached(&rig, &shape, 1, "salt");
    struct fake_options options = prompt_of(1, 20 + (uint32_t)_i, 21);
    struct seq *seq = run(&options);
    for (int turn = 0; turn < 5; turn++) {
        uint32_t computed = seq->prompt_len + atomic_load(&seq->out_count) - 1;
        seq = next_turn(seq, 7, 11 + (uint32_t)turn);
        ck_assert_uint_eq(seq->cached, computed / BLOCK * BLOCK);
    }
    close_all();
}
END_TEST

START_TEST(other_salts_and_who_has_none_find_nothing)
{
    struct fake_shape shape = shape_of(1);
    struct fake_options options = prompt_of(1, 100, 4);
    rig_open_cached(&rig, &shape, 1, "salt");
    run(&options);
    rig.salt = "pepper";
    ck_assert_uint_eq(run(&options)->cached, 0);
    rig.salt = NULL;
    ck_assert_uint_eq(run(&options)->cached, 0);
    ck_assert_uint_eq(rig.stats.cache_misses_total, 2);
    rig.salt = "salt";
    ck_assert_uint_eq(run(&options)->cached, 96);
    close_all();
}
END_TEST

START_TEST(who_leaves_the_cache_alone_leaves_nothing)
{
    struct fake_shape shape = shape_of(2);
    struct fake_options options = prompt_of(1, 100, 30);
    rig_open_cached(&rig, &shape, 1, "salt");
    rig.salt = NULL;
    run(&options);
    ck_assert_uint_eq(rig.sched.cache.node_count, 0);
    close_all();
}
END_TEST

/* What gives something for each position computes each, and others find what it leaves. */
START_TEST(who_needs_every_position_reads_it_and_leaves_it)
{
    static const struct {
        struct fake_options options;
        uint32_t cached;
    } kinds[] = {
        {{.job = JOB_SCORE, .logprobs = -1}, 0},
        {{.job = JOB_SCORE, .logprobs = -1, .next = 2}, 96},
        {{.job = JOB_EMBED, .pooling = POOLING_MEAN, .logprobs = -1}, 0},
        {{.job = JOB_EMBED, .pooling = POOLING_ALL, .logprobs = -1}, 0},
        {{.job = JOB_EMBED, .pooling = POOLING_LAST, .logprobs = -1}, 96},
    };
    struct fake_shape shape = shape_of(1);
    struct fake_options options = kinds[_i].options, generate = prompt_of(1, 100, 3);
    rig_open_cached(&rig, &shape, 1, "salt");
    options.prompt_len = 100;
    options.seed = 1;
    run(&options);
    ck_assert_uint_eq(run(&options)->cached, kinds[_i].cached);
    ck_assert_uint_eq(run(&generate)->cached, 96);
    close_all();
}
END_TEST

/* A block of the window at a hit's end is gone: the hit is as much shorter as none of its window is
 * missing. */
START_TEST(a_hit_has_all_blocks_that_its_end_sees)
{
    struct fake_shape shape = shape_of(2);
    struct fake_options options = prompt_of(1, 100, 1);
    rig_open_cached(&rig, &shape, 1, "salt");
    struct seq *seq = run(&options);
    struct cache *cache = &rig.sched.cache;
    uint32_t gone = (uint32_t)_i, node = cache_find(cache, &seq->keys[gone]);
    uint32_t block = cache_block(cache, node, 1);
    ck_assert_uint_ne(block, KV_NONE);
    while (cache->owner[1][block] != CACHE_NONE) { /* the oldest go first */
        for (uint32_t other = 0; other < 12; other++)
            if (other != gone)
                cache_touch(cache, cache_find(cache, &seq->keys[other]), 1);
        ck_assert(cache_evict(cache, 1));
        check();
    }
    /* Of 12 blocks the last three are seen from behind them. */
    ck_assert_uint_eq(run(&options)->cached, (gone < 9 ? 12 : gone) * BLOCK);
    close_all();
}
END_TEST

START_TEST(those_who_come_together_read_their_beginning_once)
{
    struct fake_shape shape = shape_of(1 + (uint32_t)_i % 2);
    shape.tokens_max = 64;
    rig_open_cached(&rig, &shape, 1, "salt");
    for (uint32_t i = 0; i < 6; i++) {
        struct fake_options options = prompt_of(10 + i, 160 + i, 3);
        options.stem = 1;
        options.stem_len = 128;
        add(&options);
    }
    finish();
    uint64_t read = 128;
    for (uint32_t i = 0; i < 6; i++)
        read += 32 + i;
    ck_assert_uint_eq(rig.stats.prompt_tokens_total, read);
    ck_assert_uint_eq(rig.stats.cache_hits_total, 5);
    close_all();
}
END_TEST

/* The first is cancelled, gives way, or computes what is no number, at every point of its reading:
 * the next goes on, and all the others end well. */
START_TEST(another_goes_on_when_the_first_is_gone)
{
    struct fake_shape shape = shape_of(2);
    shape.tokens_max = 32;
    rig_open_cached(&rig, &shape, 1, "salt");
    struct fake_options options = prompt_of(1, 130, 3);
    for (int i = 0; i < 5; i++)
        add(&options);
    for (int event = 0; event < _i / 2; event++)
        if (event % 3 == 2 || !rig_submit(&rig))
            rig_complete(&rig);
    if (rig.ended[0] == 0 && _i % 2)
        sched_cancel(&rig.sched, rig.seqs[0], FINISH_CANCELLED, rig.now_us);
    else
        (void)sched_preempt_youngest(&rig.sched);
    check();
    finish();
    ck_assert_uint_le(rig.stats.prompt_tokens_total, 2 * 130 + 3 * 8 + 32);
    close_all();
}
END_TEST

/* Not by who must not wait, either: it reads for itself. */
START_TEST(a_block_is_not_found_before_its_step_has_ended)
{
    struct fake_shape shape = shape_of(1);
    struct fake_options options = prompt_of(1, 100, 2);
    rig_open_cached(&rig, &shape, 1, "salt");
    add(&options);
    ck_assert(rig_submit(&rig));
    ck_assert_uint_eq(rig.sched.cache.named_count, 0);
    options.priority = 1;
    struct seq *hurried = add(&options);
    ck_assert(rig_submit(&rig));
    ck_assert_int_ne(hurried->phase, PHASE_WAITING);
    check();
    finish();
    ck_assert_uint_eq(hurried->cached, 0);
    ck_assert_uint_eq(rig.stats.prompt_tokens_total, 200);
    close_all();
}
END_TEST

/* Full of what nobody uses: who comes has as much memory as if it were empty. */
START_TEST(what_is_cached_makes_nobody_wait_or_give_way)
{
    struct fake_shape shape = shape_of(1 + (uint32_t)_i % 2);
    shape.slots_max = 4;
    rig_open_cached(&rig, &shape, 1, "salt");
    fake_knobs(rig.engine)->slabs_max = 20 * shape.group_count; /* 160 blocks */
    for (uint32_t seed = 1; seed < 12; seed++) {
        struct fake_options options = prompt_of(seed, 200, 8);
        run(&options);
    }
    ck_assert_uint_ge(rig.sched.kv.group[0].alone, 100);
    for (uint32_t seed = 20; seed < 24; seed++) {
        struct fake_options options = prompt_of(seed, 200, 56);
        add(&options);
    }
    ck_assert(rig_submit(&rig));
    for (int i = 0; i < 4 && rig_submit(&rig) && rig_complete(&rig); i++)
        check();
    ck_assert_uint_eq(rig.sched.slot_count, 4);
    finish();
    ck_assert_uint_eq(rig.stats.preemptions_total, 0);
    ck_assert_uint_gt(rig.sched.cache.evicted, 60);
    close_all();
}
END_TEST

START_TEST(the_least_recently_used_goes_first_and_by_its_tail)
{
    struct fake_shape shape = shape_of(1);
    struct fake_options one = prompt_of(1, 100, 1), two = prompt_of(2, 100, 1);
    rig_open_cached(&rig, &shape, 1, "salt");
    struct seq *first = run(&one), *second = run(&two);
    rig.now_us += 1000;
    run(&one);
    for (uint32_t left = 12; left-- > 0;) {
        ck_assert(cache_evict(&rig.sched.cache, 0));
        check();
        for (uint32_t i = 0; i < 12; i++) {
            bool there = cache_find(&rig.sched.cache, &second->keys[i]) != CACHE_NONE;
            ck_assert_int_eq(there, i < left);
            ck_assert_uint_ne(cache_find(&rig.sched.cache, &first->keys[i]), CACHE_NONE);
        }
    }
    close_all();
}
END_TEST

START_TEST(idle_memory_goes_back_when_nobody_has_used_it_for_long)
{
    struct fake_shape shape = shape_of(2);
    struct fake_options options = prompt_of(1, 100, 1);
    rig_open_cached(&rig, &shape, 1, "salt");
    run(&options);
    time_us used_us = rig.now_us;
    rig_tend(&rig);
    rig.now_us += rig.sched.options.kv_idle_release_us;
    rig_tend(&rig); /* what holds nothing cached goes now, and what does stays */
    uint32_t kept = fake_counts(rig.engine).slabs;
    ck_assert_uint_ge(kept * shape.slab_blocks, 12);
    ck_assert_uint_le(kept, 2 + 2);
    rig.now_us = used_us + RIG_CACHE_US - RIG_CACHE_US / 8;
    rig_tend(&rig);
    ck_assert_uint_eq(fake_counts(rig.engine).slabs, kept);
    if (_i)
        sched_trim(&rig.sched); /* or at once, when it is asked for */
    else
        rig.now_us = sched_due_us(&rig.sched);
    ck_assert_uint_le(rig.now_us, used_us + RIG_CACHE_US);
    rig_tend(&rig);
    ck_assert_uint_eq(fake_counts(rig.engine).slabs, 0);
    close_all();
}
END_TEST

/* A step finds no scratch memory: what is cached is given up, with its slabs. */
START_TEST(a_refused_step_gets_the_memory_of_what_is_cached)
{
    struct fake_shape shape = shape_of(1);
    struct fake_options options = prompt_of(1, 200, 1), other = prompt_of(2, 8, 2);
    rig_open_cached(&rig, &shape, 1, "salt");
    run(&options);
    uint32_t slabs = fake_counts(rig.engine).slabs;
    add(&other);
    fake_knobs(rig.engine)->scratch_refused = 100;
    ck_assert(!rig_submit(&rig));
    ck_assert_uint_eq(rig.sched.cache.named_count, 0);
    ck_assert_uint_lt(fake_counts(rig.engine).slabs, slabs);
    fake_knobs(rig.engine)->scratch_refused = 0;
    finish();
    close_all();
}
END_TEST

/* The slab of cached blocks is emptied beside a step: they are found where they are then. */
START_TEST(cached_blocks_are_moved_and_found)
{
    struct fake_shape shape = shape_of(1 + (uint32_t)_i % 2);
    shape.moves_max = 3;
    struct fake_options options = prompt_of(1, 100, 1), other = prompt_of(2, 10, 100);
    rig_open_cached(&rig, &shape, 1, "salt");
    struct seq *seq = run(&options);
    uint32_t node = cache_find(&rig.sched.cache, &seq->keys[0]);
    uint32_t from = cache_block(&rig.sched.cache, node, 0), slab = from / shape.slab_blocks;
    kv_slab_close(&rig.sched.kv, 0, slab);
    rig.sched.group[0].victim = slab;
    add(&other);
    for (int i = 0; i < 20; i++) {
        fake_knobs(rig.engine)->scratch_refused = 0;
        (void)(rig_submit(&rig) || rig_complete(&rig));
        check();
    }
    ck_assert_uint_ne(cache_block(&rig.sched.cache, node, 0), from);
    ck_assert_uint_eq(run(&options)->cached, 96);
    ck_assert_uint_gt(rig.stats.kv_moved_total, 2);
    close_all();
}
END_TEST

/* Two sequences and the cache hold it: all of them name the new place from then on. */
START_TEST(a_block_that_several_hold_is_moved_for_all)
{
    struct fake_shape shape = shape_of(1 + (uint32_t)_i % 2);
    shape.moves_max = 3;
    struct fake_options options = prompt_of(1, 100, 80);
    rig_open_cached(&rig, &shape, 1, "salt");
    struct seq *first = add(&options);
    while (rig.sched.cache.named_count < 12)
        (void)(rig_submit(&rig) || rig_complete(&rig));
    struct seq *second = add(&options);
    while (second->phase != PHASE_DECODE)
        (void)(rig_submit(&rig) || rig_complete(&rig));
    ck_assert_uint_eq(second->cached, 96);
    uint32_t node = cache_find(&rig.sched.cache, &first->keys[0]);
    uint32_t from = cache_block(&rig.sched.cache, node, 0), slab = from / shape.slab_blocks;
    ck_assert_uint_eq(rig.sched.kv.group[0].references[from], 3);
    kv_slab_close(&rig.sched.kv, 0, slab);
    rig.sched.group[0].victim = slab;
    for (int i = 0; i < 20; i++) {
        (void)(rig_submit(&rig) || rig_complete(&rig));
        check();
    }
    ck_assert_uint_ne(cache_block(&rig.sched.cache, node, 0), from);
    finish();
    ck_assert_uint_eq(run(&options)->cached, 96);
    close_all();
}
END_TEST

/* Two steps in flight: when the first has ended, what it completed is found, and nothing of what
 * the second computes; a second that is lost leaves nothing. */
START_TEST(a_block_is_not_found_while_a_later_step_computes_it)
{
    struct fake_shape shape = shape_of(1);
    shape.tokens_max = 32;
    struct fake_options options = prompt_of(1, 100, 2);
    rig_open_cached(&rig, &shape, 1, "salt");
    struct seq *first = add(&options);
    ck_assert(rig_submit(&rig));
    ck_assert(rig_submit(&rig));
    ck_assert_uint_eq(first->num_computed, 64);
    ck_assert_uint_eq(rig.sched.cache.node_count, 8);
    for (uint32_t step = 0; step <= 2; step++) {
        ck_assert_uint_eq(rig.sched.cache.named_count, step * 4);
        for (uint32_t i = 0; i < 8; i++)
            ck_assert_int_eq(cache_find(&rig.sched.cache, &first->keys[i]) != CACHE_NONE,
                             i < step * 4);
        if (step == 1 && _i == 1) {
            sched_end_all(&rig.sched, FINISH_ERROR, NULL, rig.now_us);
            ck_assert_uint_eq(rig.sched.cache.node_count, 0);
            break;
        }
        ck_assert_int_eq(rig_complete(&rig), step < 2);
    }
    check();
    while (rig_complete(&rig))
        continue;
    if (_i == 0)
        finish();
    close_all();
}
END_TEST

START_TEST(what_is_no_number_is_not_kept)
{
    struct fake_shape shape = shape_of(1);
    struct fake_options options = prompt_of(1, 60, 30);
    rig_open_cached(&rig, &shape, 1, "salt");
    fake_knobs(rig.engine)->overflow_from = 70;
    add(&options);
    finish();
    ck_assert_int_eq(rig.seqs[0]->finish, FINISH_ERROR);
    ck_assert_uint_eq(rig.sched.cache.node_count, 0);
    close_all();
}
END_TEST

/* A thousand that wait for a slot cost a step no more names than one does. */
START_TEST(looking_for_names_costs_a_step_little)
{
    struct fake_shape shape = shape_of(1);
    shape.slots_max = 2;
    rig_open_cached(&rig, &shape, 1, "salt");
    struct fake_options options = prompt_of(1, 200, 50);
    run(&options);
    for (uint32_t i = 0; i < 300; i++)
        add(&options);
    uint64_t before = rig.sched.cache.searched, steps = 0;
    ck_assert_uint_le(before, 301 * 12); /* each once when it comes, by halves */
    for (; rig.ended_count < 40; steps++)
        ck_assert(rig_submit(&rig) && rig_complete(&rig));
    ck_assert_uint_le(rig.sched.cache.searched - before, steps * 40);
    finish();
    close_all();
}
END_TEST

/* Several results of a prompt that is cached begin behind it at once, as one does. */
START_TEST(results_of_one_prompt_begin_with_what_is_cached)
{
    struct fake_shape shape = shape_of(1 + (uint32_t)_i % 2);
    struct fake_options options = prompt_of(1, 100, 9);
    rig_open_cached(&rig, &shape, 1, "salt");
    run(&options);
    uint64_t read = rig.stats.prompt_tokens_total;
    options.n = 4;
    uint32_t first = rig_add(&rig, &options);
    for (uint32_t i = 1; i < options.n; i++)
        rig_add_result(&rig, &options, first);
    finish();
    ck_assert_uint_eq(rig.stats.prompt_tokens_total - read, 4 * 4);
    for (uint32_t i = 0; i < options.n; i++)
        ck_assert_uint_eq(rig.seqs[first + i]->cached, 96);
    close_all();
}
END_TEST

/* The prompt's nodes are given up while a result of it waits, and another computes it again: the
 * result begins with blocks that the cache has not, and leaves nothing behind those that it has,
 * which nobody could give up then. */
START_TEST(results_leave_nothing_behind_blocks_of_others)
{
    struct fake_shape shape = shape_of(1 + (uint32_t)_i);
    struct fake_options options = prompt_of(1, 100, 1), other = options;
    shape.slots_max = 1;
    rig_open_cached(&rig, &shape, 1, "salt");
    options.n = 2;
    other.priority = 1;
    uint32_t first = rig_add(&rig, &options);
    options.max_tokens = 60;
    struct seq *second = rig.seqs[rig_add_result(&rig, &options, first)];
    while (rig.ended_count == 0)
        ck_assert(rig_submit(&rig) && rig_complete(&rig));
    ck_assert(second->siblings->pinned);
    sched_cache_give_up(&rig.sched);
    uint32_t again = rig_add(&rig, &other);
    finish();
    ck_assert_uint_eq(rig.seqs[again]->cached, 0);
    ck_assert_uint_eq(rig.stats.prompt_tokens_shared_total, 96);
    close_all();
}
END_TEST

/* Results of two requests with one prompt hold the same blocks for those that wait: no sequence has
 * them, and they are given up for one that lacks memory. */
START_TEST(two_that_begin_alike_hold_nothing_back)
{
    struct fake_shape shape = shape_of(1);
    struct fake_options options = prompt_of(1, 100, 1), other = prompt_of(2, 100, 4);
    struct fake_options long_one = prompt_of(3, 4, 12);
    shape.slots_max = 2;
    rig_open_cached(&rig, &shape, 1, "salt");
    fake_knobs(rig.engine)->slabs_max = 2; /* 16 blocks */
    long_one.priority = options.n = 2;
    rig_add(&rig, &long_one); /* which leaves one slot to the others */
    for (int i = 0; i < 2; i++) {
        options.priority = 2;
        uint32_t first = rig_add(&rig, &options);
        options.priority = 0;
        rig_add_result(&rig, &options, first);
    }
    while (rig.ended_count < 2)
        ck_assert(rig_submit(&rig) && rig_complete(&rig));
    other.priority = 1;
    struct seq *last = add(&other);
    const uint32_t *pinned = rig.seqs[2]->siblings->pins.group[0].blocks;
    ck_assert_uint_eq(rig.sched.kv.group[0].references[pinned[0]], 1 + 2); /* the cache and both */
    finish();
    ck_assert_int_eq(last->finish, FINISH_LENGTH);
    close_all();
}
END_TEST

/* Whoever named it: who finds what is no number would find it again and again. */
START_TEST(what_is_no_number_goes_whoever_left_it)
{
    struct fake_shape shape = shape_of(1);
    struct fake_options options = prompt_of(1, 60, 3);
    rig_open_cached(&rig, &shape, 1, "salt");
    run(&options);
    fake_knobs(rig.engine)->overflow_from = 57; /* from now on it shows */
    struct seq *second = run(&options);
    ck_assert_uint_eq(second->cached, 56);
    ck_assert_int_eq(second->finish, FINISH_ERROR);
    ck_assert_uint_eq(rig.sched.cache.node_count, 0);
    fake_knobs(rig.engine)->overflow_from = 0;
    ck_assert_uint_eq(run(&options)->cached, 0);
    close_all();
}
END_TEST

Suite *sched_cache_suite(void)
{
    Suite *suite = suite_create("sched, prefix cache");
    TCase *tcase = tcase_create("cached");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, a_prompt_is_found_again, 0, 4);
    tcase_add_loop_test(tcase, a_token_is_always_computed, 1, 26);
    tcase_add_loop_test(tcase, what_was_answered_is_found_as_well, 0, 9);
    tcase_add_test(tcase, other_salts_and_who_has_none_find_nothing);
    tcase_add_test(tcase, who_leaves_the_cache_alone_leaves_nothing);
    tcase_add_loop_test(tcase, who_needs_every_position_reads_it_and_leaves_it, 0, 5);
    tcase_add_loop_test(tcase, a_hit_has_all_blocks_that_its_end_sees, 0, 12);
    tcase_add_loop_test(tcase, those_who_come_together_read_their_beginning_once, 0, 2);
    tcase_add_loop_test(tcase, another_goes_on_when_the_first_is_gone, 0, 40);
    tcase_add_test(tcase, a_block_is_not_found_before_its_step_has_ended);
    tcase_add_loop_test(tcase, a_block_is_not_found_while_a_later_step_computes_it, 0, 2);
    tcase_add_loop_test(tcase, what_is_cached_makes_nobody_wait_or_give_way, 0, 2);
    tcase_add_test(tcase, the_least_recently_used_goes_first_and_by_its_tail);
    tcase_add_loop_test(tcase, idle_memory_goes_back_when_nobody_has_used_it_for_long, 0, 2);
    tcase_add_test(tcase, a_refused_step_gets_the_memory_of_what_is_cached);
    tcase_add_loop_test(tcase, cached_blocks_are_moved_and_found, 0, 2);
    tcase_add_loop_test(tcase, a_block_that_several_hold_is_moved_for_all, 0, 2);
    tcase_add_test(tcase, what_is_no_number_is_not_kept);
    tcase_add_loop_test(tcase, results_leave_nothing_behind_blocks_of_others, 0, 2);
    tcase_add_test(tcase, two_that_begin_alike_hold_nothing_back);
    tcase_add_test(tcase, what_is_no_number_goes_whoever_left_it);
    tcase_add_test(tcase, looking_for_names_costs_a_step_little);
    tcase_add_loop_test(tcase, results_of_one_prompt_begin_with_what_is_cached, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}
