/* What all of Granite share: multipliers of the embedding, of what is added to the residual, of
 * attention's products, and a divisor of the logits, and keys of config.json. Any thread.
 */
#pragma once

#include "gpu/models/base/experts.h"

#define GRANITE_MULTIPLIER_MIN 1e-6
#define GRANITE_MULTIPLIER_MAX 1e6

#define GRANITE_MULTIPLIER(key)                                                                    \
    {                                                                                              \
        .name = #key, .kind = KEY_NUMBER, .at = CONFIG_AT(key), .min = GRANITE_MULTIPLIER_MIN,     \
        .max = GRANITE_MULTIPLIER_MAX                                                              \
    }

#define GRANITE_KEYS                                                                               \
    GRANITE_MULTIPLIER(embedding_multiplier), GRANITE_MULTIPLIER(residual_multiplier),             \
        GRANITE_MULTIPLIER(logits_scaling), {.name = "attention_multiplier", .kind = KEY_RULE},    \
    {                                                                                              \
        .name = "attention_bias", .kind = KEY_RULE                                                 \
    }

/* Of sizes, of attention's scale and biases. */
int granite_rules(const struct fields *fields, struct model_config *config);

/* Of both classes with experts: their keys but that of the MLP that all rows go through. */
#define GRANITE_MOE_KEYS                                                                           \
    GRANITE_KEYS, {.name = "num_local_experts", .kind = KEY_RULE},                                 \
    {                                                                                              \
        .name = "num_experts_per_tok", .kind = KEY_RULE                                            \
    }

int granite_moe_rules(const struct fields *fields, struct model_config *config);
void granite_moe_build(struct build *b, const struct model_config *config);
