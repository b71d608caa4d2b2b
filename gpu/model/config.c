#include "gpu/model/config.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/model/field.h"
#include "gpu/model/file.h"
#include "gpu/model/generation.h"
#include "gpu/model/rope.h"

#define QWEN3_HEAD_DIM 128
#define DEFAULT_WINDOW 4096
#define QWEN_WINDOW_LAYERS 28

static_assert((uint64_t)MODEL_VOCAB_MAX * MODEL_HIDDEN_MAX < (1ull << 40) &&
                  (uint64_t)MODEL_INTERMEDIATE_MAX * MODEL_HIDDEN_MAX < (1ull << 40),
              "the elements of a model fit 64 bits with room to spare");

static const struct {
    const char *type, *class;
} arches[] = {
    [MODEL_LLAMA] = {"llama", "LlamaForCausalLM"},
    [MODEL_MISTRAL] = {"mistral", "MistralForCausalLM"},
    [MODEL_QWEN2] = {"qwen2", "Qwen2ForCausalLM"},
    [MODEL_QWEN3] = {"qwen3", "Qwen3ForCausalLM"},
};

static const struct {
    const char *name, *config_name;
    uint32_t bytes;
} dtypes[] = {
    [MODEL_F32] = {"F32", "float32", 4},
    [MODEL_F16] = {"F16", "float16", 2},
    [MODEL_BF16] = {"BF16", "bfloat16", 2},
};

const char *model_arch_name(enum model_arch arch)
{
    return arches[arch].type;
}

const char *model_dtype_name(enum model_dtype dtype)
{
    return dtypes[dtype].name;
}

uint32_t model_dtype_bytes(enum model_dtype dtype)
{
    return dtypes[dtype].bytes;
}

/* The class name says it where one is given: model_type alone does not tell a language model from a
 * classifier. */
static int read_arch(const struct fields *fields, struct model_config *config)
{
    static const char *const wanted = "supported (LlamaForCausalLM, MistralForCausalLM, "
                                      "Qwen2ForCausalLM and Qwen3ForCausalLM are)";
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
    for (size_t i = 0; i < sizeof(arches) / sizeof(arches[0]); i++) {
        if (strcmp(class ? json_string(class) : type, class ? arches[i].class : arches[i].type) !=
            0)
            continue;
        if (type && strcmp(type, arches[i].type) != 0)
            return field_refuse(fields, "model_type", field_get(fields, "model_type"),
                                "the type of the class under architectures");
        config->arch = (enum model_arch)i;
        return 0;
    }
    return class ? field_refuse(fields, "architectures", class, wanted)
                 : field_refuse(fields, "model_type", field_get(fields, "model_type"),
                                "supported (llama, mistral, qwen2 and qwen3 are)");
}

static int refuse_quantization(const struct fields *fields)
{
    const json *quantization = field_get(fields, "quantization_config");
    if (!quantization)
        return 0;
    const json *method = json_get(quantization, "quant_method");
    return field_refuse(fields, method ? "quantization_config.quant_method" : "quantization_config",
                        method ? method : quantization,
                        "supported (weights in BF16, F16 and F32 are)");
}

static int read_dtype(const struct fields *fields, struct model_config *config)
{
    const char *key = field_get(fields, "dtype") ? "dtype" : "torch_dtype";
    const char *name = "float32";
    int rc = field_string(fields, key, &name);
    if (rc)
        return rc;
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++)
        if (strcmp(name, dtypes[i].config_name) == 0) {
            config->dtype = (enum model_dtype)i;
            return 0;
        }
    return field_refuse(fields, key, field_get(fields, key),
                        "supported (bfloat16, float16 and float32 are)");
}

static int read_activation(const struct fields *fields)
{
    const char *name = "silu";
    int rc = field_string(fields, "hidden_act", &name);
    if (rc)
        return rc;
    if (strcmp(name, "silu") != 0)
        return field_refuse(fields, "hidden_act", field_get(fields, "hidden_act"),
                            "supported (silu is)");
    return 0;
}

static int read_sizes(const struct fields *fields, struct model_config *config)
{
    const struct {
        const char *name;
        uint32_t max;
        uint32_t *value;
    } sizes[] = {
        {"num_hidden_layers", MODEL_LAYERS_MAX, &config->layers},
        {"hidden_size", MODEL_HIDDEN_MAX, &config->hidden},
        {"intermediate_size", MODEL_INTERMEDIATE_MAX, &config->intermediate},
        {"num_attention_heads", MODEL_HEADS_MAX, &config->heads},
        {"vocab_size", MODEL_VOCAB_MAX, &config->vocab},
        {"max_position_embeddings", MODEL_CONTEXT_MAX, &config->context_max},
    };
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        int rc = field_require(fields, sizes[i].name);
        if (rc == 0)
            rc = field_size(fields, sizes[i].name, sizes[i].max, sizes[i].value);
        if (rc)
            return rc;
    }
    return 0;
}

static int read_heads(const struct fields *fields, struct model_config *config)
{
    /* The classes differ in what they take for an absent field; null is the number of heads in all.
     */
    if (!json_get(fields->object, "num_key_value_heads") && config->arch != MODEL_LLAMA)
        return field_require(fields, "num_key_value_heads");
    config->kv_heads = config->heads;
    int rc = field_size(fields, "num_key_value_heads", config->heads, &config->kv_heads);
    if (rc)
        return rc;
    if (config->heads % config->kv_heads)
        return field_refuse(fields, "num_key_value_heads", field_get(fields, "num_key_value_heads"),
                            "a divisor of num_attention_heads");
    if (config->arch == MODEL_QWEN3)
        config->head_dim = QWEN3_HEAD_DIM;
    else if (!field_get(fields, "head_dim") && config->hidden % config->heads)
        return error_set(fields->error, ERR_BAD_MODEL,
                         "%s: hidden_size: %u is not a multiple of num_attention_heads, %u, and "
                         "head_dim is missing",
                         fields->file, config->hidden, config->heads);
    else
        config->head_dim = config->hidden / config->heads;
    rc = field_size(fields, "head_dim", MODEL_HEAD_DIM_MAX, &config->head_dim);
    if (rc)
        return rc;
    if (config->head_dim % 2 || config->head_dim > MODEL_HEAD_DIM_MAX || config->head_dim == 0 ||
        config->head_dim * config->heads > MODEL_HIDDEN_MAX)
        return error_set(fields->error, ERR_BAD_MODEL,
                         "%s: head_dim: %u is not even, over %u, or with %u heads over %u in all",
                         fields->file, config->head_dim, MODEL_HEAD_DIM_MAX, config->heads,
                         MODEL_HIDDEN_MAX);
    config->attention_scale = (float)(1 / sqrt(config->head_dim));
    return 0;
}

static int read_flags(const struct fields *fields, struct model_config *config)
{
    bool attention_bias = false, mlp_bias = false;
    int rc = field_flag(fields, "tie_word_embeddings", &config->tied);
    if (rc == 0)
        rc = field_flag(fields, "attention_bias", &attention_bias);
    if (rc == 0)
        rc = field_flag(fields, "mlp_bias", &mlp_bias);
    double eps = 1e-6;
    if (rc == 0)
        rc = field_number(fields, "rms_norm_eps", 1e-12, 1, &eps);
    if (rc)
        return rc;
    bool optional = config->arch == MODEL_LLAMA || config->arch == MODEL_QWEN3;
    config->qkv_bias = config->arch == MODEL_QWEN2 || (optional && attention_bias);
    config->o_bias = optional && attention_bias;
    config->mlp_bias = config->arch == MODEL_LLAMA && mlp_bias;
    config->qk_norm = config->arch == MODEL_QWEN3;
    config->norm_eps = (float)eps;
    return 0;
}

/* Puts the layer into the group of that window, making the group where it is the first. */
static void group_layer(struct model_config *config, uint32_t layer, uint32_t window)
{
    uint32_t group = 0;
    while (group < config->groups_count && config->groups[group].window != window)
        group++;
    if (group == config->groups_count)
        config->groups[config->groups_count++] = (struct model_group){.window = window};
    config->groups[group].layers++;
    config->layer_group[layer] = (uint8_t)group;
}

static int read_layer_types(const struct fields *fields, const json *types, uint32_t window,
                            struct model_config *config)
{
    if (!json_is_array(types) || json_count(types) != config->layers)
        return field_refuse(fields, "layer_types", types, "a list of num_hidden_layers names");
    uint32_t layer = 0;
    for (const json *type = json_child(types); type; type = json_next(type), layer++) {
        const char *name = json_string(type);
        bool sliding = strcmp(name, "sliding_attention") == 0;
        if (!sliding && strcmp(name, "full_attention") != 0)
            return field_refuse(fields, "layer_types", type,
                                "supported (full_attention and sliding_attention are)");
        if (sliding && window == 0)
            return field_refuse(fields, "layer_types", type,
                                "possible without use_sliding_window and sliding_window");
        group_layer(config, layer, sliding ? window : 0);
    }
    return 0;
}

static int read_windows(const struct fields *fields, struct model_config *config)
{
    uint32_t window = 0, first = 0;
    bool qwen = config->arch == MODEL_QWEN2 || config->arch == MODEL_QWEN3;
    bool use = config->arch == MODEL_MISTRAL;
    int rc = qwen ? field_flag(fields, "use_sliding_window", &use) : 0;
    if (rc)
        return rc;
    if (use) {
        /* An absent window is 4096 tokens, as in transformers; null is none. */
        window = json_get(fields->object, "sliding_window") ? 0 : DEFAULT_WINDOW;
        rc = field_size(fields, "sliding_window", MODEL_CONTEXT_MAX, &window);
        if (rc)
            return rc;
    }
    if (qwen) {
        const json *types = field_get(fields, "layer_types");
        if (types)
            return read_layer_types(fields, types, window, config);
        int64_t layers = QWEN_WINDOW_LAYERS;
        rc = field_integer(fields, "max_window_layers", 0, UINT32_MAX, &layers);
        if (rc)
            return rc;
        first = (uint32_t)layers;
    }
    for (uint32_t layer = 0; layer < config->layers; layer++)
        group_layer(config, layer, layer >= first ? window : 0);
    return 0;
}

static int read_config(const struct fields *fields, struct model_config *config)
{
    int rc = read_arch(fields, config);
    if (rc == 0)
        rc = refuse_quantization(fields);
    if (rc == 0)
        rc = read_dtype(fields, config);
    if (rc == 0)
        rc = read_activation(fields);
    if (rc == 0)
        rc = read_sizes(fields, config);
    if (rc == 0)
        rc = read_heads(fields, config);
    if (rc == 0)
        rc = read_flags(fields, config);
    if (rc == 0)
        rc = rope_read(fields, config);
    if (rc == 0)
        rc = read_windows(fields, config);
    if (rc == 0)
        rc = generation_read_ends(fields, config);
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
    struct model_config made = {.bos_id = -1, .sampling = {.top_p = 1, .repetition = 1}};
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

int model_config_load(const char *directory, struct model_config *ret, struct error *error)
{
    char *config = NULL, *generation = NULL;
    size_t config_length = 0, generation_length = 0;
    int rc =
        file_text(directory, "config.json", MODEL_CONFIG_BYTES_MAX, &config, &config_length, error);
    if (rc == 0 && file_exists(directory, "generation_config.json"))
        rc = file_text(directory, "generation_config.json", MODEL_CONFIG_BYTES_MAX, &generation,
                       &generation_length, error);
    if (rc == 0)
        rc = model_config_parse(config, config_length, generation, generation_length, ret, error);
    free(config);
    free(generation);
    return rc;
}
