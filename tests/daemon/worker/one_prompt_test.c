/* Several results of one prompt, computed by the CPU device, have the bits of as many requests of
 * their own: with windows, penalties, little memory, on several devices. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <check.h>

#include "daemon/worker/worker.h"
#include "daemon/worker/worker_inner.h"
#include "gpu/emu/emu.h"
#include "tests/daemon/rig/fake_device.h"
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

static struct worker *worker;
static struct gpu_model model;
static struct completion_queue completions;
static time_us now_us;

static void woken(void *context)
{
    (void)context;
}

static uint64_t kv_of(const struct gpu_options *gpu)
{
    uint64_t bytes = 0;
    struct gpu_model of;
    struct error error;
    ck_assert_int_eq(gpu_module.check(gpu, &of, &error), 0);
    uint32_t blocks = (PROMPT + OUT) / of.block_tokens + RESULTS + 2;
    for (uint32_t g = 0; g < of.group_count; g++)
        bytes += blocks * of.groups[g].block_bytes;
    return bytes;
}

static void open_worker(int number)
{
    static const int devices[] = {0, 1, 2, 3};
    struct emu_options emu = {.engine = EMU_THREADS,
                              .memory_bytes = 512u << 20,
                              .devices = 4,
                              .team_threads = 1,
                              .poison = true,
                              .strict = true};
    struct gpu_options gpu = {.model = cases[number].model,
                              .devices = devices,
                              .cpu_devices = 4,
                              .tp = cases[number].tp,
                              .pp = cases[number].pp,
                              .slots_max = RESULTS,
                              .tokens_max = cases[number].chunk,
                              .slab_bytes = 4096};
    struct worker_options options = {.sched = {.itl_target_us = 50000,
                                               .chunk_every = 4,
                                               .kv_idle_release_us = 2000,
                                               .stall_us = UINT64_MAX},
                                     .step_timeout_us = 60000000};
    struct gpu_limits limits;
    struct gpu_engine *engine;
    struct error error = {.code = 0};
    ck_assert_int_eq(emu_setup(&emu), cudaSuccess);
    if (cases[number].kv_max)
        gpu.kv_max = kv_of(&gpu);
    int rc = gpu_module.open(&gpu, &engine, &model, &limits, &error);
    ck_assert_msg(rc == 0, "%s", error.text);
    options.ranks = model.ranks;
    completion_init(&completions, woken, NULL);
    rc = worker_create(&gpu_module, engine, &model, &limits, &options, &completions, &worker,
                       &error);
    ck_assert_msg(rc == 0, "%s", error.text);
    ck_assert_int_eq(worker_open(worker), 0);
    now_us = 1000000;
}

static void close_worker(void)
{
    worker_destroy(worker);
    completion_destroy(&completions);
}

static void run(uint32_t count)
{
    for (uint32_t ended = 0; ended < count;) {
        uint64_t drained;
        unsigned control, flags;
        struct pollfd poll_fd = {.fd = worker_fd(worker), .events = POLLIN};
        if (poll(&poll_fd, 1, 10000) > 0)
            ck_assert_int_eq(read(worker_fd(worker), &drained, sizeof drained), sizeof drained);
        now_us += 100;
        worker_turn(worker, now_us);
        ck_assert_str_eq(sched_check(&worker->sched), "");
        struct mailbox_link *chain = completion_drain(&completions, &control);
        while (completion_next(&chain, &flags) != NULL)
            ended += (flags & COMPLETION_ENDED) != 0;
    }
}

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
    struct seq *seq = fake_seq(&options, now_us);
    for (uint32_t i = 0; i < PROMPT; i++)
        ((int32_t *)(uintptr_t)seq->prompt)[i] %= (int32_t)model.vocab;
    seq->sampling.seed = 1000 + result;
    seq->sampling.sampler.temperature = 1;
    seq->sampling.sampler.presence_penalty = cases[number].penalty ? 0.5f : 0;
    if (first)
        fake_seq_sibling(seq, first);
    return seq;
}

static void send(struct seq *seq)
{
    worker_send(worker, seq);
    worker_wake(worker);
}

static void check_same(const struct seq *a, const struct seq *b)
{
    uint32_t count = atomic_load(&a->out_count);
    ck_assert_uint_eq(count, a->sampling.max_tokens);
    ck_assert_uint_eq(count, atomic_load(&b->out_count));
    for (uint32_t i = 0; i < count * model.eos_count; i++) /* ignore_eos */
        ck_assert_int_ne(a->out_tokens[i / model.eos_count], model.eos[i % model.eos_count]);
    ck_assert_mem_eq(a->out_tokens, b->out_tokens, count * sizeof *a->out_tokens);
    ck_assert_mem_eq(a->out_logprobs, b->out_logprobs, count * sizeof *a->out_logprobs);
    ck_assert_mem_eq(a->out_tops, b->out_tops, 2 * count * sizeof *a->out_tops);
}

START_TEST(results_of_one_prompt_have_the_bits_of_requests_of_their_own)
{
    struct seq *together[RESULTS];
    open_worker(_i);
    for (uint32_t i = 0; i < RESULTS; i++)
        together[i] = make(_i, i, i ? together[0] : NULL);
    for (uint32_t i = 0; i < RESULTS; i++)
        send(together[i]);
    run(RESULTS);
    uint64_t shared = worker->stats.prompt_tokens_shared_total;
    ck_assert_uint_ge(shared, (RESULTS - 1) * (PROMPT - 1) / model.block_tokens *
                                      model.block_tokens -
                                  RESULTS * model.block_tokens);
    ck_assert_uint_eq(worker->stats.preemptions_total > 0, cases[_i].kv_max > 0);
    uint64_t read = worker->stats.prompt_tokens_total;
    if (!cases[_i].kv_max)
        ck_assert_uint_eq(read + shared, (uint64_t)RESULTS * PROMPT);
    for (uint32_t i = 0; i < RESULTS; i++) {
        struct seq *alone = make(_i, i, NULL);
        alone->sampling.n = 1;
        send(alone);
        run(1);
        check_same(together[i], alone);
        fake_seq_free(alone);
    }
    ck_assert_uint_eq(worker->stats.prompt_tokens_shared_total, shared);
    close_worker();
    for (uint32_t i = RESULTS; i-- > 0;)
        fake_seq_free(together[i]);
}
END_TEST

static Suite *one_prompt_suite(void)
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
    return runner_run(srunner_create(one_prompt_suite()));
}
