/* Granite 3 with experts: a row's weights are the softmax of the greatest products alone, which is
 * that of all, normalised. One tensor has all experts' gates and ups, one their downs. */
#include "gpu/models/families/granite.h"

static const struct config_key keys[] = {GRANITE_MOE_KEYS, {.name = NULL}};

int granite_moe_rules(const struct fields *fields, struct model_config *config)
{
    int rc = granite_rules(fields, config);
    config->experts_intermediate = config->intermediate;
    config->experts_normalised = true;
    return rc ? rc : experts_read(fields, "num_local_experts", config);
}

void granite_moe_build(struct build *b, const struct model_config *config)
{
    static const struct experts_names experts = {.router = "block_sparse_moe.router.layer",
                                                 .gate = "block_sparse_moe.input_linear",
                                                 .up = "block_sparse_moe.input_linear",
                                                 .down = "block_sparse_moe.output_linear",
                                                 .shared = "shared_mlp",
                                                 .upright = true};
    struct decoder_names names = experts_decoder;
    names.experts = &experts;
    decoder_build_of(b, config, &names);
}

const struct family family_granite_moe = {
    .type = "granitemoe",
    .architecture = "GraniteMoeForCausalLM",
    .keys = keys,
    .rules = granite_moe_rules,
    .build = granite_moe_build,
};
