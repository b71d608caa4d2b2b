/* What quantization_config may say, which modules it means, and what of it is refused by name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/models/config.h"
#include "gpu/models/quantization/name_pattern.h"
#include "tests/model/config_text.h"
#include "tests/model/model_suites.h"

#define IN(text) "\"quantization_config\":{" text "}"
#define FP8 "\"quant_method\":\"fp8\""
#define CT "\"quant_method\":\"compressed-tensors\",\"format\":\"float-quantized\""
#define E4M3 "\"num_bits\":8,\"type\":\"float\""
#define GROUP(weights, more)                                                                       \
    IN(CT ",\"config_groups\":{\"g\":{\"targets\":[\"Linear\"],\"weights\":{" weights "}" more "}" \
          "}")
#define MODELOPT(names)                                                                            \
    IN("\"quant_method\":\"modelopt\",\"quant_algo\":\"FP8\",\"ignore\":[" names "]")
#define GPTQ "\"quant_method\":\"gptq\""
#define GPTQ_4 GPTQ ",\"bits\":4,\"group_size\":128"
#define ROUND "\"quant_method\":\"auto-round\""
#define ROUND_4 ROUND ",\"packing_format\":\"auto_round:auto_gptq\",\"bits\":4,\"group_size\":128"
#define AWQ "\"quant_method\":\"awq\""
#define AWQ_4 AWQ ",\"bits\":4"
#define U4 "\"num_bits\":4,\"type\":\"int\""
#define WHOLE(weights, more)                                                                       \
    IN("\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\",\"config_groups\":{" \
       "\"g\":{\"targets\":[\"Linear\"],\"weights\":{" weights "}" more "}}")
#define AT "config.json: quantization_config."
#define AT_GROUP AT "config_groups.g."

static const struct {
    const char *config, *text;
} refused[] = {
    {"\"quantization_config\":7", "config.json: quantization_config: 7 is not an object"},
    {IN("\"quant_method\":\"modelopt\""), AT "quant_algo: missing"},
    {IN("\"quant_method\":\"modelopt\",\"quant_algo\":\"NVFP4\""), AT
     "quant_algo: \"NVFP4\" is not supported (FP8, FP8_PER_CHANNEL_PER_TOKEN and FP8_PB_WO are)"},
    {IN("\"quant_method\":\"modelopt\",\"quant_algo\":\"FP8\",\"group_size\":16"),
     AT "group_size: 16 is not supported"},
    {IN("\"quant_method\":\"fbgemm_fp8\",\"activation_scale_ub\":0"),
     AT "activation_scale_ub: 0 is not a number from 0.000001 to 1000000"},
    {IN("\"quant_method\":4"), AT "quant_method: 4 is not supported (these are: fp8 fbgemm_fp8 "
                                  "modelopt compressed-tensors gptq awq auto-round mxfp4)"},
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
    {IN("\"quant_method\":\"compressed-tensors\",\"format\":\"int-quantized\""),
     AT "format: \"int-quantized\" is not supported (float-quantized, pack-quantized and "
        "mixed-precision are)"},
    {IN("\"quant_method\":\"compressed-tensors\",\"format\":\"nvfp4-pack-quantized\""),
     AT "format: \"nvfp4-pack-quantized\" is not supported (float-quantized, pack-quantized and "
        "mixed-precision are)"},
    {IN("\"quant_method\":\"compressed-tensors\",\"format\":\"mixed-precision\","
        "\"config_groups\":{\"g\":{\"targets\":[],\"weights\":{}}}"),
     AT_GROUP "format: missing"},
    {IN("\"quant_method\":\"compressed-tensors\",\"format\":\"mixed-precision\","
        "\"config_groups\":{\"g\":{\"format\":\"int-quantized\",\"weights\":{}}}"),
     AT_GROUP
     "format: \"int-quantized\" is not supported (float-quantized and pack-quantized are)"},
    {WHOLE("\"num_bits\":3,\"type\":\"int\"", ""),
     AT_GROUP "weights.num_bits: 3 is not supported (4 and 8 are)"},
    {WHOLE("\"num_bits\":4,\"type\":\"float\"", ""),
     AT_GROUP "weights.type: \"float\" is not supported (int is)"},
    {WHOLE(U4 ",\"strategy\":\"tensor\"", ""),
     AT_GROUP "weights.strategy: \"tensor\" is not supported (group and channel are)"},
    {WHOLE(U4 ",\"strategy\":\"group\"", ""), AT_GROUP "weights.group_size: missing"},
    {WHOLE(U4 ",\"strategy\":\"group\",\"group_size\":16", ""),
     AT_GROUP "weights.group_size: 16 is not supported (-1 and multiples of 32 are)"},
    {WHOLE(U4 ",\"strategy\":\"channel\",\"group_size\":32", ""),
     AT_GROUP "weights.group_size: 32 is not null, as channels have it"},
    {WHOLE(U4 ",\"dynamic\":true", ""), AT_GROUP "weights.dynamic: true is not false"},
    {WHOLE(U4 ",\"actorder\":\"column\"", ""),
     AT_GROUP "weights.actorder: \"column\" is not supported (group and weight are)"},
    {WHOLE(U4, ",\"input_activations\":{\"num_bits\":8,\"type\":\"int\"}"),
     AT_GROUP "input_activations: an object is not supported with weights in whole numbers"},
    {IN(GPTQ), AT "bits: missing"},
    {IN(GPTQ ",\"bits\":4"), AT "group_size: missing"},
    {IN(GPTQ ",\"bits\":2,\"group_size\":128"), AT "bits: 2 is not supported (4 and 8 are)"},
    {IN(GPTQ_4 ",\"checkpoint_format\":\"marlin\""),
     AT "checkpoint_format: \"marlin\" is not supported (gptq and gptq_v2 are)"},
    {IN(GPTQ_4 ",\"is_marlin_format\":true"), AT "is_marlin_format: true is not supported"},
    {IN(GPTQ_4 ",\"dynamic\":[\"-:.*down\"]"), AT "dynamic: a list is not an object"},
    {IN(GPTQ_4 ",\"dynamic\":{\"-:.*down\":0}"), AT "dynamic.-:.*down: 0 is not an object"},
    {IN(GPTQ_4 ",\"dynamic\":{\"-:(?!a)\":{}}"), AT
     "dynamic.-:(?!a): an object is not a pattern that is understood, all with at most 256 cases"},
    {IN(GPTQ_4 ",\"dynamic\":{\".*down\":{\"bits\":3}}"),
     AT "dynamic..*down.bits: 3 is not supported (4 and 8 are)"},
    {IN(GPTQ_4 ",\"dynamic\":{\"+:.*down\":{\"rank\":8}}"),
     AT "dynamic.+:.*down.rank: 8 is not supported"},
    {IN(GPTQ_4 ",\"modules_in_block_to_quantize\":[[\"mlp\"]],\"dynamic\":{\"-:a\":{}}"),
     AT "dynamic: an object is not supported beside modules_in_block_to_quantize"},
    {IN(GPTQ_4 ",\"act_bits\":8"), AT "act_bits: 8 is not supported (16 and more are)"},
    {IN(AWQ_4 ",\"group_size\":128,\"data_type\":\"fp4\""),
     AT "data_type: \"fp4\" is not supported (int is)"},
    {IN(ROUND ",\"bits\":4"), AT "packing_format: missing"},
    {IN(ROUND ",\"packing_format\":\"auto_round\""),
     AT "packing_format: \"auto_round\" is not supported (auto_round:auto_gptq and "
        "auto_round:auto_awq are)"},
    {IN(ROUND ",\"packing_format\":\"auto_round:auto_awq\",\"bits\":8,\"group_size\":128"),
     AT "bits: 8 is not supported for awq (4 is)"},
    {IN(ROUND_4 ",\"data_type\":\"mx_fp\""), AT "data_type: \"mx_fp\" is not supported (int is)"},
    {IN(ROUND_4 ",\"act_bits\":8"), AT "act_bits: 8 is not supported (16 and more are)"},
    {IN(ROUND_4 ",\"super_bits\":6"), AT "super_bits: 6 is not supported"},
    {IN(ROUND_4 ",\"extra_config\":{\"a\":7}"), AT "extra_config.a: 7 is not an object"},
    {IN(ROUND_4 ",\"extra_config\":{\"a\":{\"bits\":2}}"),
     AT "extra_config.a.bits: 2 is not supported (4 and 8 are)"},
    {IN(ROUND_4 ",\"extra_config\":{\"a\":{\"bits\":8,\"act_bits\":8}}"),
     AT "extra_config.a.act_bits: 8 is not supported (16 and more are)"},
    {IN(ROUND_4 ",\"extra_config\":{\"a|(b)\":{\"bits\":8}}"),
     AT "extra_config.a|(b): an object is not a pattern that is understood, all with at most 256 "
        "cases"},
    {IN(ROUND_4 ",\"block_name_to_quantize\":\"model.*\""),
     AT "block_name_to_quantize: \"model.*\" is not names of modules"},
    {IN(ROUND_4 ",\"to_quant_block_names\":[[\"model\"]]"),
     AT "to_quant_block_names: a list is not names of modules"},
    {IN(GPTQ_4 ",\"pack_dtype\":\"int8\""), AT "pack_dtype: \"int8\" is not supported (int32 is)"},
    {IN(GPTQ_4 ",\"modules_in_block_to_quantize\":\"mlp\""),
     AT "modules_in_block_to_quantize: \"mlp\" is not a list of lists of names"},
    {IN(GPTQ_4 ",\"modules_in_block_to_quantize\":[[4]]"),
     AT "modules_in_block_to_quantize: 4 is not the name of a module"},
    {IN(AWQ ",\"bits\":8,\"group_size\":128"), AT "bits: 8 is not supported for awq (4 is)"},
    {IN(AWQ_4 ",\"group_size\":100"),
     AT "group_size: 100 is not supported (-1 and multiples of 32 are)"},
    {IN(AWQ_4 ",\"group_size\":128,\"version\":\"gemv\""),
     AT "version: \"gemv\" is not supported (gemm is)"},
    {IN(AWQ_4 ",\"group_size\":128,\"zero_point\":8"), AT "zero_point: 8 is not true or false"},
    {IN(AWQ_4 ",\"group_size\":128,\"quant_lm_head\":true"),
     AT "quant_lm_head: true is not supported"},
    {IN(AWQ_4 ",\"group_size\":128,\"modules_to_not_convert\":\"visual\""),
     AT "modules_to_not_convert: \"visual\" is not a list of names"},
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

#define KV(scheme) IN(CT ",\"config_groups\":{},\"kv_cache_scheme\":" scheme)
#define OPT "\"quant_method\":\"modelopt\",\"quant_algo\":\"FP8\""
#define KV_E4M3 "\"num_bits\":8,\"type\":\"float\",\"symmetric\":true"

static const struct {
    const char *config;
    enum kv_scheme kv;
} kv_schemes[] = {
    {IN(CT ",\"config_groups\":{}"), KV_SCHEME_UNSAID},
    {KV("null"), KV_SCHEME_UNSAID},
    {KV("{" KV_E4M3 ",\"strategy\":\"tensor\",\"dynamic\":false,\"group_size\":null}"),
     KV_SCHEME_TENSOR},
    {KV("{" KV_E4M3 "}"), KV_SCHEME_TENSOR},
    {KV("{" KV_E4M3 ",\"strategy\":\"tensor\",\"dynamic\":true}"), KV_SCHEME_DYNAMIC},
    {KV("{" KV_E4M3 ",\"strategy\":\"attn_head\"}"), KV_SCHEME_OTHER},
    {KV("{" KV_E4M3 ",\"strategy\":\"tensor\",\"group_size\":64}"), KV_SCHEME_OTHER},
    {KV("{\"num_bits\":8,\"type\":\"int\",\"symmetric\":true}"), KV_SCHEME_OTHER},
    {KV("{\"num_bits\":4,\"type\":\"float\",\"symmetric\":true}"), KV_SCHEME_OTHER},
    {KV("{\"num_bits\":8,\"type\":\"float\",\"symmetric\":false}"), KV_SCHEME_OTHER},
    {KV("[]"), KV_SCHEME_OTHER},
    {KV("{}"), KV_SCHEME_OTHER},
    {IN(OPT), KV_SCHEME_UNSAID},
    {IN(OPT ",\"kv_cache_quant_algo\":\"fp8\""), KV_SCHEME_UNSAID},
    {IN(OPT ",\"kv_cache_quant_algo\":null"), KV_SCHEME_UNSAID},
    {IN(OPT ",\"kv_cache_quant_algo\":\"NVFP4\""), KV_SCHEME_OTHER},
    {IN(OPT ",\"kv_cache_quant_algo\":8"), KV_SCHEME_OTHER},
    {IN(OPT ",\"kv_cache_scheme\":{" KV_E4M3 ",\"dynamic\":false}"), KV_SCHEME_UNSAID},
    {IN(OPT ",\"kv_cache_scheme\":{\"num_bits\":4,\"type\":\"float\"}"), KV_SCHEME_OTHER},
};

START_TEST(schemes_of_keys_and_values_are_known_or_left_alone)
{
    static struct model_config config;
    struct error error = {0};
    ck_assert_msg(config_with(kv_schemes[_i].config, &config, &error) == 0, "%s", error.text);
    ck_assert_int_eq(config.quantization.kv, kv_schemes[_i].kv);
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

#define DYNAMIC(patterns) IN(GPTQ_4 ",\"dynamic\":{" patterns "}")
#define EXTRA(names) IN(ROUND_4 ",\"extra_config\":{" names "}")

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
    {IN(GPTQ_4), LAYER "mlp.up_proj", 0},
    {IN(GPTQ_4 ",\"modules_in_block_to_quantize\":[[\"mlp.up_proj\"],[\"mlp.down_proj\"]]"),
     LAYER "mlp.up_proj", 0},
    {IN(GPTQ_4 ",\"modules_in_block_to_quantize\":[[\"mlp.down_proj\"]]"), LAYER "mlp.up_proj", -1},
    {IN(GPTQ_4), "lm_head", -1},
    {IN(GPTQ_4 ",\"lm_head\":true"), "lm_head", 0},
    {IN(GPTQ_4 ",\"quant_lm_head\":true,\"provider\":\"auto-round\""), "lm_head", 0},
    {IN(AWQ_4 ",\"group_size\":128,\"zero_point\":false,\"sym\":true"), LAYER "mlp.up_proj", 0},
    {DYNAMIC("\"-:.*down.*\":{}"), LAYER "mlp.down_proj", -1},
    {DYNAMIC("\"-:.*down.*\":{}"), LAYER "mlp.up_proj", 0},
    {DYNAMIC("\"-:.*down.*\":{}"), "lm_head", -1},
    {DYNAMIC("\"-:down\":{}"), LAYER "mlp.down_proj", 0},
    {DYNAMIC("\"+:.*\\\\.up_proj\":{\"bits\":8}"), LAYER "mlp.up_proj", 1},
    {DYNAMIC("\".*\\\\.up_proj\":{\"bits\":8}"), LAYER "mlp.up_proj", 1},
    {DYNAMIC("\".*up\":{\"bits\":8},\".*gate\":{\"bits\":8,\"sym\":true}"), LAYER "mlp.gate_proj",
     1},
    {DYNAMIC("\".*up\":{\"group_size\":32},\".*gate\":{\"desc_act\":true}"), LAYER "mlp.gate_proj",
     2},
    {DYNAMIC("\".*up\":{\"group_size\":128}"), LAYER "mlp.up_proj", 0},
    {DYNAMIC("\".*up\":{\"bits\":8},\"-:.*mlp\":{}"), LAYER "mlp.up_proj", 1},
    {DYNAMIC("\"-:.*mlp\":{},\".*up\":{\"bits\":8}"), LAYER "mlp.up_proj", -1},
    {IN(GPTQ_4 ",\"lm_head\":true,\"dynamic\":{\"-:.*mlp\":{}}"), "lm_head", 0},
    {IN(GPTQ_4 ",\"lm_head\":true,\"dynamic\":{\"lm_head\":{\"bits\":8}}"), "lm_head", 1},
    {IN(GPTQ_4 ",\"autoround_version\":\"0.4\",\"iters\":200"), LAYER "mlp.up_proj", 0},
    {IN(ROUND_4), LAYER "mlp.up_proj", 0},
    {IN("\"quant_method\":\"intel/"
        "auto-round\",\"packing_format\":\"auto_round:auto_awq\",\"bits\":4,"
        "\"group_size\":64"),
     LAYER "mlp.up_proj", 0},
    {IN(ROUND_4), "lm_head", -1},
    {IN(ROUND_4 ",\"quant_lm_head\":true"), "lm_head", 0},
    {IN(ROUND_4 ",\"act_bits\":16,\"act_data_type\":\"float\",\"backend\":\"auto\""),
     LAYER "mlp.up_proj", 0},
    {IN(AWQ_4 ",\"group_size\":128,\"sym\":false,\"data_type\":\"int\",\"seqlen\":2048"),
     LAYER "mlp.up_proj", 0},
    {EXTRA("\"lm_head\":{\"bits\":8}"), "lm_head", 1},
    {EXTRA("\"" LAYER "mlp.up_proj\":{\"bits\":16,\"data_type\":\"float\"}"), LAYER "mlp.up_proj",
     -1},
    {EXTRA("\"" LAYER "mlp\":{\"bits\":16}"), LAYER "mlp.up_proj", 0},
    {EXTRA("\"mlp.*\":{\"bits\":16}"), LAYER "mlp.up_proj", -1},
    {EXTRA("\"^mlp.*\":{\"bits\":16}"), LAYER "mlp.up_proj", 0},
    {EXTRA("\"gate|up\":{\"bits\":8,\"group_size\":64}"), LAYER "mlp.up_proj", 1},
    {EXTRA("\"mlp.*\":{\"bits\":16},\"" LAYER "mlp.up_proj\":{\"bits\":8}"), LAYER "mlp.up_proj",
     1},
    {IN(ROUND_4 ",\"block_name_to_quantize\":\"a,model.layers\""), LAYER "mlp.up_proj", 0},
    {IN(ROUND_4 ",\"block_name_to_quantize\":\"modelxlayers\""), LAYER "mlp.up_proj", -1},
    {IN(ROUND_4 ",\"to_quant_block_names\":[\"model.vision\"]"), LAYER "mlp.up_proj", -1},
    {IN(AWQ_4 ",\"group_size\":128"), LAYER "mlp.up_proj", 0},
    {IN(AWQ_4 ",\"group_size\":128,\"modules_to_not_convert\":[\"p.up\"]"), LAYER "mlp.up_proj",
     -1},
    {WHOLE(U4, ""), LAYER "mlp.up_proj", 0},
    {IN("\"quant_method\":\"fbgemm_fp8\""), LAYER "mlp.up_proj", 0},
    {IN("\"quant_method\":\"fbgemm_fp8\",\"modules_to_not_convert\":[\"" LAYER "mlp.up_proj\"]"),
     LAYER "mlp.up_proj", -1},
    {MODELOPT("\"lm_head\""), LAYER "mlp.up_proj", 0},
    {MODELOPT("\"model.layers.1*\""), LAYER "mlp.up_proj", -1},
    {MODELOPT("\"model.layers.1*\""), "model.layers.2.mlp.up_proj", 0},
    {MODELOPT("\"" LAYER "mlp\""), LAYER "mlp.up_proj", -1},
    {MODELOPT("\"" LAYER "ml\""), LAYER "mlp.up_proj", 0},
    {MODELOPT("\"*.up_*\""), LAYER "mlp.up_proj", -1},
    {MODELOPT("\"*up_pro\""), LAYER "mlp.up_proj", 0},
    {MODELOPT("\"*a*a*a*a*a*a*a*a*b\""), "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 0},
};

START_TEST(names_mean_the_modules_that_the_tools_mean)
{
    static struct model_config config;
    struct error error = {0};
    ck_assert_msg(config_with(meant[_i].config, &config, &error) == 0, "%s", error.text);
    const char *module = meant[_i].module;
    const struct list_scheme *scheme =
        quantization_scheme(&config.quantization, module, !strcmp(module, "lm_head"));
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

#define COUNT(array) ((int)(sizeof array / sizeof *array))

Suite *quantization_suite(void)
{
    Suite *suite = suite_create("model quantization");
    TCase *tcase = tcase_create("quantization");
    tcase_add_loop_test(tcase, what_is_not_computed_is_refused_by_name, 0, COUNT(refused));
    tcase_add_loop_test(tcase, schemes_of_keys_and_values_are_known_or_left_alone, 0,
                        COUNT(kv_schemes));
    tcase_add_loop_test(tcase, lists_that_are_too_long_are_refused, 0, 2);
    tcase_add_loop_test(tcase, names_mean_the_modules_that_the_tools_mean, 0, COUNT(meant));
    tcase_add_loop_test(tcase, patterns_are_those_of_python_or_not_understood, 0, COUNT(patterns));
    suite_add_tcase(suite, tcase);
    return suite;
}
