#include "gpu/models/config.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/checkpoint/file.h"
#include "gpu/checkpoint/format.h"
#include "gpu/models/base/rope_config.h"
#include "gpu/models/families/families.h"
#include "gpu/models/generation.h"

static_assert((uint64_t)MODEL_VOCAB_MAX * MODEL_HIDDEN_MAX < (1ull << 40) &&
                  (uint64_t)MODEL_INTERMEDIATE_MAX * MODEL_HIDDEN_MAX < (1ull << 40),
              "the elements of a model fit 64 bits with room to spare");

#define NAMES_MAX 1024 /* of a list of all families in a message */

const struct tensor_names tensor_names_plain = {
    .model = "model.", .layers = "model.layers.%u.", .head = "lm_head"};

static const char *const dtype_names[] = {
    [MODEL_F32] = "float32", [MODEL_F16] = "float16", [MODEL_BF16] = "bfloat16"};

static int refuse_family(const struct fields *fields, const char *key, const json *value,
                         bool architectures)
{
    char names[NAMES_MAX], wanted[NAMES_MAX + 64];
    family_names(architectures, names, sizeof names);
    snprintf(wanted, sizeof wanted, "supported (%s are%s)", names,
             architectures ? ", short ones with " FAMILY_CLASS " behind" : "");
    return field_refuse(fields, key, value, wanted);
}

/* The class name says it where one is given: model_type alone does not tell a language model from a
 * classifier. */
static int read_family(const struct fields *fields, struct model_config *config)
{
    const json *classes = field_get(fields, "architectures");
    if (classes && (!json_is_array(classes) || json_count(classes) != 1))
        return field_refuse(fields, "architectures", classes, "a list of one name");
    const json *class = json_child(classes);
    if (class && !json_is_string(class))
        return field_refuse(fields, "architectures", class, "a string");
    const char *type = NULL;
    int rc = field_string(fields, "model_type", &type);
    if (rc)
        return rc;
    if (!type && !class)
        return error_set(fields->error, ERR_BAD_MODEL, "%s: architectures: missing", fields->file);
    const struct family *family;
    for (size_t i = 0; (family = family_at(i)); i++) {
        const char *own = class ? family->architecture : family->type;
        bool classifies =
            class && family->classifier && !strcmp(json_string(class), family->classifier);
        if (!classifies && strcmp(class ? json_string(class) : type, own) != 0)
            continue;
        if (type && strcmp(type, family->type) != 0)
            return field_refuse(fields, "model_type", field_get(fields, "model_type"),
                                "the type of the class under architectures");
        config->family = family;
        config->classifies = classifies;
        return 0;
    }
    return class ? refuse_family(fields, "architectures", class, true)
                 : refuse_family(fields, "model_type", field_get(fields, "model_type"), false);
}

/* It stands above the text's part, where the model has more. */
static int refuse_quantization(const struct fields *text)
{
    const json *quantization = field_get(text, "quantization_config");
    return quantization ? field_refuse(text, "quantization_config", quantization,
                                       "supported there (beside the text's part it is)")
                        : 0;
}

static int read_dtype(const struct fields *fields, struct model_config *config)
{
    const char *key = field_get(fields, "dtype") ? "dtype" : "torch_dtype";
    const char *name = "float32";
    int rc = field_string(fields, key, &name);
    if (rc)
        return rc;
    for (size_t i = 0; i < sizeof(dtype_names) / sizeof(dtype_names[0]); i++)
        if (strcmp(name, dtype_names[i]) == 0) {
            config->dtype = (enum model_dtype)i;
            return 0;
        }
    return field_refuse(fields, key, field_get(fields, key),
                        "supported (bfloat16, float16 and float32 are)");
}

static int read_activation(const struct fields *fields, struct model_config *config)
{
    static const char *const names[] = {
        [ACTIVATION_SILU] = "silu", [ACTIVATION_GELU_TANH] = "gelu_pytorch_tanh"};
    const struct family *family = config->family;
    const char *key = family->activation_key ? family->activation_key : "hidden_act";
    const char *name = names[family->activation];
    int rc = field_string(fields, key, &name);
    if (rc)
        return rc;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) {
            config->activation = (enum activation_kind)i;
            return 0;
        }
    return field_refuse(fields, key, field_get(fields, key),
                        "supported (silu and gelu_pytorch_tanh are)");
}

#define SIZE(key, member, most)                                                                    \
    {                                                                                              \
        .name = key, .kind = KEY_SIZE, .at = CONFIG_AT(member), .max = most, .required = true      \
    }

/* Of all families. */
static const struct config_key shared_keys[] = {
    SIZE("num_hidden_layers", layers, MODEL_LAYERS_MAX),
    SIZE("hidden_size", hidden, MODEL_HIDDEN_MAX),
    SIZE("intermediate_size", intermediate, MODEL_INTERMEDIATE_MAX),
    SIZE("num_attention_heads", heads, MODEL_HEADS_MAX),
    SIZE("vocab_size", vocab, MODEL_VOCAB_MAX),
    SIZE("max_position_embeddings", context_max, MODEL_CONTEXT_MAX),
    {.name = "tie_word_embeddings", .kind = KEY_FLAG, .at = CONFIG_AT(tied)},
    {.name = "rms_norm_eps", .kind = KEY_NUMBER, .at = CONFIG_AT(norm_eps), .min = 1e-12, .max = 1},
    {.name = NULL},
};

static int read_key(const struct fields *fields, const struct config_key *key,
                    struct model_config *config)
{
    void *to = (char *)config + key->at;
    bool known = key->kind == KEY_SIZE && *(uint32_t *)to; /* the class has a default */
    int rc = key->required && !known ? field_require(fields, key->name) : 0;
    double number = key->kind == KEY_NUMBER ? (double)*(float *)to : 0;
    if (rc)
        return rc;
    switch (key->kind) {
    case KEY_SIZE:
        return field_size(fields, key->name, (uint32_t)key->max, to);
    case KEY_FLAG:
        return field_flag(fields, key->name, to);
    case KEY_NUMBER:
        rc = field_number(fields, key->name, key->min, key->max, &number);
        *(float *)to = (float)number;
        return rc;
    case KEY_RULE:
    case KEY_IGNORED:
        break;
    }
    return 0;
}

static int read_keys(const struct fields *fields, const struct config_key *keys,
                     struct model_config *config)
{
    int rc = 0;
    for (size_t i = 0; !rc && keys[i].name; i++)
        rc = read_key(fields, &keys[i], config);
    return rc;
}

static bool has_key(const struct config_key *keys, const char *name)
{
    for (size_t i = 0; keys[i].name; i++) {
        if (!strcmp(keys[i].name, name))
            return true;
    }
    return false;
}

static bool changes_nothing(const json *value, double neutral)
{
    if (json_is_bool(value))
        return (json_bool(value) ? 1.0 : 0.0) == neutral;
    return json_is_number(value) && json_number(value) == neutral;
}

/* What this family does not heed, and another does. */
static int refuse_others(const struct fields *fields, const struct family *family)
{
    static const struct {
        const char *name;
        double neutral;
    } others[] = {
#define KEY(name, neutral) {#name, neutral},
#include "gpu/models/keys.def"
#undef KEY
    };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        const json *value = field_get(fields, others[i].name);
        char wanted[128];
        if (!value || has_key(family->keys, others[i].name) ||
            changes_nothing(value, others[i].neutral))
            continue;
        snprintf(wanted, sizeof wanted, "supported for %s", family->type);
        return field_refuse(fields, others[i].name, value, wanted);
    }
    return 0;
}

/* The text's part, where the model has more. */
static int find_text(const struct fields *top, const struct model_config *config,
                     struct fields *ret)
{
    const struct family *family = config->family;
    const char *type = family->text_type;
    *ret = *top;
    if (!family->text)
        return 0;
    int rc = field_require(top, family->text);
    if (rc)
        return rc;
    const json *text = field_get(top, family->text);
    if (!json_is_object(text))
        return field_refuse(top, family->text, text, "an object");
    *ret = (struct fields){text, top->file, family->text, top->error};
    rc = field_string(ret, "model_type", &type);
    if (rc == 0 && strcmp(type, family->text_type) != 0)
        return field_refuse(ret, "model_type", field_get(ret, "model_type"),
                            "the type that the class has text of");
    return rc ? rc : refuse_quantization(ret);
}

/* What is said beside the text's part counts before what is said in it. */
static int read_above(const struct fields *top, const struct fields *text,
                      struct model_config *config)
{
    bool here = field_get(top, "dtype") || field_get(top, "torch_dtype");
    int rc = read_dtype(here ? top : text, config);
    if (rc == 0 && top->object != text->object)
        rc = field_flag(top, "tie_word_embeddings", &config->tied);
    return rc;
}

static int read_config(const struct fields *top, struct model_config *config)
{
    struct fields text, *fields = &text;
    int rc = read_family(top, config);
    if (rc == 0)
        rc = quantization_read(top, &config->quantization);
    if (rc == 0)
        rc = find_text(top, config, fields);
    if (rc == 0 && config->family->names)
        config->names = config->family->names;
    if (rc == 0 && config->family->defaults)
        config->family->defaults(config);
    if (rc == 0)
        rc = read_activation(fields, config);
    if (rc == 0)
        rc = read_keys(fields, shared_keys, config);
    if (rc == 0)
        rc = read_above(top, fields, config);
    if (rc == 0)
        rc = refuse_others(fields, config->family);
    if (rc == 0)
        rc = read_keys(fields, config->family->keys, config);
    if (rc == 0)
        rc = config->family->rules(fields, config);
    if (rc == 0)
        rc =
            config->family->rope ? config->family->rope(fields, config) : rope_read(fields, config);
    if (rc == 0)
        rc = generation_read_ends(fields, config);
    if (rc == 0 && config->family->text)
        rc = generation_read_ends(top, config);
    return rc;
}

static int parse(const char *file, const char *text, size_t length, json **ret, struct error *error)
{
    struct json_bounds bounds = {.bytes_max = MODEL_CONFIG_BYTES_MAX, .depth_max = 16};
    struct error inner = {0};
    int rc = json_parse(text, length, bounds, ret, &inner);
    if (rc)
        return error_set(error, inner.code == ERR_NO_MEMORY ? ERR_NO_MEMORY : ERR_BAD_MODEL,
                         "%s: %.400s", file, inner.text);
    if (json_is_object(*ret))
        return 0;
    json_free(*ret);
    return error_set(error, ERR_BAD_MODEL, "%s: not an object", file);
}

int model_config_parse(const char *config, size_t config_length, const char *generation,
                       size_t generation_length, struct model_config *ret, struct error *error)
{
    struct model_config made = MODEL_CONFIG_EMPTY;
    json *document = NULL;
    int rc = parse("config.json", config, config_length, &document, error);
    if (rc)
        return rc;
    struct fields fields = {document, "config.json", NULL, error};
    rc = read_config(&fields, &made);
    json_free(document);
    if (rc)
        return rc;
    if (generation) {
        rc = parse("generation_config.json", generation, generation_length, &document, error);
        if (rc)
            return rc;
        fields = (struct fields){document, "generation_config.json", NULL, error};
        rc = generation_read(&fields, &made);
        json_free(document);
        if (rc)
            return rc;
    }
    *ret = made;
    return 0;
}

static int read_apart(const char *directory, size_t number, struct quantization *ret,
                      struct error *error)
{
    const char *name = quantization_file(number);
    char *text = NULL;
    size_t length = 0;
    json *document = NULL;
    int rc = file_text(directory, name, MODEL_CONFIG_BYTES_MAX, &text, &length, error);
    if (rc == 0)
        rc = parse(name, text, length, &document, error);
    free(text);
    if (rc)
        return rc;
    struct fields fields = {document, name, NULL, error};
    rc = quantization_read_apart(number, &fields, ret);
    json_free(document);
    return rc;
}

int model_config_load(const char *directory, struct model_config *ret, struct error *error)
{
    char *config = NULL, *generation = NULL;
    size_t config_length = 0, generation_length = 0;
    int rc = format_refuse(directory, "config.json", error);
    if (rc == 0)
        rc = file_text(directory, "config.json", MODEL_CONFIG_BYTES_MAX, &config, &config_length,
                       error);
    if (rc == 0 && file_exists(directory, "generation_config.json"))
        rc = file_text(directory, "generation_config.json", MODEL_CONFIG_BYTES_MAX, &generation,
                       &generation_length, error);
    if (rc == 0)
        rc = model_config_parse(config, config_length, generation, generation_length, ret, error);
    free(config);
    free(generation);
    for (size_t i = 0; !rc && !ret->quantization.groups && quantization_file(i); i++)
        if (file_exists(directory, quantization_file(i)))
            rc = read_apart(directory, i, &ret->quantization, error);
    return rc;
}
