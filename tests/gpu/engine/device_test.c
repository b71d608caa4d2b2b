/* The engine on whatever device it is built for: answers of the null model's rule, the reference
 * checkpoints within what the device's dtypes allow, the same bits for the same plans, memory back.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/engine/engine.h"
#include "tests/gpu/gpu_suites.h"
#include "tests/gpu/rig/drive.h"
#include "tests/gpu/rig/rig.h"

#define STEPS (ENGINE_CLIENT_THIN > 1 ? 300 : 1500)
#define REPLAYS (ENGINE_CLIENT_THIN > 1 ? 5 : 100)
#define OUTPUT 40

static struct drive drive;
static struct engine_client talk;
static struct engine_client_job jobs[ENGINE_CLIENT_JOBS], first[ENGINE_CLIENT_JOBS];
static struct reference reference;
static char names[REFERENCES_MAX][REFERENCE_NAME];

static void model_open(const char *name)
{
    ck_assert(rig_setup());
    ck_assert(reference_read(name, &reference));
    struct gpu_options options = {.model = reference.directory,
                                  .dtype = rig_dtype,
                                  .tokens_max = 512,
                                  .slots_max = 64,
                                  .slab_bytes = 4u << 20};
    if (strstr(name, "-kv-"))
        options.kv_dtype = GPU_KV_FP8;
    ck_assert_msg(engine_client_open(&talk, &options, false) == 0, "%s", talk.error.text);
    ck_assert_msg(engine_client_start(&talk) == 0, "%s", talk.error.text);
}

static void jobs_run(uint32_t count)
{
    int status = engine_client_run(&talk, jobs, count);
    ck_assert_msg(status == 0, "%s: %d %s", reference.directory, status, talk.error.text);
}

START_TEST(random_plans_give_the_answers_of_the_rule)
{
    ck_assert(rig_setup());
    struct drive_options options = {.seed = 31, .graphs = _i};
    ck_assert_int_eq(drive_open(&drive, &options), 0);
    ck_assert_int_eq(drive_steps(&drive, STEPS), 0);
    ck_assert_int_eq(drive_finish(&drive), 0);
    ck_assert_uint_eq(drive.wrong, 0);
    struct gpu_counters counters;
    gpu_module.counters(drive.engine, 0, &counters);
    ck_assert_uint_eq(counters.steps, STEPS);
    ck_assert(_i == (counters.graph_steps > 0));
    ck_assert_uint_eq(counters.allocations + counters.synchronizes + counters.pageable_copies, 0);
    drive_close(&drive);
}
END_TEST

START_TEST(scores_are_those_of_transformers)
{
    static const uint32_t chunks[] = {0, 7, 1};
    model_open(names[_i]);
    for (int i = 0; i < 3; i++) {
        talk.chunk = chunks[i];
        rig_score_jobs(jobs, &reference);
        jobs_run(REFERENCE_PROMPTS);
        struct rig_error error = rig_compare(jobs, &reference);
        ck_assert_msg(rig_right(error, &reference), "%s, chunks of %u: mean %g, worst %g, %g far",
                      names[_i], chunks[i], error.mean, error.max, error.far);
    }
    engine_client_close(&talk);
}
END_TEST

/* Several behind one prompt, however it is cut: its own last token, and others, whose sum with it
 * is no more than all there is. */
START_TEST(tokens_that_may_come_next_score_as_those_that_came)
{
    static const uint32_t chunks[] = {0, 7, 1};
    struct rig_error error = {.far = 1}; /* of so few none may be */
    model_open(names[_i]);
    talk.chunk = chunks[_i % 3];
    for (uint32_t p = 0; p < REFERENCE_PROMPTS; p++) {
        const struct reference_prompt *prompt = &reference.prompts[p];
        int32_t own = prompt->tokens[prompt->count - 1];
        jobs[p] =
            (struct engine_client_job){.prompt = prompt->tokens,
                                       .prompt_len = prompt->count > 1 ? prompt->count - 1 : 1,
                                       .next_count = 3,
                                       .next = {own ? 0 : 1, own, own > 1 ? 1 : 2}};
    }
    jobs_run(REFERENCE_PROMPTS);
    for (uint32_t p = 0; p < REFERENCE_PROMPTS; p++) {
        const struct reference_prompt *prompt = &reference.prompts[p];
        double sum = 0, off = 0;
        if (prompt->count > 1) /* of a single token nothing is known */
            off = fabs((double)jobs[p].scores[1].logprob -
                       (double)prompt->logprobs[prompt->count - 2]);
        for (uint32_t n = 0; n < 3; n++)
            sum += exp((double)jobs[p].scores[n].logprob);
        ck_assert(sum < 1.001);
        error.mean += off / REFERENCE_PROMPTS;
        error.max = off > error.max ? off : error.max;
    }
    ck_assert_msg(rig_right(error, &reference), "%s: mean %g, worst %g", names[_i], error.mean,
                  error.max);
    engine_client_close(&talk);
}
END_TEST

/* Those of quantized.py and quantized_whole.py. */
static const char *const quantized[] = {
    "glm-fp8-blocks", "llama-ct-blocks", "llama-ct-channel", "llama-ct-mixed", "llama-ct-static",
    "llama-fp8-blocks", "llama-fp8-tensor", "phi3-ct-channel", "qwen2-ct-weights",
    "qwen2-fp8-static", "qwen3-fp8-blocks",
    /* in whole numbers */
    "glm-awq", "llama-autoround", "llama-awq", "llama-ct-u4-order", "llama-ct-u8", "llama-gptq-sym",
    "phi3-gptq-channel", "qwen2-gptq-dynamic", "qwen2-gptq-order", "qwen3-ct-u4-zeros",
    "qwen3-gptq-order-8",
    /* of mixtures of experts */
    "glm4-moe-autoround", "glm4-moe-ct-weights", "gpt-oss-mxfp4", "gpt-oss-mxfp4-blocks",
    "mixtral-awq", "mixtral-ct-blocks",
    "mixtral-fp8-static", "mixtral-gptq-sym", "olmoe-ct-u8", "olmoe-fp8-tensor",
    "qwen2-moe-ct-channel", "qwen2-moe-ct-u4", "qwen3-moe-awq", "qwen3-moe-fp8-blocks",
    "qwen3-moe-gptq-order",
    /* with keys and values in eight bits */
    "llama-kv-static", "phi3-kv-token", "qwen2-kv-parts", "qwen3-kv-token"};

/* In 16 bits rounded inputs fall on other sides of edges, in PyTorch as here (quantized.py): what
 * it is off counts, and what all others may be at the least. */
START_TEST(scores_of_quantized_checkpoints_are_those_of_dequantized_ones)
{
    static const uint32_t chunks[] = {0, 7, 1};
    char path[128];
    const char *name = quantized[_i * ENGINE_CLIENT_THIN];
    snprintf(path, sizeof path, "../quantized/%s", name);
    model_open(path);
    for (int i = 0; i < 3; i++) {
        talk.chunk = chunks[i];
        rig_score_jobs(jobs, &reference);
        jobs_run(REFERENCE_PROMPTS);
        struct rig_error error = rig_compare(jobs, &reference);
        ck_assert_msg(rig_right_rounded(error, &reference),
                      "%s, chunks of %u: mean %g, worst %g, %g far", name, chunks[i], error.mean,
                      error.max, error.far);
    }
    engine_client_close(&talk);
}
END_TEST

/* Those of adapted.py, beside the base that the first word names. */
static const struct {
    const char *base, *name;
} adapted[] = {
    {"llama-default-bf16", "all"},   {"llama-default-bf16", "root"},
    {"llama-default-bf16", "wide"},  {"llama-default-bf16", "one"},
    {"phi3-partial-f32", "all"},     {"glm-default-bf16", "all"},
    {"qwen2-default-bf16", "all"},   {"qwen3-default-bf16", "all"},
    {"gemma2-default-bf16", "all"},  {"olmo2-default-bf16", "all"},
    {"starcoder2-plain-f16", "all"}, {"../quantized/qwen2-ct-weights", "all"},
};
#define ADAPTED (int)(sizeof(adapted) / sizeof(adapted[0]))

static void adapted_open(const struct gpu_adapter *adapter, bool later)
{
    struct error error;
    struct gpu_options options = {.model = reference.directory,
                                  .adapters = adapter,
                                  .adapter_count = later ? 0 : 1,
                                  .adapters_max = later ? 2 : 0,
                                  .adapter_rank_max = 256,
                                  .dtype = rig_dtype,
                                  .tokens_max = 512,
                                  .slots_max = 64,
                                  .slab_bytes = 4u << 20};
    ck_assert_msg(engine_client_open(&talk, &options, false) == 0, "%s", talk.error.text);
    ck_assert_msg(engine_client_start(&talk) == 0, "%s", talk.error.text);
    if (later)
        ck_assert_msg(gpu_module.adapter_load(talk.engine, 1, adapter, &error) == 0, "%s",
                      error.text);
}

/* Decode steps of rows with and without it, as graphs, have the same bits each time. */
static void adapted_decode(void)
{
    for (int again = 0; again < 3; again++) {
        for (uint32_t i = 0; i < 6; i++)
            jobs[i] = (struct engine_client_job){.prompt = reference.prompts[3].tokens,
                                                 .prompt_len = reference.prompts[3].count,
                                                 .generate = 8,
                                                 .open = {.eos_from = UINT32_MAX,
                                                          .adapter = i % 2,
                                                          .sampler.repetition_penalty = 1}};
        jobs_run(6);
        if (again == 0)
            memcpy(first, jobs, sizeof first);
        for (uint32_t i = 0; i < 6; i++) {
            ck_assert(!memcmp(jobs[i].samples, first[i].samples, 8 * sizeof *jobs[i].samples));
            ck_assert(!memcmp(jobs[i].samples, jobs[i % 2].samples, 8 * sizeof *jobs[i].samples));
        }
        ck_assert(memcmp(jobs[0].samples, jobs[1].samples, 8 * sizeof *jobs[0].samples) != 0);
    }
    struct gpu_counters counters;
    gpu_module.counters(talk.engine, 0, &counters);
    ck_assert_uint_gt(counters.graph_steps, 0);
}

/* An adapter of the start, and one that was read behind it. */
START_TEST(scores_with_adapters_are_those_of_peft)
{
    static const uint32_t chunks[] = {0, 7, 1};
    char path[160], directory[192];
    bool later = _i % 2;
    const char *base = adapted[_i / 2].base, *name = adapted[_i / 2].name;
    const char *plain = strrchr(base, '/') ? strrchr(base, '/') + 1 : base;
    snprintf(directory, sizeof directory, "tests/model/adapted/%s.%s", plain, name);
    snprintf(path, sizeof path, "../adapted/%s.%s", plain, name);
    const struct gpu_adapter adapter = {.name = name, .directory = directory};
    ck_assert(rig_setup());
    ck_assert(reference_read(base, &reference));
    adapted_open(&adapter, later);
    ck_assert(reference_read(path, &reference));
    for (int i = 0; i < 3; i++) {
        talk.chunk = chunks[i];
        rig_score_jobs(jobs, &reference);
        for (uint32_t j = 0; j < REFERENCE_PROMPTS; j++)
            jobs[j].open.adapter = 1;
        jobs_run(REFERENCE_PROMPTS);
        struct rig_error error = rig_compare(jobs, &reference);
        rig_tell(path, error);
        ck_assert_msg(rig_right(error, &reference), "%s, chunks of %u: mean %g, worst %g", path,
                      chunks[i], error.mean, error.max);
    }
    talk.chunk = 0;
    adapted_decode();
    engine_client_close(&talk);
}
END_TEST

static void samples_make(void)
{
    for (uint32_t i = 0; i < 32; i++) {
        const struct reference_prompt *prompt = &reference.prompts[i % REFERENCE_PROMPTS];
        jobs[i] = (struct engine_client_job){
            .prompt = prompt->tokens,
            .prompt_len = prompt->count,
            .generate = OUTPUT,
            .open = {.seed = i,
                     .sampler.temperature = i % 2 ? 0.8f : 0,
                     .sampler.top_p = i % 3 ? 1 : 0.9f,
                     .sampler.repetition_penalty = i % 4 ? 1 : 1.2f,
                     .flags = i % 4 ? 0 : GPU_SLOT_PENALTIES,
                     .eos_from = UINT32_MAX},
        };
    }
}

#define POISON_BYTES (64u << 10)
#define POISON_PIECES 256

/* What steps find in scratch, and graphs in their arena, is not what the steps before left there.
 */
static void scratch_poison(int byte)
{
    struct rank *rank = &talk.engine->rank;
    struct gpu_memory memory;
    void *pieces[POISON_PIECES];
    cudaStream_t compute = rank->lane.compute;
    gpu_module.memory(talk.engine, 0, &memory);
    uint64_t fit = (memory.scratch_held - memory.scratch_used) / POISON_BYTES, count = 0;
    ck_assert_uint_gt(fit, 4);
    for (; count + 2 < fit && count < POISON_PIECES; count++) {
        ck_assert_int_eq(mem_scratch(&rank->mem, POISON_BYTES, &pieces[count], NULL), 0);
        ck_assert_int_eq(cudaMemsetAsync(pieces[count], byte, POISON_BYTES, compute), cudaSuccess);
    }
    while (count > 0)
        ck_assert_int_eq(mem_scratch_free(&rank->mem, pieces[--count], POISON_BYTES, NULL), 0);
    if (rank->graphs.arena)
        ck_assert_int_eq(
            cudaMemsetAsync(rank->graphs.arena, byte, rank->graphs.arena_bytes, compute),
            cudaSuccess);
}

START_TEST(the_same_plans_give_the_same_bits)
{
    model_open("llama-default-bf16");
    for (int replay = -1; replay < REPLAYS; replay++) {
        if (replay > 0)
            scratch_poison(replay % 2 ? 0xff : 0x3f); /* not a number; about one half */
        samples_make();
        jobs_run(32);
        if (replay < 0) /* graphs are captured: other kernels may have computed some steps */
            continue;
        if (!replay)
            memcpy(first, jobs, sizeof first);
        for (uint32_t i = 0; i < 32; i++) {
            ck_assert_uint_eq(jobs[i].sampled, OUTPUT);
            ck_assert_msg(
                !memcmp(jobs[i].samples, first[i].samples, OUTPUT * sizeof first[i].samples[0]),
                "replay %d, job %u", replay, i);
        }
    }
    struct gpu_counters counters;
    gpu_module.counters(talk.engine, 0, &counters);
    ck_assert_uint_gt(counters.graph_steps, OUTPUT);
    engine_client_close(&talk);
}
END_TEST

/* Every greedy token is, forced through score, close to the likeliest. */
START_TEST(greedy_tokens_are_the_likeliest_or_nearly)
{
    model_open("qwen3-window-bf16");
    static int32_t forced[REFERENCE_PROMPTS][ENGINE_CLIENT_TOKENS];
    for (uint32_t i = 0; i < REFERENCE_PROMPTS; i++)
        jobs[i] = (struct engine_client_job){
            .prompt = reference.prompts[i].tokens,
            .prompt_len = reference.prompts[i].count,
            .generate = OUTPUT,
            .open = {.eos_from = UINT32_MAX, .sampler.repetition_penalty = 1}};
    jobs_run(REFERENCE_PROMPTS);
    for (uint32_t i = 0; i < REFERENCE_PROMPTS; i++)
        memcpy(forced[i], jobs[i].tokens, sizeof forced[i]);
    for (uint32_t i = 0; i < REFERENCE_PROMPTS; i++)
        jobs[i] = (struct engine_client_job){
            .prompt = forced[i], .prompt_len = reference.prompts[i].count + OUTPUT, .score = true};
    jobs_run(REFERENCE_PROMPTS);
    for (uint32_t i = 0; i < REFERENCE_PROMPTS; i++) {
        uint32_t from = reference.prompts[i].count - 1;
        for (uint32_t j = from; j < from + OUTPUT; j++)
            ck_assert(jobs[i].scores[j].top_logprob - jobs[i].scores[j].logprob <= 0.1f);
    }
    engine_client_close(&talk);
}
END_TEST

/* Each output is one input by the greatest weight that there is; of normed inputs some are above 1.
 */
static void matrix_fill(const struct weight *weight)
{
    static const uint16_t greatest[] = {[DTYPE_BF16] = 0x7f7f, [DTYPE_F16] = 0x7bff};
    uint16_t *values = calloc((size_t)weight->n * weight->k, sizeof *values);
    ck_assert(weight->format != FORMAT_F32);
    for (uint32_t n = 0; n < weight->n; n++)
        values[(size_t)n * weight->k + n % weight->k] = greatest[weight->format];
    rig_store((void *)weight->data, values, (size_t)weight->n * weight->k * sizeof *values);
    free(values);
}

/* Nothing that overflows on the way is cut to a number again. */
START_TEST(what_overflows_gives_no_finite_result)
{
    model_open("llama-default-bf16");
    matrix_fill(rig_weight(&talk.engine->rank, _i ? "model.layers.0.mlp.gate_proj.weight"
                                                  : "model.layers.0.self_attn.q_proj.weight"));
    for (uint32_t i = 0; i < 24; i++) /* steps of few rows and of many */
        jobs[i] = (struct engine_client_job){
            .prompt = reference.prompts[i % REFERENCE_PROMPTS].tokens,
            .prompt_len = reference.prompts[i % REFERENCE_PROMPTS].count,
            .generate = i % 3 ? 0 : 4 + i,
            .score = i % 3 == 1,
            .embed = i % 3 == 2 ? GPU_EMBED_LAST : 0,
            .open = {.sampler.temperature = i % 2 ? 0.8f : 0, .sampler.top_p = 1}};
    jobs_run(24);
    for (uint32_t i = 0; i < 24; i++) {
        for (uint32_t j = 0; j < jobs[i].sampled; j++)
            ck_assert(!isfinite(jobs[i].samples[j].logprob));
        for (uint32_t j = 0; i % 3 == 1 && j + 1 < jobs[i].prompt_len; j++)
            ck_assert(!isfinite(jobs[i].scores[j].logprob));
        ck_assert(i % 3 < 2 || !isfinite(jobs[i].embedding[0]));
        ck_assert(i % 3 || jobs[i].sampled > 0);
    }
    engine_client_close(&talk);
}
END_TEST

START_TEST(memory_comes_back_when_idle)
{
    model_open("llama-default-bf16");
    struct gpu_memory before, after;
    gpu_module.memory(talk.engine, 0, &before);
    samples_make();
    jobs_run(32);
    gpu_module.memory(talk.engine, 0, &after);
    ck_assert_uint_gt(after.kv_used, 0);
    ck_assert_uint_gt(after.graphs, 0);
    uint32_t per_slab = talk.model.groups[0].slab_blocks;
    for (uint32_t slab = 0; slab * per_slab < talk.block_end[0]; slab++)
        ck_assert_int_eq(gpu_module.kv_shrink(talk.engine, 0, slab, &talk.error), 0);
    ck_assert_int_eq(gpu_module.trim(talk.engine, &talk.error), 0);
    gpu_module.memory(talk.engine, 0, &after);
    ck_assert_uint_eq(after.weights, before.weights);
    ck_assert_uint_eq(after.kv_used + after.kv_held + after.scratch_used + after.graphs, 0);
    ck_assert_uint_eq(after.scratch_held, 0);
    engine_client_close(&talk);
}
END_TEST

Suite *device_suite(void)
{
    Suite *suite = suite_create("device");
    TCase *tcase = tcase_create("device");
    tcase_set_timeout(tcase, 120);
    int count = (int)reference_names(names);
    tcase_add_loop_test(tcase, random_plans_give_the_answers_of_the_rule, 0, 2);
    tcase_add_loop_test(tcase, scores_are_those_of_transformers, 0, count);
    tcase_add_loop_test(tcase, tokens_that_may_come_next_score_as_those_that_came, 0, count);
    tcase_add_loop_test(tcase, scores_of_quantized_checkpoints_are_those_of_dequantized_ones, 0,
                        ENGINE_CLIENT_TURNS(sizeof quantized / sizeof *quantized));
    tcase_add_test(tcase, the_same_plans_give_the_same_bits);
    tcase_add_test(tcase, greedy_tokens_are_the_likeliest_or_nearly);
    tcase_add_loop_test(tcase, what_overflows_gives_no_finite_result, 0, 2);
    tcase_add_test(tcase, memory_comes_back_when_idle);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("adapters");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, scores_with_adapters_are_those_of_peft, 0, 2 * ADAPTED);
    suite_add_tcase(suite, tcase);
    return suite;
}
