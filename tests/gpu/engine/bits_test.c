/* A sequence's results are the same to the bit whatever runs beside it and however it is cut. */
#include <string.h>

#include "gpu/emu/emu.h"
#include "tests/gpu/gpu_suites.h"
#include "tests/gpu/rig/engine_client.h"
#include "tests/gpu/rig/reference.h"

#define JOBS 64
#define OUTPUT 24
#define PROMPT_MAX 100

static struct engine_client talk;
static struct engine_client_job jobs[JOBS], alone[JOBS];
static int32_t prompts[JOBS][PROMPT_MAX];
static const char *const models[] = {"tests/model/data/llama-default-bf16",
                                     "tests/model/data/qwen3-window-bf16",
                                     "tests/model/data/mistral-linear-bf16"};

#define MODELS (int)(sizeof models / sizeof models[0])

static uint64_t random_state = 7;

static uint32_t below(uint32_t bound)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(random_state >> 33) % bound;
}

static void jobs_make(void)
{
    random_state = 7;
    for (uint32_t i = 0; i < JOBS; i++) {
        uint32_t length = 1 + below(PROMPT_MAX);
        for (uint32_t j = 0; j < length; j++)
            prompts[i][j] = (int32_t)below(256);
        jobs[i] = (struct engine_client_job){
            .prompt = prompts[i],
            .prompt_len = length,
            .generate = i % 8 == 7 ? 0 : OUTPUT,
            .score = i % 4 == 3,
            .embed = i % 8 == 7 ? GPU_POOL_OUT | GPU_NORMALIZE : 0,
            .open = {.seed = i,
                     .sampler.temperature = i % 3 ? 0.9f : 0,
                     .sampler.top_p = i % 2 ? 0.9f : 1,
                     .sampler.min_p = i % 5 ? 0 : 0.05f,
                     .sampler.top_k = i % 4 ? 0 : 20,
                     .sampler.repetition_penalty = i % 6 ? 1 : 1.3f,
                     .sampler.presence_penalty = i % 6 ? 0 : 0.3f,
                     .sampler.frequency_penalty = i % 6 ? 0 : 0.2f,
                     .flags = (i % 6 ? 0 : GPU_SLOT_PENALTIES) | (i % 8 == 7 ? GPU_SLOT_POOL : 0),
                     .eos_from = UINT32_MAX,
                     .logprobs = i % 5,
                     .stop_ids_count = 1,
                     .bias_count = i % 7 ? 0 : 2},
            .stop_ids = {17},
            .bias = {{3, 2.5f}, {200, -1.5f}},
        };
    }
}

static void engine_open(int model, uint32_t threads)
{
    struct emu_options setup = {.engine = EMU_THREADS,
                                .memory_bytes = 256u << 20,
                                .team_threads = threads,
                                .poison = true,
                                .strict = true};
    ck_assert_int_eq(emu_setup(&setup), cudaSuccess);
    struct gpu_options options = {.model = models[model], .tokens_max = 256, .slots_max = JOBS};
    ck_assert_int_eq(engine_client_open(&talk, &options, false), 0);
    ck_assert_int_eq(engine_client_start(&talk), 0);
}

static void same_check(const char *what, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct engine_client_job *a = &alone[i], *b = &jobs[i];
        ck_assert_msg(a->sampled == b->sampled, "%s: job %u", what, i);
        ck_assert_msg(!memcmp(a->samples, b->samples, a->sampled * sizeof a->samples[0]),
                      "%s: samples of job %u", what, i);
        for (uint32_t j = 0; j < a->sampled; j++)
            ck_assert_msg(
                !memcmp(a->tops[j], b->tops[j], a->samples[j].top_count * sizeof a->tops[0][0]),
                "%s: likeliest of job %u", what, i);
        if (a->score)
            ck_assert_msg(!memcmp(a->scores, b->scores, (a->prompt_len - 1) * sizeof a->scores[0]),
                          "%s: scores of job %u", what, i);
        if (a->embed)
            ck_assert_msg(!memcmp(a->embedding, b->embedding, talk.model.hidden * sizeof(float)),
                          "%s: embedding of job %u", what, i);
    }
}

START_TEST(bits_depend_on_the_sequence_alone)
{
    static const struct {
        const char *what;
        uint32_t threads, together, chunk, preempt;
        bool eager;
    } ways[] = {
        {"all together", 1, 0, 0, 0, false},
        {"in chunks of 7", 1, 0, 7, 0, false},
        {"coming and going", 1, 9, 0, 0, false},
        {"preempted", 1, 16, 0, 30, false},
        {"preempted, in chunks of 11", 2, 20, 11, 20, false},
        {"two threads", 2, 0, 0, 0, false},
        {"without graphs", 1, 0, 0, 0, true},
    };
    engine_open(_i, 1);
    jobs_make();
    talk.together = 1;
    ck_assert_int_eq(engine_client_run(&talk, jobs, JOBS), 0);
    memcpy(alone, jobs, sizeof alone);
    engine_client_close(&talk);
    uint32_t different = 0;
    for (uint32_t i = 0; i < JOBS; i++)
        different += alone[i].sampled && alone[i].samples[0].token != alone[0].samples[0].token;
    ck_assert_uint_gt(different, JOBS / 4);
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
        engine_open(_i, ways[w].threads);
        jobs_make();
        talk.together = ways[w].together;
        talk.chunk = ways[w].chunk;
        talk.preempt = ways[w].preempt;
        talk.engine->rank.graphs.off = ways[w].eager;
        ck_assert_int_eq(engine_client_run(&talk, jobs, JOBS), 0);
        same_check(ways[w].what, JOBS);
        struct gpu_counters counters;
        gpu_module.counters(talk.engine, 0, &counters);
        ck_assert(ways[w].eager == !counters.graph_steps);
        engine_client_close(&talk);
    }
}
END_TEST

Suite *bits_suite(void)
{
    Suite *suite = suite_create("bits");
    TCase *tcase = tcase_create("bits");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, bits_depend_on_the_sequence_alone, 0,
                        ENGINE_CLIENT_THIN > 1 ? 1 : MODELS);
    suite_add_tcase(suite, tcase);
    return suite;
}
