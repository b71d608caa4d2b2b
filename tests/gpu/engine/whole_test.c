/* Checkpoints in whole numbers of 4 and 8 bits (tests/model/quantized_whole.py) on the CPU device
 * give what dequantized weights give in float32, on one device, two that share each layer and two
 * stages; mistakes in that are seen; values that are none are refused. */
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

#define PLACE "../quantized/"
#define WEIGHTS "model.safetensors"
#define DOWN "model.layers.0.mlp.down_proj"
#define GATE "model.layers.0.mlp.gate_proj"

static const char *const names[] = {"glm-awq",
                                    "llama-autoround",
                                    "llama-awq",
                                    "llama-ct-u4",
                                    "llama-ct-u4-order",
                                    "llama-ct-u8",
                                    "llama-gptq-blocks",
                                    "llama-gptq-static",
                                    "llama-gptq-sym",
                                    "phi3-gptq-channel",
                                    "qwen2-awq-ignored",
                                    "qwen2-ct-whole-mixed",
                                    "qwen2-gptq-dynamic",
                                    "qwen2-gptq-order",
                                    "qwen3-ct-u4-zeros",
                                    "qwen3-gptq-order-8"};
#define NAMES ENGINE_CLIENT_TURNS(sizeof names / sizeof *names)

static struct engine_client talk;
static struct engine_client_job jobs[ENGINE_CLIENT_JOBS];
static struct reference reference;

/* False: the model cannot be shared so. */
static bool model_open(const char *name, uint32_t tp, uint32_t pp)
{
    char path[128];
    snprintf(path, sizeof path, PLACE "%s", name);
    ck_assert(rig_emu(EMU_THREADS, RIG_DEVICES, 0));
    ck_assert(reference_read(path, &reference));
    struct gpu_options options = {
        .model = reference.directory, .tp = tp, .pp = pp, .tokens_max = 512, .slots_max = 64};
    int status = engine_client_open(&talk, &options, false);
    if (status == -ERR_BAD_CONFIG)
        return false;
    ck_assert_msg(status == 0, "%s", talk.error.text);
    status = engine_client_start(&talk);
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

static bool right(struct rig_error error)
{
    return error.max <= 2e-4;
}

static const struct layout {
    uint32_t tp, pp;
} layouts[] = {{1, 1}, {2, 1}, {1, 2}};

START_TEST(scores_are_those_of_dequantized_weights)
{
    const char *name = names[_i % NAMES * ENGINE_CLIENT_THIN];
    const struct layout *layout = &layouts[_i / NAMES];
    if (!model_open(name, layout->tp, layout->pp))
        RUNNER_SKIP("%s cannot be shared out so", name);
    struct rig_error error = error_run();
    rig_tell(name, error);
    ck_assert_msg(right(error), "%s, tp %u, pp %u: mean %g, worst %g", name, layout->tp, layout->pp,
                  error.mean, error.max);
    engine_client_close(&talk);
}
END_TEST

/* ---- mistakes ---- */

static char buffer[1 << 18], changed[1 << 18];

static struct weight *weight_of(const char *tensor)
{
    return rig_weight(&talk.engine->rank, tensor);
}

static uint32_t groups_of(const struct weight *w)
{
    return w->scales.k ? (w->k + w->scales.k - 1) / w->scales.k : 1;
}

/* Every scale is that of the channel beside. */
static void channel_beside(struct weight *w)
{
    size_t row = groups_of(w) * sizeof(float), size = w->n * row;
    ck_assert_uint_eq(w->scales.n, 1);
    rig_fetch(buffer, w->scales.data, size);
    memcpy(changed, buffer + row, size - row);
    memcpy(changed + size - row, buffer, row);
    rig_store((void *)w->scales.data, changed, size);
}

static void nibbles_swapped(struct weight *w)
{
    size_t size = format_bytes(w->format, w->n, w->k);
    ck_assert_int_eq(w->format, FORMAT_U4);
    rig_fetch(buffer, w->data, size);
    for (size_t i = 0; i < size; i++)
        buffer[i] = (char)((buffer[i] & 15) << 4 | (buffer[i] >> 4 & 15));
    rig_store((void *)w->data, buffer, size);
}

static void zeros_off_by_one(struct weight *w)
{
    size_t size = (size_t)w->n * groups_of(w);
    ck_assert_ptr_nonnull(w->zeros);
    rig_fetch(buffer, w->zeros, size);
    for (size_t i = 0; i < size; i++)
        buffer[i]--;
    rig_store((void *)w->zeros, buffer, size);
}

static void order_ignored(struct weight *w)
{
    ck_assert_ptr_nonnull(w->order);
    w->order = NULL;
}

/* The scales and zeros of the group behind. */
static void group_beside(struct weight *w)
{
    size_t size = (size_t)w->n * groups_of(w) * sizeof(float);
    ck_assert(groups_of(w) > 1);
    rig_fetch(buffer, w->scales.data, size);
    memcpy(changed, buffer + sizeof(float), size - sizeof(float));
    memcpy(changed + size - sizeof(float), buffer, sizeof(float));
    rig_store((void *)w->scales.data, changed, size);
}

static const struct mistake {
    const char *name, *model, *tensor;
    void (*make)(struct weight *w);
} mistakes[] = {
    {"the scale of the channel beside", "llama-gptq-sym", DOWN ".qweight", channel_beside},
    {"the scale of the channel beside", "llama-awq", DOWN ".qweight", channel_beside},
    {"the scale of the channel beside", "llama-ct-u8", DOWN ".weight_packed", channel_beside},
    {"the scale of the group beside", "llama-gptq-sym", GATE ".qweight", group_beside},
    {"the scale of the group beside", "llama-ct-u4-order", DOWN ".weight_packed", group_beside},
    {"halves of bytes swapped", "llama-gptq-sym", DOWN ".qweight", nibbles_swapped},
    {"halves of bytes swapped", "glm-awq", DOWN ".qweight", nibbles_swapped},
    {"halves of bytes swapped", "llama-ct-u4", GATE ".weight_packed", nibbles_swapped},
    {"zeros off by one", "qwen2-gptq-order", GATE ".qweight", zeros_off_by_one},
    {"zeros off by one", "phi3-gptq-channel", DOWN ".qweight", zeros_off_by_one},
    {"zeros off by one", "llama-awq", DOWN ".qweight", zeros_off_by_one},
    {"zeros off by one", "llama-ct-u4", DOWN ".weight_packed", zeros_off_by_one},
    {"zeros off by one", "llama-autoround", GATE ".qweight", zeros_off_by_one},
    {"the scale of the group beside", "qwen2-gptq-dynamic", DOWN ".qweight", group_beside},
    {"the order of columns ignored", "qwen2-gptq-order", DOWN ".qweight", order_ignored},
    {"the order of columns ignored", "qwen3-gptq-order-8", DOWN ".qweight", order_ignored},
    {"the order of columns ignored", "llama-ct-u4-order", GATE ".weight_packed", order_ignored},
};

START_TEST(mistakes_are_seen)
{
    const struct mistake *mistake = &mistakes[_i * ENGINE_CLIENT_THIN];
    ck_assert(model_open(mistake->model, 1, 1));
    mistake->make(weight_of(mistake->tensor));
    struct rig_error error = error_run();
    ck_assert_msg(!right(error) && error.max > 2e-3, "%s, %s: worst %g", mistake->model,
                  mistake->name, error.max);
    engine_client_close(&talk);
}
END_TEST

/* ---- values ---- */

static const struct wrong {
    const char *model, *tensor;
    uint8_t bytes[8];
    uint32_t size;
    const char *text;
} wrong[] = {
    {"llama-gptq-sym",
     DOWN ".scales",
     {0, 0},
     2,
     "tensor " DOWN ".scales: value 0 is 0: a scale must be above 0"},
    {"llama-gptq-sym",
     DOWN ".scales",
     {0, 0xbc},
     2,
     "tensor " DOWN ".scales: value 0 is -1: a scale must be above 0"},
    {"llama-awq",
     DOWN ".scales",
     {0, 0x7c},
     2,
     "tensor " DOWN ".scales: value 0 is inf: a scale must be above 0"},
    {"llama-ct-u4",
     DOWN ".weight_scale",
     {0xc0, 0x7f},
     2,
     "tensor " DOWN ".weight_scale: value 0 is nan: a scale must be above 0"},
    {"llama-gptq-sym",
     DOWN ".qzeros",
     {0xf7},
     1,
     "tensor " DOWN ".qzeros: zero 7 is 15: kept less one it must be below that"},
    {"phi3-gptq-channel",
     DOWN ".qzeros",
     {0xff},
     1,
     "tensor " DOWN ".qzeros: zero 0 is 255: kept less one it must be below that"},
    {"qwen2-gptq-order",
     DOWN ".g_idx",
     {7},
     4,
     "tensor " DOWN ".g_idx: value 0 is 7: it must be a group, below 7"},
    {"qwen2-gptq-order",
     DOWN ".g_idx",
     {0xff, 0xff, 0xff, 0xff},
     4,
     "tensor " DOWN ".g_idx: value 1 is "},
    {"qwen2-gptq-order",
     DOWN ".g_idx",
     {0, 0, 0, 0x80},
     4,
     "tensor " DOWN ".g_idx: value 0 is -2147483648: it must be a group, below 7"},
    {"llama-gptq-static",
     DOWN ".g_idx",
     {1},
     4,
     "tensor " DOWN ".g_idx: group 0 has 63 columns: it must have 64"},
    {"llama-ct-u4",
     DOWN ".weight_shape",
     {127},
     8,
     "tensor " DOWN ".weight_shape: [127, 208] is not [128, 208], as config.json makes it"},
};

static int status_of(const char *model, const struct wrong *w, uint32_t tp)
{
    char directory[SCRATCH_PATH_MAX], from[128];
    scratch_make(directory);
    snprintf(from, sizeof from, REFERENCE_DATA "/" PLACE "%s", model);
    scratch_copy(from, directory);
    scratch_overwrite(directory, WEIGHTS, w->tensor, w->bytes, w->size);
    ck_assert(rig_emu(EMU_THREADS, RIG_DEVICES, 0));
    struct gpu_options options = {.model = directory, .tp = tp, .tokens_max = 512, .slots_max = 64};
    int status = engine_client_open(&talk, &options, false);
    if (!status) {
        status = engine_client_start(&talk);
        engine_client_close(&talk);
    }
    scratch_remove(directory);
    return status;
}

START_TEST(values_that_are_none_are_refused)
{
    const struct wrong *w = &wrong[_i];
    ck_assert_int_eq(status_of(w->model, w, 1), -ERR_BAD_MODEL);
    ck_assert_msg(strstr(talk.error.text, w->text) != NULL, "%s", talk.error.text);
}
END_TEST

/* gate's columns change two groups, up's do not. */
START_TEST(parts_of_one_matrix_have_one_order)
{
    static int32_t groups[128];
    char path[128];
    size_t length = 0;
    snprintf(path, sizeof path, REFERENCE_DATA "/" PLACE "qwen2-gptq-order");
    char *file = scratch_read(path, WEIGHTS, &length);
    uint64_t header = 0;
    memcpy(&header, file, sizeof header);
    char *at = strstr(memmem(file, length, "\"" GATE ".g_idx\"", strlen(GATE) + 8), "offsets\":[");
    uint64_t begin = strtoull(at + strlen("offsets\":["), NULL, 10);
    memcpy(groups, file + sizeof header + header + begin, sizeof groups);
    free(file);
    uint32_t other = 1;
    while (groups[other] == groups[0])
        other++;
    struct wrong w = {.tensor = GATE ".g_idx", .size = 8};
    ck_assert_uint_lt(other, 2); /* as the seed has them */
    memcpy(w.bytes, &groups[1], 4);
    memcpy(w.bytes + 4, &groups[0], 4);
    ck_assert_int_eq(status_of("qwen2-gptq-order", &w, 1), -ERR_BAD_MODEL);
    ck_assert_msg(strstr(talk.error.text, "other groups than those of") != NULL, "%s",
                  talk.error.text);
}
END_TEST

Suite *whole_suite(void)
{
    Suite *suite = suite_create("whole");
    TCase *tcase = tcase_create("whole");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, scores_are_those_of_dequantized_weights, 0, 3 * NAMES);
    tcase_add_loop_test(tcase, mistakes_are_seen, 0,
                        ENGINE_CLIENT_TURNS(sizeof mistakes / sizeof *mistakes));
    tcase_add_loop_test(tcase, values_that_are_none_are_refused, 0,
                        (int)(sizeof wrong / sizeof *wrong));
    tcase_add_test(tcase, parts_of_one_matrix_have_one_order);
    suite_add_tcase(suite, tcase);
    return suite;
}
