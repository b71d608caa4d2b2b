/* What quantization_config may say, which modules it means, and what of it is refused by name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/models/model.h"
#include "gpu/models/name_pattern.h"
#include "tests/model/config_text.h"
#include "tests/model/model_suites.h"
#include "tests/model/scratch.h"

#define IN(text) "\"quantization_config\":{" text "}"
#define FP8 "\"quant_method\":\"fp8\""
#define CT "\"quant_method\":\"compressed-tensors\",\"format\":\"float-quantized\""
#define E4M3 "\"num_bits\":8,\"type\":\"float\""
#define GROUP(weights, more)                                                                       \
    IN(CT ",\"config_groups\":{\"g\":{\"targets\":[\"Linear\"],\"weights\":{" weights "}" more "}" \
          "}")
#define AT "config.json: quantization_config."
#define AT_GROUP AT "config_groups.g."

static const struct {
    const char *config, *text;
} refused[] = {
    {"\"quantization_config\":7", "config.json: quantization_config: 7 is not an object"},
    {IN("\"quant_method\":\"gptq\",\"bits\":4"),
     AT "quant_method: \"gptq\" is not supported (fp8 and compressed-tensors are)"},
    {IN("\"quant_method\":\"modelopt\""),
     AT "quant_method: \"modelopt\" is not supported (fp8 and compressed-tensors are)"},
    {IN("\"quant_method\":4"),
     AT "quant_method: 4 is not supported (fp8 and compressed-tensors are)"},
    {IN(FP8 ",\"activation_scheme\":\"token\""),
     AT "activation_scheme: \"token\" is not supported (dynamic is, and static without blocks)"},
    {IN(FP8 ",\"activation_scheme\":\"static\",\"weight_block_size\":[128,128]"),
     AT "activation_scheme: \"static\" is not supported (dynamic is, and static without blocks)"},
    {IN(FP8 ",\"weight_block_size\":[64,128]"),
     AT "weight_block_size: a list is not supported ([128, 128] is)"},
    {IN(FP8 ",\"weight_block_size\":[128]"),
     AT "weight_block_size: a list is not supported ([128, 128] is)"},
    {IN(FP8 ",\"fmt\":\"e5m2\""), AT "fmt: \"e5m2\" is not supported (e4m3 is)"},
    {IN(FP8 ",\"scale_fmt\":\"ue8m0\""), AT "scale_fmt: \"ue8m0\" is not supported"},
    {IN(FP8 ",\"ignored_layers\":\"lm_head\""),
     AT "ignored_layers: \"lm_head\" is not a list of names"},
    {IN(FP8 ",\"ignored_layers\":[\"\"]"), AT "ignored_layers: \"\" is not the name of a module"},
    {IN(FP8 ",\"ignored_layers\":[\"re:.*mlp\"]"),
     AT "ignored_layers: \"re:.*mlp\" is not a pattern that is understood, all with at most 256 "
        "cases"},
    {IN("\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\""),
     AT "format: \"pack-quantized\" is not supported (float-quantized is)"},
    {IN("\"quant_method\":\"compressed-tensors\""), AT "format: missing"},
    {IN(CT), AT "config_groups: missing"},
    {IN(CT ",\"config_groups\":[]"), AT "config_groups: a list is not an object"},
    {IN(CT ",\"config_groups\":{\"g\":1}"), AT "config_groups.g: 1 is not an object"},
    {IN(CT ",\"config_groups\":{},\"quantization_status\":\"frozen\""),
     AT "quantization_status: \"frozen\" is not supported (compressed is)"},
    {IN(CT ",\"config_groups\":{},\"sparsity_config\":{\"format\":\"sparse-24-bitmask\"}"),
     AT "sparsity_config: an object is not supported"},
    {IN(CT ",\"config_groups\":{},\"transform_config\":{\"config_groups\":{}}"),
     AT "transform_config: an object is not supported"},
    {IN(CT ",\"config_groups\":{},\"ignore\":[\"re:(?i)mlp\"]"),
     AT "ignore: \"re:(?i)mlp\" is not a pattern that is understood, all with at most 256 cases"},
    {GROUP("\"num_bits\":4,\"type\":\"float\"", ""),
     AT_GROUP "weights.num_bits: 4 is not supported (8 is)"},
    {GROUP("\"num_bits\":8,\"type\":\"int\"", ""),
     AT_GROUP "weights.type: \"int\" is not supported (float is)"},
    {GROUP("\"type\":\"float\"", ""), AT_GROUP "weights.num_bits: missing"},
    {GROUP(E4M3 ",\"symmetric\":false", ""), AT_GROUP "weights.symmetric: false is not supported"},
    {GROUP(E4M3 ",\"dynamic\":true", ""), AT_GROUP "weights.dynamic: true is not false"},
    {GROUP(E4M3 ",\"strategy\":\"group\"", ""),
     AT_GROUP "weights.strategy: \"group\" is not supported (tensor, channel and block are)"},
    {GROUP(E4M3 ",\"strategy\":\"block\"", ""), AT_GROUP "weights.block_structure: missing"},
    {GROUP(E4M3 ",\"actorder\":\"weight\"", ""),
     AT_GROUP "weights.actorder: \"weight\" is not supported"},
    {GROUP(E4M3, ",\"output_activations\":{\"num_bits\":8}"),
     AT_GROUP "output_activations: an object is not supported"},
    {GROUP(E4M3, ",\"input_activations\":{\"num_bits\":8,\"type\":\"int\"}"),
     AT_GROUP "input_activations.type: \"int\" is not supported (float is)"},
    {GROUP(E4M3, ",\"input_activations\":{" E4M3 ",\"strategy\":\"tensor\",\"dynamic\":true}"),
     AT_GROUP "input_activations.strategy: \"tensor\" is not supported (token and groups of 128 "
              "while dynamic, and tensor while not, are)"},
    {GROUP(E4M3, ",\"input_activations\":{" E4M3
                 ",\"strategy\":\"group\",\"group_size\":64,\"dynamic\":true}"),
     AT_GROUP "input_activations.strategy: \"group\" is not supported (token and groups of 128 "
              "while dynamic, and tensor while not, are)"},
    {GROUP(E4M3, ",\"input_activations\":{" E4M3 ",\"dynamic\":\"local\"}"),
     AT_GROUP "input_activations.dynamic: \"local\" is not true or false"},
};

START_TEST(what_is_not_computed_is_refused_by_name)
{
    static struct model_config config;
    struct error error = {0};
    ck_assert_int_eq(config_with(refused[_i].config, &config, &error), -ERR_BAD_MODEL);
    ck_assert_str_eq(error.text, refused[_i].text);
}
END_TEST

START_TEST(lists_that_are_too_long_are_refused)
{
    static const struct {
        const char *name;
        uint32_t count;
    } lists[] = {{"re:(a|b)", QUANTIZATION_CASES_MAX / 3 + 1},
                 {"model.layers.0.mlp.down_proj", 900}};
    static struct model_config config;
    static char text[1 << 16];
    struct error error = {0};
    size_t used =
        (size_t)sprintf(text, "{\"architectures\":[\"LlamaForCausalLM\"],"
                              "\"quantization_config\":{" CT ",\"config_groups\":{},\"ignore\":[");
    for (uint32_t i = 0; i < lists[_i].count; i++)
        used += (size_t)sprintf(text + used, "%s\"%s\"", i ? "," : "", lists[_i].name);
    used += (size_t)sprintf(text + used, "]}}");
    ck_assert_int_eq(model_config_parse(text, used, NULL, 0, &config, &error), -ERR_BAD_MODEL);
    ck_assert_msg(strstr(error.text, _i ? "more than 24576 bytes" : "at most 256 cases") != NULL,
                  "%s", error.text);
}
END_TEST

#define LAYER "model.layers.1."
#define TWO(targets, ignore)                                                                       \
    IN(CT ",\"config_groups\":{\"a\":{\"targets\":[\"Linear\"],\"weights\":{" E4M3 "}},"           \
          "\"b\":{\"targets\":[" targets "],\"weights\":{" E4M3                                    \
          ",\"strategy\":\"channel\"}}},\"ignore\":[" ignore "]")

static const struct {
    const char *config, *module;
    int group; /* -1: it is not quantized */
} meant[] = {
    {"", LAYER "mlp.up_proj", -1},
    {IN(FP8), LAYER "mlp.up_proj", 0},
    {IN(FP8 ",\"ignored_layers\":[\"" LAYER "mlp\"]"), LAYER "mlp.up_proj", -1},
    {IN(FP8 ",\"ignored_layers\":[\"model.layers.1\"]"), "model.layers.10.mlp.up_proj", 0},
    {IN(FP8 ",\"ignored_layers\":[\"up_proj\"]"), LAYER "mlp.up_proj", -1},
    {IN(FP8 ",\"ignored_layers\":[\"proj\"]"), LAYER "mlp.up_proj", 0},
    {IN(FP8 ",\"modules_to_not_convert\":[\"mlp.up_proj\"]"), LAYER "mlp.up_proj", -1},
    {TWO("", ""), LAYER "mlp.up_proj", 0},
    {TWO("\"" LAYER "mlp.up_proj\"", ""), LAYER "mlp.up_proj", 1},
    {TWO("\"" LAYER "mlp\"", ""), LAYER "mlp.up_proj", 0},
    {TWO("\"re:.*mlp.*\"", ""), LAYER "mlp.up_proj", 1},
    {TWO("\"re:mlp.*\"", ""), LAYER "mlp.up_proj", 0},
    {TWO("\"re:.*mlp.*\"", "\"re:.*up_proj\""), LAYER "mlp.up_proj", -1},
    {TWO("", "\"lm_head\""), "lm_head", -1},
    {TWO("", "\"lm_head\""), LAYER "mlp.up_proj", 0},
    {TWO("", "\"Linear\""), LAYER "mlp.up_proj", -1},
};

START_TEST(names_mean_the_modules_that_the_tools_mean)
{
    static struct model_config config;
    struct error error = {0};
    ck_assert_msg(config_with(meant[_i].config, &config, &error) == 0, "%s", error.text);
    const struct list_scheme *scheme = quantization_scheme(&config.quantization, meant[_i].module);
    const struct list_scheme *wanted =
        meant[_i].group < 0 ? NULL : &config.quantization.schemes[meant[_i].group];
    ck_assert_ptr_eq(scheme, wanted);
}
END_TEST

static const struct {
    const char *pattern, *name;
    int matches;
} patterns[] = {
    {"", "a", 1},
    {"a.c", "abc", 1},
    {"a.c", "ab", 0},
    {"a\\.c", "abc", 0},
    {".*lm_head", "model.lm_head", 1},
    {".*lm_head", "lm_head.x", 1},
    {"lm_head$", "lm_head.x", 0},
    {"^lm_head$", "lm_head", 1},
    {"a+b?c*$", "aacc", 1},
    {"a+b?c*$", "bcc", 0},
    {".*layers\\.(0|1|12)\\..*", "model.layers.12.mlp", 1},
    {".*layers\\.(0|1|12)\\..*", "model.layers.2.mlp", 0},
    {".*(q|k|v)_proj$", "a.k_proj", 1},
    {"(?:a|b)(?:c|d)", "bd", 1},
    {"a|b", "b", 1},
    {"a|b", "c", 0},
    {"x[0-9]+y", "x12y", 1},
    {"x[^0-9]y", "x1y", 0},
    {"x\\d+\\.", "x12.", 1},
    {"[a\\.]+$", "a.a", 1},
    {"(a", "a", -1},
    {"a)", "a", -1},
    {"(a)+", "a", -1},
    {"((a))", "a", -1},
    {"a{2}", "aa", -1},
    {"a*?", "a", -1},
    {"*a", "a", -1},
    {"[a", "a", -1},
    {"\\", "a", -1},
    {"\\b", "a", -1},
    {"(?=a)", "a", -1},
    {"(a|b)(a|b)(a|b)(a|b)(a|b)(a|b)(a|b)", "c", -1},
    {"a.*a.*a.*a.*a.*a.*a.*a.*a.*a.*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 0},
};

START_TEST(patterns_are_those_of_python_or_not_understood)
{
    int matches = name_pattern_match(patterns[_i].pattern, patterns[_i].name);
    ck_assert_msg(matches == patterns[_i].matches, "%s of %s: %d", patterns[_i].pattern,
                  patterns[_i].name, matches);
}
END_TEST

/* ---- files ---- */

#define DATA "tests/model/quantized/"
#define DOWN "model.layers.0.mlp.down_proj"

static const struct {
    const char *model, *file, *from, *to, *text;
} broken[] = {
    {"llama-fp8-tensor", "model.safetensors", DOWN ".weight_scale", DOWN ".weight_scalf",
     "model.safetensors: tensor " DOWN ".weight_scale: missing"},
    {"llama-fp8-blocks", "model.safetensors", DOWN ".weight_scale_inv", DOWN ".weight_scale_inw",
     "model.safetensors: tensor " DOWN ".weight_scale_inv: missing"},
    {"qwen2-fp8-static", "model.safetensors", DOWN ".input_scale", DOWN ".input_scalf",
     "model.safetensors: tensor " DOWN ".input_scale: missing"},
    {"llama-fp8-blocks", "model.safetensors",
     DOWN ".weight_scale_inv\":{\"dtype\":\"F32\",\"shape\":[2,2]",
     DOWN ".weight_scale_inv\":{\"dtype\":\"F32\",\"shape\":[4,1]",
     "model.safetensors: tensor " DOWN
     ".weight_scale_inv: shape: [4, 1] is not [2, 2], as config.json makes it"},
    {"llama-fp8-blocks", "model.safetensors", DOWN ".weight_scale_inv\":{\"dtype\":\"F32\"",
     DOWN ".weight_scale_inv\":{\"dtype\":\"I32\"",
     "model.safetensors: tensor " DOWN
     ".weight_scale_inv: dtype: I32 is not supported (BF16, F16 and F32 are)"},
    {"llama-fp8-tensor", "model.safetensors", DOWN ".weight\":{\"dtype\":\"F8_E4M3\"",
     DOWN ".weight\":{\"dtype\":\"F8_E5M2\"",
     "model.safetensors: tensor " DOWN
     ".weight: dtype: F8_E5M2 is not F8_E4M3, as quantization_config makes it"},
    {"llama-ct-mixed", "config.json", "(gate|up)_proj", "(gate|op)_proj",
     "config.json: quantization_config: model.layers.0.mlp.gate_proj.weight and "
     "model.layers.0.mlp.up_proj.weight are one matrix and of different schemes"},
    {"llama-ct-channel", "config.json", "\"ignore\": []", "\"ignore\": [\"re:.*down\"]",
     "model.safetensors: tensor " DOWN
     ".weight: dtype: F8_E4M3 is not supported (BF16, F16 and F32 are)"},
    {"llama-ct-channel", "config.json", "\"intermediate_size\"",
     "\"tie_word_embeddings\": true, \"intermediate_size\"",
     "tensor lm_head.weight_scale: a head that is the embedding cannot be quantized"},
};

START_TEST(files_that_are_not_what_the_config_says_are_refused)
{
    char directory[SCRATCH_PATH_MAX], from[128];
    struct error error = {0};
    struct model model;
    scratch_make(directory);
    snprintf(from, sizeof from, DATA "%s", broken[_i].model);
    scratch_copy(from, directory);
    int before = model_load(directory, 1, 0, &model, &error);
    if (!before)
        model_drop(&model);
    scratch_replace(directory, broken[_i].file, broken[_i].from, broken[_i].to);
    int after = model_load(directory, 1, 0, &model, &error);
    if (!after)
        model_drop(&model);
    scratch_remove(directory);
    ck_assert_int_eq(before, 0);
    ck_assert_int_eq(after, -ERR_BAD_MODEL);
    ck_assert_str_eq(error.text, broken[_i].text);
}
END_TEST

#define COUNT(array) ((int)(sizeof array / sizeof *array))

Suite *quantization_suite(void)
{
    Suite *suite = suite_create("model quantization");
    TCase *tcase = tcase_create("quantization");
    tcase_add_loop_test(tcase, what_is_not_computed_is_refused_by_name, 0, COUNT(refused));
    tcase_add_loop_test(tcase, lists_that_are_too_long_are_refused, 0, 2);
    tcase_add_loop_test(tcase, names_mean_the_modules_that_the_tools_mean, 0, COUNT(meant));
    tcase_add_loop_test(tcase, patterns_are_those_of_python_or_not_understood, 0, COUNT(patterns));
    tcase_add_loop_test(tcase, files_that_are_not_what_the_config_says_are_refused, 0,
                        COUNT(broken));
    suite_add_tcase(suite, tcase);
    return suite;
}
