/* Random trees of prompts on the CPU device: results have the same bits with the prefix cache and
 * without it, on several devices, with windows, penalties and little memory. */
#include <stdlib.h>
#include <string.h>

#include "tests/daemon/rig/fake_device.h"
#include "tests/daemon/rig/worker_rig.h"
#include "tests/daemon/worker/bits_suites.h"

#define DATA "tests/model/data/"
#define PROMPTS 14u
#define WAVES 3u /* each a third of them at once, the later ones with what the earlier left */
#define LONGEST 230u
#define OUT 40u

static const struct {
    const char *model;
    uint32_t tp, pp, chunk, kv_tokens;
    bool kv_fp8;
} cases[] = {
    {DATA "llama-llama3-f32", 1, 1, 0, 0, false},
    {DATA "llama-llama3-f32", 2, 1, 64, 0, false},
    {DATA "llama-llama3-f32", 1, 2, 0, 0, false},
    {DATA "llama-llama3-f32", 1, 1, 48, LONGEST + OUT, false}, /* of which one alone fits */
    {DATA "gemma2-default-bf16", 1, 1, 0, 0, false}, /* two groups: all, and the last 16 */
    {DATA "gemma3-default-bf16", 1, 1, 32, LONGEST + OUT, false},
    {DATA "mistral-window-f32", 1, 1, 0, 0, false},
    {DATA "qwen2-window-bf16", 1, 3, 0, 0, false},
    {DATA "gemma2-default-bf16", 2, 1, 40, LONGEST + OUT, false},
    {DATA "llama-llama3-f32", 1, 1, 48, LONGEST + OUT, true},
    {DATA "gemma2-default-bf16", 2, 1, 40, LONGEST + OUT, true},
};
#define CASES ((int)(sizeof cases / sizeof cases[0]))

static struct worker_rig rig;

static struct seq *make(uint32_t number, uint64_t seed, const struct seq *before)
{
    uint64_t random = seed + number;
    uint32_t out = before ? atomic_load(&before->out_count) : 0;
    struct fake_options options = {.job = JOB_GENERATE,
                                   .prompt_len = 1 + fake_below(&random, LONGEST),
                                   .max_tokens = 1 + fake_below(&random, OUT),
                                   .ignore_eos = true,
                                   .logprobs = 2,
                                   .penalty = fake_below(&random, 3) == 0,
                                   .seed = seed + number,
                                   .stem = seed + number % 3,
                                   .stem_len = 40 * fake_below(&random, 6)};
    if (before && before->prompt_len + out < LONGEST) /* a conversation goes on */
        options.prompt_len = before->prompt_len + out + 1 + fake_below(&random, 30);
    struct seq *seq = fake_seq(&options, rig.now_us);
    int32_t *prompt = (int32_t *)(uintptr_t)seq->prompt;
    for (uint32_t i = 0; i < seq->prompt_len; i++)
        prompt[i] %= (int32_t)rig.model.vocab;
    if (before && before->prompt_len + out < LONGEST) {
        memcpy(prompt, before->prompt, before->prompt_len * sizeof *prompt);
        memcpy(prompt + before->prompt_len, before->out_tokens, out * sizeof *prompt);
    }
    seq->sampling.sampler.temperature = 1;
    return seq;
}

static void open_case(int number, bool cached, uint32_t chunks)
{
    const struct worker_rig_options options = {.model = cases[number].model,
                                               .tp = cases[number].tp,
                                               .pp = cases[number].pp,
                                               .chunk = cases[number].chunk,
                                               .slots_max = 4,
                                               .kv_tokens = cases[number].kv_tokens,
                                               .kv_more = 3,
                                               .prefix_cache = cached,
                                               .host_chunks = chunks,
                                               .kv_fp8 = cases[number].kv_fp8};
    worker_rig_open(&rig, &options);
}

/* All prompts, in waves; every other one goes on with what one of the wave before got. */
static void run(int number, bool cached, uint32_t chunks, uint64_t seed, struct seq **seqs)
{
    open_case(number, cached, chunks);
    for (uint32_t wave = 0; wave < WAVES; wave++) {
        for (uint32_t i = 0; i < PROMPTS; i++) {
            struct seq **seq = &seqs[wave * PROMPTS + i];
            *seq = make(wave * PROMPTS + i, seed, wave && i % 2 ? *(seq - PROMPTS) : NULL);
            if (cached)
                fake_seq_cache(*seq, &rig.model, i % 5 ? "salt" : "pepper");
            worker_rig_send(&rig, *seq);
        }
        worker_rig_run(&rig, PROMPTS);
    }
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

START_TEST(trees_of_prompts_have_the_bits_that_they_have_without_the_cache)
{
    struct seq *plain[WAVES * PROMPTS], *cached[WAVES * PROMPTS];
    uint64_t seed = 1000u * (uint32_t)_i + 17;
    run(_i, false, 0, seed, plain);
    ck_assert_uint_eq(worker_rig_stats(&rig)->prompt_tokens_cached_total, 0);
    uint64_t read = worker_rig_stats(&rig)->prompt_tokens_total;
    worker_rig_close(&rig);
    run(_i, true, 0, seed, cached);
    const struct stats_worker *stats = worker_rig_stats(&rig);
    ck_assert_uint_gt(stats->cache_hits_total, 5);
    ck_assert_uint_lt(stats->prompt_tokens_total, read);
    ck_assert(stats->cache_evictions_total > 0 || cases[_i].kv_tokens == 0);
    worker_rig_close(&rig);
    for (uint32_t i = 0; i < WAVES * PROMPTS; i++) {
        check_same(plain[i], cached[i]);
        fake_seq_free(plain[i]);
        fake_seq_free(cached[i]);
    }
}
END_TEST

/* Of those with little memory: what leaves the device is in host memory, and comes back. Few
 * chunks: what is there leaves for others; many: it stays. */
START_TEST(they_have_the_same_bits_with_host_memory)
{
    static const int numbers[] = {3, 5, 8, 9, 10};
    int number = numbers[_i / 2];
    struct seq *plain[WAVES * PROMPTS], *cached[WAVES * PROMPTS];
    uint64_t seed = 1000u * (uint32_t)_i + 29;
    run(number, false, 0, seed, plain);
    worker_rig_close(&rig);
    run(number, true, _i % 2 ? 200 : 12, seed, cached);
    const struct stats_worker *stats = worker_rig_stats(&rig);
    ck_assert_uint_gt(stats->host_blocks_out_total, 0);
    ck_assert_uint_gt(stats->host_blocks_in_total, 0);
    worker_rig_close(&rig);
    for (uint32_t i = 0; i < WAVES * PROMPTS; i++) {
        check_same(plain[i], cached[i]);
        fake_seq_free(plain[i]);
        fake_seq_free(cached[i]);
    }
}
END_TEST

/* Every other prompt comes above those that run, whose places it takes. */
static void run_above(int number, uint32_t chunks, uint64_t seed, struct seq **seqs)
{
    open_case(number, true, chunks);
    for (uint32_t wave = 0; wave < WAVES; wave++) {
        for (uint32_t i = 0; i < PROMPTS; i++) {
            struct seq **seq = &seqs[wave * PROMPTS + i];
            *seq = make(wave * PROMPTS + i, seed, wave && i % 2 ? *(seq - PROMPTS) : NULL);
            (*seq)->priority = i % 2 ? 1 + i % 3 : 0;
            fake_seq_cache(*seq, &rig.model, i % 5 ? "salt" : "pepper");
            if (i % 2)
                worker_rig_generate(&rig, 2);
            worker_rig_send(&rig, *seq);
        }
        worker_rig_run(&rig, PROMPTS);
    }
}

START_TEST(they_have_the_same_bits_where_some_give_way_to_others)
{
    static const struct {
        int number;
        uint32_t chunks;
    } ways[] = {{0, 0}, {2, 0}, {3, 0}, {3, 200}, {5, 12}, {8, 200}, {10, 200}};
    struct seq *plain[WAVES * PROMPTS], *cached[WAVES * PROMPTS];
    uint64_t seed = 1000u * (uint32_t)_i + 41;
    run(ways[_i].number, false, 0, seed, plain);
    worker_rig_close(&rig);
    run_above(ways[_i].number, ways[_i].chunks, seed, cached);
    const struct stats_worker *stats = worker_rig_stats(&rig);
    ck_assert_uint_gt(stats->preemptions_priority_total, 1);
    ck_assert(stats->host_blocks_in_total > 0 || ways[_i].chunks == 0);
    worker_rig_close(&rig);
    for (uint32_t i = 0; i < WAVES * PROMPTS; i++) {
        check_same(plain[i], cached[i]);
        fake_seq_free(plain[i]);
        fake_seq_free(cached[i]);
    }
}
END_TEST

Suite *cache_bits_suite(void)
{
    Suite *suite = suite_create("bits with the prefix cache");
    TCase *tcase = tcase_create("trees");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, trees_of_prompts_have_the_bits_that_they_have_without_the_cache, 0,
                        CASES);
    tcase_add_loop_test(tcase, they_have_the_same_bits_with_host_memory, 0, 10);
    tcase_add_loop_test(tcase, they_have_the_same_bits_where_some_give_way_to_others, 0, 7);
    suite_add_tcase(suite, tcase);
    return suite;
}
