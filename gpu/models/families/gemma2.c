/* Gemma 2: every second layer sees a window alone; scores and logits have caps. */
#include "gpu/models/families/gemma.h"

#define PATTERN 2
#define ATTENTION_CAP 50.0f
#define LOGITS_CAP 30.0f

static const struct config_key keys[] = {
    GEMMA_KEYS,
    {.name = "attn_logit_softcapping", .kind = KEY_RULE},
    {.name = NULL},
};

static void defaults(struct model_config *config)
{
    config->layers = 26;
    config->hidden = 2304;
    config->intermediate = 9216;
    config->heads = 8;
    config->kv_heads = 4;
    config->head_dim = 256;
    config->vocab = 256000;
    config->context_max = 8192;
    config->tied = true;
}

static int rules(const struct fields *fields, struct model_config *config)
{
    int rc = gemma_rules(fields, PATTERN, config);
    if (rc == 0)
        rc = gemma_softcap(fields, "attn_logit_softcapping", ATTENTION_CAP,
                           &config->attention_softcap);
    if (rc == 0)
        rc = gemma_softcap(fields, "final_logit_softcapping", LOGITS_CAP, &config->logits_softcap);
    return rc;
}

const struct family family_gemma2 = {
    .type = "gemma2",
    .architecture = "Gemma2ForCausalLM",
    .classifier = "Gemma2ForSequenceClassification",
    .keys = keys,
    .activation_key = "hidden_activation",
    .activation = ACTIVATION_GELU_TANH,
    .defaults = defaults,
    .rules = rules,
    .build = gemma_build,
};
