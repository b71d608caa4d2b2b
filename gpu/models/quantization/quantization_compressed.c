/* What compressed-tensors says: groups of modules, each with a format of its own. */
#include <stdio.h>
#include <string.h>

#include "gpu/models/quantization/quantization_keys.h"

#define BLOCK QUANTIZATION_BLOCK
#define HELD QUANTIZATION_KEY

static int e4m3_require(const struct fields *fields)
{
    static const char *const known[] = {
        "num_bits",        "type",     "symmetric",       "strategy",    "dynamic",  "group_size",
        "block_structure", "observer", "observer_kwargs", "scale_dtype", "zp_dtype", NULL};
    int64_t bits = 0;
    bool symmetric = true;
    int rc = quantization_known(fields, known);
    if (rc == 0)
        rc = field_require(fields, "num_bits");
    if (rc == 0)
        rc = field_integer(fields, "num_bits", 1, 64, &bits);
    if (rc == 0 && bits != 8)
        rc = field_refuse(fields, "num_bits", field_get(fields, "num_bits"), "supported (8 is)");
    if (rc == 0)
        rc = field_require(fields, "type");
    if (rc == 0)
        rc = quantization_word(fields, "type", "float");
    if (rc == 0)
        rc = field_flag(fields, "symmetric", &symmetric);
    if (rc == 0 && !symmetric)
        rc = field_refuse(fields, "symmetric", field_get(fields, "symmetric"), "supported");
    return rc;
}

static int weights_read(const struct fields *group, bool whole, struct list_scheme *ret)
{
    char path[QUANTIZATION_PATH_MAX];
    struct fields fields = quantization_fields(group, "weights", path);
    const char *strategy = "tensor";
    bool dynamic = false;
    if (!json_is_object(fields.object))
        return fields.object ? field_refuse(group, "weights", fields.object, "an object")
                             : field_require(group, "weights");
    if (whole)
        return quantization_whole(&fields, ret);
    int rc = e4m3_require(&fields);
    if (rc == 0)
        rc = field_string(&fields, "strategy", &strategy);
    if (rc == 0)
        rc = field_flag(&fields, "dynamic", &dynamic);
    if (rc)
        return rc;
    if (dynamic)
        return field_refuse(&fields, "dynamic", field_get(&fields, "dynamic"), "false");
    *ret = (struct list_scheme){.elements = TENSOR_E4M3, .scale = "weight_scale"};
    if (!strcmp(strategy, "channel")) {
        ret->rows = 1;
    } else if (!strcmp(strategy, "block")) {
        ret->rows = ret->columns = BLOCK;
        return quantization_block(&fields, "block_structure");
    } else if (strcmp(strategy, "tensor") != 0) {
        return field_refuse(&fields, "strategy", field_get(&fields, "strategy"),
                            "supported (tensor, channel and block are)");
    }
    return 0;
}

static int inputs_read(const struct fields *group, struct list_scheme *scheme)
{
    char path[QUANTIZATION_PATH_MAX];
    struct fields fields = quantization_fields(group, "input_activations", path);
    const char *strategy = "tensor";
    bool dynamic = false;
    uint32_t size = 0;
    if (!fields.object || json_is_null(fields.object))
        return 0;
    if (!json_is_object(fields.object))
        return field_refuse(group, "input_activations", fields.object, "an object");
    if (elements_are_whole(scheme->elements))
        return field_refuse(group, "input_activations", fields.object,
                            "supported with weights in whole numbers");
    int rc = e4m3_require(&fields);
    if (rc == 0)
        rc = field_string(&fields, "strategy", &strategy);
    if (rc == 0)
        rc = field_flag(&fields, "dynamic", &dynamic);
    if (rc == 0)
        rc = field_size(&fields, "group_size", 1u << 20, &size);
    if (rc)
        return rc;
    if (dynamic && !strcmp(strategy, "token"))
        scheme->input = INPUT_BY_TOKEN;
    else if (!dynamic && !strcmp(strategy, "tensor"))
        scheme->input = INPUT_BY_TENSOR;
    else if (dynamic && !strcmp(strategy, "group") && size == BLOCK)
        scheme->input = INPUT_BY_GROUP;
    else
        return field_refuse(&fields, "strategy", field_get(&fields, "strategy"),
                            "supported (token and groups of 128 while dynamic, and tensor while "
                            "not, are)");
    scheme->group = scheme->input == INPUT_BY_GROUP ? BLOCK : 0;
    return 0;
}

/* Of a group, else of all of them. */
static int format_read(const struct fields *group, const char *format, bool *ret_whole)
{
    int rc = 0;
    if (!quantization_unsaid(field_get(group, "format")))
        rc = field_string(group, "format", &format);
    *ret_whole = !strcmp(format, "pack-quantized");
    if (rc || *ret_whole || !strcmp(format, "float-quantized"))
        return rc;
    return field_get(group, "format")
               ? field_refuse(group, "format", field_get(group, "format"),
                              "supported (float-quantized and pack-quantized are)")
               : field_require(group, "format");
}

static int group_read(const struct fields *groups, const json *object, const char *format,
                      struct quantization *to)
{
    static const char *const known[] = {"targets", "weights", "input_activations", "format", NULL};
    char path[QUANTIZATION_PATH_MAX];
    snprintf(path, sizeof path, "%s.%.64s", groups->parent, json_key(object));
    struct fields fields = {object, groups->file, path, groups->error};
    if (!json_is_object(object))
        return field_refuse(groups, json_key(object), object, "an object");
    if (to->groups == QUANTIZATION_GROUPS_MAX)
        return error_limit(fields.error, ERR_BAD_MODEL, QUANTIZATION_GROUPS_MAX,
                           QUANTIZATION_GROUPS_MAX + 1, "%s: %s: more than %u groups", fields.file,
                           groups->parent, QUANTIZATION_GROUPS_MAX);
    struct list_scheme *scheme = &to->schemes[to->groups];
    bool whole = false;
    int rc = quantization_known(&fields, known);
    if (rc == 0)
        rc = format_read(&fields, format, &whole);
    if (rc == 0)
        rc = weights_read(&fields, whole, scheme);
    if (rc == 0)
        rc = inputs_read(&fields, scheme);
    if (rc == 0)
        rc = field_require(&fields, "targets");
    if (rc == 0)
        rc = quantization_names(&fields, "targets", to->groups, to);
    to->groups++;
    return rc;
}

/* Nobody has to keep K and V so: what is not known here is no error. */
enum kv_scheme quantization_kv(const json *scheme)
{
    static const char *const strange[] = {"group_size", "block_structure", "actorder"};
    const json *symmetric = json_get(scheme, "symmetric"), *dynamic = json_get(scheme, "dynamic");
    const json *strategy = json_get(scheme, "strategy"), *bits = json_get(scheme, "num_bits");
    if (!scheme || json_is_null(scheme))
        return KV_SCHEME_UNSAID;
    for (size_t i = 0; i < sizeof strange / sizeof *strange; i++)
        if (json_get(scheme, strange[i]) && !json_is_null(json_get(scheme, strange[i])))
            return KV_SCHEME_OTHER;
    if (!bits || json_number(bits) != 8 || strcmp(json_string(json_get(scheme, "type")), "float") ||
        (symmetric && !json_bool(symmetric)))
        return KV_SCHEME_OTHER;
    if (dynamic && json_bool(dynamic))
        return KV_SCHEME_DYNAMIC;
    return !strategy || !strcmp(json_string(strategy), "tensor") ? KV_SCHEME_TENSOR
                                                                 : KV_SCHEME_OTHER;
}

int quantization_compressed(const struct fields *fields, struct quantization *to)
{
    static const char *const known[] = {"quant_method",
                                        "format",
                                        "config_groups",
                                        "ignore",
                                        "kv_cache_scheme",
                                        "quantization_status",
                                        "global_compression_ratio",
                                        "version",
                                        "provider",
                                        NULL};
    struct fields groups = {field_get(fields, "config_groups"), fields->file, HELD ".config_groups",
                            fields->error};
    const char *format = "";
    to->rule = NAMES_WHOLE;
    to->kv = quantization_kv(field_get(fields, "kv_cache_scheme"));
    int rc = quantization_known(fields, known);
    if (rc == 0)
        rc = field_require(fields, "format");
    if (rc == 0)
        rc = field_string(fields, "format", &format);
    if (rc == 0 && strcmp(format, "float-quantized") != 0 &&
        strcmp(format, "pack-quantized") != 0 && strcmp(format, "mixed-precision") != 0)
        rc = field_refuse(fields, "format", field_get(fields, "format"),
                          "supported (float-quantized, pack-quantized and mixed-precision are)");
    if (rc == 0)
        rc = quantization_word(fields, "quantization_status", "compressed");
    if (rc == 0 && !json_is_object(groups.object))
        return groups.object ? field_refuse(fields, "config_groups", groups.object, "an object")
                             : field_require(fields, "config_groups");
    for (const json *group = json_child(groups.object); !rc && group; group = json_next(group))
        rc = group_read(&groups, group, format, to);
    return rc ? rc : quantization_names(fields, "ignore", QUANTIZATION_IGNORED, to);
}
