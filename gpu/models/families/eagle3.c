/* Heads that guess for another model, by EAGLE-3: one layer, which reads three layers of that
 * model beside the token (Li et al., "EAGLE-3", 2025; config.json and tensors as its authors
 * published them, and as SpecForge and ModelOpt write them). No model by itself.
 *
 * d2t says which tokens a head with fewer than the model's knows; t2d says the same once more.
 * Where there is no embed_tokens, the table is the model's. */
#include <string.h>

#include "gpu/models/base/decoder.h"

static const struct config_key keys[] = {
    {.name = "draft_vocab_size",
     .kind = KEY_SIZE,
     .at = CONFIG_AT(draft_vocab),
     .max = MODEL_VOCAB_MAX},
    {.name = "target_hidden_size",
     .kind = KEY_SIZE,
     .at = CONFIG_AT(target_hidden),
     .max = MODEL_HIDDEN_MAX},
    {.name = "norm_before_residual", .kind = KEY_FLAG, .at = CONFIG_AT(normed_residual)},
    {.name = "attention_bias", .kind = KEY_RULE},
    {.name = "mlp_bias", .kind = KEY_FLAG, .at = CONFIG_AT(mlp_bias)},
    {.name = "sliding_window", .kind = KEY_IGNORED},
    {.name = "use_sliding_window", .kind = KEY_IGNORED},
    {.name = "layer_types", .kind = KEY_IGNORED},
    {.name = NULL},
};

#define LAYERS "eagle_aux_hidden_state_layer_ids"

/* Absent or empty: the model's layers decide. Those of eagle_config say which layer's result is
 * read (ModelOpt writes 1, n / 2 - 1 and n - 4 there), others which layer begins with it. */
static int captured_read(const struct fields *fields, uint32_t further, struct model_config *config)
{
    const json *list = field_get(fields, LAYERS);
    uint32_t i = 0;
    if (!list || (json_is_array(list) && !json_count(list)))
        return 0;
    if (!json_is_array(list) || json_count(list) != LIST_FEATURES)
        return field_refuse(fields, LAYERS, list, "a list of three layers");
    for (const json *id = json_child(list); id; id = json_next(id), i++) {
        double number = json_is_number(id) ? json_number(id) : -1;
        if (number < 0 || number >= MODEL_LAYERS_MAX || number != (uint32_t)number)
            return field_refuse(fields, LAYERS, id, "the number of a layer");
        config->captured[i] = (uint32_t)number + further;
    }
    config->captured_said = true;
    return 0;
}

/* What makes another head of the same tensors. */
static int forms_refuse(const struct fields *fields)
{
    static const struct {
        const char *name;
        double only;
    } forms[] = {{"use_aux_hidden_state", 1}, {"use_input_layernorm_in_first_layer", 1},
                 {"use_last_layernorm", 1},   {"use_mtp_layernorm", 0},
                 {"parallel_draft_step", 1},  {"norm_output", 0}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const json *value = field_get(fields, forms[i].name);
        double number = json_is_bool(value)     ? (json_bool(value) ? 1 : 0)
                        : json_is_number(value) ? json_number(value)
                                                : forms[i].only;
        if (number != forms[i].only)
            return field_refuse(fields, forms[i].name, value, "supported for a head");
    }
    return 0;
}

static int eagle_read(const struct fields *top, struct model_config *config)
{
    const json *inner = field_get(top, "eagle_config");
    int rc = captured_read(top, 0, config);
    if (rc == 0)
        rc = forms_refuse(top);
    if (rc || !inner)
        return rc;
    if (!json_is_object(inner))
        return field_refuse(top, "eagle_config", inner, "an object");
    struct fields fields = {inner, top->file, "eagle_config", top->error};
    rc = captured_read(&fields, 1, config);
    return rc ? rc : forms_refuse(&fields);
}

static int rules(const struct fields *fields, struct model_config *config)
{
    int rc = decoder_kv_heads(fields, false, config);
    if (rc == 0)
        rc = decoder_head_dim(fields, 0, config);
    if (rc == 0)
        rc = field_flag(fields, "attention_bias", &config->qkv_bias);
    if (rc == 0)
        rc = eagle_read(fields, config);
    if (rc)
        return rc;
    config->o_bias = config->qkv_bias;
    config->draft_vocab = config->draft_vocab ? config->draft_vocab : config->vocab;
    config->target_hidden = config->target_hidden ? config->target_hidden : config->hidden;
    if (config->layers != 1)
        return field_refuse(fields, "num_hidden_layers", field_get(fields, "num_hidden_layers"),
                            "supported for a head (1 is)");
    if (config->draft_vocab > config->vocab)
        return field_refuse(fields, "draft_vocab_size", field_get(fields, "draft_vocab_size"),
                            "a part of vocab_size");
    return 0;
}

static void build(struct build *b, const struct model_config *config)
{
    const struct build_draft draft = {
        .table = config->names->tableless ? NULL : "embed_tokens",
        .fc = "fc",
        .token_norm = "input_layernorm",
        .state_norm = "hidden_norm",
        .eps = config->norm_eps,
        .normed = config->normed_residual,
        .hidden = config->target_hidden,
        .vocab = config->draft_vocab,
        .tokens = "d2t",
    };
    const struct build_head head = {
        .norm = "norm", .eps = config->norm_eps, .head = "lm_head", .scale = 1};
    b->prefix = config->names->layers;
    build_rope_table(b, &config->rope);
    value_id x = build_draft(b, &draft);
    decoder_attention(b, config, &decoder_names_plain, 0, x);
    decoder_mlp(b, config, &decoder_names_plain);
    build_head(b, &head);
}

static const struct tensor_names names[] = {
    {.model = "", .layers = "midlayer.", .head = "lm_head", .tableless = true},
    {.model = "", .layers = "midlayer.", .head = "lm_head"},
    {.model = NULL},
};

const struct family family_eagle3 = {
    .type = "llama",
    .architecture = "LlamaForCausalLMEagle3",
    .names = names,
    .keys = keys,
    .rules = rules,
    .build = build,
    .guesses = true,
};
