/* With `invariant` a sequence's tokens and probabilities are the same to the bit whatever runs
 * beside it and however it is cut, on any device; and what cannot be had so is refused by name. */
#include <stdio.h>
#include <string.h>

#include "gpu/base/device.h"
#include "tests/gpu/gpu_suites.h"
#include "tests/gpu/rig/rig.h"

#define JOBS 72    /* on a GPU; the CPU device has JOBS_CPU of them */
#define JOBS_CPU 24
#define OUTPUT 20
#define PROMPT_MAX 300 /* attention has splits of 256 */
#define DRAFTS 5
#define CACHED 64      /* whole blocks that all prompts begin with */

static struct engine_client talk;
static struct engine_client_job jobs[JOBS], alone[JOBS];
static int32_t prompts[JOBS][PROMPT_MAX], answers[JOBS][OUTPUT];

/* Heads of 64 that CUDA has tuned kernels for, windows, norms of heads, small odd shapes, a mixture
 * of experts; the last are for GPUs. */
static const char *const models[] = {
    "synthetic:tiny", "tests/model/data/llama-default-bf16", "tests/model/data/qwen3-window-bf16",
    "tests/model/data/mixtral-default-bf16",
#define SMALL 4
    "synthetic:qwen3-0.6b", "synthetic:llama-3.2-1b"};

static uint64_t random_state;

static bool on_gpu(void)
{
    return !device_traits.invariant;
}

static uint32_t jobs_count(void)
{
    return on_gpu() ? JOBS : JOBS_CPU;
}

static uint32_t below(uint32_t bound)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(random_state >> 33) % bound;
}

static bool penalized(uint32_t job)
{
    return job % 9 == 8;
}

/* Prompts of all lengths, most of which are short; all begin alike, one in four is scored. */
static void jobs_make(uint32_t adapters)
{
    random_state = 11;
    for (uint32_t i = 0; i < jobs_count(); i++) {
        uint32_t length = CACHED + 1 + below(i % 12 ? 30 : PROMPT_MAX - CACHED);
        for (uint32_t j = 0; j < length; j++)
            prompts[i][j] = j < CACHED ? (int32_t)(j * 7 % 251) : (int32_t)below(250);
        jobs[i] = (struct engine_client_job){
            .prompt = prompts[i],
            .prompt_len = length,
            .generate = OUTPUT,
            .score = i % 4 == 3,
            .open = {.seed = i,
                     .sampler.temperature = i % 3 ? 0.9f : 0,
                     .sampler.top_p = i % 2 ? 0.9f : 1,
                     .sampler.repetition_penalty = penalized(i) ? 1.3f : 1,
                     .flags = penalized(i) ? GPU_SLOT_PENALTIES : 0,
                     .eos_from = UINT32_MAX,
                     .adapter = adapters ? i % (adapters + 1) : 0,
                     .logprobs = i % 5},
        };
    }
}

static void engine_open(const char *model, const struct gpu_adapter *adapter)
{
    ck_assert(rig_setup());
    struct gpu_options options = {.model = model,
                                  .dtype = rig_dtype,
                                  .adapters = adapter,
                                  .adapter_count = adapter ? 1 : 0,
                                  .invariant = true,
                                  .tokens_max = 2048,
                                  .slots_max = JOBS * (1 + DRAFTS), /* samples of a step, too */
                                  .slab_bytes = 64u << 20}; /* a step takes few at a time */
    ck_assert_msg(engine_client_open(&talk, &options, false) == 0, "%s: %s", model,
                  talk.error.text);
    ck_assert(talk.model.invariant);
    ck_assert_msg(engine_client_start(&talk) == 0, "%s: %s", model, talk.error.text);
}

/* The first place where two differ, as a message says it. */
static void job_check(const char *model, const char *what, uint32_t i, bool scored)
{
    const struct engine_client_job *a = &alone[i], *b = &jobs[i];
    for (uint32_t j = 0; scored && a->score && j + 1 < a->prompt_len; j++)
        ck_assert_msg(!memcmp(&a->scores[j], &b->scores[j], sizeof a->scores[j]),
                      "%s, %s: job %u of %u tokens: token %u scores %a, alone %a", model, what, i,
                      a->prompt_len, j + 1, (double)b->scores[j].logprob,
                      (double)a->scores[j].logprob);
    for (uint32_t j = 0; j < a->sampled && j < b->sampled; j++) {
        ck_assert_msg(!memcmp(&a->samples[j], &b->samples[j], sizeof a->samples[j]),
                      "%s, %s: job %u of %u tokens: output %u is %d with %a, alone %d with %a",
                      model, what, i, a->prompt_len, j, b->samples[j].token,
                      (double)b->samples[j].logprob, a->samples[j].token,
                      (double)a->samples[j].logprob);
        ck_assert_msg(
            !memcmp(a->tops[j], b->tops[j], a->samples[j].top_count * sizeof a->tops[0][0]),
            "%s, %s: job %u: the likeliest at output %u differ", model, what, i, j);
    }
    ck_assert_msg(a->sampled == b->sampled, "%s, %s: job %u ends after %u, alone %u", model, what, i,
                  b->sampled, a->sampled);
}

struct way {
    const char *what;
    uint32_t together, chunk, preempt;
    bool cache, drafts, eager;
};

static const struct way ways[] = {
    {.what = "two at a time", .together = 2},
    {.what = "three at a time", .together = 3},
    {.what = "eight at a time", .together = 8},
    {.what = "17 at a time", .together = 17},
    {.what = "65 at a time", .together = 65},
    {.what = "all together"},
    {.what = "all together, without graphs", .eager = true},
    {.what = "in chunks of 1", .together = 5, .chunk = 1},
    {.what = "in chunks of 7", .chunk = 7},
    {.what = "in chunks of 100", .together = 20, .chunk = 100},
    {.what = "preempted", .together = 16, .preempt = 30},
    {.what = "preempted, in chunks of 33", .together = 20, .chunk = 33, .preempt = 20},
    {.what = "behind cached blocks", .together = 9, .cache = true},
    {.what = "behind cached blocks, preempted, in chunks of 50",
     .together = 30,
     .chunk = 50,
     .preempt = 25,
     .cache = true},
    {.what = "with drafts", .together = 12, .drafts = true},
    {.what = "with drafts, all together", .drafts = true},
};

/* Right ones but for some, which must not stand. */
static void guesses_make(uint32_t i)
{
    for (uint32_t j = 0; j < OUTPUT; j++)
        answers[i][j] = (i + j) % 7 ? alone[i].samples[j].token : 3;
    jobs[i].guesses = penalized(i) ? NULL : answers[i];
}

static void way_run(const char *model, const struct way *way, uint32_t adapters)
{
    jobs_make(adapters);
    talk.together = way->together;
    talk.chunk = way->chunk;
    talk.preempt = way->preempt;
    talk.cache = way->cache ? CACHED : 0;
    talk.drafts = way->drafts ? DRAFTS : 0;
    talk.engine->rank.graphs.off = way->eager;
    for (uint32_t i = 0; i < jobs_count(); i++) {
        if (way->drafts)
            guesses_make(i);
        if (way->cache) /* there are no scores of cached tokens */
            jobs[i].score = false;
    }
    int status = engine_client_run(&talk, jobs, jobs_count());
    ck_assert_msg(status == 0, "%s, %s: %d %s", model, way->what, status, talk.error.text);
    for (uint32_t i = 0; i < jobs_count(); i++)
        job_check(model, way->what, i, !way->cache);
}

/* In an engine that is open then. */
static void alone_run(const char *model, const struct gpu_adapter *adapter)
{
    engine_open(model, adapter);
    jobs_make(adapter ? 1 : 0);
    talk.together = 1;
    int status = engine_client_run(&talk, jobs, jobs_count());
    ck_assert_msg(status == 0, "%s: %d %s", model, status, talk.error.text);
    memcpy(alone, jobs, sizeof alone);
    uint32_t different = 0;
    for (uint32_t i = 0; i < jobs_count(); i++)
        different += alone[i].samples[0].token != alone[0].samples[0].token;
    ck_assert_uint_gt(different, jobs_count() / 4);
}

START_TEST(a_sequence_has_its_bits_whatever_is_beside_it)
{
    if (_i >= SMALL && !on_gpu())
        return;
    alone_run(models[_i], NULL);
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++)
        way_run(models[_i], &ways[w], 0);
    engine_client_close(&talk);
}
END_TEST

/* Half of the jobs have an adapter: the others' bits do not depend on that either. */
START_TEST(adapters_of_others_change_no_bits)
{
    static const struct way plain[] = {{.what = "all together, with adapters"},
                                       {.what = "with adapters, in chunks of 7", .chunk = 7}};
    const struct gpu_adapter adapter = {.name = "all",
                                        .directory = "tests/model/adapted/llama-default-bf16.all"};
    alone_run("tests/model/data/llama-default-bf16", &adapter);
    for (size_t w = 0; w < sizeof plain / sizeof plain[0]; w++)
        way_run("tests/model/data/llama-default-bf16", &plain[w], 1);
    engine_client_close(&talk);
}
END_TEST

START_TEST(what_has_no_kernels_of_one_order_is_refused_by_name)
{
    static const int devices[] = {0, 1};
    const struct {
        struct gpu_options options;
        const char *says;
    } cases[] = {
        {{.model = "synthetic:tiny", .tp = 2}, "invariant: not with tp 2"},
        {{.model = "synthetic:tiny", .kv_dtype = GPU_KV_FP8}, "invariant: not with kv-dtype fp8"},
        {{.model = "synthetic:tiny:fp8"}, "invariant: not of a quantized model: "},
        {{.model = "synthetic:tiny:u4"}, "invariant: not of a quantized model: "},
        {{.model = "tests/model/data/llama-default-bf16", .quantize = GPU_QUANTIZE_FP8},
         "invariant: not of a quantized model: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct gpu_options options = cases[i].options;
        struct gpu_model model;
        struct error error = {0};
        options.devices = devices;
        options.invariant = true;
        int status = gpu_module.check(&options, &model, &error);
        ck_assert_msg(on_gpu() ? status == -ERR_BAD_CONFIG : status == 0, "case %zu: %d %s", i,
                      status, error.text);
        ck_assert_msg(!on_gpu() || !strncmp(error.text, cases[i].says, strlen(cases[i].says)),
                      "case %zu: %s", i, error.text);
        options.invariant = false;
        ck_assert_int_eq(gpu_module.check(&options, &model, &error), 0);
        ck_assert(model.invariant == !on_gpu());
    }
}
END_TEST

Suite *invariant_suite(void)
{
    Suite *suite = suite_create("invariant");
    TCase *tcase = tcase_create("invariant");
    tcase_set_timeout(tcase, 900);
    tcase_add_loop_test(tcase, a_sequence_has_its_bits_whatever_is_beside_it, 0,
                        ENGINE_CLIENT_THIN > 1 ? 1 : (int)(sizeof models / sizeof models[0]));
    tcase_add_test(tcase, adapters_of_others_change_no_bits);
    tcase_add_test(tcase, what_has_no_kernels_of_one_order_is_refused_by_name);
    suite_add_tcase(suite, tcase);
    return suite;
}
