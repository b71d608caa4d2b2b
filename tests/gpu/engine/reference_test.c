/* Real models on the CPU device give what transformers gives in float32. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/emu/emu.h"
#include "tests/gpu/gpu_suites.h"
#include "tests/gpu/packed.h"
#include "tests/gpu/rig/engine_client.h"
#include "tests/gpu/rig/reference.h"
#include "tests/gpu/rig/rig.h"

#define TOLERANCE 2e-4f
#define MARGIN 1e-3f

static struct engine_client talk;
static struct engine_client_job jobs[ENGINE_CLIENT_JOBS];
static struct reference reference;
static char names[REFERENCES_MAX][REFERENCE_NAME];
static uint32_t name_count;

static void setup(uint32_t threads)
{
    struct emu_options options = {.engine = EMU_THREADS,
                                  .memory_bytes = 256u << 20,
                                  .team_threads = threads,
                                  .poison = true,
                                  .strict = true};
    ck_assert_int_eq(emu_setup(&options), cudaSuccess);
}

static void model_open(int number)
{
    setup(1);
    ck_assert(reference_read(names[number], &reference));
    struct gpu_options options = {.model = reference.directory, .tokens_max = 512, .slots_max = 64};
    ck_assert_msg(engine_client_open(&talk, &options, false) == 0, "%s", talk.error.text);
    ck_assert_msg(engine_client_start(&talk) == 0, "%s", talk.error.text);
}

static void jobs_run(uint32_t count)
{
    int status = engine_client_run(&talk, jobs, count);
    ck_assert_msg(status == 0, "%s: %d %s", reference.directory, status, talk.error.text);
}

/* Scores themselves are compared in device_test.c, for both devices. */
START_TEST(likeliest_tokens_are_those_of_transformers)
{
    model_open(_i);
    rig_score_jobs(jobs, &reference);
    jobs_run(REFERENCE_PROMPTS);
    uint32_t seen = 0;
    for (uint32_t i = 0; i < REFERENCE_PROMPTS; i++) {
        const struct reference_prompt *prompt = &reference.prompts[i];
        for (uint32_t j = 0; prompt->detailed && j + 1 < prompt->count; j++, seen++) {
            const struct gpu_score *score = &jobs[i].scores[j];
            ck_assert(fabsf(score->top_logprob - prompt->top_logprobs[j]) <= TOLERANCE);
            ck_assert_int_eq(score->top_token, prompt->top_ids[j]);
        }
    }
    ck_assert_uint_gt(seen, 0);
    engine_client_close(&talk);
}
END_TEST

/* Greedy tokens: equal wherever the reference is sure; elsewhere, forced, near the maximum. */
START_TEST(greedy_tokens_are_those_of_transformers)
{
    model_open(_i);
    for (uint32_t i = 0; i < REFERENCE_PROMPTS; i++)
        jobs[i] = (struct engine_client_job){
            .prompt = reference.prompts[i].tokens,
            .prompt_len = reference.prompts[i].count,
            .generate = REFERENCE_GREEDY,
            .open = {.eos_from = UINT32_MAX, .sampler.repetition_penalty = 1}};
    jobs_run(REFERENCE_PROMPTS);
    static int32_t forced[REFERENCE_PROMPTS][ENGINE_CLIENT_TOKENS];
    for (uint32_t i = 0; i < REFERENCE_PROMPTS; i++) {
        const struct reference_prompt *prompt = &reference.prompts[i];
        ck_assert_uint_eq(jobs[i].sampled, REFERENCE_GREEDY);
        for (uint32_t j = 0; j < REFERENCE_GREEDY; j++) {
            const struct gpu_sample *sample = &jobs[i].samples[j];
            if (sample->token != prompt->greedy[j]) {
                ck_assert_msg(prompt->margins[j] <= MARGIN, "%s: prompt %u, token %u", names[_i], i,
                              j);
                break; /* another text from here on */
            }
            ck_assert(fabsf(sample->logprob - prompt->greedy_logprobs[j]) <= TOLERANCE);
        }
        memcpy(forced[i], jobs[i].tokens, sizeof forced[i]);
    }
    for (uint32_t i = 0; i < REFERENCE_PROMPTS; i++)
        jobs[i] =
            (struct engine_client_job){.prompt = forced[i],
                                       .prompt_len = reference.prompts[i].count + REFERENCE_GREEDY,
                                       .score = true};
    jobs_run(REFERENCE_PROMPTS);
    for (uint32_t i = 0; i < REFERENCE_PROMPTS; i++) {
        uint32_t first = reference.prompts[i].count - 1;
        for (uint32_t j = first; j < first + REFERENCE_GREEDY; j++)
            ck_assert(jobs[i].scores[j].top_logprob - jobs[i].scores[j].logprob <= TOLERANCE);
    }
    engine_client_close(&talk);
}
END_TEST

START_TEST(embeddings_are_the_final_hidden_states_of_transformers)
{
    model_open(_i);
    talk.chunk = 7;
    for (uint32_t i = 0; i < REFERENCE_PROMPTS; i++) {
        jobs[2 * i] = (struct engine_client_job){.prompt = reference.prompts[i].tokens,
                                                 .prompt_len = reference.prompts[i].count,
                                                 .embed = GPU_EMBED_LAST};
        jobs[2 * i + 1] = jobs[2 * i];
        jobs[2 * i + 1].embed = GPU_POOL_OUT;
        jobs[2 * i + 1].open.flags = GPU_SLOT_POOL;
    }
    jobs_run(2 * REFERENCE_PROMPTS);
    uint32_t seen = 0;
    for (uint32_t i = 0; i < REFERENCE_PROMPTS; i++) {
        const struct reference_prompt *prompt = &reference.prompts[i];
        for (uint32_t e = 0; prompt->detailed && e < prompt->hidden; e++, seen++) {
            ck_assert(fabsf(jobs[2 * i].embedding[e] - prompt->hidden_last[e]) < 1e-4f);
            ck_assert(fabsf(jobs[2 * i + 1].embedding[e] - prompt->hidden_mean[e]) < 1e-4f);
        }
    }
    ck_assert_uint_gt(seen, 0);
    engine_client_close(&talk);
}
END_TEST

/* The log-probability of the last token after tokens whose first ones stand in this order, or in
 * the other. */
static float last_score(bool turned)
{
    static int32_t tokens[REFERENCE_TOKENS];
    const struct reference_prompt *prompt = &reference.prompts[REFERENCE_PROMPTS - 2];
    uint32_t count = prompt->count;
    for (uint32_t i = 0; i < count; i++)
        tokens[i] = prompt->tokens[turned && i + 2 < count ? count - 3 - i : i];
    jobs[0] = (struct engine_client_job){.prompt = tokens, .prompt_len = count, .score = true};
    jobs_run(1);
    return jobs[0].scores[count - 2].logprob;
}

/* One layer that does not know of positions sees a set of tokens. */
START_TEST(a_layer_without_rope_knows_no_order)
{
    char from[256], file[300], directory[] = "/tmp/unrotated.XXXXXX";
    setup(1);
    ck_assert(reference_read("llama-mha-bf16", &reference));
    memcpy(from, reference.directory, sizeof from);
    ck_assert_ptr_nonnull(mkdtemp(directory));
    bool made = (_i ? rotated_make : unrotated_make)(from, "llama", directory);
    struct gpu_options options = {.model = directory, .tokens_max = 512, .slots_max = 64};
    int status = made ? engine_client_open(&talk, &options, false) : -1;
    for (int i = 0; i < 2; i++) {
        snprintf(file, sizeof file, "%s/%s", directory, i ? "config.json" : "model.safetensors");
        (void)unlink(file);
    }
    (void)rmdir(directory);
    ck_assert_msg(made && status == 0, "%s", talk.error.text);
    ck_assert_int_eq(engine_client_start(&talk), 0);
    float off = fabsf(last_score(false) - last_score(true));
    ck_assert_msg(_i ? off > 10 * TOLERANCE : off < TOLERANCE, "%g", (double)off);
    engine_client_close(&talk);
}
END_TEST

Suite *reference_suite(void)
{
    Suite *suite = suite_create("reference");
    TCase *tcase = tcase_create("reference");
    tcase_set_timeout(tcase, 60);
    name_count = reference_names(names);
    tcase_add_loop_test(tcase, likeliest_tokens_are_those_of_transformers, 0, (int)name_count);
    tcase_add_loop_test(tcase, greedy_tokens_are_those_of_transformers, 0, (int)name_count);
    tcase_add_loop_test(tcase, embeddings_are_the_final_hidden_states_of_transformers, 0,
                        (int)name_count);
    tcase_add_loop_test(tcase, a_layer_without_rope_knows_no_order, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}
