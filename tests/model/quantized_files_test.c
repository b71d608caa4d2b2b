/* Files of quantized models: that they are what the config says, and which files say it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/models/model.h"
#include "tests/model/model_suites.h"
#include "tests/model/scratch.h"

#define DATA "tests/model/quantized/"
#define DOWN "model.layers.0.mlp.down_proj"
#define DOWN_STACK "model.layers.0.mlp.experts.down_proj"

static const struct {
    const char *model, *file, *from, *to, *text; /* NULL: it can be read all the same */
} broken[] = {
    {"llama-modelopt-apart", "hf_quant_config.json", "\"fp8_pb_wo\"", "\"nvfp4_awq\"",
     "hf_quant_config.json: quantization.quant_algo: \"nvfp4_awq\" is not supported (FP8, "
     "FP8_PER_CHANNEL_PER_TOKEN and FP8_PB_WO are)"},
    {"llama-modelopt-apart", "hf_quant_config.json", "\"quantization\"", "\"quantizatiom\"",
     "hf_quant_config.json: quantization: missing"},
    {"llama-modelopt", "model.safetensors", DOWN ".input_scale", DOWN ".input_scalf",
     "model.safetensors: tensor " DOWN ".input_scale: missing"},
    /* it belongs to a layer behind the last: nobody asks for it, and it is not needed */
    {"llama-gptq-sym", "model.safetensors", DOWN ".g_idx", "model.layers.9.mlp.down_proj.g_idx",
     NULL},
    {"qwen2-gptq-order", "model.safetensors", DOWN ".g_idx", DOWN ".g_idy",
     "model.safetensors: tensor " DOWN ".g_idx: missing"},
    {"llama-gptq-sym", "model.safetensors", DOWN ".qzeros", DOWN ".qzeroz",
     "model.safetensors: tensor " DOWN ".qzeros: missing"},
    {"llama-gptq-sym", "model.safetensors", DOWN ".qweight\":{\"dtype\":\"I32\"",
     DOWN ".qweight\":{\"dtype\":\"F32\"",
     "model.safetensors: tensor " DOWN
     ".qweight: dtype: F32 is not I32, as quantization_config makes it"},
    {"llama-gptq-sym", "model.safetensors", DOWN ".qweight\":{\"dtype\":\"I32\",\"shape\":[26,128]",
     DOWN ".qweight\":{\"dtype\":\"I32\",\"shape\":[128,26]",
     "model.safetensors: tensor " DOWN
     ".qweight: shape: [128, 26] is not [26, 128], as config.json makes it"},
    {"llama-gptq-sym", "config.json", "\"group_size\": 32", "\"group_size\": 64",
     "model.safetensors: tensor model.layers.0.self_attn.q_proj.scales: shape: [4, 160] is not [2, "
     "160], as config.json makes it"},
    {"llama-awq", "config.json", "\"zero_point\": true", "\"zero_point\": false", NULL},
    {"llama-awq", "model.safetensors", DOWN ".qzeros", DOWN ".qzeroz",
     "model.safetensors: tensor " DOWN ".qzeros: missing"},
    {"llama-awq", "config.json", "\"intermediate_size\": 208", "\"intermediate_size\": 204",
     "tensor model.layers.0.mlp.gate_proj.weight: its 204 rows are no whole words of 8, as "
     "quantization_config makes them"},
    {"llama-gptq-static", "config.json", "\"hidden_size\": 128", "\"hidden_size\": 126",
     "tensor model.layers.0.self_attn.q_proj.weight: its 126 columns are no whole words of 4, as "
     "quantization_config makes them"},
    {"llama-ct-u4", "model.safetensors", DOWN ".weight_shape", DOWN ".weight_shapf",
     "model.safetensors: tensor " DOWN ".weight_shape: missing"},
    {"llama-gptq-blocks", "config.json", "\"self_attn.k_proj\"", "\"self_attn.x_proj\"",
     "config.json: quantization_config: model.layers.0.self_attn.q_proj.weight and "
     "model.layers.0.self_attn.k_proj.weight are one matrix and of different schemes"},
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
    /* experts of one tensor */
    {"gpt-oss-mxfp4", "model.safetensors", DOWN_STACK "_scales", DOWN_STACK "_scalez",
     "model.safetensors: tensor " DOWN_STACK "_scales: missing"},
    {"gpt-oss-mxfp4", "model.safetensors",
     DOWN_STACK "_scales\":{\"dtype\":\"U8\",\"shape\":[6,64,2]",
     DOWN_STACK "_scales\":{\"dtype\":\"U8\",\"shape\":[6,2,64]",
     "model.safetensors: tensor " DOWN_STACK
     "_scales: shape: [6, 2, 64] is not [6, 64, 2], as config.json makes it"},
    {"gpt-oss-mxfp4", "model.safetensors",
     DOWN_STACK "_blocks\":{\"dtype\":\"U8\",\"shape\":[6,64,2,16]",
     DOWN_STACK "_blocks\":{\"dtype\":\"U8\",\"shape\":[6,64,16,2]",
     "model.safetensors: tensor " DOWN_STACK
     "_blocks: shape: [6, 64, 16, 2] is not [6, 64, 2, 16], as config.json makes it"},
    {"gpt-oss-mxfp4", "model.safetensors", DOWN_STACK "_blocks\":{\"dtype\":\"U8\"",
     DOWN_STACK "_blocks\":{\"dtype\":\"I8\"",
     "model.safetensors: tensor " DOWN_STACK
     "_blocks: dtype: I8 is not U8, as quantization_config makes it"},
    {"gpt-oss-mxfp4", "model.safetensors", DOWN_STACK "_bias\"", DOWN_STACK "_biaz\"",
     "model.safetensors: tensor " DOWN_STACK "_bias: missing"},
    {"gpt-oss-mxfp4", "model.safetensors", "layers.0.self_attn.sinks", "layers.0.self_attn.sinkz",
     "model.safetensors: tensor model.layers.0.self_attn.sinks: missing"},
    {"gpt-oss-mxfp4", "config.json", "\"model.layers.*.mlp.router\"",
     "\"model.layers.*.mlp.experts\"",
     "model.safetensors: tensor model.layers.0.mlp.experts.gate_up_proj: missing"},
    {"gpt-oss-mxfp4", "config.json", "\"hidden_size\": 64", "\"hidden_size\": 72",
     "tensor model.layers.0.mlp.experts.gate_up_proj: its 72 columns are no whole blocks of 32"},
    {"gpt-oss-mxfp4", "config.json", "\"quant_method\": \"mxfp4\"",
     "\"quant_method\": \"fp8\", \"activation_scheme\": \"dynamic\"",
     "tensor model.layers.0.mlp.experts.gate_up_proj: experts of one tensor are supported as they "
     "are and in mxfp4"},
    /* scales that the scheme says, and one of two */
    {"llama-kv-static", "model.safetensors", "layers.1.self_attn.k_scale",
     "layers.1.self_attn.k_skale",
     "model.safetensors: tensor model.layers.1.self_attn.k_scale: missing"},
    {"qwen2-kv-parts", "model.safetensors", "v_proj.v_scale", "v_proj.v_skale",
     "model.safetensors: tensor model.layers.0.self_attn.v_scale: missing"},
    {"qwen2-kv-parts", "model.safetensors", "k_proj.k_scale\":{\"dtype\":\"F32\"",
     "k_proj.k_scale\":{\"dtype\":\"I32\"",
     "model.safetensors: tensor model.layers.0.self_attn.k_proj.k_scale: dtype: I32 is not "
     "supported "
     "(BF16, F16 and F32 are)"},
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
    ck_assert_int_eq(after, broken[_i].text ? -ERR_BAD_MODEL : 0);
    if (broken[_i].text)
        ck_assert_str_eq(error.text, broken[_i].text);
}
END_TEST

/* Of tools that left config.json alone. */
static const struct {
    const char *model, *file, *text, *refusal;
} apart[] = {
    {"llama-gptq-sym", "quantize_config.json",
     "{\"bits\":4,\"group_size\":32,\"damp_percent\":0.01,\"desc_act\":false,\"static_groups\":"
     "false,"
     "\"sym\":true,\"true_sequential\":true,\"model_name_or_path\":null,\"model_file_base_name\":"
     "\"model\"}",
     NULL},
    {"llama-awq", "quant_config.json",
     "{\"zero_point\":true,\"q_group_size\":32,\"w_bit\":4,\"version\":\"GEMM\"}", NULL},
    {"llama-awq", "quantize_config.json",
     "{\"quant_method\":\"awq\",\"group_size\":32,\"bits\":4,\"zero_point\":true}", NULL},
    {"llama-gptq-sym", "quantize_config.json", "{\"bits\":3,\"group_size\":32}",
     "quantize_config.json: bits: 3 is not supported (4 and 8 are)"},
    {"llama-gptq-sym", "quantize_config.json", "{\"quant_method\":\"hqq\"}",
     "quantize_config.json: quant_method: \"hqq\" is not supported (these are: fp8 fbgemm_fp8 "
     "modelopt compressed-tensors gptq awq auto-round mxfp4)"},
    {"llama-awq", "quant_config.json", "{\"q_group_size\":32}",
     "quant_config.json: w_bit: missing"},
};

START_TEST(files_of_their_own_say_the_same_where_config_json_does_not)
{
    char directory[SCRATCH_PATH_MAX], from[128];
    struct error error = {0};
    struct model model;
    scratch_make(directory);
    snprintf(from, sizeof from, DATA "%s", apart[_i].model);
    scratch_copy(from, directory);
    scratch_replace(directory, "config.json", "\"quantization_config\"", "\"quantization_done\"");
    int without = model_load(directory, 1, 0, &model, &error);
    if (!without)
        model_drop(&model);
    scratch_write(directory, apart[_i].file, apart[_i].text, strlen(apart[_i].text));
    int with = model_load(directory, 1, 0, &model, &error);
    if (!with)
        model_drop(&model);
    scratch_remove(directory);
    ck_assert_int_eq(without, -ERR_BAD_MODEL);
    ck_assert_msg(with == (apart[_i].refusal ? -ERR_BAD_MODEL : 0), "%s", error.text);
    if (apart[_i].refusal)
        ck_assert_str_eq(error.text, apart[_i].refusal);
}
END_TEST

static float k_scale_of(const char *directory)
{
    struct error error = {0};
    struct model model;
    ck_assert_msg(model_load(directory, 1, 0, &model, &error) == 0, "%s", error.text);
    float scale = 0;
    for (uint32_t i = 0; i < model.list.op_count; i++)
        if (model.list.ops[i].kind == OP_KV_WRITE)
            scale = model.list.ops[i].attention.k_scale;
    model_drop(&model);
    return scale;
}

START_TEST(scales_of_keys_and_values_have_several_names)
{
    static const char *const names[] = {"k_proj.k_scale", "k_proj.output_scale", "attn.k_scale",
                                        "k_scale"};
    const char *const part = "model.layers.0.self_attn.";
    char directory[SCRATCH_PATH_MAX], before[128], after[128];
    scratch_make(directory);
    scratch_copy(DATA "qwen2-kv-parts", directory);
    float scale = k_scale_of(directory), other;
    for (size_t i = 1; i < sizeof names / sizeof *names; i++) {
        snprintf(before, sizeof before, "%s%s", part, names[i - 1]);
        snprintf(after, sizeof after, "%s%s", part, names[i]);
        scratch_rename(directory, "model.safetensors", before, after);
        other = k_scale_of(directory);
        ck_assert_msg(scale > 0 && other == scale, "%s: %g, not %g", names[i], (double)other,
                      (double)scale);
    }
    scratch_remove(directory);
}
END_TEST

#define COUNT(array) ((int)(sizeof array / sizeof *array))

Suite *quantized_files_suite(void)
{
    Suite *suite = suite_create("quantized files");
    TCase *tcase = tcase_create("files");
    tcase_add_test(tcase, scales_of_keys_and_values_have_several_names);
    tcase_add_loop_test(tcase, files_that_are_not_what_the_config_says_are_refused, 0,
                        COUNT(broken));
    tcase_add_loop_test(tcase, files_of_their_own_say_the_same_where_config_json_does_not, 0,
                        COUNT(apart));
    suite_add_tcase(suite, tcase);
    return suite;
}
