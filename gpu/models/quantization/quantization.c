#include "gpu/models/quantization/quantization.h"

#include <stdio.h>
#include <string.h>

#include "gpu/models/quantization/name_pattern.h"
#include "gpu/models/quantization/quantization_keys.h"

#define BLOCK QUANTIZATION_BLOCK
#define PATH_MAX_SHOWN 160
#define HELD QUANTIZATION_KEY

/* ---- names ---- */

int quantization_name(const struct fields *fields, const char *key, const json *value,
                      uint32_t group, struct quantization *to)
{
    const char *name = json_string(value);
    size_t length = strlen(name);
    if (!json_is_string(value) || !length)
        return field_refuse(fields, key, value, "the name of a module");
    if (!strncmp(name, "re:", 3)) {
        int cases = to->rule == NAMES_WHOLE ? name_pattern_cases(name + 3) : -1;
        if (cases < 0 || (uint32_t)cases > QUANTIZATION_CASES_MAX - to->cases)
            return field_refuse(fields, key, value,
                                "a pattern that is understood, all with at most 256 cases");
        to->cases += (uint32_t)cases;
    }
    if (length + 2 > QUANTIZATION_TEXT_MAX - to->text_bytes)
        return error_limit(
            fields->error, ERR_BAD_MODEL, QUANTIZATION_TEXT_MAX, to->text_bytes + length + 2,
            "%s: " HELD ": names take more than %u bytes", fields->file, QUANTIZATION_TEXT_MAX);
    to->text[to->text_bytes++] = (char)group;
    memcpy(to->text + to->text_bytes, name, length + 1);
    to->text_bytes += (uint32_t)length + 1;
    return 0;
}

int quantization_names(const struct fields *fields, const char *key, uint32_t group,
                       struct quantization *to)
{
    const json *list = field_get(fields, key);
    int rc = 0;
    if (list && !json_is_array(list))
        return field_refuse(fields, key, list, "a list of names");
    for (const json *value = json_child(list); !rc && value; value = json_next(value))
        rc = quantization_name(fields, key, value, group, to);
    return rc;
}

/* Parts of `name`, between dots, at its begin or its end. */
static bool is_sequence_of(const char *parts, const char *name)
{
    size_t length = strlen(parts), whole = strlen(name);
    if (length > whole)
        return false;
    if (!strncmp(parts, name, length) && (name[length] == '.' || !name[length]))
        return true;
    return !strcmp(name + whole - length, parts) && name[whole - length - 1] == '.';
}

/* `*` is any letters; the name may go on behind a dot. Back to the last * is far enough. */
static bool is_wild(const char *wild, const char *name)
{
    const char *star = NULL, *tried = NULL;
    for (;;) {
        if (*wild == '*') {
            star = wild++;
            tried = name;
        } else if (!*wild && (!*name || *name == '.')) {
            return true;
        } else if (*name && *wild == *name) {
            wild++;
            name++;
        } else if (star && *tried) {
            wild = star + 1;
            name = ++tried;
        } else {
            return false;
        }
    }
}

static bool name_means(const struct quantization *quantization, const char *name,
                       const char *module)
{
    if (quantization->rule == NAMES_SEQUENCE)
        return is_sequence_of(name, module);
    if (quantization->rule == NAMES_INSIDE)
        return strstr(module, name) != NULL;
    if (quantization->rule == NAMES_WILD)
        return is_wild(name, module);
    if (!strncmp(name, "re:", 3))
        return name_pattern_match(name + 3, module) > 0;
    return !strcmp(name, module);
}

static bool is_class(const char *name)
{
    return !strcmp(name, "Linear"); /* what all matrices but the embedding are */
}

/* What is ignored is; then what is named counts before what is of a class. */
const struct list_scheme *quantization_scheme(const struct quantization *quantization,
                                              const char *module)
{
    const uint32_t none = QUANTIZATION_IGNORED + 1;
    uint32_t named = none, classed = quantization->all ? 0 : none;
    for (uint32_t at = 0; at < quantization->text_bytes;) {
        uint32_t group = (unsigned char)quantization->text[at];
        const char *name = quantization->text + at + 1;
        bool class = quantization->rule == NAMES_WHOLE && is_class(name);
        bool meant = class || name_means(quantization, name, module);
        if (group == QUANTIZATION_IGNORED && meant)
            return NULL;
        if (meant && class && classed > group)
            classed = group;
        if (meant && !class && named > group)
            named = group;
        at += (uint32_t)strlen(name) + 2;
    }
    uint32_t group = named < QUANTIZATION_IGNORED ? named : classed;
    return group < quantization->groups ? &quantization->schemes[group] : NULL;
}

/* ---- values ---- */

bool quantization_unsaid(const json *value)
{
    return !value || json_is_null(value) || (json_is_bool(value) && !json_bool(value)) ||
           ((json_is_array(value) || json_is_object(value)) && !json_count(value));
}

/* What is said and not known would change what is computed. */
int quantization_known(const struct fields *fields, const char *const *keys)
{
    for (const json *value = json_child(fields->object); value; value = json_next(value)) {
        size_t i = 0;
        while (keys[i] && strcmp(keys[i], json_key(value)) != 0)
            i++;
        if (!keys[i] && !quantization_unsaid(value))
            return field_refuse(fields, json_key(value), value, "supported");
    }
    return 0;
}

int quantization_word(const struct fields *fields, const char *key, const char *word)
{
    const char *said = word;
    int rc = field_string(fields, key, &said);
    char wanted[64];
    if (rc || !strcmp(said, word))
        return rc;
    snprintf(wanted, sizeof wanted, "supported (%s is)", word);
    return field_refuse(fields, key, field_get(fields, key), wanted);
}

int quantization_block(const struct fields *fields, const char *key)
{
    const json *list = field_get(fields, key);
    const json *rows = json_child(list), *columns = rows ? json_next(rows) : NULL;
    if (json_is_array(list) && json_count(list) == 2 && json_number(rows) == BLOCK &&
        json_number(columns) == BLOCK)
        return 0;
    return list ? field_refuse(fields, key, list, "supported ([128, 128] is)")
                : field_require(fields, key);
}

/* ---- compressed-tensors ---- */

/* Fields of a part of a group, "config_groups.group_0.weights". */
static struct fields fields_of(const struct fields *group, const char *key,
                               char path[PATH_MAX_SHOWN])
{
    snprintf(path, PATH_MAX_SHOWN, "%.100s.%s", group->parent, key);
    return (struct fields){field_get(group, key), group->file, path, group->error};
}

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
    char path[PATH_MAX_SHOWN];
    struct fields fields = fields_of(group, "weights", path);
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
    char path[PATH_MAX_SHOWN];
    struct fields fields = fields_of(group, "input_activations", path);
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
    char path[PATH_MAX_SHOWN];
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

static int compressed_read(const struct fields *fields, struct quantization *to)
{
    static const char *const known[] = {"quant_method",
                                        "format",
                                        "config_groups",
                                        "ignore",
                                        "kv_cache_scheme",
                                        "quantization_status",
                                        "global_compression_ratio",
                                        "version",
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

int quantization_read(const struct fields *config, struct quantization *ret)
{
    static const struct {
        const char *method;
        int (*read)(const struct fields *fields, struct quantization *to);
    } methods[] = {{"fp8", quantization_fp8},           {"fbgemm_fp8", quantization_fbgemm},
                   {"modelopt", quantization_modelopt}, {"compressed-tensors", compressed_read},
                   {"gptq", quantization_gptq},         {"awq", quantization_awq}};
    struct fields fields = {field_get(config, HELD), config->file, HELD, config->error};
    if (!fields.object)
        return 0;
    if (!json_is_object(fields.object))
        return field_refuse(config, HELD, fields.object, "an object");
    int rc = field_require(&fields, "quant_method");
    const json *method = field_get(&fields, "quant_method");
    for (size_t i = 0; !rc && i < sizeof methods / sizeof *methods; i++)
        if (!strcmp(json_string(method), methods[i].method))
            return methods[i].read(&fields, ret);
    return rc ? rc
              : field_refuse(
                    &fields, "quant_method", method,
                    "supported (fp8, fbgemm_fp8, modelopt, compressed-tensors, gptq and awq are)");
}
