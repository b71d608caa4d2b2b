/* Random work, random faults, many seeds: what must hold whatever happens. */
#include <stdlib.h>

#include "tests/daemon/replica_suites.h"
#include "tests/daemon/sched/sched_rig.h"

#if defined(__SANITIZE_THREAD__)
#define SEEDS 30 /* one thread runs all of it */
#else
#define SEEDS 300
#endif
/* In one process, whose start and end take longer than they do under a sanitizer. */
#define AT_A_TIME 10

static struct fake_shape random_shape(uint64_t *random)
{
    static const uint32_t blocks[] = {1, 4, 8, 16}, slabs[] = {1, 2, 5, 8, 70};
    uint32_t block_tokens = blocks[fake_below(random, 4)];
    uint32_t slab_blocks = slabs[fake_below(random, 5)];
    uint32_t context_max = 64 + fake_below(random, 64);
    uint32_t enough = context_max / block_tokens / slab_blocks + 1; /* for one sequence */
    uint32_t stages = 1 + (fake_below(random, 3) ? 0 : fake_below(random, 4));
    return (struct fake_shape){.depth = stages + fake_below(random, 2),
                               .stages = stages,
                               .slots_max = 1 + fake_below(random, 12),
                               .tokens_max = 1 + fake_below(random, 120),
                               .context_max = context_max,
                               .block_tokens = block_tokens,
                               .group_count = 1 + fake_below(random, 2),
                               .window = 1 + fake_below(random, 40),
                               .slab_blocks = slab_blocks,
                               .slabs_max = enough + fake_below(random, 3 * enough),
                               .scores_max = 1 + fake_below(random, 60),
                               .embeds_max = 1 + fake_below(random, 20),
                               .moves_max = fake_below(random, 20),
                               .samplings_max = 1 + fake_below(random, GPU_SAMPLINGS_MAX),
                               .sampling_rows_max = 1 + fake_below(random, 12)};
}

static struct fake_options random_options(uint64_t *random, const struct fake_shape *shape)
{
    uint32_t job = fake_below(random, 6);
    uint32_t prompt_len = 1 + fake_below(random, shape->context_max - 1);
    if (fake_below(random, 3) > 0)
        prompt_len = 1 + prompt_len % 12;
    return (struct fake_options){.job = job == 0   ? JOB_SCORE
                                        : job == 1 ? JOB_EMBED
                                                   : JOB_GENERATE,
                                 .pooling = (enum pooling)fake_below(random, 3),
                                 .prompt_len = prompt_len,
                                 .max_tokens =
                                     1 + fake_below(random, shape->context_max - prompt_len),
                                 .min_tokens = fake_below(random, 4),
                                 .priority = (int32_t)fake_below(random, 3) - 1,
                                 .ignore_eos = fake_below(random, 4) == 0,
                                 .logprobs = (int32_t)fake_below(random, 4) - 1,
                                 .penalty = fake_below(random, 3) == 0,
                                 .seed = fake_random(random),
                                 .stem = 1 + fake_below(random, 3),
                                 .stem_len = fake_below(random, 2) * fake_below(random, 128),
                                 .n = 1 + fake_below(random, 2) * fake_below(random, 6),
                                 .next = fake_below(random, 2) * fake_below(random, 17)};
}

static void address(struct seq *seq, uint64_t *random)
{
    seq->sink = fake_below(random, 3);
    seq->user_id = seq->sink / 2;
    seq->way_sink = fake_below(random, 3);
    seq->way_user = fake_below(random, 2);
}

/* What it says is bound: by masks that come when they come. */
static void add_constrained(struct rig *rig, const struct fake_shape *shape, uint64_t *random)
{
    struct fake_options options = random_options(random, shape);
    options.job = JOB_GENERATE;
    address(rig->seqs[rig_add_constrained(rig, &options)], random);
}

/* Of one of three audiences, with several results at times; at times sent before its turn, for
 * another's. */
static void add_one(struct rig *rig, const struct fake_shape *shape, uint64_t *random)
{
    struct fake_options options = random_options(random, shape);
    options.owed = fake_below(random, 8) == 0;
    options.turn = fake_below(random, 4);
    uint32_t first = rig_add(rig, &options);
    address(rig->seqs[first], random);
    options.max_tokens = 1 + fake_below(random, options.max_tokens);
    for (uint32_t i = 1; i < options.n && options.job == JOB_GENERATE; i++)
        address(rig->seqs[rig_add_result(rig, &options, first)], random);
}

/* Its client takes it back, or its deadline does. */
static void cancel_one(struct rig *rig, uint64_t *random)
{
    enum finish reason = fake_below(random, 2) ? FINISH_CANCELLED : FINISH_DEADLINE;
    if (rig->seq_count == 0)
        return;
    uint32_t i = fake_below(random, rig->seq_count);
    if (rig->ended[i] > 0)
        return;
    sched_cancel(&rig->sched, rig->seqs[i], reason, rig->now_us);
    ck_assert_uint_eq(rig->ended[i], 1);
}

static void random_turn(struct rig *rig, const struct fake_shape *shape, uint64_t *random)
{
    switch (fake_below(random, 14)) {
    case 12:
        if (rig->seq_count < RIG_SEQS_MAX / 2)
            add_constrained(rig, shape, random);
        break;
    case 13:
        rig_masks(rig);
        break;
    case 0:
    case 1:
        if (rig->salt != NULL) /* several share what they have among themselves */
            rig->salt = fake_below(random, 4) ? "salt" : "pepper";
        if (rig->seq_count < RIG_SEQS_MAX / 4)
            add_one(rig, shape, random);
        break;
    case 2:
        if (fake_below(random, 3) == 0)
            cancel_one(rig, random);
        break;
    case 3:
        rig->now_us += fake_below(random, 2000);
        break;
    case 4:
        rig_tend(rig);
        break;
    case 5:
    case 6:
    case 7:
        rig_complete(rig);
        break;
    default:
        rig_submit(rig);
        break;
    }
}

/* What copies do beside that, of numbers of their own. */
static void copies_turn(struct rig *rig, uint64_t *random)
{
    enum gpu_way way = fake_below(random, 2) ? GPU_TO_HOST : GPU_FROM_HOST;
    switch (fake_below(random, 8)) {
    case 0:
        rig_copied(rig, way);
        break;
    case 1:
        rig_chunk(rig);
        break;
    case 2:
    case 3:
        rig_copy(rig, way);
        break;
    case 4:
        if (fake_below(random, 25) == 0)
            fake_knobs(rig->engine)->chunk_refused =
                fake_below(random, 3) == 0 ? fake_below(random, 100) : 0;
        break;
    default:
        break;
    }
}

/* As the loop says: others wait that begin as some do or did, or no more. */
static void waits_turn(struct rig *rig, bool *waits, uint64_t *random)
{
    uint32_t i = rig->seq_count > 0 ? fake_below(random, rig->seq_count) : 0;
    struct prefix_wants *wants = &rig->sched.wants[SCHED_WAITS_TO_COME];
    if (rig->seq_count == 0 || fake_below(random, 4) > 0)
        return;
    const struct seq *seq = rig->seqs[i];
    if (waits[i])
        prefix_wants_drop(wants, seq->keys, seq->key_count);
    waits[i] = !waits[i] && prefix_wants_add(wants, seq->keys, seq->key_count);
}

static void faults(struct rig *rig, uint64_t *random)
{
    struct fake_knobs *knobs = fake_knobs(rig->engine);
    knobs->grow_refused = fake_below(random, 2) * fake_below(random, 100);
    rig->masks_late = fake_below(random, 6);
    rig->masks_fail = fake_below(random, 3) == 0 ? 1 + fake_below(random, 100) : 0;
    knobs->scratch_refused = fake_below(random, 3) == 0 ? fake_below(random, 60) : 0;
}

/* Of what constrained sequences and copies did, over some seeds. */
struct seen {
    uint64_t samplings, forced, late, ended, failed, preempted, drafted, accepted, out, above;
};

static void see(const struct rig *rig, struct seen *seen)
{
    seen->samplings += rig->stats.samplings_total;
    seen->forced += rig->stats.tokens_forced_total;
    seen->late += rig->stats.masks_late_total;
    seen->drafted += rig->stats.tokens_drafted_total;
    seen->accepted += rig->stats.tokens_accepted_total;
    seen->out += rig->stats.host_blocks_out_total;
    seen->above += rig->stats.preemptions_priority_total;
    for (uint32_t i = 0; i < rig->seq_count; i++) {
        const struct seq *seq = rig->seqs[i];
        if (seq->constraint == NULL)
            continue;
        seen->ended += seq->finish == FINISH_STOP;
        seen->failed += seq->finish == FINISH_ERROR;
        seen->preempted += seq->preemptions > 0;
    }
}

static void run(int seed, struct seen *seen)
{
    uint64_t random = (uint64_t)seed, copies = ~random, others = random * 3;
    bool waits[RIG_SEQS_MAX] = {false};
    struct fake_shape shape = random_shape(&random);
    struct rig rig;
    bool cached = fake_below(&random, 4) > 0;
    shape.chunk_blocks = 1 + fake_below(&copies, 6);
    shape.chunks_max = fake_below(&copies, 3) * fake_below(&copies, 40);
    shape.drafter = fake_below(&copies, 2);
    shape.rereads = shape.drafter && seed % 2;
    uint32_t drafts = fake_below(&random, 4) ? 1 + fake_below(&random, GPU_DRAFTS_MAX) : 0;
    rig_open_guessing(&rig, &shape, (uint64_t)seed, cached ? "salt" : NULL, drafts);
    rig.copies_late = true;
    fake_knobs(rig.engine)->guess_wrong_every = 2 + fake_below(&copies, 4);
    fake_knobs(rig.engine)->words = drafts > 0 ? 1 + fake_below(&random, 3) : 0;
    rig.sched.options.drafts_always = fake_below(&random, 3) > 0;
    fake_knobs(rig.engine)->step_ns = fake_below(&random, 2) ? 1000 : 1000000;
    rig.sched.options.itl_target_us = fake_below(&random, 2) * (10 + fake_below(&random, 200));
    rig.sched.options.ttft_target_us =
        fake_below(&random, 3) * (1000 + fake_below(&random, 400000));
    rig.sched.options.chunk_every = 1 + fake_below(&random, 5);
    fake_knobs(rig.engine)->eos_every = fake_below(&random, 3) * 10;
    for (uint32_t turn = 0; turn < 800; turn++) {
        if (turn % 100 == 0)
            faults(&rig, &random);
        random_turn(&rig, &shape, &random);
        copies_turn(&rig, &copies);
        waits_turn(&rig, waits, &others);
        ck_assert_msg(*rig_check_kv(&rig) == '\0', "seed %d: %s", seed, rig_check_kv(&rig));
        ck_assert_str_eq(sched_check(&rig.sched), "");
        ck_assert_msg(*fake_fault(rig.engine) == '\0', "seed %d: %s", seed, fake_fault(rig.engine));
    }
    fake_knobs(rig.engine)->grow_refused = fake_knobs(rig.engine)->scratch_refused = 0;
    rig.copies_late = false;
    rig_finish(&rig);
    const char *wrong = rig_check_answers(&rig, true);
    ck_assert_msg(*wrong == '\0', "seed %d: %s", seed, wrong);
    while (rig_complete(&rig))
        continue;
    rig_rest(&rig);
    ck_assert_uint_eq(fake_counts(rig.engine).slabs, 0);
    ck_assert_uint_eq(rig.sched.kv.group[0].used, 0);
    ck_assert_uint_eq(rig.sched.slots_free_count, rig.sched.slots_max);
    ck_assert_uint_eq(sched_due_us(&rig.sched), SCHED_NEVER);
    see(&rig, seen);
    rig_close(&rig);
}

START_TEST(nothing_is_lost_whatever_happens)
{
    struct seen seen = {.samplings = 0};
    for (int seed = _i * AT_A_TIME; seed < (_i + 1) * AT_A_TIME; seed++)
        run(seed, &seen);
    ck_assert(seen.samplings > 0 && seen.forced > 0 && seen.late > 0);
    ck_assert(seen.ended > 0 && seen.failed > 0 && seen.preempted > 0);
    ck_assert(seen.accepted > 0 && seen.accepted <= seen.drafted);
    ck_assert(seen.out > 0 && seen.above > 0);
}
END_TEST

Suite *sched_random_suite(void)
{
    Suite *suite = suite_create("sched, at random");
    TCase *tcase = tcase_create("seeds");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, nothing_is_lost_whatever_happens, 0, SEEDS / AT_A_TIME);
    suite_add_tcase(suite, tcase);
    return suite;
}
