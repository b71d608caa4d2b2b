/* GLM-4.5 and 4.6: experts chosen by sigmoid and a bias, whose weights are the sigmoids alone; an
 * MLP that all rows go through, as it is; the first layers are dense. Half of each head is rotated,
 * as Llama does it. Layers that guess tokens ahead stand behind the last, and are left alone. */
#include "gpu/models/base/experts.h"

#define ROTARY_FACTOR 0.5f /* where partial_rotary_factor is absent */

static const struct config_key keys[] = {
    {.name = "attention_bias", .kind = KEY_RULE},
    {.name = "use_qk_norm", .kind = KEY_FLAG, .at = CONFIG_AT(qk_norm)},
    {.name = "n_routed_experts", .kind = KEY_RULE},
    {.name = "num_experts_per_tok", .kind = KEY_RULE},
    {.name = "n_shared_experts", .kind = KEY_RULE},
    {.name = "first_k_dense_replace", .kind = KEY_RULE},
    {.name = "moe_intermediate_size",
     .kind = KEY_SIZE,
     .at = CONFIG_AT(experts_intermediate),
     .max = MODEL_INTERMEDIATE_MAX,
     .required = true},
    {.name = "norm_topk_prob", .kind = KEY_RULE},
    {.name = "routed_scaling_factor",
     .kind = KEY_NUMBER,
     .at = CONFIG_AT(experts_scale),
     .min = 1e-6,
     .max = 1e6},
    {.name = "mlp_bias", .kind = KEY_IGNORED},
    {.name = NULL},
};

/* As in the class where they are absent. */
static int mixture_read(const struct fields *fields, struct model_config *config)
{
    uint32_t shared = 1;
    int64_t dense = 1;
    config->experts_normalised = true;
    int rc = field_flag(fields, "norm_topk_prob", &config->experts_normalised);
    if (rc == 0)
        rc = experts_read(fields, "n_routed_experts", config);
    if (rc == 0)
        rc = field_size(fields, "n_shared_experts", MODEL_INTERMEDIATE_MAX, &shared);
    if (rc == 0)
        rc = field_integer(fields, "first_k_dense_replace", 0, MODEL_LAYERS_MAX, &dense);
    if (rc)
        return rc;
    if ((uint64_t)shared * config->experts_intermediate > MODEL_INTERMEDIATE_MAX)
        return field_refuse(fields, "n_shared_experts", field_get(fields, "n_shared_experts"),
                            "supported of that moe_intermediate_size");
    config->shared_intermediate = shared * config->experts_intermediate;
    for (uint32_t i = 0; i < config->layers; i++)
        config->dense[i] = i < dense;
    return 0;
}

static int rules(const struct fields *fields, struct model_config *config)
{
    int rc = decoder_kv_heads(fields, true, config);
    if (rc == 0)
        rc = decoder_head_dim(fields, 0, config);
    if (rc == 0) /* o has none */
        rc = field_flag(fields, "attention_bias", &config->qkv_bias);
    if (rc == 0)
        rc = mixture_read(fields, config);
    if (!field_get(fields, "rms_norm_eps"))
        config->norm_eps = 1e-5f;
    config->rotary_factor = ROTARY_FACTOR;
    return rc;
}

static void build(struct build *b, const struct model_config *config)
{
    static const struct experts_names experts = {.router = "mlp.gate",
                                                 .gate = "mlp.experts.%u.gate_proj",
                                                 .up = "mlp.experts.%u.up_proj",
                                                 .down = "mlp.experts.%u.down_proj",
                                                 .shared = "mlp.shared_experts",
                                                 .biased = true};
    struct decoder_names names = experts_decoder;
    names.experts = &experts;
    decoder_build_of(b, config, &names);
}

const struct family family_glm4_moe = {
    .type = "glm4_moe",
    .architecture = "Glm4MoeForCausalLM",
    .keys = keys,
    .rules = rules,
    .build = build,
};
