/* GLM-4, the dense ones from 0414 on: GLM with a norm behind attention and one behind the MLP, too.
 */
#include "gpu/models/families/glm.h"

static void build(struct build *b, const struct model_config *config)
{
    static const struct decoder_names names = {.q = "self_attn.q_proj",
                                               .k = "self_attn.k_proj",
                                               .v = "self_attn.v_proj",
                                               .gate = "mlp.gate_up_proj",
                                               .up = "mlp.gate_up_proj",
                                               .behind_attention = "post_self_attn_layernorm",
                                               .behind_mlp = "post_mlp_layernorm"};
    decoder_build_of(b, config, &names);
}

const struct family family_glm4 = {
    .type = "glm4",
    .architecture = "Glm4ForCausalLM",
    .keys = glm_keys,
    .rules = glm_rules,
    .build = build,
};
