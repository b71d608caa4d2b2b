/* Directories of adapters that are refused, each by what is wrong: what is not computed, what is of
 * another model, and what means harm. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gpu/adapters/adapters.h"
#include "gpu/models/model.h"
#include "tests/gpu/gpu_suites.h"
#include "tests/gpu/rig/reference.h"
#include "tests/gpu/rig/rig_emu.h"
#include "tests/model/scratch.h"
#include "tests/runner.h"

#define PLACE "tests/model/adapted/"
#define MODELS "tests/model/data/"
#define LLAMA "llama-default-bf16"
#define CONFIG "adapter_config.json"
#define WEIGHTS "adapter_model.safetensors"
#define HARM_TURNS 400

static struct error error;

/* What --check does; nothing is loaded. */
static int check(const char *model, const struct gpu_adapter *adapters, uint32_t count)
{
    struct gpu_options options = {.model = model, .adapters = adapters, .adapter_count = count};
    struct gpu_model ret;
    return gpu_module.check(&options, &ret, &error);
}

static const struct {
    const char *from, *to, *says;
} refused[] = {
    {"\"use_dora\": false", "\"use_dora\": true", "use_dora: true is not supported"},
    {"\"modules_to_save\": null", "\"modules_to_save\": [\"lm_head\"]", "modules_to_save: a list"},
    {"\"rank_pattern\": {}", "\"rank_pattern\": {\"q_proj\": 4}", "rank_pattern: an object"},
    {"\"alpha_pattern\": {}", "\"alpha_pattern\": {\"q_proj\": 4}", "alpha_pattern: an object"},
    {"\"bias\": \"none\"", "\"bias\": \"all\"", "bias: \"all\" is not none"},
    {"\"lora_bias\": false", "\"lora_bias\": true", "lora_bias: true"},
    {"\"fan_in_fan_out\": false", "\"fan_in_fan_out\": true", "fan_in_fan_out: true"},
    {"\"init_lora_weights\": true", "\"init_lora_weights\": \"pissa\"", "init_lora_weights: \"pissa\""},
    {"\"peft_type\": \"LORA\"", "\"peft_type\": \"IA3\"", "peft_type: \"IA3\" is not LORA"},
    {"\"r\": 8", "\"r\": 512", "r: 512"},
    {"\"r\": 8", "\"r\": 0", "r: 0"},
    {"\"r\": 8", "\"r\": 9", "shape: [8, 32] is not [9, 32], as adapter_config.json makes it"},
    {"\"r\": 8", "\"never_heard_of\": 1, \"r\": 8", "never_heard_of: 1 is not supported"},
    {"\"r\": 8", "\"rank\": 8", "rank: 8 is not supported"},
};
#define REFUSED (int)(sizeof refused / sizeof *refused)

static void refusal_check(const char *directory, const char *model, const char *says)
{
    const struct gpu_adapter adapter = {.name = "sent", .directory = directory};
    ck_assert_int_eq(check(model, &adapter, 1), -ERR_BAD_MODEL);
    ck_assert_msg(strstr(error.text, "adapter sent: ") && strstr(error.text, says), "%s",
                  error.text);
}

START_TEST(what_is_not_computed_is_refused_by_name)
{
    char directory[SCRATCH_PATH_MAX];
    scratch_make(directory);
    scratch_copy(PLACE LLAMA ".all", directory);
    scratch_replace(directory, CONFIG, refused[_i].from, refused[_i].to);
    refusal_check(directory, MODELS LLAMA, refused[_i].says);
    scratch_remove(directory);
}
END_TEST

#define Q0 "base_model.model.model.layers.0.self_attn.q_proj."

static const struct {
    const char *from, *to, *says;
} tensors[] = {
    {Q0 "lora_B.weight", Q0 "lora_X.weight", Q0 "lora_B.weight: missing"},
    {Q0 "lora_A.weight", "base_model.model.lm_head.lora_A.weight", Q0 "lora_A.weight: missing"},
};

START_TEST(tensors_that_do_not_fit_are_refused_by_name)
{
    char directory[SCRATCH_PATH_MAX];
    scratch_make(directory);
    scratch_copy(PLACE LLAMA ".all", directory);
    scratch_rename(directory, WEIGHTS, tensors[_i].from, tensors[_i].to);
    refusal_check(directory, MODELS LLAMA, tensors[_i].says);
    scratch_remove(directory);
}
END_TEST

/* Of B, in the files' dtype. */
static const struct {
    const char *place;
    uint32_t bits, size;
    bool refused;
} numbers[] = {
    {PLACE LLAMA ".all", 0x7f800000, 4, true}, /* infinite */
    {PLACE LLAMA ".all", 0xffc00000, 4, true}, /* none */
    {PLACE LLAMA ".all", 0xff7fffff, 4, false},
    {PLACE LLAMA ".wide", 0x7c00, 2, true},
    {PLACE LLAMA ".wide", 0xfbff, 2, false},
};
#define NUMBERS (int)(sizeof numbers / sizeof *numbers)
#define DOWN1 "base_model.model.model.layers.1.mlp.down_proj."

START_TEST(a_b_that_is_not_finite_is_refused)
{
    char directory[SCRATCH_PATH_MAX];
    const struct gpu_adapter adapter = {.name = "sent", .directory = directory};
    scratch_make(directory);
    scratch_copy(numbers[_i].place, directory);
    scratch_overwrite(directory, WEIGHTS, DOWN1 "lora_B.weight", &numbers[_i].bits,
                      numbers[_i].size);
    if (numbers[_i].refused)
        refusal_check(directory, MODELS LLAMA, DOWN1 "lora_B.weight: an element is ");
    else
        ck_assert_msg(!check(MODELS LLAMA, &adapter, 1), "%s", error.text);
    scratch_remove(directory);
}
END_TEST

/* One that the files hold, and the device's dtype may not. */
START_TEST(a_b_beyond_the_devices_dtype_is_refused)
{
    char directory[SCRATCH_PATH_MAX];
    const struct gpu_adapter adapter = {.name = "sent", .directory = directory};
    const float beyond_f16 = -65536, most[] = {65504, 65536};
    scratch_make(directory);
    scratch_copy(PLACE LLAMA ".all", directory);
    scratch_overwrite(directory, WEIGHTS, DOWN1 "lora_B.weight", &beyond_f16, sizeof beyond_f16);
    for (int i = 0; i < 2; i++) {
        struct model model;
        struct adapters adapters;
        ck_assert_int_eq(model_load(MODELS LLAMA, 1, 0, &model, &error), 0);
        int status = adapters_open(&adapter, 1, (struct adapter_room){.most = most[i]},
                                   &model.list, &adapters, &error);
        ck_assert_int_eq(status, i ? 0 : -ERR_BAD_MODEL);
        if (!i)
            ck_assert_msg(!!strstr(error.text, "an element is 65536: at most 65504"), "%s",
                          error.text);
        adapters_drop(&adapters);
        model_drop(&model);
    }
    scratch_remove(directory);
}
END_TEST

START_TEST(adapters_of_other_models_are_refused)
{
    refusal_check(PLACE "starcoder2-plain-f16.all", MODELS LLAMA, "tensor base_model.model.model.layers.0");
    refusal_check(PLACE "llama-default-bf16.all", MODELS "starcoder2-plain-f16", "as adapter_config.json");
    refusal_check(MODELS LLAMA, MODELS LLAMA, CONFIG);
    struct gpu_adapter adapter = {.name = "sent", .directory = PLACE LLAMA ".all"};
    ck_assert_int_eq(check("synthetic:null", &adapter, 1), -ERR_BAD_CONFIG);
    static struct gpu_adapter many[GPU_ADAPTERS_MAX + 1];
    for (int i = 0; i <= GPU_ADAPTERS_MAX; i++)
        many[i] = adapter;
    ck_assert_int_eq(check(MODELS LLAMA, many, GPU_ADAPTERS_MAX + 1), -ERR_BAD_CONFIG);
}
END_TEST

/* ---- harm ---- */

static void write_text(const char *directory, const char *name, const char *text)
{
    scratch_write(directory, name, text, strlen(text));
}

static void config_is_a_pipe(const char *directory)
{
    char path[SCRATCH_PATH_MAX];
    scratch_path(directory, CONFIG, path);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
}

static void config_is_large(const char *directory)
{
    static char text[ADAPTER_CONFIG_BYTES_MAX + 1];
    memset(text, ' ', sizeof text);
    scratch_write(directory, CONFIG, text, sizeof text);
}

static void config_is_deep(const char *directory)
{
    static char text[1 << 16];
    memset(text, '[', sizeof text);
    scratch_write(directory, CONFIG, text, sizeof text);
}

static void config_is_a_list(const char *directory)
{
    write_text(directory, CONFIG, "[1]");
}

static void config_says_it_twice(const char *directory)
{
    write_text(directory, CONFIG, "{\"peft_type\":\"LORA\",\"r\":8,\"r\":16}");
}

static void weights_are_empty(const char *directory)
{
    scratch_truncate(directory, WEIGHTS, 0);
}

static void weights_end_in_the_header(const char *directory)
{
    scratch_truncate(directory, WEIGHTS, 100);
}

static void weights_end_early(const char *directory)
{
    size_t length;
    free(scratch_read(directory, WEIGHTS, &length));
    scratch_truncate(directory, WEIGHTS, length - 1);
}

static void weights_are_all_header(const char *directory)
{
    static const uint64_t length = UINT64_MAX;
    scratch_write(directory, WEIGHTS, &length, sizeof length);
}

static void weights_have_no_tensor(const char *directory)
{
    static const char bytes[] = "\2\0\0\0\0\0\0\0{}";
    scratch_write(directory, WEIGHTS, bytes, sizeof bytes - 1);
}

static const struct {
    void (*harm)(const char *directory);
    const char *says;
} harms[] = {
    {config_is_a_pipe, "not a regular file"},
    {config_is_large, CONFIG},
    {config_is_deep, CONFIG},
    {config_is_a_list, "not a JSON object"},
    {config_says_it_twice, CONFIG},
    {weights_are_empty, WEIGHTS},
    {weights_end_in_the_header, WEIGHTS},
    {weights_end_early, WEIGHTS},
    {weights_are_all_header, WEIGHTS},
    {weights_have_no_tensor, WEIGHTS},
};
#define HARMS (int)(sizeof harms / sizeof *harms)

START_TEST(harm_is_refused_by_name)
{
    char directory[SCRATCH_PATH_MAX];
    scratch_make(directory);
    scratch_copy(PLACE LLAMA ".all", directory);
    harms[_i].harm(directory);
    refusal_check(directory, MODELS LLAMA, harms[_i].says);
    scratch_remove(directory);
}
END_TEST

/* A byte of what is parsed is another: it is refused, or still an adapter of the model. */
START_TEST(any_byte_may_be_another)
{
    char directory[SCRATCH_PATH_MAX];
    size_t lengths[2];
    static const char *const names[] = {CONFIG, WEIGHTS};
    char *files[2];
    const struct gpu_adapter adapter = {.name = "sent", .directory = directory};
    uint32_t refusals = 0;
    scratch_make(directory);
    scratch_copy(PLACE LLAMA ".one", directory);
    for (int i = 0; i < 2; i++)
        files[i] = scratch_read(directory, names[i], &lengths[i]);
    for (uint32_t turn = 0; turn < HARM_TURNS; turn++) {
        uint32_t which = turn % 2, header = 0;
        memcpy(&header, files[1], sizeof header);
        size_t at = turn * 2654435761u % (which ? header + 8 : lengths[0]);
        char was = files[which][at];
        files[which][at] = (char)(was ^ (1 << turn / 2 % 8));
        scratch_write(directory, names[which], files[which], lengths[which]);
        int status = check(MODELS LLAMA, &adapter, 1);
        ck_assert_msg(!status || status == -ERR_BAD_MODEL, "%zu: %s", at, error.text);
        refusals += status != 0;
        files[which][at] = was;
        scratch_write(directory, names[which], files[which], lengths[which]);
    }
    ck_assert_uint_gt(refusals, HARM_TURNS / 2);
    free(files[0]);
    free(files[1]);
    scratch_remove(directory);
}
END_TEST

Suite *adapter_files_suite(void)
{
    Suite *suite = suite_create("adapter_files");
    TCase *tcase = tcase_create("adapter_files");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, what_is_not_computed_is_refused_by_name, 0, REFUSED);
    tcase_add_loop_test(tcase, tensors_that_do_not_fit_are_refused_by_name, 0, 2);
    tcase_add_loop_test(tcase, a_b_that_is_not_finite_is_refused, 0, NUMBERS);
    tcase_add_test(tcase, a_b_beyond_the_devices_dtype_is_refused);
    tcase_add_loop_test(tcase, harm_is_refused_by_name, 0, HARMS);
    tcase_add_test(tcase, any_byte_may_be_another);
    tcase_add_test(tcase, adapters_of_other_models_are_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}
