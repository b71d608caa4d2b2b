/* Mixtures whose experts' weights are in 8 and 4 bits (tests/model/quantized.py,
 * quantized_whole.py, mxfp4.py) on the CPU device give what dequantized weights give in float32, with inputs
 * rounded where the scheme says so: on one device, two that share each layer by columns or by
 * experts, and two stages. What belongs to one expert and is taken for another is seen. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/gpu/gpu_suites.h"
#include "tests/gpu/rig/engine_client.h"
#include "tests/gpu/rig/reference.h"
#include "tests/gpu/rig/rig.h"
#include "tests/gpu/rig/rig_emu.h"
#include "tests/model/scratch.h"
#include "tests/runner.h"

#define PLACE "../quantized/"

static const struct checkpoint_case {
    const char *name;
    const char *shared; /* by columns: NULL: it is; else why it is not */
    bool rounds, staged;
} cases[] = {
    {"mixtral-fp8-static", NULL, true, true},
    {"olmoe-fp8-tensor", NULL, true, true},
    {"qwen3-moe-fp8-blocks", NULL, true, false},
    {"mixtral-ct-blocks", "a rank's 72 columns of an expert are no whole groups of 128", false,
     false},
    {"qwen2-moe-ct-channel", NULL, true, true},
    {"glm4-moe-ct-weights", NULL, false, true},
    {"mixtral-gptq-sym", NULL, false, true},
    {"qwen3-moe-gptq-order",
     "columns of experts that are in no order are not shared out: --ep shares out whole experts",
     false, false},
    {"mixtral-awq", NULL, false, false},
    {"qwen3-moe-awq", "a rank's 32 columns of an expert are no whole groups of 64", false, true},
    {"qwen2-moe-ct-u4", "a rank's 24 columns of an expert are no whole groups of 32", false, false},
    {"olmoe-ct-u8", NULL, false, false},
    {"glm4-moe-autoround", "a rank's 32 columns of an expert are no whole groups of 64", false,
     true},
    {"gpt-oss-mxfp4", NULL, false, true},
    {"gpt-oss-mxfp4-blocks", "a rank's 16 columns of an expert are no whole groups of 32", false, false},
};
#define CASES ENGINE_CLIENT_TURNS(sizeof cases / sizeof *cases)

static const struct layout {
    uint32_t tp, pp;
    bool ep;
} layouts[] = {{1, 1, false}, {2, 1, false}, {2, 1, true}, {1, 2, false}};
#define LAYOUTS (int)(sizeof layouts / sizeof *layouts)

static struct engine_client talk;
static struct engine_client_job jobs[ENGINE_CLIENT_JOBS];
static struct reference reference;

static int model_open(const char *name, const struct layout *layout, enum gpu_quantize quantize)
{
    char path[128];
    snprintf(path, sizeof path, quantize ? "%s" : PLACE "%s", name);
    ck_assert(rig_emu(EMU_THREADS, RIG_DEVICES, 0));
    ck_assert(reference_read(path, &reference));
    struct gpu_options options = {.model = reference.directory,
                                  .tp = layout->tp,
                                  .pp = layout->pp,
                                  .ep = layout->ep,
                                  .quantize = quantize,
                                  .tokens_max = 512,
                                  .slots_max = 64};
    int status = engine_client_open(&talk, &options, false);
    return status ? status : engine_client_start(&talk);
}

static struct rig_error error_run(void)
{
    rig_score_jobs(jobs, &reference);
    int status = engine_client_run(&talk, jobs, REFERENCE_PROMPTS);
    ck_assert_msg(status == 0, "%d %s", status, talk.error.text);
    return rig_compare(jobs, &reference);
}

/* A value at the edge between two of eight bits may fall on the other side of it; and ranks that
 * share columns round theirs by scales of their own. */
static bool right(const struct checkpoint_case *c, bool shared, struct rig_error error)
{
    if (!c->rounds)
        return error.max <= 2e-4;
    return shared ? error.mean <= 0.1 : error.mean <= 1e-3 && error.max <= 0.02;
}

START_TEST(mixtures_score_as_dequantized_ones_do)
{
    const struct checkpoint_case *c = &cases[_i % CASES * ENGINE_CLIENT_THIN];
    const struct layout *layout = &layouts[_i / CASES];
    bool by_columns = layout->tp > 1 && !layout->ep;
    if (layout->pp > 1 && !c->staged)
        RUNNER_SKIP("%s has one layer", c->name);
    int status = model_open(c->name, layout, GPU_QUANTIZE_NONE);
    if (by_columns && c->shared) {
        ck_assert_int_eq(status, -ERR_BAD_CONFIG);
        ck_assert_msg(strstr(talk.error.text, c->shared) != NULL, "%s", talk.error.text);
        return;
    }
    ck_assert_msg(status == 0, "%s", talk.error.text);
    struct rig_error error = error_run();
    rig_tell(c->name, error);
    ck_assert_msg(right(c, layout->tp > 1, error), "%s, tp %u, pp %u, ep %d: mean %g, worst %g",
                  c->name, layout->tp, layout->pp, layout->ep, error.mean, error.max);
    engine_client_close(&talk);
}
END_TEST

/* Without the rounding of inputs, what ranks have of the weights gives what one device has. */
static void inputs_leave(void)
{
    for (uint32_t r = 0; r < talk.ranks; r++)
        for (uint32_t i = 0; i < talk.engine->facts.source.list.weight_count; i++)
            engine_rank(talk.engine, r)->weights.at[i].input.rounding = ROUNDING_NONE;
}

START_TEST(ranks_have_their_parts_of_rounding_mixtures)
{
    const struct checkpoint_case *c = &cases[_i % CASES * ENGINE_CLIENT_THIN];
    const struct layout *layout = &layouts[1 + _i / CASES];
    static struct reference alone;
    if (!c->rounds)
        RUNNER_SKIP("%s rounds no inputs", c->name);
    ck_assert_int_eq(model_open(c->name, &layouts[0], GPU_QUANTIZE_NONE), 0);
    inputs_leave();
    (void)error_run();
    alone = reference;
    for (uint32_t i = 0; i < REFERENCE_PROMPTS; i++)
        for (uint32_t j = 0; j + 1 < reference.prompts[i].count; j++)
            alone.prompts[i].logprobs[j] = jobs[i].scores[j].logprob;
    engine_client_close(&talk);
    ck_assert_int_eq(model_open(c->name, layout, GPU_QUANTIZE_NONE), 0);
    inputs_leave();
    (void)error_run();
    struct rig_error error = rig_compare(jobs, &alone);
    ck_assert_msg(error.max <= 2e-4, "%s, ep %d: worst %g", c->name, layout->ep, error.max);
    engine_client_close(&talk);
}
END_TEST

/* ---- mistakes ---- */

static char buffer[1 << 20], changed[1 << 20];

/* What lies one behind another, `size` bytes for each expert: each has that of the next. */
static void next_of(const void *data, uint64_t size, uint32_t experts)
{
    ck_assert(data && size * experts <= sizeof buffer);
    rig_fetch(buffer, data, size * experts);
    memcpy(changed, buffer + size, size * (experts - 1));
    memcpy(changed + size * (experts - 1), buffer, size);
    rig_store((void *)data, changed, size * experts);
}

static void scales_of_the_next(struct weight *w, uint32_t experts)
{
    next_of(w->scales.data, weight_scale_count(w) * sizeof(float), experts);
}

static void zeros_of_the_next(struct weight *w, uint32_t experts)
{
    next_of(w->zeros, weight_scale_count(w), experts);
}

static void order_of_the_next(struct weight *w, uint32_t experts)
{
    next_of(w->order, w->k * sizeof *w->order, experts);
}

static void inputs_of_the_next(struct weight *w, uint32_t experts)
{
    next_of(w->input.scales, sizeof(float), experts);
}

static void blocks_transposed(struct weight *w, uint32_t experts)
{
    ck_assert(w->scales.n == 128 && w->scales.k == 128 && weight_scale_count(w) == 4);
    for (uint32_t e = 0; e < experts; e++) {
        struct weight of = weight_of_expert(w, e);
        float scales[4];
        rig_fetch(scales, of.scales.data, sizeof scales);
        float second = scales[1];
        scales[1] = scales[2];
        scales[2] = second;
        rig_store((void *)of.scales.data, scales, sizeof scales);
    }
}

static void inputs_not_rounded(struct weight *w, uint32_t experts)
{
    (void)experts;
    ck_assert_int_ne(w->input.rounding, ROUNDING_NONE);
    w->input.rounding = ROUNDING_NONE;
}

/* Of each row the block beside has it. */
static void exponents_of_the_block_beside(struct weight *w, uint32_t experts)
{
    uint64_t count = weight_scale_count(w) * experts;
    ck_assert(w->scales.exponents && w->scales.k && w->k / w->scales.k % 2 == 0);
    ck_assert(count <= sizeof buffer);
    rig_fetch(buffer, w->scales.data, count);
    for (uint64_t i = 0; i < count; i++)
        changed[i] = buffer[i ^ 1];
    rig_store((void *)w->scales.data, changed, count);
}

static void exponents_of_the_next(struct weight *w, uint32_t experts)
{
    next_of(w->scales.data, weight_scale_count(w), experts);
}

static void halves_of_bytes_exchanged(struct weight *w, uint32_t experts)
{
    uint64_t bytes = format_bytes(w->format, w->n, w->k) * experts;
    ck_assert(bytes <= sizeof buffer);
    rig_fetch(buffer, w->data, bytes);
    for (uint64_t i = 0; i < bytes; i++)
        changed[i] = (char)((uint8_t)buffer[i] >> 4 | (uint8_t)buffer[i] << 4);
    rig_store((void *)w->data, changed, bytes);
}

#define STACKED(of) "model.layers.0.mlp.experts." of
#define MLP(of) "model.layers.0.mlp.experts.0." of
#define SPARSE(of) "model.layers.0.block_sparse_moe.experts.0." of

static const struct mistake {
    const char *name, *model, *tensor;
    void (*make)(struct weight *w, uint32_t experts);
    uint32_t experts;
} mistakes[] = {
    {"scales of the next", "qwen2-moe-ct-channel", MLP("down_proj.weight"), scales_of_the_next, 6},
    {"scales of the next", "olmoe-fp8-tensor", MLP("gate_proj.weight"), scales_of_the_next, 4},
    {"scales of the next", "mixtral-gptq-sym", SPARSE("w2.qweight"), scales_of_the_next, 4},
    {"scales of the next", "mixtral-ct-blocks", SPARSE("w1.weight"), scales_of_the_next, 4},
    {"blocks transposed", "mixtral-ct-blocks", SPARSE("w2.weight"), blocks_transposed, 4},
    {"blocks transposed", "qwen3-moe-fp8-blocks", MLP("down_proj.weight"), blocks_transposed, 4},
    {"zeros of the next", "mixtral-awq", SPARSE("w1.qweight"), zeros_of_the_next, 6},
    {"zeros of the next", "qwen2-moe-ct-u4", MLP("down_proj.weight_packed"), zeros_of_the_next, 4},
    {"order of the next", "qwen3-moe-gptq-order", MLP("down_proj.qweight"), order_of_the_next, 6},
    {"inputs' scales of the next", "mixtral-fp8-static", SPARSE("w2.weight"), inputs_of_the_next,
     8},
    {"inputs not rounded", "qwen3-moe-fp8-blocks", MLP("gate_proj.weight"), inputs_not_rounded, 4},
    {"inputs not rounded", "mixtral-fp8-static", SPARSE("w1.weight"), inputs_not_rounded, 8},
    {"scales of the block beside", "gpt-oss-mxfp4", STACKED("down_proj_blocks"),
     exponents_of_the_block_beside, 6},
    {"scales of the next", "gpt-oss-mxfp4", STACKED("gate_up_proj_blocks"), exponents_of_the_next,
     6},
    {"halves of bytes exchanged", "gpt-oss-mxfp4-blocks", STACKED("gate_up_proj_blocks"),
     halves_of_bytes_exchanged, 4},
};

START_TEST(what_is_anothers_is_seen)
{
    const struct mistake *mistake = &mistakes[_i * ENGINE_CLIENT_THIN];
    ck_assert_int_eq(model_open(mistake->model, &layouts[0], GPU_QUANTIZE_NONE), 0);
    mistake->make(rig_weight(&talk.engine->rank, mistake->tensor), mistake->experts);
    struct rig_error error = error_run();
    rig_tell(mistake->name, error);
    ck_assert_msg(error.mean > 1e-3 && error.max > 0.02, "%s, %s: mean %g, worst %g",
                  mistake->model, mistake->name, error.mean, error.max);
    engine_client_close(&talk);
}
END_TEST

/* ---- values ---- */

/* A tensor of an expert that is not the first has what cannot be. */
static const struct wrong {
    const char *model, *tensor;
    uint8_t bytes[8];
    uint32_t size;
    const char *text;
} wrong[] = {
    {"mixtral-gptq-sym",
     "model.layers.1.block_sparse_moe.experts.3.w2.scales",
     {0, 0},
     2,
     "experts.3.w2.scales: value 0 is 0: a scale must be above 0"},
    {"mixtral-fp8-static",
     "model.layers.1.block_sparse_moe.experts.5.w3.input_scale",
     {0, 0, 0x80, 0x7f},
     4,
     "experts.5.w3.input_scale: inf is no scale: it must be above 0"},
    {"mixtral-fp8-static",
     "model.layers.1.block_sparse_moe.experts.5.w3.input_scale",
     {0, 0, 0x80, 0x3f},
     4,
     "that of model.layers.1.block_sparse_moe.experts.5.w1.input_scale: they are one matrix"},
    {"qwen3-moe-gptq-order",
     "model.layers.0.mlp.experts.4.up_proj.g_idx",
     {2},
     4,
     "experts.4.up_proj.g_idx: value 0 is 2: it must be a group, below 2"},
    {"qwen2-moe-ct-u4",
     "model.layers.0.mlp.experts.2.down_proj.weight_shape",
     {63},
     8,
     "experts.2.down_proj.weight_shape: [63, 48] is not [64, 48], as config.json makes it"},
    {"gpt-oss-mxfp4",
     "model.layers.1.mlp.experts.gate_up_proj_scales",
     {127, 126, 255},
     3,
     "layers.1.mlp.experts.gate_up_proj_scales: value 2 is 255: a scale must be a number"},
};

START_TEST(values_of_any_expert_that_are_none_are_refused)
{
    const struct wrong *w = &wrong[_i];
    char directory[SCRATCH_PATH_MAX], from[128];
    scratch_make(directory);
    snprintf(from, sizeof from, REFERENCE_DATA "/" PLACE "%s", w->model);
    scratch_copy(from, directory);
    scratch_overwrite(directory, "model.safetensors", w->tensor, w->bytes, w->size);
    ck_assert(rig_emu(EMU_THREADS, RIG_DEVICES, 0));
    struct gpu_options options = {.model = directory, .tokens_max = 512, .slots_max = 64};
    int status = engine_client_open(&talk, &options, false);
    if (!status) {
        status = engine_client_start(&talk);
        engine_client_close(&talk);
    }
    scratch_remove(directory);
    ck_assert_int_eq(status, -ERR_BAD_MODEL);
    ck_assert_msg(strstr(talk.error.text, w->text) != NULL, "%s", talk.error.text);
}
END_TEST

Suite *experts_suite(void)
{
    Suite *suite = suite_create("experts");
    TCase *tcase = tcase_create("experts");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, mixtures_score_as_dequantized_ones_do, 0, LAYOUTS * CASES);
    tcase_add_loop_test(tcase, ranks_have_their_parts_of_rounding_mixtures, 0, 2 * CASES);
    tcase_add_loop_test(tcase, what_is_anothers_is_seen, 0,
                        ENGINE_CLIENT_TURNS(sizeof mistakes / sizeof *mistakes));
    tcase_add_loop_test(tcase, values_of_any_expert_that_are_none_are_refused, 0,
                        (int)(sizeof wrong / sizeof *wrong));
    suite_add_tcase(suite, tcase);
    return suite;
}
