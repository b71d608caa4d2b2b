#include "gpu/models/synthetic.h"

#include <stdio.h>
#include <string.h>

#include "gpu/models/model.h"
#include "tests/model/model_suites.h"

static const struct {
    const char *model;
    uint64_t elements; /* as published with the model of that name */
    uint32_t context, window;
} shapes[] = {
    {"synthetic:llama-3.1-8b", 8030261248, 131072, 0},
    {"synthetic:llama-3.1-8b-eagle3", 424689664, 2048, 0},
    {"synthetic:llama-3.1-70b", 70553706496, 131072, 0},
    {"synthetic:llama-3.2-1b", 1235814400, 131072, 0},
    {"synthetic:qwen2.5-7b", 7615616512, 32768, 0},
    {"synthetic:qwen3-0.6b", 596049920, 40960, 0},
    {"synthetic:mistral-7b", 7241732096, 32768, 4096},
    {"synthetic:phi-3-mini", 3821079552, 4096, 2047},
    {"synthetic:phi-4", 14659507200, 16384, 0},
    {"synthetic:phi-4-mini", 3836021760, 131072, 262144},
    {"synthetic:granite-3.1-8b", 8170848256, 131072, 0},
    {"synthetic:smollm3-3b", 3075098624, 65536, 0},
    {"synthetic:olmo-2-7b", 7298617344, 4096, 0},
    {"synthetic:glm-4-9b-chat", 9399951360, 131072, 0},
    {"synthetic:glm-4-9b", 9400279040, 32768, 0},
    {"synthetic:starcoder2-7b", 7173923840, 16384, 4096},
    {"synthetic:gemma-7b", 8537680896, 8192, 0},
    {"synthetic:gemma-2-9b", 9241705984, 8192, 4096},
    {"synthetic:gemma-3-4b", 3880263168, 131072, 1024},
    {"synthetic:mixtral-8x7b", 46702792704, 32768, 0},
    {"synthetic:qwen3-30b-a3b", 30532122624, 40960, 0},
    {"synthetic:qwen1.5-moe-a2.7b", 14315784192, 8192, 0},
    {"synthetic:olmoe-1b-7b", 6919161856, 4096, 0},
    {"synthetic:granite-3.0-3b-a800m", 3298793472, 4096, 0},
    {"synthetic:deepseek-moe-16b", 16375728128, 4096, 0},
    {"synthetic:gpt-oss-20b", 20914757184, 131072, 128},
    {"synthetic:gpt-oss-tiny", 4749632, 4096, 128},
    {"synthetic:tiny", 2492672, 4096, 0},
    {"synthetic:tiny-eagle3", 951296, 4096, 0},
    {"synthetic:tiny-wide", 1312000, 4096, 0},
    {"null", 2492672, 4096, 0},
};

START_TEST(each_shape_has_the_parameters_of_its_model)
{
    struct model_config config;
    struct error error = {0};
    ck_assert(synthetic_is(shapes[_i].model));
    ck_assert_msg(synthetic_config(shapes[_i].model, &config, &error) == 0, "%s", error.text);
    struct op_list list;
    ck_assert_int_eq(model_list(&config, 1, &list, &error), 0);
    ck_assert_uint_eq(op_list_elements(&list), shapes[_i].elements);
    op_list_free(&list);
    ck_assert_uint_eq(config.context_max, shapes[_i].context);
    ck_assert_uint_eq(config.window[0], shapes[_i].window);
    ck_assert_uint_eq(config.eos_count, 0);
    ck_assert_int_eq(config.dtype, MODEL_BF16);
}
END_TEST

START_TEST(every_named_shape_is_in_the_table_above)
{
    size_t named = 0;
    for (; synthetic_name(named); named++) {
        size_t i = 0;
        while (i < sizeof(shapes) / sizeof(shapes[0]) &&
               strcmp(shapes[i].model + strcspn(shapes[i].model, ":") + 1, synthetic_name(named)))
            i++;
        ck_assert_uint_lt(i, sizeof(shapes) / sizeof(shapes[0]));
    }
    ck_assert_uint_eq(named, sizeof(shapes) / sizeof(shapes[0]) - 1);
}
END_TEST

/* Each of their tensors comes with its scales, and routers with none; ranks have whole groups. */
START_TEST(quantized_experts_have_scales_of_their_own)
{
    struct model model;
    struct error error = {0};
    ck_assert_int_eq(model_load("synthetic:mixtral-8x7b:fp8", 1, 0, &model, &error), 0);
    uint32_t scales = 0, elements = 0;
    for (uint32_t i = 0; i < model.list.tensor_count; i++) {
        scales += model.list.tensors[i].elements == TENSOR_SCALES;
        elements += model.list.tensors[i].elements == TENSOR_E4M3;
    }
    ck_assert_uint_eq(elements, 32 * (8 * 3 + 4));
    ck_assert_uint_eq(scales, elements);
    model_drop(&model);
    ck_assert_int_eq(model_load("synthetic:qwen3-30b-a3b:u4", 4, 0, &model, &error),
                     -ERR_BAD_CONFIG);
    ck_assert_ptr_nonnull(strstr(error.text, "a rank's 192 columns of an expert are no whole "
                                             "groups of 128: --ep shares out whole experts"));
    ck_assert_int_eq(model_load("synthetic:mixtral-8x7b", 3, 0, &model, &error), -ERR_BAD_CONFIG);
}
END_TEST

/* Also such as stand upright, which have no blocks. */
START_TEST(experts_of_one_tensor_have_no_format_but_mxfp4)
{
    struct model model;
    struct error error = {0};
    static const char *const names[] = {"synthetic:granite-3.0-3b-a800m:fp8",
                                        "synthetic:granite-3.0-3b-a800m:u4"};
    ck_assert_int_eq(model_load(names[_i], 1, 0, &model, &error), -ERR_BAD_MODEL);
    ck_assert_ptr_nonnull(strstr(error.text, "block_sparse_moe.input_linear.weight: experts of one "
                                             "tensor are supported as they are and in mxfp4"));
}
END_TEST

START_TEST(an_unknown_shape_is_refused_with_the_known_ones)
{
    struct model_config config;
    struct error error = {0};
    ck_assert_int_eq(synthetic_config("synthetic:gpt-2", &config, &error), -ERR_BAD_MODEL);
    ck_assert_str_eq(
        error.text,
        "synthetic shape \"gpt-2\" is unknown (known: tiny, llama-3.2-1b, llama-3.1-8b, llama-3.1-8b-eagle3, "
        "llama-3.1-70b, qwen2.5-7b, qwen3-0.6b, mistral-7b, phi-3-mini, phi-4, phi-4-mini, "
        "granite-3.1-8b, smollm3-3b, olmo-2-7b, glm-4-9b-chat, glm-4-9b, "
        "starcoder2-7b, gemma-7b, gemma-2-9b, gemma-3-4b, mixtral-8x7b, qwen3-30b-a3b, "
        "qwen1.5-moe-a2.7b, olmoe-1b-7b, granite-3.0-3b-a800m, deepseek-moe-16b, gpt-oss-20b, "
        "gpt-oss-tiny, tiny-eagle3, tiny-wide)");
}
END_TEST

START_TEST(a_shape_may_have_a_format)
{
    static struct model_config config;
    struct error error = {0};
    ck_assert_msg(synthetic_config("synthetic:tiny-wide:u4-zeros", &config, &error) == 0, "%s",
                  error.text);
    const struct list_scheme *scheme = quantization_scheme(&config.quantization, "any", false);
    ck_assert_ptr_nonnull(scheme);
    ck_assert_int_eq(scheme->elements, TENSOR_U4);
    ck_assert_uint_eq(scheme->columns, 128);
    ck_assert_ptr_nonnull(scheme->zeros);
    ck_assert_int_eq(synthetic_config("synthetic:tiny", &config, &error), 0);
    ck_assert_ptr_null(quantization_scheme(&config.quantization, "any", false));
}
END_TEST

START_TEST(the_head_of_a_shape_has_no_format)
{
    struct error error = {0};
    struct model model;
    ck_assert_int_eq(model_load("synthetic:mistral-7b:u8", 1, 0, &model, &error), 0);
    const struct op_list *list = &model.list;
    weight_id head = op_list_weight(list, "lm_head.weight");
    weight_id up = op_list_weight(list, "model.layers.0.mlp.up_proj.weight");
    ck_assert_int_eq(list->weights[head].scheme.elements, TENSOR_NUMBERS);
    ck_assert_int_eq(list->weights[up].scheme.elements, TENSOR_U8);
    model_drop(&model);
}
END_TEST

START_TEST(an_unknown_format_is_refused_with_the_known_ones)
{
    static const char *const names[] = {"fp4", "fp", "fp8:u4", ""};
    static struct model_config config;
    struct error error = {0};
    char model[64], text[256];
    snprintf(model, sizeof model, "synthetic:tiny:%s", names[_i]);
    ck_assert_int_eq(synthetic_config(model, &config, &error), -ERR_BAD_MODEL);
    snprintf(text, sizeof text,
             "synthetic format \"%s\" is unknown (known: fp8, fp8-blocks, fp8-tensor, fp8-static, "
             "fp8-weights, u4, u4-zeros, u8, u8-zeros)",
             names[_i]);
    ck_assert_str_eq(error.text, text);
}
END_TEST

START_TEST(a_directory_is_no_synthetic_shape)
{
    ck_assert(!synthetic_is("/models/synthetic"));
    ck_assert(!synthetic_is("nullable"));
    ck_assert(synthetic_is_null("null") && !synthetic_is_null("synthetic:tiny"));
}
END_TEST

Suite *synthetic_suite(void)
{
    Suite *suite = suite_create("synthetic");
    TCase *tcase = tcase_create("synthetic");
    tcase_add_loop_test(tcase, each_shape_has_the_parameters_of_its_model, 0,
                        sizeof(shapes) / sizeof(shapes[0]));
    tcase_add_test(tcase, every_named_shape_is_in_the_table_above);
    tcase_add_test(tcase, quantized_experts_have_scales_of_their_own);
    tcase_add_loop_test(tcase, experts_of_one_tensor_have_no_format_but_mxfp4, 0, 2);
    tcase_add_test(tcase, an_unknown_shape_is_refused_with_the_known_ones);
    tcase_add_test(tcase, a_shape_may_have_a_format);
    tcase_add_test(tcase, the_head_of_a_shape_has_no_format);
    tcase_add_loop_test(tcase, an_unknown_format_is_refused_with_the_known_ones, 0, 4);
    tcase_add_test(tcase, a_directory_is_no_synthetic_shape);
    suite_add_tcase(suite, tcase);
    return suite;
}
