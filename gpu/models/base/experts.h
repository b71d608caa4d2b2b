/* What families of mixtures share: the layer's second half, and its keys. Any thread. */
#pragma once

#include "gpu/models/base/decoder.h"

/* Names of tensors; those of experts have %u for their number. */
struct experts_names {
    const char *router, *gate, *up, *down;
    const char *shared;      /* the MLP that all rows go through, where the config has one */
    const char *shared_gate; /* NULL: it is added as it is */
    bool biased;             /* scores are by sigmoid, the choice by e_score_correction_bias, too */
    bool upright;            /* one tensor has all experts' gates and ups, one their downs
                              * (gpu/graph/build.h); the shared MLP's likewise */
};

/* A router, its experts, and where the config has one the MLP that all rows go through. */
void experts_mlp(struct build *b, const struct model_config *config,
                 const struct experts_names *names);

/* "mlp.experts.%u.gate_proj" and so on. */
extern const struct decoder_names experts_decoder;

/* How many there are, under `count`, and num_experts_per_tok. Both must be said. */
int experts_read(const struct fields *fields, const char *count, struct model_config *config);
/* decoder_sparse_step and mlp_only_layers. */
int experts_dense_read(const struct fields *fields, struct model_config *config);
