/* Several results of one prompt, computed by the CPU device, have the bits of as many requests of
 * their own: with windows, penalties, little memory, on several devices. */
#include <stdlib.h>
#include <string.h>

#include <check.h>

#include "tests/daemon/rig/fake_device.h"
#include "tests/daemon/rig/worker_rig.h"
#include "tests/daemon/worker/bits_suites.h"
#include "tests/runner.h"

#define DATA "tests/model/data/"
#define RESULTS 6u
#define PROMPT 200u
#define OUT 70u

static const struct {
    const char *model;
    uint32_t tp, pp, chunk;
    uint64_t kv_max;
    bool penalty;
} cases[] = {
    {DATA "llama-llama3-f32", 1, 1, 0, 0, false},
    {DATA "llama-llama3-f32", 1, 1, 48, 0, true},
    {DATA "llama-llama3-f32", 2, 1, 0, 0, false},
    {DATA "llama-llama3-f32", 1, 2, 0, 0, true},
    {DATA "llama-llama3-f32", 2, 2, 40, 0, false},
    {DATA "gemma2-default-bf16", 1, 1, 0, 0, false}, /* two groups: all, and the last 16 */
    {DATA "gemma3-default-bf16", 1, 1, 32, 0, true},
    {DATA "mistral-window-f32", 1, 1, 0, 0, false},
    {DATA "qwen2-window-bf16", 1, 3, 0, 0, false},
    {DATA "llama-llama3-f32", 1, 1, 0, 1, false}, /* room for two of them */
    {DATA "gemma2-default-bf16", 1, 1, 0, 1, true},
};
#define CASES ((int)(sizeof cases / sizeof cases[0]))

static struct worker_rig rig;

static struct seq *make(int number, uint32_t result, const struct seq *first)
{
    struct fake_options options = {.job = JOB_GENERATE,
                                   .prompt_len = PROMPT,
                                   .max_tokens = result == 2 ? 1 : OUT, /* one ends at once */
                                   .ignore_eos = true,
                                   .logprobs = 2,
                                   .n = RESULTS,
                                   .penalty = cases[number].penalty,
                                   .seed = 7};
    struct seq *seq = fake_seq(&options, rig.now_us);
    for (uint32_t i = 0; i < PROMPT; i++)
        ((int32_t *)(uintptr_t)seq->prompt)[i] %= (int32_t)rig.model.vocab;
    seq->sampling.seed = 1000 + result;
    seq->sampling.sampler.temperature = 1;
    seq->sampling.sampler.presence_penalty = cases[number].penalty ? 0.5f : 0;
    if (first)
        fake_seq_sibling(seq, first);
    return seq;
}

static void open_case(int number)
{
    const struct worker_rig_options options = {.model = cases[number].model,
                                               .tp = cases[number].tp,
                                               .pp = cases[number].pp,
                                               .chunk = cases[number].chunk,
                                               .slots_max = RESULTS,
                                               .kv_tokens = cases[number].kv_max ? PROMPT + OUT : 0,
                                               .kv_more = RESULTS + 2};
    worker_rig_open(&rig, &options);
}

static void check_same(const struct seq *a, const struct seq *b)
{
    uint32_t count = atomic_load(&a->out_count);
    ck_assert_uint_eq(count, a->sampling.max_tokens);
    ck_assert_uint_eq(count, atomic_load(&b->out_count));
    for (uint32_t i = 0; i < count * rig.model.eos_count; i++) /* ignore_eos */
        ck_assert_int_ne(a->out_tokens[i / rig.model.eos_count],
                         rig.model.eos[i % rig.model.eos_count]);
    ck_assert_mem_eq(a->out_tokens, b->out_tokens, count * sizeof *a->out_tokens);
    ck_assert_mem_eq(a->out_logprobs, b->out_logprobs, count * sizeof *a->out_logprobs);
    ck_assert_mem_eq(a->out_tops, b->out_tops, 2 * count * sizeof *a->out_tops);
}

START_TEST(results_of_one_prompt_have_the_bits_of_requests_of_their_own)
{
    struct seq *together[RESULTS];
    open_case(_i);
    for (uint32_t i = 0; i < RESULTS; i++)
        together[i] = make(_i, i, i ? together[0] : NULL);
    for (uint32_t i = 0; i < RESULTS; i++)
        worker_rig_send(&rig, together[i]);
    worker_rig_run(&rig, RESULTS);
    uint64_t shared = worker_rig_stats(&rig)->prompt_tokens_shared_total;
    ck_assert_uint_ge(shared, (RESULTS - 1) * (PROMPT - 1) / rig.model.block_tokens *
                                      rig.model.block_tokens -
                                  RESULTS * rig.model.block_tokens);
    ck_assert_uint_eq(worker_rig_stats(&rig)->preemptions_total > 0, cases[_i].kv_max > 0);
    uint64_t read = worker_rig_stats(&rig)->prompt_tokens_total;
    if (!cases[_i].kv_max)
        ck_assert_uint_eq(read + shared, (uint64_t)RESULTS * PROMPT);
    for (uint32_t i = 0; i < RESULTS; i++) {
        struct seq *alone = make(_i, i, NULL);
        alone->sampling.n = 1;
        worker_rig_send(&rig, alone);
        worker_rig_run(&rig, 1);
        check_same(together[i], alone);
        fake_seq_free(alone);
    }
    ck_assert_uint_eq(worker_rig_stats(&rig)->prompt_tokens_shared_total, shared);
    worker_rig_close(&rig);
    for (uint32_t i = RESULTS; i-- > 0;)
        fake_seq_free(together[i]);
}
END_TEST

Suite *one_prompt_suite(void)
{
    Suite *suite = suite_create("results of one prompt");
    TCase *tcase = tcase_create("bits");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, results_of_one_prompt_have_the_bits_of_requests_of_their_own, 0,
                        CASES);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    SRunner *runner = srunner_create(one_prompt_suite());
    srunner_add_suite(runner, cache_bits_suite());
    srunner_add_suite(runner, draft_bits_suite());
    srunner_add_suite(runner, together_suite());
    return runner_run(runner);
}
