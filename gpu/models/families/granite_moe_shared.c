/* Granite with experts and an MLP beside them that all rows go through, added as it is. */
#include "gpu/models/families/granite.h"

static const struct config_key keys[] = {
    GRANITE_MOE_KEYS,
    {.name = "shared_intermediate_size", .kind = KEY_RULE},
    {.name = NULL},
};

static int rules(const struct fields *fields, struct model_config *config)
{
    int64_t shared = 0; /* which is none, as is an absent one */
    int rc = granite_moe_rules(fields, config);
    if (rc == 0)
        rc = field_integer(fields, "shared_intermediate_size", 0, MODEL_INTERMEDIATE_MAX, &shared);
    config->shared_intermediate = (uint32_t)shared;
    return rc;
}

const struct family family_granite_moe_shared = {
    .type = "granitemoeshared",
    .architecture = "GraniteMoeSharedForCausalLM",
    .keys = keys,
    .rules = rules,
    .build = granite_moe_build,
};
