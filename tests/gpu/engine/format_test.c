/* Quantized checkpoints (tests/model/quantized.py) on the CPU device give what dequantized weights
 * give in float32, with inputs rounded where the scheme says so; mistakes in that are seen; scales
 * that are none are refused. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/gpu_suites.h"
#include "tests/gpu/rig/engine_client.h"
#include "tests/gpu/rig/reference.h"
#include "tests/gpu/rig/rig.h"
#include "tests/gpu/rig/rig_emu.h"
#include "tests/model/scratch.h"
#include "tests/runner.h"

#define PLACE "../quantized/" /* beside the others, which the CUDA device reads as well */
#define WEIGHTS "model.safetensors"

static const char *const names[] = {
    "glm-fp8-blocks",   "llama-ct-blocks",  "llama-ct-channel",       "llama-ct-mixed",
    "llama-ct-static",  "llama-fp8-blocks", "llama-fp8-tensor",       "phi3-ct-channel",
    "qwen2-ct-weights", "qwen2-fp8-static", "qwen3-fp8-blocks",       "llama-fbgemm-bound",
    "qwen2-fbgemm",     "llama-modelopt",   "qwen3-modelopt-channel", "llama-modelopt-apart",
    "llama-kv-static",  "phi3-kv-token",    "qwen2-kv-parts",         "qwen3-kv-token"};
#define NAMES ENGINE_CLIENT_TURNS(sizeof names / sizeof *names)

static struct engine_client talk;
static struct engine_client_job jobs[ENGINE_CLIENT_JOBS];
static struct reference reference;

static struct op_list *list(void)
{
    return &talk.engine->facts.source.list;
}

/* Keys and values are in eight bits where the name says so. */
static bool keeps_eight(const char *name)
{
    return strstr(name, "-kv-") != NULL;
}

static bool rounds(void)
{
    if (talk.engine->facts.kv == FORMAT_E4M3)
        return true;
    for (uint32_t i = 0; i < list()->weight_count; i++)
        if (list()->weights[i].scheme.input != INPUT_AS_IT_IS)
            return true;
    return false;
}

/* False: the model cannot be shared so. */
static bool model_open(const char *name, uint32_t tp, uint32_t pp)
{
    char path[128];
    snprintf(path, sizeof path, PLACE "%s", name);
    ck_assert(rig_emu(EMU_THREADS, RIG_DEVICES, 0));
    ck_assert(reference_read(path, &reference));
    struct gpu_options options = {
        .model = reference.directory, .tp = tp, .pp = pp, .tokens_max = 512, .slots_max = 64};
    if (keeps_eight(name))
        options.kv_dtype = GPU_KV_FP8;
    int status = engine_client_open(&talk, &options, false);
    if (status == -ERR_BAD_CONFIG)
        return false;
    ck_assert_msg(status == 0, "%s", talk.error.text);
    return true;
}

static struct rig_error error_run(void)
{
    rig_score_jobs(jobs, &reference);
    int status = engine_client_run(&talk, jobs, REFERENCE_PROMPTS);
    ck_assert_msg(status == 0, "%d %s", status, talk.error.text);
    return rig_compare(jobs, &reference);
}

/* A value at the edge between two of eight bits may fall on the other side of it. */
static bool right(struct rig_error error)
{
    return rounds() ? error.mean <= 1e-3 && error.max <= 0.02 : error.max <= 2e-4;
}

START_TEST(scores_are_those_of_dequantized_weights)
{
    const char *name = names[_i * ENGINE_CLIENT_THIN];
    static const uint32_t chunks[] = {0, 7, 1};
    ck_assert(model_open(name, 1, 1));
    ck_assert_int_eq(engine_client_start(&talk), 0);
    for (int i = 0; i < 3; i++) {
        talk.chunk = chunks[i];
        struct rig_error error = error_run();
        rig_tell(name, error);
        ck_assert_msg(right(error), "%s, chunks of %u: mean %g, worst %g", name, chunks[i],
                      error.mean, error.max);
    }
    engine_client_close(&talk);
}
END_TEST

START_TEST(staged_models_score_alike)
{
    const char *name = names[_i * ENGINE_CLIENT_THIN];
    if (!model_open(name, 1, 2))
        RUNNER_SKIP("%s has one layer", name);
    ck_assert_int_eq(engine_client_start(&talk), 0);
    struct rig_error error = error_run();
    ck_assert_msg(right(error), "%s: mean %g, worst %g", name, error.mean, error.max);
    engine_client_close(&talk);
}
END_TEST

/* Ranks that share columns round their parts of the inputs by scales of their own, so what they
 * have of the weights is compared without. */
static void inputs_leave(void)
{
    for (uint32_t r = 0; r < talk.ranks; r++)
        for (uint32_t i = 0; i < list()->weight_count; i++)
            engine_rank(talk.engine, r)->weights.at[i].input.rounding = ROUNDING_NONE;
}

START_TEST(shared_models_score_alike)
{
    const char *name = names[_i * ENGINE_CLIENT_THIN];
    ck_assert(model_open(name, 1, 1));
    ck_assert_int_eq(engine_client_start(&talk), 0);
    inputs_leave();
    (void)error_run();
    static struct reference alone;
    alone = reference;
    for (uint32_t i = 0; i < REFERENCE_PROMPTS; i++)
        for (uint32_t j = 0; j + 1 < reference.prompts[i].count; j++)
            alone.prompts[i].logprobs[j] = jobs[i].scores[j].logprob;
    engine_client_close(&talk);
    if (!model_open(name, 2, 1))
        RUNNER_SKIP("%s cannot be shared", name);
    ck_assert_int_eq(engine_client_start(&talk), 0);
    ck_assert(isfinite(error_run().max)); /* with them as well */
    inputs_leave();
    (void)error_run();
    struct rig_error error = rig_compare(jobs, &alone);
    bool near = keeps_eight(name) ? right(error) : rig_near(error);
    ck_assert_msg(near, "%s: mean %g, worst %g", name, error.mean, error.max);
    engine_client_close(&talk);
}
END_TEST

/* ---- mistakes ---- */

static struct weight *weight_of(const char *tensor)
{
    return rig_weight(&talk.engine->rank, tensor);
}

static uint32_t scales_fetch(const struct weight *w, float *to)
{
    const struct weight_scales *s = &w->scales;
    uint32_t rows = s->n ? (w->n + s->n - 1) / s->n : 1,
             columns = s->k ? (w->k + s->k - 1) / s->k : 1;
    rig_fetch(to, s->data, (size_t)rows * columns * sizeof *to);
    return columns;
}

static void channel_beside(void)
{
    static float scales[1024];
    struct weight *w = weight_of("model.layers.0.mlp.gate_proj.weight");
    ck_assert_uint_eq(w->scales.n, 1);
    (void)scales_fetch(w, scales + 1);
    scales[0] = scales[w->n];
    rig_store((void *)w->scales.data, scales, w->n * sizeof *scales);
}

static void parts_turned(void)
{
    static float scales[1024];
    struct weight *w = weight_of("model.layers.0.mlp.gate_proj.weight");
    ck_assert_uint_eq(w->scales.n, 1);
    (void)scales_fetch(w, scales);
    memcpy(scales + w->n, scales, w->n * sizeof *scales);
    rig_store((void *)w->scales.data, scales + w->n / 2, w->n * sizeof *scales);
}

static void blocks_transposed(void)
{
    static float scales[4096], turned[4096];
    struct weight *w = weight_of("model.layers.0.mlp.down_proj.weight");
    uint32_t columns = scales_fetch(w, scales);
    ck_assert(columns == 2 && w->scales.n == 128 && w->n > 128);
    for (uint32_t i = 0; i < 4; i++)
        turned[i] = scales[i % 2 * 2 + i / 2];
    rig_store((void *)w->scales.data, turned, 4 * sizeof *turned);
}

static void bytes_swapped(void)
{
    static char bytes[1 << 16];
    struct weight *w = weight_of("model.layers.0.mlp.down_proj.weight");
    size_t size = (size_t)w->n * w->k;
    rig_fetch(bytes, w->data, size);
    for (size_t i = 0; i + 1 < size; i += 2) {
        char first = bytes[i];
        bytes[i] = bytes[i + 1];
        bytes[i + 1] = first;
    }
    rig_store((void *)w->data, bytes, size);
}

static void scales_dropped(void)
{
    weight_of("model.layers.0.mlp.down_proj.weight")->scales.data = NULL;
}

static void inputs_not_rounded(void)
{
    for (uint32_t i = 0; i < list()->weight_count; i++)
        talk.engine->rank.weights.at[i].input.rounding = ROUNDING_NONE;
}

static void inputs_by_token(void)
{
    for (uint32_t i = 0; i < list()->weight_count; i++)
        if (talk.engine->rank.weights.at[i].input.rounding != ROUNDING_NONE)
            talk.engine->rank.weights.at[i].input.rounding = ROUNDING_TOKEN;
}

static void static_scale_off(void)
{
    weight_of("model.layers.0.self_attn.o_proj.weight")->input.scale /= 4;
}

static void bounds_dropped(void)
{
    for (uint32_t i = 0; i < list()->weight_count; i++)
        talk.engine->rank.weights.at[i].input.scale = 0;
}

/* Of every layer: what becomes of the scales that the checkpoint has for K and V. */
static void kv_scales_change(float k, float v, bool swapped)
{
    struct program *program = &talk.engine->rank.program;
    for (uint32_t i = 0; i < program->op_count; i++) {
        struct op *op = &program->ops[i];
        if (op->kind != OP_KV_WRITE)
            continue;
        float k_scale = op->attention.k_scale * k, v_scale = op->attention.v_scale * v;
        op->attention.k_scale = swapped ? v_scale : k_scale;
        op->attention.v_scale = swapped ? k_scale : v_scale;
    }
}

static void kv_scales_swapped(void)
{
    kv_scales_change(1, 1, true);
}

static void kv_scales_unheard(void)
{
    kv_scales_change(0, 0, false);
}

static void kv_scales_of_tensor(void)
{
    struct program *program = &talk.engine->rank.program;
    for (uint32_t i = 0; i < program->op_count; i++) {
        struct op *op = &program->ops[i];
        if (op->kind == OP_KV_WRITE)
            op->attention.k_scale = op->attention.v_scale = 0.03f;
    }
}

static const struct mistake {
    const char *name, *model;
    void (*make)(void);
} mistakes[] = {
    {"the scale of the channel beside", "llama-ct-channel", channel_beside},
    {"the scale of the channel beside", "qwen2-ct-weights", channel_beside},
    {"gate and up with the other's scale", "llama-fp8-tensor", parts_turned},
    {"blocks transposed", "llama-fp8-blocks", blocks_transposed},
    {"blocks transposed", "llama-ct-blocks", blocks_transposed},
    {"bytes swapped", "llama-ct-blocks", bytes_swapped},
    {"scales dropped", "llama-ct-static", scales_dropped},
    {"inputs not rounded", "llama-ct-channel", inputs_not_rounded},
    {"inputs not rounded", "llama-ct-static", inputs_not_rounded},
    {"bounds dropped", "llama-fbgemm-bound", bounds_dropped},
    {"inputs by token", "llama-fp8-blocks", inputs_by_token},
    {"inputs by token", "qwen2-fp8-static", inputs_by_token},
    {"a fixed scale off", "llama-ct-static", static_scale_off},
    {"K's scale for V", "llama-kv-static", kv_scales_swapped},
    {"the checkpoint's scales unheard", "llama-kv-static", kv_scales_unheard},
    {"the checkpoint's scales unheard", "qwen2-kv-parts", kv_scales_unheard},
    {"one scale for all tokens", "qwen3-kv-token", kv_scales_of_tensor},
    {"one scale for all tokens", "phi3-kv-token", kv_scales_of_tensor},
};

START_TEST(mistakes_are_seen)
{
    const struct mistake *mistake = &mistakes[_i * ENGINE_CLIENT_THIN];
    ck_assert(model_open(mistake->model, 1, 1));
    ck_assert_int_eq(engine_client_start(&talk), 0);
    ck_assert(right(error_run()));
    mistake->make();
    struct rig_error error = error_run();
    ck_assert_msg(!right(error), "%s, %s: mean %g, worst %g", mistake->model, mistake->name,
                  error.mean, error.max);
    engine_client_close(&talk);
}
END_TEST

/* ---- files that are wrong ---- */

#define DOWN "model.layers.0.mlp.down_proj"

/* The first bytes of a tensor become others. */
static void tensor_write(const char *directory, const char *tensor, const void *bytes, size_t size)
{
    size_t length;
    char *file = scratch_read(directory, WEIGHTS, &length), key[128];
    uint64_t header;
    unsigned long offset = 0;
    memcpy(&header, file, sizeof header);
    snprintf(key, sizeof key, "\"%s\":", tensor);
    const char *at = memmem(file, length, key, strlen(key));
    ck_assert_ptr_nonnull(at);
    ck_assert_int_eq(sscanf(strstr(at, "data_offsets"), "data_offsets\":[%lu", &offset), 1);
    memcpy(file + 8 + header + offset, bytes, size);
    scratch_write(directory, WEIGHTS, file, length);
    free(file);
}

static const struct wrong {
    const char *model, *tensor;
    float value;
    const char *text;
} wrong[] = {
    {"llama-fp8-blocks", DOWN ".weight_scale_inv", 0.0f,
     "tensor " DOWN ".weight_scale_inv: value 0 is 0: a scale must be above 0"},
    {"llama-fp8-blocks", DOWN ".weight_scale_inv", -1.0f,
     "tensor " DOWN ".weight_scale_inv: value 0 is -1: a scale must be above 0"},
    {"llama-fp8-tensor", DOWN ".weight_scale", INFINITY,
     "tensor " DOWN ".weight_scale: value 0 is inf: a scale must be above 0"},
    {"llama-fp8-tensor", DOWN ".weight_scale", NAN,
     "tensor " DOWN ".weight_scale: value 0 is nan: a scale must be above 0"},
    {"qwen2-fp8-static", DOWN ".input_scale", NAN,
     "tensor " DOWN ".input_scale: nan is no scale: it must be above 0"},
    {"qwen2-fp8-static", DOWN ".input_scale", 0.0f,
     "tensor " DOWN ".input_scale: 0 is no scale: it must be above 0"},
    {"qwen2-fp8-static", "model.layers.0.mlp.up_proj.input_scale", 3.0f, "they are one matrix"},
    {"llama-kv-static", "model.layers.1.self_attn.v_scale", NAN,
     "tensor model.layers.1.self_attn.v_scale: nan is no scale: it must be above 0"},
    {"qwen2-kv-parts", "model.layers.0.self_attn.k_proj.k_scale", 0.0f,
     "tensor model.layers.0.self_attn.k_proj.k_scale: 0 is no scale: it must be above 0"},
};

START_TEST(scales_that_are_none_are_refused)
{
    const struct wrong *w = &wrong[_i];
    char directory[SCRATCH_PATH_MAX], from[128];
    scratch_make(directory);
    snprintf(from, sizeof from, REFERENCE_DATA "/" PLACE "%s", w->model);
    scratch_copy(from, directory);
    tensor_write(directory, w->tensor, &w->value, sizeof w->value);
    ck_assert(rig_emu(EMU_THREADS, 1, 0));
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

/* Who does not ask for eight bits is not refused for what the file says of them. */
START_TEST(other_schemes_of_keys_and_values_are_refused_by_who_wants_eight_bits)
{
    char directory[SCRATCH_PATH_MAX];
    scratch_make(directory);
    scratch_copy(REFERENCE_DATA "/" PLACE "llama-ct-static", directory);
    scratch_replace(directory, "config.json",
                    "\"kv_cache_scheme\": {\n   \"num_bits\": 8,", "\"kv_cache_scheme\": {\n   \"num_bits\": 4,");
    ck_assert(rig_emu(EMU_THREADS, 1, 0));
    struct gpu_options options = {.model = directory, .tokens_max = 512, .slots_max = 64};
    int plain = engine_client_open(&talk, &options, false);
    engine_client_close(&talk);
    options.kv_dtype = GPU_KV_FP8;
    int status = engine_client_open(&talk, &options, false);
    scratch_remove(directory);
    ck_assert_int_eq(plain, 0);
    ck_assert_int_eq(status, -ERR_BAD_CONFIG);
    ck_assert_msg(strstr(talk.error.text, "kv_cache_scheme") != NULL, "%s", talk.error.text);
}
END_TEST

Suite *format_suite(void)
{
    Suite *suite = suite_create("format");
    TCase *tcase = tcase_create("format");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, scores_are_those_of_dequantized_weights, 0, NAMES);
    tcase_add_loop_test(tcase, staged_models_score_alike, 0, NAMES);
    tcase_add_loop_test(tcase, shared_models_score_alike, 0, NAMES);
    tcase_add_loop_test(tcase, mistakes_are_seen, 0,
                        ENGINE_CLIENT_TURNS(sizeof mistakes / sizeof *mistakes));
    tcase_add_loop_test(tcase, scales_that_are_none_are_refused, 0,
                        (int)(sizeof wrong / sizeof *wrong));
    tcase_add_test(tcase, other_schemes_of_keys_and_values_are_refused_by_who_wants_eight_bits);
    suite_add_tcase(suite, tcase);
    return suite;
}
