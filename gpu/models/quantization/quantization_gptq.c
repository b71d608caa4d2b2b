/* What gptq says of weights in whole numbers of 4 and 8 bits. */
#include <stdio.h>
#include <string.h>

#include "gpu/models/quantization/quantization_keys.h"

#define PATTERN_MAX 256

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
