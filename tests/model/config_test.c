#include "gpu/models/base/family.h"
#include "gpu/models/config.h"
#include "gpu/models/model.h"

#include <string.h>

#include "tests/model/config_text.h"
#include "tests/model/model_suites.h"

START_TEST(a_plain_llama_has_what_its_fields_say)
{
    struct model_config config;
    ck_assert_int_eq(config_with("", &config, NULL), 0);
    ck_assert_str_eq(config.family->type, "llama");
    ck_assert_int_eq(config.dtype, MODEL_BF16);
    ck_assert_uint_eq(config.layers, 2);
    ck_assert_uint_eq(config.hidden, 32);
    ck_assert_uint_eq(config.intermediate, 48);
    ck_assert_uint_eq(config.heads, 4);
    ck_assert_uint_eq(config.kv_heads, 2);
    ck_assert_uint_eq(config.head_dim, 8);
    ck_assert_uint_eq(config.vocab, 256);
    ck_assert_uint_eq(config.context_max, 512);
    ck_assert_float_eq(config.norm_eps, 1e-5f);
    ck_assert_float_eq_tol(config.attention_scale, 0.35355339f, 1e-7f);
    ck_assert(!config.qkv_bias && !config.o_bias && !config.mlp_bias && !config.qk_norm);
    ck_assert(!config.tied);
    ck_assert_uint_eq(config.window[0], 0);
    ck_assert_uint_eq(config.window[1], 0);
    ck_assert_int_eq(config.bos_id, -1);
    ck_assert_uint_eq(config.eos_count, 0);
    ck_assert_float_eq(config.sampler.temperature, 0);
    ck_assert_float_eq(config.sampler.top_p, 1);
    ck_assert_float_eq(config.sampler.repetition_penalty, 1);
}
END_TEST

/* As it is published: what is not said is the class's. */
START_TEST(the_text_of_a_model_that_has_more_has_its_class_s_sizes)
{
    static const char text[] =
        "{" GEMMA3 ",\"eos_token_id\":[1,106],\"torch_dtype\":\"bfloat16\",\"vision_config\":"
        "{\"hidden_size\":1152},\"text_config\":{\"hidden_size\":2560,\"intermediate_size\":10240,"
        "\"model_type\":\"gemma3_text\",\"num_hidden_layers\":7,\"sliding_window\":1024,"
        "\"rope_scaling\":{\"factor\":8.0,\"rope_type\":\"linear\"}}}";
    struct model_config config;
    struct error error = {0};
    ck_assert_msg(!model_config_parse(text, strlen(text), NULL, 0, &config, &error), "%s",
                  error.text);
    ck_assert_uint_eq(config.heads, 8);
    ck_assert_uint_eq(config.kv_heads, 4);
    ck_assert_uint_eq(config.head_dim, 256);
    ck_assert_uint_eq(config.vocab, 262208);
    ck_assert_uint_eq(config.context_max, 131072);
    ck_assert(config.tied && config.qk_norm && config.dtype == MODEL_BF16);
    ck_assert_uint_eq(config.eos_count, 2);
    for (uint32_t layer = 0; layer < 7; layer++)
        ck_assert_uint_eq(config.window[layer], layer == 5 ? 0 : 1024);
    ck_assert_float_eq(config.attention_scale, 0.0625f);
    ck_assert_float_eq(config.attention_softcap, 0);
    ck_assert_float_eq(config.embedding_multiplier, 50.5f); /* 50.596 in bfloat16 */
    ck_assert_double_eq_tol((double)config.rope.inverse_frequency[64], 1e-3 / 8, 1e-10);
    ck_assert_double_eq_tol((double)config.rope_local.inverse_frequency[64], 1e-2, 1e-9);
}
END_TEST

START_TEST(gemma_s_caps_and_scale_are_its_own_where_config_json_is_silent)
{
    struct model_config config;
    struct error error = {0};
    ck_assert_msg(!config_with(GEMMA2 ",\"dtype\":\"float32\"", &config, &error), "%s", error.text);
    ck_assert_float_eq(config.attention_softcap, 50);
    ck_assert_float_eq(config.logits_softcap, 30);
    ck_assert_float_eq(config.embedding_multiplier, 5.6568542f);
    ck_assert_int_eq(
        config_with(GEMMA2 ",\"attn_logit_softcapping\":null,\"final_logit_softcapping\":null",
                    &config, &error),
        0);
    ck_assert_float_eq(config.attention_softcap, 0);
    ck_assert_float_eq(config.logits_softcap, 0);
    ck_assert_float_eq(config.embedding_multiplier, 5.65625f); /* in bfloat16 */
}
END_TEST

static const struct {
    const char *changes;
    const char *family;
    uint32_t head_dim, kv_heads;
    bool qkv_bias, o_bias, mlp_bias, qk_norm, tied;
} variants[] = {
    {"\"-architectures\":0", "llama", 8, 2, 0, 0, 0, 0, 0},
    {"\"-model_type\":0", "llama", 8, 2, 0, 0, 0, 0, 0},
    {"\"num_key_value_heads\":null", "llama", 8, 4, 0, 0, 0, 0, 0},
    {"\"-num_key_value_heads\":0", "llama", 8, 4, 0, 0, 0, 0, 0},
    {"\"head_dim\":80,\"hidden_act\":null", "llama", 80, 2, 0, 0, 0, 0, 0},
    {"\"head_dim\":80,\"num_attention_heads\":3,\"num_key_value_heads\":1", "llama", 80, 1, 0, 0, 0,
     0, 0},
    {"\"attention_bias\":true", "llama", 8, 2, 1, 1, 0, 0, 0},
    {"\"mlp_bias\":true,\"tie_word_embeddings\":true", "llama", 8, 2, 0, 0, 1, 0, 1},
    {MISTRAL ",\"num_key_value_heads\":null", "mistral", 8, 4, 0, 0, 0, 0, 0},
    {"\"logits_scaling\":1,\"num_local_experts\":0,\"use_qk_norm\":false,\"clip_qkv\":null",
     "llama", 8, 2, 0, 0, 0, 0, 0},
    {MISTRAL ",\"head_dim\":128", "mistral", 128, 2, 0, 0, 0, 0, 0},
    {PHI3 ",\"-num_key_value_heads\":0,\"attention_bias\":true", "phi3", 8, 4, 0, 0, 0, 0, 0},
    {GRANITE ",\"attention_bias\":true,\"logits_scaling\":8", "granite", 8, 2, 1, 1, 0, 0, 0},
    {SMOLLM3, "smollm3", 8, 2, 0, 0, 0, 0, 1},
    {OLMO2, "olmo2", 8, 2, 0, 0, 0, 0, 0},
    {OLMO2 ",\"attention_bias\":true,\"num_key_value_heads\":null", "olmo2", 8, 4, 1, 1, 0, 0, 0},
    {GLM, "glm", 128, 2, 1, 0, 0, 0, 0},
    {GLM4 ",\"head_dim\":64,\"attention_bias\":false", "glm4", 64, 2, 0, 0, 0, 0, 0},
    {STARCODER2, "starcoder2", 8, 2, 1, 1, 1, 0, 1},
    {STARCODER2 ",\"use_bias\":false,\"tie_word_embeddings\":false", "starcoder2", 8, 2, 0, 0, 0, 0,
     0},
    {MIXTRAL ",\"num_local_experts\":8,\"num_experts_per_tok\":2", "mixtral", 8, 2, 0, 0, 0, 0, 0},
    {QWEN3_MOE EIGHT, "qwen3_moe", 8, 2, 0, 0, 0, 1, 0},
    {QWEN2_MOE EIGHT, "qwen2_moe", 8, 2, 1, 0, 0, 0, 0},
    {QWEN2_MOE EIGHT ",\"qkv_bias\":false", "qwen2_moe", 8, 2, 0, 0, 0, 0, 0},
    {OLMOE EIGHT ",\"attention_bias\":true", "olmoe", 8, 2, 1, 1, 0, 0, 0},
    {GLM4_MOE ",\"attention_bias\":true,\"use_qk_norm\":true", "glm4_moe", 8, 2, 1, 0, 0, 1, 0},
    {GRANITE_MOE ",\"attention_bias\":true", "granitemoe", 8, 2, 1, 1, 0, 0, 0},
    {GRANITE_MOE_SHARED ",\"shared_intermediate_size\":24", "granitemoeshared", 8, 2, 0, 0, 0, 0,
     0},
    {DEEPSEEK ",\"attention_bias\":true,\"scoring_func\":\"softmax\"", "deepseek", 8, 2, 1, 1, 0, 0,
     0},
    {QWEN2, "qwen2", 8, 2, 1, 0, 0, 0, 0},
    {QWEN2 ",\"attention_bias\":false,\"mlp_bias\":true", "qwen2", 8, 2, 1, 0, 0, 0, 0},
    {QWEN3, "qwen3", 128, 2, 0, 0, 0, 1, 0},
    {QWEN3 ",\"head_dim\":64,\"attention_bias\":true", "qwen3", 64, 2, 1, 1, 0, 1, 0},
};

START_TEST(each_architecture_has_its_own_biases_norms_and_head_dimension)
{
    struct model_config config;
    struct error error = {0};
    ck_assert_msg(config_with(variants[_i].changes, &config, &error) == 0, "%s", error.text);
    ck_assert_str_eq(config.family->type, variants[_i].family);
    ck_assert_uint_eq(config.head_dim, variants[_i].head_dim);
    ck_assert_uint_eq(config.rope.pairs, variants[_i].head_dim / 2);
    ck_assert_uint_eq(config.kv_heads, variants[_i].kv_heads);
    ck_assert_int_eq(config.qkv_bias, variants[_i].qkv_bias);
    ck_assert_int_eq(config.o_bias, variants[_i].o_bias);
    ck_assert_int_eq(config.mlp_bias, variants[_i].mlp_bias);
    ck_assert_int_eq(config.qk_norm, variants[_i].qk_norm);
    ck_assert_int_eq(config.tied, variants[_i].tied);
}
END_TEST

/* A file that says nothing means what the class does; one that says it, that. */
static const struct {
    const char *changes;
    enum activation_kind kind;
} activations[] = {
    {"", ACTIVATION_SILU},
    {"\"hidden_act\":null", ACTIVATION_SILU},
    {"\"hidden_act\":\"gelu_pytorch_tanh\"", ACTIVATION_GELU_TANH},
    {STARCODER2, ACTIVATION_SILU}, /* as the file of all these tests says */
    {STARCODER2 ",\"-hidden_act\":0", ACTIVATION_GELU_TANH},
    {STARCODER2 ",\"hidden_act\":\"gelu_pytorch_tanh\"", ACTIVATION_GELU_TANH},
};

START_TEST(the_activation_is_the_file_s_or_the_class_s)
{
    struct model_config config;
    struct error error = {0};
    ck_assert_msg(config_with(activations[_i].changes, &config, &error) == 0, "%s", error.text);
    ck_assert_int_eq(config.activation, activations[_i].kind);
}
END_TEST

static const struct {
    const char *changes;
    uint32_t windows[4]; /* of the layers */
    uint32_t groups;
} windows[] = {
    {"\"num_hidden_layers\":4,\"sliding_window\":16", {0, 0, 0, 0}, 1},
    {MISTRAL ",\"num_hidden_layers\":4", {4096, 4096, 4096, 4096}, 1},
    {MISTRAL ",\"num_hidden_layers\":4,\"sliding_window\":null", {0, 0, 0, 0}, 1},
    {MISTRAL ",\"num_hidden_layers\":4,\"sliding_window\":16", {16, 16, 16, 16}, 1},
    {PHI3 ",\"num_hidden_layers\":4", {0, 0, 0, 0}, 1},
    {PHI3 ",\"num_hidden_layers\":4,\"sliding_window\":16", {16, 16, 16, 16}, 1},
    {GEMMA2 ",\"num_hidden_layers\":4,\"sliding_window\":16", {16, 0, 16, 0}, 2},
    {GEMMA2 ",\"num_hidden_layers\":4", {4096, 0, 4096, 0}, 2},
    {GEMMA3_TEXT ",\"num_hidden_layers\":4,\"sliding_window\":8,\"sliding_window_pattern\":3",
     {8, 8, 0, 8},
     2},
    {GEMMA3_TEXT ",\"num_hidden_layers\":4,\"sliding_window\":8,\"layer_types\":"
                 "[\"full_attention\",\"sliding_attention\",\"full_attention\",\"full_attention\"]",
     {0, 8, 0, 0},
     2},
    {QWEN2 ",\"num_hidden_layers\":4,\"sliding_window\":16", {0, 0, 0, 0}, 1},
    {QWEN2 ",\"num_hidden_layers\":4,\"sliding_window\":16,\"use_sliding_window\":true",
     {0, 0, 0, 0},
     1},
    {QWEN2 ",\"num_hidden_layers\":4,\"sliding_window\":16,\"use_sliding_window\":true,"
           "\"max_window_layers\":0",
     {16, 16, 16, 16},
     1},
    {QWEN3 ",\"num_hidden_layers\":4,\"sliding_window\":16,\"use_sliding_window\":true,"
           "\"max_window_layers\":3",
     {0, 0, 0, 16},
     2},
    {QWEN3 ",\"num_hidden_layers\":4,\"use_sliding_window\":true,\"max_window_layers\":1",
     {0, 4096, 4096, 4096},
     2},
    {QWEN3
     ",\"num_hidden_layers\":4,\"sliding_window\":8,\"use_sliding_window\":true,\"layer_types\":"
     "[\"sliding_attention\",\"full_attention\",\"sliding_attention\",\"full_attention\"]",
     {8, 0, 8, 0},
     2},
    {QWEN3 ",\"num_hidden_layers\":4,\"sliding_window\":null,\"layer_types\":"
           "[\"full_attention\",\"full_attention\",\"full_attention\",\"full_attention\"]",
     {0, 0, 0, 0},
     1},
};

START_TEST(each_layer_is_in_the_group_of_its_window)
{
    struct model_config config;
    struct error error = {0};
    ck_assert_msg(config_with(windows[_i].changes, &config, &error) == 0, "%s", error.text);
    struct op_list list;
    ck_assert_int_eq(model_list(&config, 1, &list, &error), 0);
    ck_assert_uint_eq(list.group_count, windows[_i].groups);
    uint32_t layers[GPU_GROUPS_MAX] = {0};
    for (uint32_t i = 0; i < list.op_count; i++) {
        const struct op *op = &list.ops[i];
        if (op->kind != OP_ATTENTION)
            continue;
        ck_assert_uint_eq(list.groups[op->attention.group].window, windows[_i].windows[op->layer]);
        ck_assert_uint_eq(op->attention.layer, layers[op->attention.group]++);
    }
    for (uint32_t group = 0; group < list.group_count; group++)
        ck_assert_uint_eq(list.groups[group].layers, layers[group]);
    op_list_free(&list);
}
END_TEST

/* Whole experts on each rank are as many; of columns each rank has a part of all. */
START_TEST(experts_that_do_not_divide_are_refused)
{
    struct model_config config;
    struct op_list list;
    struct error error = {0};
    static const char six[] = QWEN3_MOE ",\"num_experts\":6,\"num_experts_per_tok\":2,"
                                        "\"num_attention_heads\":4,\"num_key_value_heads\":4";
    ck_assert_msg(config_with(six, &config, &error) == 0, "%s", error.text);
    ck_assert_int_eq(model_list(&config, 4, &list, &error), 0);
    op_list_free(&list);
    config.experts_whole = true;
    ck_assert_int_eq(model_list(&config, 2, &list, &error), 0);
    op_list_free(&list);
    ck_assert_int_eq(model_list(&config, 4, &list, &error), -ERR_BAD_CONFIG);
    ck_assert_str_eq(error.text, "tp is 4: the model's 6 experts do not divide by it");
}
END_TEST

static const struct {
    const char *changes;
    bool rope[5]; /* of the layers */
} ropes[] = {
    {SMOLLM3 ",\"num_hidden_layers\":5", {true, true, true, false, true}},
    {SMOLLM3 ",\"num_hidden_layers\":5,\"no_rope_layer_interval\":2",
     {true, false, true, false, true}},
    {SMOLLM3 ",\"num_hidden_layers\":5,\"no_rope_layers\":[0,1,1,0,0]",
     {false, true, true, false, false}},
    {"\"num_hidden_layers\":5", {true, true, true, true, true}},
};

START_TEST(layers_without_rope_turn_by_no_angle)
{
    struct model_config config;
    struct op_list list;
    struct error error = {0};
    ck_assert_msg(config_with(ropes[_i].changes, &config, &error) == 0, "%s", error.text);
    ck_assert_int_eq(model_list(&config, 1, &list, &error), 0);
    uint32_t layers = 0;
    for (uint32_t i = 0; i < list.op_count; i++) {
        const struct op *op = &list.ops[i];
        if (op->kind != OP_ROPE)
            continue;
        float slowest = list.ropes[op->rope.table].inverse_frequency[config.rope.pairs - 1];
        ck_assert_int_eq(slowest > 0, ropes[_i].rope[op->layer]);
        layers++;
    }
    ck_assert_uint_eq(layers, 5);
    op_list_free(&list);
}
END_TEST

static const struct {
    const char *changes;
    enum model_dtype dtype;
} dtypes[] = {
    {"\"torch_dtype\":\"float16\"", MODEL_F16},
    {"\"-torch_dtype\":0,\"dtype\":\"bfloat16\"", MODEL_BF16},
    {"\"torch_dtype\":\"float16\",\"dtype\":\"float32\"", MODEL_F32},
    {"\"-torch_dtype\":0", MODEL_F32},
};

START_TEST(the_dtype_is_read_under_its_new_and_its_old_name)
{
    struct model_config config;
    ck_assert_int_eq(config_with(dtypes[_i].changes, &config, NULL), 0);
    ck_assert_int_eq(config.dtype, dtypes[_i].dtype);
}
END_TEST

Suite *config_suite(void)
{
    Suite *suite = suite_create("model config");
    TCase *tcase = tcase_create("config");
    tcase_add_test(tcase, the_text_of_a_model_that_has_more_has_its_class_s_sizes);
    tcase_add_test(tcase, gemma_s_caps_and_scale_are_its_own_where_config_json_is_silent);
    tcase_add_test(tcase, a_plain_llama_has_what_its_fields_say);
    tcase_add_loop_test(tcase, each_architecture_has_its_own_biases_norms_and_head_dimension, 0,
                        sizeof(variants) / sizeof(variants[0]));
    tcase_add_loop_test(tcase, each_layer_is_in_the_group_of_its_window, 0,
                        sizeof(windows) / sizeof(windows[0]));
    tcase_add_loop_test(tcase, layers_without_rope_turn_by_no_angle, 0,
                        sizeof(ropes) / sizeof(ropes[0]));
    tcase_add_test(tcase, experts_that_do_not_divide_are_refused);
    tcase_add_loop_test(tcase, the_activation_is_the_file_s_or_the_class_s, 0,
                        sizeof(activations) / sizeof(activations[0]));
    tcase_add_loop_test(tcase, the_dtype_is_read_under_its_new_and_its_old_name, 0,
                        sizeof(dtypes) / sizeof(dtypes[0]));
    suite_add_tcase(suite, tcase);
    return suite;
}
