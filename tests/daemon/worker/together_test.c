/* All that spares computing, at once, on the CPU device: guesses of next tokens, the prefix cache,
 * host memory, keys and values in 8 bits, mixtures of experts, results of one prompt, and
 * priorities that take each other's places. Random trees of prompts have the bits of each request
 * alone, without any of it. */
#include <stdlib.h>
#include <string.h>

#include "tests/daemon/rig/fake_device.h"
#include "tests/daemon/rig/worker_rig.h"
#include "tests/daemon/worker/bits_suites.h"

#define DATA "tests/model/data/"
#define PROMPTS 16u
#define RESULTS 3u /* so many that follow each other in each PERIOD are of one prompt */
#define PERIOD 8u
#define LONGEST 120u
#define OUT 32u
#define SEEDS 4

static const struct {
    const char *model;
    uint32_t tp, pp, chunk, kv_tokens, drafts, host;
    bool kv_fp8;
} cases[] = {
    {DATA "mixtral-default-bf16", 1, 1, 0, 0, 3, 0, false},
    {DATA "mixtral-default-bf16", 1, 1, 48, LONGEST + OUT, GPU_DRAFTS_MAX, 100, true},
    {DATA "mixtral-window-f16", 1, 1, 0, LONGEST + OUT, 4, 100, false},
    {DATA "qwen3-moe-norm-bf16", 2, 1, 0, LONGEST + OUT, 3, 12, true},
    {DATA "gpt-oss-yarn-bf16", 1, 1, 48, LONGEST + OUT, 3, 100, true},
    {"tests/model/quantized/gpt-oss-mxfp4", 2, 1, 0, LONGEST + OUT, 4, 100, false},
    {DATA "llama-llama3-f32", 2, 1, 40, LONGEST + OUT, 4, 100, true},
    {DATA "mixtral-default-bf16", 1, 2, 0, LONGEST + OUT, 0, 100, false},
    {DATA "qwen2-window-bf16", 1, 3, 48, LONGEST + OUT, 0, 100, true},
    {DATA "gemma2-default-bf16", 1, 1, 32, LONGEST + OUT, 4, 100, true},
};
#define CASES ((int)(sizeof cases / sizeof cases[0]))

static struct worker_rig rig;

static bool is_result(uint32_t number)
{
    return number % PERIOD >= PERIOD - RESULTS;
}

/* Of a prompt that repeats itself behind a beginning that others have, too. */
static struct seq *make(uint32_t number, uint64_t seed)
{
    uint32_t of = is_result(number) ? number - number % PERIOD + PERIOD - RESULTS : number;
    uint64_t random = seed + of;
    struct fake_options options = {.job = JOB_GENERATE,
                                   .prompt_len = 8 + fake_below(&random, LONGEST - 8),
                                   .max_tokens = OUT / 2 + fake_below(&random, OUT / 2),
                                   .ignore_eos = true,
                                   .logprobs = 2,
                                   .penalty = of % 3 == 0,
                                   .priority = (int32_t)(number % 4),
                                   .seed = seed + of,
                                   .stem = seed + of % 3,
                                   .stem_len = 20 * fake_below(&random, 5)};
    struct seq *seq = fake_seq(&options, rig.now_us);
    int32_t *prompt = (int32_t *)(uintptr_t)seq->prompt;
    for (uint32_t i = 0; i < seq->prompt_len; i++)
        prompt[i] = i > options.stem_len + 5 ? prompt[i - 5] : prompt[i] % (int32_t)rig.model.vocab;
    seq->sampling.sampler.temperature = of % 2 ? 0.2f : 0;
    seq->sampling.seed = seed + number;
    return seq;
}

static void open_case(int number, bool all)
{
    const struct worker_rig_options options = {.model = cases[number].model,
                                               .tp = cases[number].tp,
                                               .pp = cases[number].pp,
                                               .chunk = cases[number].chunk,
                                               .slots_max = 5,
                                               .kv_tokens = all ? cases[number].kv_tokens : 0,
                                               .kv_more = 4,
                                               .prefix_cache = all,
                                               .drafts_max = all ? cases[number].drafts : 0,
                                               .host_chunks = all ? cases[number].host : 0,
                                               .kv_fp8 = cases[number].kv_fp8};
    worker_rig_open(&rig, &options);
}

static void run_alone(int number, uint64_t seed, struct seq **seqs)
{
    open_case(number, false);
    for (uint32_t i = 0; i < PROMPTS; i++) {
        seqs[i] = make(i, seed);
        worker_rig_send(&rig, seqs[i]);
        worker_rig_run(&rig, 1);
    }
    worker_rig_close(&rig);
}

static void run_together(int number, uint64_t seed, struct seq **seqs)
{
    open_case(number, true);
    for (uint32_t i = 0; i < PROMPTS; i++) {
        uint32_t first = i - i % PERIOD + PERIOD - RESULTS;
        seqs[i] = make(i, seed);
        if (is_result(i)) {
            seqs[i]->sampling.n = RESULTS;
            seqs[i]->priority = seqs[first]->priority;
            if (i > first)
                fake_seq_sibling(seqs[i], seqs[first]);
        }
        fake_seq_cache(seqs[i], &rig.model, i % 7 ? "salt" : "pepper");
        if (i % 4 == 3 && !is_result(i)) /* it finds others at work */
            worker_rig_generate(&rig, 2);
        worker_rig_send(&rig, seqs[i]);
    }
    worker_rig_run(&rig, PROMPTS);
}

static void check_same(const struct seq *a, const struct seq *b)
{
    uint32_t count = a->sampling.max_tokens;
    ck_assert_uint_eq(count, atomic_load(&a->out_count));
    ck_assert_uint_eq(count, atomic_load(&b->out_count));
    ck_assert_mem_eq(a->out_tokens, b->out_tokens, count * sizeof *a->out_tokens);
    ck_assert_mem_eq(a->out_logprobs, b->out_logprobs, count * sizeof *a->out_logprobs);
    ck_assert_mem_eq(a->out_tops, b->out_tops, 2 * count * sizeof *a->out_tops);
}

START_TEST(requests_have_the_bits_that_each_has_alone_without_any_of_it)
{
    struct seq *alone[PROMPTS], *together[PROMPTS];
    const int number = _i / SEEDS;
    uint64_t seed = 1000u * (uint32_t)_i + 11;
    run_alone(number, seed, alone);
    run_together(number, seed, together);
    const struct stats_worker *stats = worker_rig_stats(&rig);
    ck_assert(stats->tokens_accepted_total > 0 || cases[number].drafts == 0); /* not with pp */
    ck_assert_uint_gt(stats->cache_hits_total + stats->prompt_tokens_shared_total, 0);
    ck_assert(stats->preemptions_total > 0 || cases[number].kv_tokens == 0);
    ck_assert(stats->host_blocks_out_total > 0 || cases[number].host == 0);
    worker_rig_close(&rig);
    for (uint32_t i = PROMPTS; i-- > 0;) { /* results have the first one's prompt */
        check_same(alone[i], together[i]);
        fake_seq_free(alone[i]);
        fake_seq_free(together[i]);
    }
}
END_TEST

Suite *together_suite(void)
{
    Suite *suite = suite_create("bits of all at once");
    TCase *tcase = tcase_create("trees");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, requests_have_the_bits_that_each_has_alone_without_any_of_it, 0,
                        CASES * SEEDS);
    suite_add_tcase(suite, tcase);
    return suite;
}
