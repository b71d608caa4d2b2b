/* Random prompts that repeat themselves on the CPU device: results have the same bits with guesses
 * of next tokens, whoever makes them, and without, whatever their number, with windows, penalties,
 * bias, end tokens of their own and little memory. Some are results of one prompt where they are
 * guessed. */
#include <stdlib.h>

#include "tests/daemon/rig/fake_device.h"
#include "tests/daemon/rig/worker_rig.h"
#include "tests/daemon/worker/bits_suites.h"

#define DATA "tests/model/data/"
#define HEADS "tests/model/heads/"
#define PROMPTS 10u
#define RESULTS 3u /* the last ones are results of one prompt */
#define LONGEST 90u
#define OUT 48u

/* Of texts that repeat themselves, or made by a draft model; the model itself draws what it draws.
 */
static const struct {
    const char *model, *draft;
    uint32_t tp, chunk, kv_tokens, drafts;
    bool kv_fp8;
} cases[] = {
    {DATA "llama-llama3-f32", NULL, 1, 0, 0, 1, false},
    {DATA "llama-llama3-f32", NULL, 1, 0, 0, 4, false},
    {DATA "llama-llama3-f32", NULL, 2, 64, 0, 3, false},
    /* Two at a time. */
    {DATA "llama-llama3-f32", NULL, 1, 48, 2 * (LONGEST + OUT), GPU_DRAFTS_MAX, false},
    /* Two groups: all, and the last 16. */
    {DATA "gemma2-default-bf16", NULL, 1, 0, 0, 4, false},
    {DATA "gemma3-default-bf16", NULL, 1, 32, LONGEST + OUT, 5, false},
    {DATA "mistral-window-f32", NULL, 1, 0, 0, GPU_DRAFTS_MAX, false},
    {DATA "llama-llama3-f32", DATA "llama-llama3-f32", 1, 0, 0, 1, false},
    {DATA "llama-llama3-f32", DATA "qwen3-default-f32", 1, 0, 0, 4, false},
    {DATA "llama-llama3-f32", DATA "llama-llama3-f32", 1, 64, 0, 3, true},
    {DATA "llama-llama3-f32", DATA "llama-llama3-f32", 1, 48, 2 * (LONGEST + OUT), GPU_DRAFTS_MAX,
     false},
    {DATA "gemma3-text-bf16", DATA "gemma3-default-bf16", 1, 0, 0, 4, false}, /* 24, and 16 */
    {DATA "gemma3-default-bf16", DATA "gemma3-default-bf16", 1, 32, LONGEST + OUT, 5, false},
    {DATA "mistral-window-f32", DATA "mistral-window-bf16", 1, 0, 0, GPU_DRAFTS_MAX, false},
    /* Heads, which read the model's states. */
    {DATA "llama-llama3-f32", HEADS "llama-llama3-f32.part", 1, 0, 0, 4, false},
    {DATA "llama-llama3-f32", HEADS "llama-llama3-f32.part", 1, 48, 2 * (LONGEST + OUT),
     GPU_DRAFTS_MAX, true},
    {DATA "qwen3-default-bf16", HEADS "qwen3-default-bf16.own", 1, 16, LONGEST + OUT, 3, false},
};
#define CASES ((int)(sizeof cases / sizeof cases[0]))

static struct worker_rig rig;

/* Some greedy, some drawn; every other with penalties. */
static struct seq *make(uint32_t number, uint64_t seed, bool penalties)
{
    static const float temperatures[] = {0, 0.2f, 1};
    static const struct gpu_bias bias[] = {{.token = 5, .value = 3}, {.token = 9, .value = -2}};
    static const int32_t stop_ids[] = {17, 21};
    uint32_t of = number < PROMPTS - RESULTS ? number : PROMPTS - RESULTS;
    uint64_t random = seed + of;
    struct fake_options options = {.job = JOB_GENERATE,
                                   .prompt_len = 8 + fake_below(&random, LONGEST - 8),
                                   .max_tokens = OUT / 2 + fake_below(&random, OUT / 2),
                                   .ignore_eos = of % 2,
                                   .min_tokens = of % 4,
                                   .logprobs = 2,
                                   .penalty = penalties && of % 2,
                                   .seed = seed + of,
                                   .stem = seed + of % 3,
                                   .stem_len = 10 * fake_below(&random, 6)};
    struct seq *seq = fake_seq(&options, rig.now_us);
    int32_t *prompt = (int32_t *)(uintptr_t)seq->prompt;
    for (uint32_t i = 0; i < seq->prompt_len; i++)
        prompt[i] = i % 11 < 8 && i >= 11 ? prompt[i - 11] : prompt[i] % (int32_t)rig.model.vocab;
    seq->sampling.sampler.temperature = temperatures[of % 3];
    seq->sampling.seed = seed + number;
    seq->bias = bias;
    seq->bias_count = of % 3 ? 0 : 2;
    seq->stop_ids = stop_ids;
    seq->stop_id_count = of % 5 ? 0 : 2;
    if (options.penalty) /* what was said is likelier: guesses stand, and each changes the next */
        seq->sampling.sampler.frequency_penalty = -0.5f;
    return seq;
}

static void run(int number, bool guesses, uint64_t seed, struct seq **seqs)
{
    const struct worker_rig_options options = {.model = cases[number].model,
                                               .tp = cases[number].tp,
                                               .pp = 1,
                                               .chunk = cases[number].chunk,
                                               .slots_max = 20,
                                               .kv_tokens = cases[number].kv_tokens,
                                               .kv_more = 3,
                                               .prefix_cache = true,
                                               .kv_fp8 = cases[number].kv_fp8,
                                               .draft_model = guesses ? cases[number].draft : NULL,
                                               .drafts_max = guesses ? cases[number].drafts : 0};
    worker_rig_open(&rig, &options);
    for (uint32_t i = 0; i < PROMPTS; i++) {
        seqs[i] = make(i, seed, true);
        if (guesses && i >= PROMPTS - RESULTS) {
            seqs[i]->sampling.n = RESULTS;
            if (i > PROMPTS - RESULTS)
                fake_seq_sibling(seqs[i], seqs[PROMPTS - RESULTS]);
        }
        fake_seq_cache(seqs[i], &rig.model, "salt");
        worker_rig_send(&rig, seqs[i]);
        if (i == 0) /* alone */
            worker_rig_run(&rig, 1);
    }
    worker_rig_run(&rig, PROMPTS - 1);
}

static void check_same(const struct seq *a, const struct seq *b)
{
    uint32_t count = atomic_load(&a->out_count);
    ck_assert_uint_gt(count, 0);
    ck_assert_uint_eq(count, atomic_load(&b->out_count));
    ck_assert_int_eq(a->finish, b->finish);
    ck_assert_mem_eq(a->out_tokens, b->out_tokens, count * sizeof *a->out_tokens);
    ck_assert_mem_eq(a->out_logprobs, b->out_logprobs, count * sizeof *a->out_logprobs);
    ck_assert_mem_eq(a->out_tops, b->out_tops, 2 * count * sizeof *a->out_tops);
}

START_TEST(tokens_have_the_bits_that_they_have_without_guesses)
{
    struct seq *plain[PROMPTS], *guessed[PROMPTS];
    uint64_t seed = 1000u * (uint32_t)_i + 29;
    run(_i, false, seed, plain);
    ck_assert_uint_eq(worker_rig_stats(&rig)->tokens_drafted_total, 0);
    worker_rig_close(&rig);
    run(_i, true, seed, guessed);
    const struct stats_worker *stats = worker_rig_stats(&rig);
    ck_assert_uint_gt(stats->tokens_accepted_total, 0);
    ck_assert_uint_gt(stats->tokens_drafted_total, stats->tokens_accepted_total);
    worker_rig_close(&rig);
    for (uint32_t i = PROMPTS; i-- > 0;) { /* the last have others' prompt */
        check_same(plain[i], guessed[i]);
        fake_seq_free(plain[i]);
        fake_seq_free(guessed[i]);
    }
}
END_TEST

/* Whatever a row's KV was written by: prompts in chunks, its siblings' rows, steps with guesses and
 * without. */
START_TEST(a_model_that_guesses_for_itself_is_never_wrong)
{
    static const char *const models[] = {DATA "llama-llama3-f32", DATA "gemma2-default-bf16",
                                         DATA "qwen2-window-bf16"};
    const struct worker_rig_options options = {.model = models[_i],
                                               .draft_model = models[_i],
                                               .tp = 1,
                                               .pp = 1,
                                               .chunk = 40,
                                               .slots_max = 20,
                                               .prefix_cache = true,
                                               .drafts_max = 4};
    struct seq *seqs[PROMPTS];
    worker_rig_open(&rig, &options);
    for (uint32_t i = 0; i < PROMPTS; i++) {
        seqs[i] = make(i, 77, false);
        seqs[i]->sampling.ignore_eos = true;
        seqs[i]->stop_id_count = 0;
        if (i >= PROMPTS - RESULTS) {
            seqs[i]->sampling.n = RESULTS;
            if (i > PROMPTS - RESULTS)
                fake_seq_sibling(seqs[i], seqs[PROMPTS - RESULTS]);
        }
        fake_seq_cache(seqs[i], &rig.model, "salt");
        worker_rig_send(&rig, seqs[i]);
    }
    worker_rig_run(&rig, PROMPTS);
    const struct stats_worker *stats = worker_rig_stats(&rig);
    ck_assert_uint_gt(stats->tokens_drafted_total, 100);
    ck_assert_uint_eq(stats->tokens_accepted_total, stats->tokens_drafted_total);
    worker_rig_close(&rig);
    for (uint32_t i = PROMPTS; i-- > 0;)
        fake_seq_free(seqs[i]);
}
END_TEST

Suite *draft_bits_suite(void)
{
    Suite *suite = suite_create("bits with guesses");
    TCase *tcase = tcase_create("texts that repeat");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, tokens_have_the_bits_that_they_have_without_guesses, 0, CASES);
    tcase_add_loop_test(tcase, a_model_that_guesses_for_itself_is_never_wrong, 0, 3);
    suite_add_tcase(suite, tcase);
    return suite;
}
