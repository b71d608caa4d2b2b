/* A model by its name: what is published of it, and what it computes.
 *
 * A name is a directory, or "synthetic:SHAPE". Owns the open checkpoint and the list. Opening and
 * closing: one thread; read by any.
 */
#pragma once

#include "gpu/checkpoint/checkpoint.h"
#include "gpu/graph/op_list.h"
#include "gpu/models/config.h"

struct model {
    struct model_config config;
    bool long_rope;                /* longrope's set for long contexts is taken, see rope_choose */
    struct op_list list;           /* of a rank of those that share a layer */
    struct checkpoint *checkpoint; /* tensors as the list numbers them; NULL: a synthetic model */
};

/* `ranks` share each layer; `context_max`: tokens of a sequence, 0: as the model has it. A
 * checkpoint without a head's matrix is tied, as in transformers. ERR_BAD_MODEL, or ERR_BAD_CONFIG
 * where the model's sizes do not divide by ranks. */
int model_load(const char *name, uint32_t ranks, uint32_t context_max, struct model *ret,
               struct error *error);
void model_drop(struct model *model);

/* The list alone, of a config. */
int model_list(const struct model_config *config, uint32_t ranks, struct op_list *ret,
               struct error *error);
