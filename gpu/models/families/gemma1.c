/* Gemma, the first: norms before attention and the MLP alone, and no caps. */
#include <string.h>

#include "gpu/models/families/gemma.h"

static const struct config_key keys[] = {
    {.name = "attention_bias", .kind = KEY_RULE},
    {.name = "sliding_window", .kind = KEY_IGNORED},
    {.name = "layer_types", .kind = KEY_IGNORED},
    {.name = NULL},
};

static void defaults(struct model_config *config)
{
    config->layers = 28;
    config->hidden = 3072;
    config->intermediate = 24576;
    config->heads = 16;
    config->kv_heads = 16;
    config->head_dim = 256;
    config->vocab = 256000;
    config->context_max = 8192;
    config->tied = true;
    config->norms_before = true;
}

/* "gelu" is what the first files say; they mean what later ones call gelu_pytorch_tanh. */
static int rules(const struct fields *fields, struct model_config *config)
{
    const char *name = "gelu";
    int rc = field_string(fields, "hidden_act", &name);
    if (rc == 0 && strcmp(name, "gelu") != 0 && strcmp(name, "gelu_pytorch_tanh") != 0)
        return field_refuse(fields, "hidden_act", field_get(fields, "hidden_act"),
                            "supported for gemma (gelu and gelu_pytorch_tanh are)");
    return rc ? rc : gemma_rules_plain(fields, config);
}

const struct family family_gemma1 = {
    .type = "gemma",
    .architecture = "GemmaForCausalLM",
    .classifier = "GemmaForSequenceClassification",
    .keys = keys,
    .activation_key = "hidden_activation",
    .activation = ACTIVATION_GELU_TANH,
    .defaults = defaults,
    .rules = rules,
    .build = gemma_build,
};
