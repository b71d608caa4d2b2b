#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/adapters/adapters.h"
#include "gpu/checkpoint/config_field.h"
#include "gpu/checkpoint/file.h"
#include "gpu/checkpoint/safetensors.h"

#define CONFIG_NAME "adapter_config.json"

static bool is_one_of(const char *name, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(name, names[i]))
            return true;
    return false;
}

/* Read elsewhere, or about training, or what the tensors say themselves. */
static bool key_is_known(const char *name)
{
    static const char *const known[] = {
        "peft_type",       "r",
        "lora_alpha",      "use_rslora",
        "bias",            "init_lora_weights",
        "auto_mapping",    "base_model_name_or_path",
        "revision",        "inference_mode",
        "task_type",       "peft_version",
        "lora_dropout",    "target_modules",
        "exclude_modules", "layers_to_transform",
        "layers_pattern",  "megatron_core",
        "qalora_group_size", "loftq_config",
        "eva_config",      "runtime_config",
    };
    return is_one_of(name, known, sizeof known / sizeof known[0]);
}

static bool says_nothing(const json *value)
{
    return json_is_null(value) || (json_is_bool(value) && !json_bool(value)) ||
           ((json_is_array(value) || json_is_object(value)) && !json_count(value));
}

static int keys_check(const struct fields *fields)
{
    for (const json *member = json_child(fields->object); member; member = json_next(member)) {
        if (key_is_known(json_key(member)) || says_nothing(member))
            continue;
        char shown[FIELD_SHOWN_MAX];
        field_show(member, shown);
        return error_set(fields->error, ERR_BAD_MODEL,
                         "%s: %.100s: %s is not supported in an adapter", fields->file,
                         json_key(member), shown);
    }
    return 0;
}

/* Ways that take something out of the base's weights as they begin. */
static int init_check(const struct fields *fields)
{
    static const char *const leave_base[] = {"gaussian", "eva", "orthogonal"};
    const json *value = field_get(fields, "init_lora_weights");
    if (!value || json_is_bool(value) ||
        (json_is_string(value) && is_one_of(json_string(value), leave_base, 3)))
        return 0;
    return field_refuse(fields, "init_lora_weights", value,
                        "a way that leaves the model's own weights alone");
}

static int words_check(const struct fields *fields)
{
    const char *type = NULL, *bias = "none";
    int rc = field_require(fields, "peft_type");
    if (!rc)
        rc = field_string(fields, "peft_type", &type);
    if (!rc && strcmp(type, "LORA") != 0)
        rc = field_refuse(fields, "peft_type", field_get(fields, "peft_type"), "LORA");
    if (!rc)
        rc = field_string(fields, "bias", &bias);
    if (!rc && strcmp(bias, "none") != 0)
        rc = field_refuse(fields, "bias", field_get(fields, "bias"), "none");
    return rc ? rc : init_check(fields);
}

static int config_read(const struct fields *fields, struct adapter_config *ret)
{
    double alpha = 8;
    bool by_root = false;
    int rc = words_check(fields);
    if (!rc)
        rc = keys_check(fields);
    if (!rc)
        rc = field_require(fields, "r");
    if (!rc)
        rc = field_size(fields, "r", ADAPTER_RANK_MAX, &ret->rank);
    if (!rc)
        rc = field_number(fields, "lora_alpha", -1e6, 1e6, &alpha);
    if (!rc)
        rc = field_flag(fields, "use_rslora", &by_root);
    if (!rc)
        ret->scale = (float)(alpha / (by_root ? sqrt(ret->rank) : ret->rank));
    return rc;
}

int adapter_config_load(const char *directory, struct adapter_config *ret, struct error *error)
{
    char *text = NULL;
    size_t length = 0;
    json *document = NULL;
    int rc = file_text(directory, CONFIG_NAME, ADAPTER_CONFIG_BYTES_MAX, &text, &length, error);
    if (!rc)
        rc = safetensors_json(text, length, CONFIG_NAME, &document, error);
    free(text);
    if (rc)
        return rc;
    struct fields fields = {document, CONFIG_NAME, NULL, error};
    rc = config_read(&fields, ret);
    json_free(document);
    return rc;
}
