/* Weights alone, in whole numbers of 4 and 8 bits: what gptq, awq and compressed-tensors'
 * pack-quantized say of them. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "gpu/models/quantization/quantization_keys.h"

#define GROUP 32 /* columns of a group, or some such */
#define PATTERN_MAX 256

int quantization_bits(const struct fields *fields, const char *key, struct list_scheme *scheme)
{
    int64_t bits = 0;
    int rc = field_require(fields, key);
    if (rc == 0)
        rc = field_integer(fields, key, 1, 64, &bits);
    if (rc == 0 && bits != 4 && bits != 8)
        rc = field_refuse(fields, key, field_get(fields, key), "supported (4 and 8 are)");
    scheme->elements = bits == 8 ? TENSOR_U8 : TENSOR_U4;
    scheme->zero = bits == 8 ? 128 : 8;
    scheme->rows = 1;
    return rc;
}

int quantization_group_size(const struct fields *fields, const char *key,
                            struct list_scheme *scheme)
{
    int64_t size = 0;
    int rc = field_require(fields, key);
    if (rc == 0)
        rc = field_integer(fields, key, -1, 1 << 20, &size);
    if (rc == 0 && size != -1 && (size < GROUP || size % GROUP))
        rc = field_refuse(fields, key, field_get(fields, key),
                          "supported (-1 and multiples of 32 are)");
    scheme->columns = size == -1 ? 0 : (uint32_t)size;
    return rc;
}

/* ---- gptq ---- */

/* Either spelling says how zeros are kept. */
static int version_read(const struct fields *fields, struct list_scheme *scheme)
{
    static const char *const keys[] = {"checkpoint_format", "format"};
    for (size_t i = 0; i < 2; i++) {
        const char *format = "gptq";
        int rc = field_string(fields, keys[i], &format);
        if (rc)
            return rc;
        if (strcmp(format, "gptq") != 0 && strcmp(format, "gptq_v2") != 0)
            return field_refuse(fields, keys[i], field_get(fields, keys[i]),
                                "supported (gptq and gptq_v2 are)");
        if (!strcmp(format, "gptq_v2"))
            scheme->zeros_less_one = false;
    }
    return 0;
}

/* Names, in lists for what is quantized together; all that is named is. */
static int blocks_read(const struct fields *fields, struct quantization *to)
{
    static const char key[] = "modules_in_block_to_quantize";
    const json *list = field_get(fields, key);
    int rc = 0;
    to->all = quantization_unsaid(list);
    if (to->all)
        return 0;
    if (!json_is_array(list))
        return field_refuse(fields, key, list, "a list of lists of names");
    for (const json *inner = json_child(list); !rc && inner; inner = json_next(inner)) {
        if (!json_is_array(inner))
            rc = quantization_name(fields, key, inner, 0, to);
        for (const json *name = json_is_array(inner) ? json_child(inner) : NULL; !rc && name;
             name = json_next(name))
            rc = quantization_name(fields, key, name, 0, to);
    }
    return rc;
}

/* What was done to make the checkpoint, and with what it may be run, says nothing of its numbers.
 */
static const char *const gptq_keys[] = {"quant_method",
                                        "bits",
                                        "group_size",
                                        "desc_act",
                                        "sym",
                                        "checkpoint_format",
                                        "format",
                                        "lm_head",
                                        "quant_lm_head",
                                        "modules_in_block_to_quantize",
                                        "dynamic",
                                        "pack_dtype",
                                        "method",
                                        "damp_percent",
                                        "damp_auto_increment",
                                        "true_sequential",
                                        "static_groups",
                                        "mse",
                                        "act_group_aware",
                                        "hyb_act",
                                        "model_name_or_path",
                                        "model_file_base_name",
                                        "backend",
                                        "use_exllama",
                                        "disable_exllama",
                                        "exllama_config",
                                        "max_input_length",
                                        "dataset",
                                        "tokenizer",
                                        "batch_size",
                                        "block_name_to_quantize",
                                        "module_name_preceding_first_block",
                                        "cache_block_outputs",
                                        "pad_token_id",
                                        "use_cuda_fp16",
                                        "model_seqlen",
                                        "meta",
                                        NULL};

/* What modules of a pattern have in place of what the others have. */
static int override_read(const struct fields *fields, const struct list_scheme *base,
                         struct quantization *to, uint32_t *ret_group)
{
    static const char *const known[] = {
        "bits",         "group_size",          "desc_act",        "sym",     "mse", "static_groups",
        "damp_percent", "damp_auto_increment", "act_group_aware", "hyb_act", NULL};
    struct list_scheme scheme = *base;
    bool symmetric = false;
    int rc = quantization_known(fields, known);
    if (rc == 0 && field_get(fields, "bits"))
        rc = quantization_bits(fields, "bits", &scheme);
    if (rc == 0 && field_get(fields, "group_size"))
        rc = quantization_group_size(fields, "group_size", &scheme);
    if (rc == 0)
        rc = field_flag(fields, "desc_act", &scheme.grouped);
    if (rc == 0)
        rc = field_flag(fields, "sym", &symmetric);
    return rc ? rc : quantization_group(fields, &scheme, to, ret_group);
}

/* "-:PATTERN": such modules are not quantized; "+:PATTERN" and "PATTERN": otherwise than the rest.
 */
static int dynamic_read(const struct fields *fields, struct quantization *to)
{
    char path[QUANTIZATION_PATH_MAX];
    const struct fields list = quantization_fields(fields, "dynamic", path);
    const struct list_scheme base = to->schemes[0];
    int rc = 0;
    if (quantization_unsaid(list.object))
        return 0;
    if (!json_is_object(list.object))
        return field_refuse(fields, "dynamic", list.object, "an object");
    if (!to->all)
        return field_refuse(fields, "dynamic", list.object,
                            "supported beside modules_in_block_to_quantize");
    to->rule = NAMES_FIRST;
    for (const json *value = json_child(list.object); !rc && value; value = json_next(value)) {
        const char *key = json_key(value);
        char inner_path[QUANTIZATION_PATH_MAX], pattern[PATTERN_MAX];
        const struct fields inner = quantization_fields(&list, key, inner_path);
        uint32_t group = QUANTIZATION_IGNORED;
        if (!json_is_object(value))
            rc = field_refuse(&list, key, value, "an object");
        else if (strncmp(key, "-:", 2) != 0)
            rc = override_read(&inner, &base, to, &group);
        snprintf(pattern, sizeof pattern, "re:%s", key + (key[0] && key[1] == ':' ? 2 : 0));
        if (rc == 0)
            rc = quantization_name_add(&list, key, value, pattern, group, to);
    }
    return rc;
}

struct list_scheme quantization_gptq_scheme(void)
{
    return (struct list_scheme){.scale = "scales",
                                .zeros = "qzeros",
                                .zeros_less_one = true,
                                .packing = PACKING_GPTQ,
                                .weight = "qweight",
                                .groups = "g_idx"};
}

int quantization_gptq(const struct fields *fields, struct quantization *to)
{
    struct list_scheme *scheme = &to->schemes[0];
    bool symmetric = false;
    *scheme = quantization_gptq_scheme();
    to->groups = 1;
    to->rule = NAMES_SEQUENCE;
    int rc = quantization_known_of(fields, gptq_keys, quantization_autoround_keys);
    if (rc == 0)
        rc = quantization_bits(fields, "bits", scheme);
    if (rc == 0)
        rc = quantization_group_size(fields, "group_size", scheme);
    if (rc == 0)
        rc = version_read(fields, scheme);
    if (rc == 0)
        rc = field_flag(fields, "desc_act", &scheme->grouped);
    if (rc == 0)
        rc = field_flag(fields, "sym", &symmetric); /* the zeros say it, too */
    if (rc == 0)
        rc = field_flag(fields, "quant_lm_head", &to->head);
    if (rc == 0)
        rc = field_flag(fields, "lm_head", &to->head);
    if (rc == 0)
        rc = quantization_word(fields, "pack_dtype", "int32");
    if (rc == 0)
        rc = quantization_alone(fields);
    if (rc == 0)
        rc = blocks_read(fields, to);
    return rc ? rc : dynamic_read(fields, to);
}

/* ---- awq ---- */

/* Zeros are there either way: where they do not differ they are all 8. */
static int awq_check(const struct fields *fields)
{
    const char *version = "gemm";
    bool zeros = true;
    int rc = field_string(fields, "version", &version);
    if (rc == 0 && strcasecmp(version, "gemm") != 0)
        rc = field_refuse(fields, "version", field_get(fields, "version"), "supported (gemm is)");
    return rc ? rc : field_flag(fields, "zero_point", &zeros);
}

struct list_scheme quantization_awq_scheme(void)
{
    return (struct list_scheme){
        .scale = "scales", .zeros = "qzeros", .packing = PACKING_AWQ, .weight = "qweight"};
}

int quantization_awq(const struct fields *fields, struct quantization *to)
{
    static const char *const known[] = {"quant_method",
                                        "bits",
                                        "w_bit",
                                        "group_size",
                                        "q_group_size",
                                        "sym",
                                        "zero_point",
                                        "version",
                                        "backend",
                                        "do_fuse",
                                        "fuse_max_seq_len",
                                        "exllama_config",
                                        "modules_to_fuse",
                                        "modules_to_not_convert",
                                        NULL};
    struct list_scheme *scheme = &to->schemes[0];
    const char *bits = field_get(fields, "bits") ? "bits" : "w_bit";
    const char *group = field_get(fields, "group_size") ? "group_size" : "q_group_size";
    *scheme = quantization_awq_scheme();
    to->groups = 1;
    to->all = true;
    to->rule = NAMES_INSIDE;
    int rc = quantization_known_of(fields, known, quantization_autoround_keys);
    if (rc == 0)
        rc = quantization_bits(fields, bits, scheme);
    if (rc == 0 && scheme->elements != TENSOR_U4)
        rc = field_refuse(fields, bits, field_get(fields, bits), "supported for awq (4 is)");
    if (rc == 0)
        rc = quantization_group_size(fields, group, scheme);
    if (rc == 0)
        rc = awq_check(fields);
    if (rc == 0)
        rc = quantization_alone(fields);
    return rc ? rc : quantization_names(fields, "modules_to_not_convert", QUANTIZATION_IGNORED, to);
}

/* ---- compressed-tensors ---- */

/* By what columns were sorted while they were quantized; only "group" shows in the checkpoint. */
static int order_read(const struct fields *fields, struct list_scheme *scheme)
{
    const json *value = field_get(fields, "actorder");
    const char *word = json_string(value);
    if (quantization_unsaid(value) ||
        (json_is_string(value) && (!strcmp(word, "weight") || !strcmp(word, "static"))))
        return 0;
    if (!(json_is_bool(value) ||
          (json_is_string(value) && (!strcmp(word, "group") || !strcmp(word, "dynamic")))))
        return field_refuse(fields, "actorder", value, "supported (group and weight are)");
    scheme->groups = "weight_g_idx";
    scheme->grouped = true;
    return 0;
}

static int strategy_read(const struct fields *fields, struct list_scheme *scheme)
{
    const json *size = field_get(fields, "group_size");
    bool groups = size && !json_is_null(size);
    const char *strategy = groups ? "group" : "channel";
    int rc = 0;
    if (!quantization_unsaid(field_get(fields, "strategy")))
        rc = field_string(fields, "strategy", &strategy);
    if (rc)
        return rc;
    if (!strcmp(strategy, "group"))
        return quantization_group_size(fields, "group_size", scheme);
    if (strcmp(strategy, "channel") != 0)
        return field_refuse(fields, "strategy", field_get(fields, "strategy"),
                            "supported (group and channel are)");
    return groups && json_number(size) != -1
               ? field_refuse(fields, "group_size", size, "null, as channels have it")
               : 0;
}

int quantization_whole(const struct fields *weights, struct list_scheme *ret)
{
    static const char *const known[] = {"num_bits",    "type",       "symmetric", "strategy",
                                        "dynamic",     "group_size", "observer",  "observer_kwargs",
                                        "scale_dtype", "zp_dtype",   "actorder",  NULL};
    bool symmetric = true, dynamic = false;
    *ret = (struct list_scheme){.scale = "weight_scale",
                                .packing = PACKING_COMPRESSED,
                                .weight = "weight_packed",
                                .sizes = "weight_shape"};
    int rc = quantization_known(weights, known);
    if (rc == 0)
        rc = quantization_word(weights, "type", "int");
    if (rc == 0)
        rc = quantization_bits(weights, "num_bits", ret);
    if (rc == 0)
        rc = strategy_read(weights, ret);
    if (rc == 0)
        rc = field_flag(weights, "symmetric", &symmetric);
    if (rc == 0)
        rc = field_flag(weights, "dynamic", &dynamic);
    if (rc == 0 && dynamic)
        rc = field_refuse(weights, "dynamic", field_get(weights, "dynamic"), "false");
    if (!symmetric)
        ret->zeros = "weight_zero_point";
    return rc ? rc : order_read(weights, ret);
}
