#include "tests/daemon/sched/sched_rig.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static int rig_grow(void *context, uint32_t group, uint32_t *ret_slab)
{
    struct rig *rig = context;
    return fake_api.kv_grow(rig->engine, group, ret_slab, NULL);
}

static void rig_shrink(void *context, uint32_t group, uint32_t slab)
{
    struct rig *rig = context;
    fake_api.kv_shrink(rig->engine, group, slab, NULL);
}

static void rig_progressed(void *context, struct seq *seq)
{
    (void)context;
    ck_assert_uint_gt(atomic_load(&seq->out_count), 0);
}

static void rig_mask(void *context, struct seq *seq, int32_t token)
{
    uint32_t count = atomic_load(&seq->out_count);
    (void)context;
    ck_assert_uint_ne(seq_mask_state(seq->mask), SEQ_MASK_ASKED);
    ck_assert_int_eq(token, count > seq->mask->told_count ? seq->out_tokens[count - 1] : -1);
    atomic_store(&seq->mask->state, SEQ_MASK_ASKED);
}

static void ask_chunk(void *context, uint32_t group, uint32_t chunk, bool make)
{
    struct rig *rig = context;
    ck_assert(!rig->chunk_asked);
    rig->chunk_asked = true;
    rig->chunk_group = group;
    rig->chunk = chunk;
    rig->chunk_make = make;
}

bool rig_chunk(struct rig *rig)
{
    int rc = 0;
    struct error error;
    if (!rig->chunk_asked)
        return false;
    rig->chunk_asked = false;
    if (rig->chunk_make)
        rc = fake_api.chunk_make(rig->engine, rig->chunk_group, rig->chunk, &error);
    else
        fake_api.chunk_drop(rig->engine, rig->chunk);
    sched_chunk_told(&rig->sched, rc == 0, rig->now_us);
    return true;
}

bool rig_copy(struct rig *rig, enum gpu_way way)
{
    const struct gpu_copies *copies = sched_copies(&rig->sched, way, rig->now_us);
    if (copies == NULL)
        return false;
    ck_assert_int_eq(fake_api.copy(rig->engine, 0, copies, NULL), 0);
    sched_copies_submitted(&rig->sched, way, rig->now_us);
    return true;
}

bool rig_copied(struct rig *rig, enum gpu_way way)
{
    if (!fake_run_copies(rig->engine, way))
        return false;
    sched_copies_complete(&rig->sched, way, rig->now_us);
    return true;
}

/* As a worker's turn does; and where they are not to be late, until they have ended. */
static bool tend_copies(struct rig *rig)
{
    bool any = false;
    if (rig->sched.tier.node_max == 0 || rig->copies_late)
        return false;
    for (enum gpu_way way = 0; way < GPU_WAYS; way++) {
        any = rig_chunk(rig) || any;
        any = rig_copy(rig, way) || any;
        any = rig_copied(rig, way) || any;
    }
    return any;
}

static void rig_ended(void *context, struct seq *seq)
{
    struct rig *rig = context;
    free(seq->mask);
    seq->mask = NULL;
    for (uint32_t i = 0; i < rig->seq_count; i++)
        if (rig->seqs[i] == seq)
            rig->ended[i]++;
    rig->ended_count++;
}

struct fake_shape rig_shape(void)
{
    return (struct fake_shape){.depth = 2,
                               .slots_max = 16,
                               .tokens_max = 256,
                               .context_max = 256,
                               .block_tokens = 8,
                               .group_count = 1,
                               .slab_blocks = 8,
                               .slabs_max = 64,
                               .scores_max = 64,
                               .embeds_max = 32,
                               .moves_max = 16};
}

void rig_open(struct rig *rig, const struct fake_shape *shape, uint64_t seed)
{
    rig_open_cached(rig, shape, seed, NULL);
}

void rig_open_cached(struct rig *rig, const struct fake_shape *shape, uint64_t seed,
                     const char *salt)
{
    rig_open_guessing(rig, shape, seed, salt, 0);
}

void rig_open_guessing(struct rig *rig, const struct fake_shape *shape, uint64_t seed,
                       const char *salt, uint32_t drafts_max)
{
    memset(rig, 0, sizeof(*rig));
    rig->salt = salt;
    rig->engine = fake_create(shape, seed);
    rig->random = seed;
    rig->now_us = 1000000;
    struct sched_options options = {.itl_target_us = 0,
                                    .chunk_every = 4,
                                    .kv_idle_release_us = 1000,
                                    .prefix_cache = salt != NULL,
                                    .cache_idle_release_us = RIG_CACHE_US,
                                    .drafts_max = drafts_max,
                                    .draft_model = shape->drafter,
                                    .stall_us = UINT64_MAX};
    struct sched_calls calls = {.context = rig,
                                .kv_grow = rig_grow,
                                .kv_shrink = rig_shrink,
                                .progressed = rig_progressed,
                                .ended = rig_ended,
                                .chunk = ask_chunk,
                                .mask = rig_mask};
    struct error error;
    int rc = sched_init(&rig->sched, fake_model(rig->engine), fake_limits(rig->engine), &options,
                        &calls, &rig->stats, &error);
    ck_assert_int_eq(rc, 0);
}

void rig_close(struct rig *rig)
{
    ck_assert_str_eq(fake_fault(rig->engine), "");
    for (uint32_t i = 0; i < rig->seq_count; i++)
        fake_seq_free(rig->seqs[i]);
    sched_destroy(&rig->sched);
    fake_destroy(rig->engine);
}

uint32_t rig_add(struct rig *rig, const struct fake_options *options)
{
    ck_assert_uint_lt(rig->seq_count, RIG_SEQS_MAX);
    struct seq *seq = fake_seq(options, rig->now_us);
    if (rig->salt != NULL)
        fake_seq_cache(seq, fake_model(rig->engine), rig->salt);
    rig->seqs[rig->seq_count++] = seq;
    sched_add(&rig->sched, seq, rig->now_us);
    return rig->seq_count - 1;
}

struct seq *rig_add_prompt(struct rig *rig, uint64_t seed, uint32_t prompt_len)
{
    struct fake_options options = {.job = JOB_GENERATE,
                                   .prompt_len = prompt_len,
                                   .max_tokens = 4,
                                   .ignore_eos = true,
                                   .logprobs = -1,
                                   .seed = seed};
    return rig->seqs[rig_add(rig, &options)];
}

uint32_t rig_add_constrained(struct rig *rig, const struct fake_options *options)
{
    ck_assert_uint_lt(rig->seq_count, RIG_SEQS_MAX);
    struct seq *seq = fake_seq(options, rig->now_us);
    fake_constrain(seq);
    if (rig->salt != NULL)
        fake_seq_cache(seq, fake_model(rig->engine), rig->salt);
    rig->seqs[rig->seq_count++] = seq;
    sched_add(&rig->sched, seq, rig->now_us);
    return rig->seq_count - 1;
}

bool rig_masks(struct rig *rig)
{
    bool any = false;
    for (uint32_t i = 0; i < rig->seq_count; i++) {
        struct seq *seq = rig->seqs[i];
        if (seq->mask == NULL || seq_mask_state(seq->mask) != SEQ_MASK_ASKED)
            continue;
        any = true;
        if (rig->masks_late == 0 || fake_below(&rig->random, rig->masks_late) == 0)
            fake_mask_make(seq, rig->masks_fail > 0 &&
                                    fake_below(&rig->random, rig->masks_fail) == 0);
    }
    return any;
}

struct fake_options rig_generate(uint32_t prompt_len, uint32_t max_tokens)
{
    static uint64_t seed;
    return (struct fake_options){.job = JOB_GENERATE,
                                 .prompt_len = prompt_len,
                                 .max_tokens = max_tokens,
                                 .ignore_eos = true,
                                 .logprobs = -1,
                                 .seed = ++seed};
}

void rig_teach(struct rig *rig, uint32_t token_us)
{
    fake_knobs(rig->engine)->step_ns = 1000ull * token_us;
    for (uint32_t i = 0; i < 16; i++) {
        struct fake_options options = rig_generate(1 + i * 10, 1 + i % 2);
        rig_add(rig, &options);
        rig_finish(rig);
    }
    ck_assert(cost_known(&rig->sched.cost));
}

const struct gpu_row *rig_row(const struct rig *rig, uint32_t index)
{
    const struct sched *sched = &rig->sched;
    const struct sched_step *step = &sched->steps[sched->step_last % (sched->limits.depth + 1)];
    for (uint32_t i = 0; i < step->plan.row_count; i++)
        if (step->row_seq[i] == rig->seqs[index])
            return &step->rows[i];
    return NULL;
}

uint32_t rig_add_result(struct rig *rig, const struct fake_options *options, uint32_t first)
{
    struct seq *seq = fake_seq(options, rig->now_us);
    ck_assert_uint_lt(rig->seq_count, RIG_SEQS_MAX);
    fake_seq_sibling(seq, rig->seqs[first]);
    seq->sampling.seed += rig->seq_count;
    if (rig->salt != NULL)
        fake_seq_cache(seq, fake_model(rig->engine), rig->salt);
    rig->seqs[rig->seq_count++] = seq;
    sched_add(&rig->sched, seq, rig->now_us);
    return rig->seq_count - 1;
}

static void sample(struct rig *rig)
{
    const struct gpu_sampling *sampling;
    while ((sampling = sched_sampling(&rig->sched, rig->now_us)) != NULL) {
        ck_assert_int_eq(fake_api.sample(rig->engine, 0, sampling, NULL), 0);
        sched_sampling_submitted(&rig->sched);
    }
}

bool rig_submit(struct rig *rig)
{
    bool copied = tend_copies(rig);
    sample(rig);
    if (sched_in_flight(&rig->sched) == rig->sched.limits.depth)
        return false;
    const struct gpu_plan *plan = sched_plan(&rig->sched, rig->now_us);
    if (plan == NULL)
        return copied;
    int rc = fake_api.submit(rig->engine, 0, plan, NULL);
    if (rc == 0)
        sched_submitted(&rig->sched, rig->now_us);
    else
        sched_refused(&rig->sched, rig->now_us);
    return rc == 0;
}

bool rig_complete(struct rig *rig)
{
    struct gpu_results results;
    if (!fake_run(rig->engine))
        return false;
    while (rig->sched.sampling_last > 0 && fake_below(&rig->random, 3) == 0 &&
           fake_run(rig->engine))
        continue; /* it looks late */
    rig->now_us += 100;
    uint64_t completed = fake_api.completed(rig->engine, 0);
    while (rig->sched.sampling_done < fake_api.sampled(rig->engine, 0) ||
           rig->sched.step_done < completed)
        if (sched_sampling_is_next(&rig->sched)) {
            fake_api.sampling_results(rig->engine, rig->sched.sampling_done + 1, &results);
            sched_sampling_complete(&rig->sched, &results, rig->now_us);
        } else {
            fake_api.results(rig->engine, rig->sched.step_done + 1, &results);
            sched_complete(&rig->sched, &results, rig->now_us);
        }
    return true;
}

void rig_tend(struct rig *rig)
{
    if (!sched_housekeep(&rig->sched, rig->now_us))
        return;
    rig->trims++;
    ck_assert_int_eq(fake_api.trim(rig->engine, NULL), 0);
}

void rig_finish(struct rig *rig)
{
    for (uint32_t turn = 0; turn < 200000; turn++) {
        bool masks = rig_masks(rig), submitted = rig_submit(rig);
        if (!submitted && !rig_complete(rig) && !masks) {
            time_us due = sched_due_us(&rig->sched);
            if (rig->ended_count == rig->seq_count)
                return;
            ck_assert_msg(due != SCHED_NEVER, "nothing to do, but not all have ended");
            rig->now_us = due > rig->now_us ? due : rig->now_us;
        }
        rig_tend(rig);
    }
    ck_abort_msg("it never ends");
}

/* Counts who holds which block of a group in a table; `seen` by block. */
static void count_run(const struct kv_run *run, uint16_t *seen)
{
    for (uint32_t i = run->first; i < run->end; i++)
        seen[run->blocks[i]]++;
}

void rig_rest(struct rig *rig)
{
    for (uint32_t turn = 0; turn < 100000; turn++) {
        bool any = rig_submit(rig);
        rig_tend(rig);
        time_us due = sched_due_us(&rig->sched);
        if (!any && due == SCHED_NEVER)
            return;
        rig->now_us = any || due < rig->now_us ? rig->now_us : due;
    }
    ck_abort_msg("it never rests");
}

static void count_copies(const struct sched *sched, uint32_t g, uint16_t *seen)
{
    for (enum gpu_way way = 0; way < GPU_WAYS; way++)
        for (uint64_t i = sched->copies_done[way] + 1; i <= sched->copies_last[way]; i++) {
            const struct sched_copies *copies = &sched->copies[way][i % GPU_COPIES_MAX];
            for (uint32_t c = 0; c < copies->plan.count; c++)
                if (copies->copies[c].group == g)
                    seen[copies->copies[c].block]++;
        }
}

static const char *check_group(const struct sched *sched, uint32_t g, uint16_t *seen)
{
    const struct kv_group *group = &sched->kv.group[g];
    uint32_t held = 0, used = 0, free_count = 0;
    for (uint32_t slot = 0; slot < sched->slots_max; slot++)
        count_run(&sched->tables[slot].group[g], seen);
    for (uint32_t i = 0; i < sched->slots_max; i++)
        count_run(&sched->share_memory[i].pins.group[g], seen);
    count_copies(sched, g, seen);
    for (uint32_t block = 0; block < group->slab_blocks * group->slabs_max; block++) {
        seen[block] = (uint16_t)(seen[block] + group->kept[block]);
        held += seen[block] > 0;
        if (seen[block] != group->references[block])
            return "a block is held by others than its count says";
    }
    for (uint32_t slab = 0; slab < group->slabs_max; slab++) {
        used += group->slab[slab].exists ? group->slab[slab].used : 0;
        if (group->slab[slab].exists && !group->slab[slab].closed)
            free_count += group->slab_blocks - group->slab[slab].used;
    }
    if (held + group->retired != group->used || used != group->used)
        return "blocks were lost";
    return free_count == group->free ? "" : "free blocks are miscounted";
}

const char *rig_check_kv(const struct rig *rig)
{
    const char *wrong = "";
    for (uint32_t g = 0; g < rig->sched.kv.group_count && !*wrong; g++) {
        const struct kv_group *group = &rig->sched.kv.group[g];
        uint16_t *seen = calloc((size_t)group->slab_blocks * group->slabs_max, sizeof(*seen));
        wrong = check_group(&rig->sched, g, seen);
        free(seen);
    }
    return wrong;
}

const char *rig_check_answers(const struct rig *rig, bool all)
{
    for (uint32_t i = 0; i < rig->seq_count; i++) {
        const char *wrong = fake_check(rig->engine, rig->seqs[i]);
        if (wrong[0] != '\0')
            return wrong;
        if (rig->ended[i] > 1 || (all && rig->ended[i] != 1))
            return "a sequence did not end exactly once";
    }
    return "";
}
