/* Gemma 3 that also sees pictures: the text's part is computed, and the other tensors are not read.
 */
#include "gpu/models/families/gemma.h"

/* Here the class multiplies by the head alone, whatever the config says of a cap. */
static int rules(const struct fields *fields, struct model_config *config)
{
    int rc = gemma3_rules(fields, config);
    config->logits_softcap = 0;
    return rc;
}

/* As the first checkpoints have them, and as transformers has them since. */
static const struct tensor_names names[] = {
    {"language_model.model.", "language_model.model.layers.%u.", "language_model.lm_head"},
    {"model.language_model.", "model.language_model.layers.%u.", "lm_head"},
    {.model = NULL},
};

const struct family family_gemma3 = {
    .type = "gemma3",
    .architecture = "Gemma3ForConditionalGeneration",
    .text = "text_config",
    .text_type = "gemma3_text",
    .names = names,
    .keys = gemma3_keys,
    .activation_key = "hidden_activation",
    .activation = ACTIVATION_GELU_TANH,
    .defaults = gemma3_defaults,
    .rope = rope_read_kinds,
    .rules = rules,
    .build = gemma_build,
};
