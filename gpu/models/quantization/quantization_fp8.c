/* Weights in e4m3, by the methods that have one scheme for all: fp8, fbgemm_fp8 and modelopt. */
#include <string.h>
#include <strings.h>

#include "gpu/models/quantization/quantization_keys.h"

#define BLOCK QUANTIZATION_BLOCK
#define GREATEST 448.0f

int quantization_fp8(const struct fields *fields, struct quantization *to)
{
    static const char *const known[] = {"quant_method",
                                        "activation_scheme",
                                        "weight_block_size",
                                        "ignored_layers",
                                        "modules_to_not_convert",
                                        "fmt",
                                        NULL};
    struct list_scheme *scheme = &to->schemes[0];
    const char *inputs = "dynamic";
    bool blocks = field_get(fields, "weight_block_size") != NULL;
    *scheme = (struct list_scheme){
        .elements = TENSOR_E4M3, .input = INPUT_BY_TOKEN, .scale = "weight_scale"};
    to->groups = 1;
    to->all = true;
    to->rule = NAMES_SEQUENCE;
    int rc = quantization_known(fields, known);
    if (rc == 0)
        rc = quantization_word(fields, "fmt", "e4m3");
    if (rc == 0)
        rc = field_string(fields, "activation_scheme", &inputs);
    if (rc == 0 && blocks)
        rc = quantization_block(fields, "weight_block_size");
    if (rc)
        return rc;
    bool fixed = !strcmp(inputs, "static");
    if ((!fixed && strcmp(inputs, "dynamic") != 0) || (fixed && blocks))
        return field_refuse(fields, "activation_scheme", field_get(fields, "activation_scheme"),
                            "supported (dynamic is, and static without blocks)");
    if (fixed)
        scheme->input = INPUT_BY_TENSOR;
    if (blocks)
        *scheme = (struct list_scheme){.elements = TENSOR_E4M3,
                                       .rows = BLOCK,
                                       .columns = BLOCK,
                                       .input = INPUT_BY_GROUP,
                                       .group = BLOCK,
                                       .scale = "weight_scale_inv"};
    rc = quantization_names(fields, "ignored_layers", QUANTIZATION_IGNORED, to);
    return rc ? rc : quantization_names(fields, "modules_to_not_convert", QUANTIZATION_IGNORED, to);
}

/* ---- fbgemm ---- */

/* A scale for each row, inputs by token; what is above the bound counts as the bound. */
int quantization_fbgemm(const struct fields *fields, struct quantization *to)
{
    static const char *const known[] = {"quant_method", "activation_scale_ub",
                                        "modules_to_not_convert", NULL};
    double bound = 1200;
    int rc = quantization_known(fields, known);
    if (rc == 0)
        rc = field_number(fields, "activation_scale_ub", 1e-6, 1e6, &bound);
    to->schemes[0] = (struct list_scheme){.elements = TENSOR_E4M3,
                                          .rows = 1,
                                          .input = INPUT_BY_TOKEN,
                                          .bound = (float)bound / GREATEST,
                                          .scale = "weight_scale"};
    to->groups = 1;
    to->all = true;
    to->rule = NAMES_SEQUENCE;
    return rc ? rc : quantization_names(fields, "modules_to_not_convert", QUANTIZATION_IGNORED, to);
}

/* ---- modelopt ---- */

static const struct {
    const char *word;
    struct list_scheme scheme;
} algorithms[] = {
    {"FP8", {.elements = TENSOR_E4M3, .input = INPUT_BY_TENSOR, .scale = "weight_scale"}},
    {"FP8_PER_CHANNEL_PER_TOKEN",
     {.elements = TENSOR_E4M3, .rows = 1, .input = INPUT_BY_TOKEN, .scale = "weight_scale"}},
    {"FP8_PB_WO",
     {.elements = TENSOR_E4M3, .rows = BLOCK, .columns = BLOCK, .scale = "weight_scale"}},
};

static int algorithm_read(const struct fields *fields, struct list_scheme *ret)
{
    const char *word = "";
    int rc = field_require(fields, "quant_algo");
    if (rc == 0)
        rc = field_string(fields, "quant_algo", &word);
    for (size_t i = 0; !rc && i < sizeof algorithms / sizeof *algorithms; i++)
        if (!strcasecmp(word, algorithms[i].word)) {
            *ret = algorithms[i].scheme;
            return 0;
        }
    return rc ? rc
              : field_refuse(fields, "quant_algo", field_get(fields, "quant_algo"),
                             "supported (FP8, FP8_PER_CHANNEL_PER_TOKEN and FP8_PB_WO are)");
}

/* Scales of K and V that are 1 are left out: a layer has some or none. */
static enum kv_scheme modelopt_kv(const struct fields *fields)
{
    const json *word = field_get(fields, "kv_cache_quant_algo");
    bool known = quantization_unsaid(word) || !strcasecmp(json_string(word), "FP8");
    enum kv_scheme scheme = quantization_kv(field_get(fields, "kv_cache_scheme"));
    return known && scheme != KV_SCHEME_OTHER ? KV_SCHEME_UNSAID : KV_SCHEME_OTHER;
}

/* Of config.json, or of hf_quant_config.json, which has other words for the same. What else is said
 * of groups the algorithm says. */
int quantization_modelopt(const struct fields *fields, struct quantization *to)
{
    static const char *const known[] = {"quant_method",    "quant_algo",      "ignore",
                                        "exclude_modules", "kv_cache_scheme", "kv_cache_quant_algo",
                                        "config_groups",   "producer",        NULL};
    to->groups = 1;
    to->all = true;
    to->rule = NAMES_WILD;
    to->kv = modelopt_kv(fields);
    int rc = quantization_known(fields, known);
    if (rc == 0)
        rc = algorithm_read(fields, &to->schemes[0]);
    if (rc == 0)
        rc = quantization_names(fields, "ignore", QUANTIZATION_IGNORED, to);
    return rc ? rc : quantization_names(fields, "exclude_modules", QUANTIZATION_IGNORED, to);
}
