/* What all of Gemma share: a layer with norms of 1 + w before and, from Gemma 2 on, behind
 * attention and the MLP, GELU, an embedding times the square root of its size, and keys of
 * config.json. Any thread.
 */
#pragma once

#include "gpu/models/base/family.h"

/* config's windows, caps, qk_norm and rope_local say what is in it. */
void gemma_build(struct build *b, const struct model_config *config);

#define GEMMA_KEYS                                                                                 \
    {.name = "query_pre_attn_scalar", .kind = KEY_RULE},                                           \
        {.name = "sliding_window", .kind = KEY_RULE}, {.name = "layer_types", .kind = KEY_RULE},   \
        {.name = "attention_bias", .kind = KEY_RULE},                                              \
    {                                                                                              \
        .name = "final_logit_softcapping", .kind = KEY_RULE                                        \
    }

/* Of sizes and of the embedding's scale; scores by the heads' size. */
int gemma_rules_plain(const struct fields *fields, struct model_config *config);
/* Every `pattern`-th layer sees all, the others a window, unless layer_types says otherwise. */
int gemma_rules(const struct fields *fields, uint32_t pattern, struct model_config *config);
/* A cap; null is none. */
int gemma_softcap(const struct fields *fields, const char *key, float otherwise, float *ret);

/* Of both classes of Gemma 3. */
extern const struct config_key gemma3_keys[];
void gemma3_defaults(struct model_config *config);
int gemma3_rules(const struct fields *fields, struct model_config *config);
