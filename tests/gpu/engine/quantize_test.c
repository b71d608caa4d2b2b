/* Checkpoints in 16 and 32 bits that become e4m3 while they load: every matrix but the embedding
 * and the head has the elements and scales that the numbers themselves give, on one device and on
 * two that share it, and what is scored stays near. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/gpu_suites.h"
#include "tests/gpu/rig/engine_client.h"
#include "tests/gpu/rig/reference.h"
#include "tests/gpu/rig/rig.h"
#include "tests/gpu/rig/rig_emu.h"
#include "tests/runner.h"

static const char *const names[] = {
    "llama-default-bf16",    "llama-linear-f16",    "glm-default-bf16",
    "phi3-partial-f32",      "qwen2-default-bf16",  "mixtral-default-bf16",
    "qwen2-moe-shared-bf16", "qwen3-moe-dense-f16", "glm4-moe-shared-bf16",
    "olmoe-norm-f16",        "gpt-oss-yarn-bf16",   "granite-moe-bias-bf16",
    "deepseek-shared-bf16"};

static struct engine_client plain, narrow;
static struct engine_client_job jobs[ENGINE_CLIENT_JOBS];
static struct reference reference;

static int open_as(struct engine_client *talk, const char *model, enum gpu_quantize quantize,
                   uint32_t tp)
{
    struct gpu_options options = {
        .model = model, .quantize = quantize, .tp = tp, .tokens_max = 512, .slots_max = 64};
    return engine_client_open(talk, &options, false);
}

static float e4m3_value(uint8_t byte)
{
    int exponent = byte >> 3 & 15, fraction = byte & 7;
    float value =
        exponent ? ldexpf((float)(8 + fraction), exponent - 10) : ldexpf((float)fraction, -9);
    return byte & 0x80 ? -value : value;
}

/* No other byte is nearer. */
static bool is_nearest(uint8_t byte, float x)
{
    float off = fabsf(e4m3_value(byte) - x);
    for (uint32_t i = 0; i < 256; i++)
        if ((i & 0x7f) != 0x7f && fabsf(e4m3_value((uint8_t)i) - x) < off)
            return false;
    return true;
}

static float number_of(const struct weight *w, const uint8_t *bytes, size_t i)
{
    uint16_t half;
    uint32_t bits;
    float value;
    if (w->format == FORMAT_F32) {
        memcpy(&value, bytes + 4 * i, sizeof value);
        return value;
    }
    memcpy(&half, bytes + 2 * i, sizeof half);
    if (w->format == FORMAT_BF16) {
        bits = (uint32_t)half << 16;
        memcpy(&value, &bits, sizeof value);
        return value;
    }
    int exponent = half >> 10 & 31, fraction = half & 1023;
    value =
        exponent ? ldexpf((float)(1024 + fraction), exponent - 25) : ldexpf((float)fraction, -24);
    return half & 0x8000 ? -value : value;
}

static void check_row(const struct weight *from, const uint8_t *numbers, const uint8_t *bytes,
                      float scale, uint32_t row)
{
    float greatest = 0;
    for (uint32_t k = 0; k < from->k; k++)
        greatest = fmaxf(greatest, fabsf(number_of(from, numbers, (size_t)row * from->k + k)));
    ck_assert(scale == (greatest > 0 ? greatest / 448 : 1));
    for (uint32_t k = 0; k < from->k; k += row % 4 ? 7 : 1) {
        size_t at = (size_t)row * from->k + k;
        ck_assert(is_nearest(bytes[at], number_of(from, numbers, at) / scale));
    }
}

static void check_weight(const struct weight *from, const struct weight *to)
{
    size_t count = (size_t)from->n * from->k;
    uint8_t *numbers = malloc(4 * count), *bytes = malloc(count);
    float *scales = malloc(to->n * sizeof *scales);
    ck_assert(to->format == FORMAT_E4M3 && to->n == from->n && to->k == from->k);
    ck_assert(to->scales.n == 1 && to->scales.k == 0 && to->input.rounding == ROUNDING_TOKEN);
    rig_fetch(numbers, from->data, format_bytes(from->format, from->n, from->k));
    rig_fetch(bytes, to->data, count);
    rig_fetch(scales, to->scales.data, to->n * sizeof *scales);
    for (uint32_t row = 0; row < from->n; row++)
        check_row(from, numbers, bytes, scales[row], row);
    free(numbers);
    free(bytes);
    free(scales);
}

/* That a rank has of a weight. */
static uint32_t experts_of(const struct op_list *list, uint32_t weight)
{
    bool shared = list->weights[weight].split == SPLIT_EXPERTS;
    return list_matrices(&list->weights[weight]) / (shared ? list->ranks : 1);
}

static uint32_t check_weights(void)
{
    const struct op_list *list = &plain.engine->facts.source.list;
    uint32_t changed = 0;
    for (uint32_t r = 0; r < plain.ranks; r++)
        for (uint32_t i = 0; i < list->weight_count; i++) {
            const struct weight *from = &engine_rank(plain.engine, r)->weights.at[i];
            const struct weight *to = &engine_rank(narrow.engine, r)->weights.at[i];
            const char *tensor = list->tensors[list->weights[i].parts[0].tensor].name;
            bool stays = list->weights[i].kind != WEIGHT_MATRIX || strstr(tensor, "lm_head") ||
                         strstr(tensor, "embed_tokens") || strstr(tensor, ".gate.weight") ||
                         strstr(tensor, ".router.");
            ck_assert_msg(stays == (to->format == from->format), "%s", tensor);
            if (stays)
                continue;
            for (uint32_t e = 0; e < experts_of(list, i); e++) {
                struct weight numbers = weight_of_expert(from, e), made = weight_of_expert(to, e);
                check_weight(&numbers, &made);
            }
            changed++;
        }
    return changed;
}

START_TEST(each_matrix_has_what_its_numbers_give)
{
    const char *name = names[_i / 2];
    uint32_t tp = 1 + (uint32_t)_i % 2;
    ck_assert(rig_emu(EMU_THREADS, RIG_DEVICES, 0));
    ck_assert(reference_read(name, &reference));
    int status = open_as(&plain, reference.directory, GPU_QUANTIZE_NONE, tp);
    if (status == -ERR_BAD_CONFIG)
        RUNNER_SKIP("%s cannot be shared out so", name);
    ck_assert_int_eq(status, 0);
    ck_assert_msg(open_as(&narrow, reference.directory, GPU_QUANTIZE_FP8, tp) == 0, "%s",
                  narrow.error.text);
    ck_assert_uint_lt(narrow.model.weight_bytes, plain.model.weight_bytes);
    ck_assert_uint_eq(narrow.model.parameters, plain.model.parameters);
    ck_assert_int_eq(engine_client_start(&plain), 0);
    ck_assert_int_eq(engine_client_start(&narrow), 0);
    ck_assert_uint_gt(check_weights(), 3);
    engine_client_close(&plain);
    rig_score_jobs(jobs, &reference);
    ck_assert_int_eq(engine_client_run(&narrow, jobs, REFERENCE_PROMPTS), 0);
    struct rig_error error = rig_compare(jobs, &reference);
    ck_assert_msg(error.mean > 1e-4 && error.mean < 0.2, "%s: mean %g, worst %g", name, error.mean,
                  error.max);
    engine_client_close(&narrow);
}
END_TEST

static const struct {
    const char *model, *text;
} refused[] = {
    {"synthetic:tiny", "quantize: not of a synthetic model: synthetic:NAME:fp8 is one in fp8"},
    {"synthetic:tiny:u4", "quantize: not of a synthetic model: synthetic:NAME:fp8 is one in fp8"},
    {"synthetic:null", "quantize: not of a synthetic model: synthetic:NAME:fp8 is one in fp8"},
    {"tests/model/quantized/llama-awq",
     "quantize: not of a checkpoint that is quantized already, as its config says"},
    {"tests/model/quantized/llama-modelopt-apart",
     "quantize: not of a checkpoint that is quantized already, as its config says"},
};

START_TEST(what_cannot_be_quantized_is_refused_by_name)
{
    ck_assert(rig_emu(EMU_THREADS, 1, 0));
    ck_assert_int_eq(open_as(&narrow, refused[_i].model, GPU_QUANTIZE_FP8, 1), -ERR_BAD_CONFIG);
    ck_assert_str_eq(narrow.error.text, refused[_i].text);
}
END_TEST

Suite *quantize_suite(void)
{
    Suite *suite = suite_create("quantize");
    TCase *tcase = tcase_create("quantize");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, each_matrix_has_what_its_numbers_give, 0,
                        2 * (int)(sizeof names / sizeof *names));
    tcase_add_loop_test(tcase, what_cannot_be_quantized_is_refused_by_name, 0,
                        (int)(sizeof refused / sizeof *refused));
    suite_add_tcase(suite, tcase);
    return suite;
}
