/* Gemma 3: norms of q and k; of six layers the last sees all, the others a window, with angles of
 * their own. */
#include "gpu/models/families/gemma.h"

#define PATTERN 6

const struct config_key gemma3_keys[] = {
    GEMMA_KEYS,
    {.name = "sliding_window_pattern", .kind = KEY_RULE},
    {.name = "rope_local_base_freq", .kind = KEY_RULE},
    {.name = "attn_logit_softcapping", .kind = KEY_IGNORED},
    {.name = NULL},
};

void gemma3_defaults(struct model_config *config)
{
    config->layers = 26;
    config->hidden = 2304;
    config->intermediate = 9216;
    config->heads = 8;
    config->kv_heads = 4;
    config->head_dim = 256;
    config->vocab = 262208;
    config->context_max = 131072;
    config->tied = true;
}

int gemma3_rules(const struct fields *fields, struct model_config *config)
{
    int64_t pattern = PATTERN;
    int rc = field_integer(fields, "sliding_window_pattern", 1, MODEL_LAYERS_MAX, &pattern);
    if (rc == 0)
        rc = gemma_rules(fields, (uint32_t)pattern, config);
    if (rc == 0)
        rc = gemma_softcap(fields, "final_logit_softcapping", 0, &config->logits_softcap);
    config->qk_norm = true;
    return rc;
}

const struct family family_gemma3_text = {
    .type = "gemma3_text",
    .architecture = "Gemma3ForCausalLM",
    .classifier = "Gemma3TextForSequenceClassification",
    .keys = gemma3_keys,
    .activation_key = "hidden_activation",
    .activation = ACTIVATION_GELU_TANH,
    .defaults = gemma3_defaults,
    .rope = rope_read_kinds,
    .rules = gemma3_rules,
    .build = gemma_build,
};
