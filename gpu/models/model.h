/* A model by its name: what is published of it, and what it computes.
 *
 * A name is a directory, or "synthetic:SHAPE". Owns the open checkpoint and the list. Opening and
 * closing: one thread; read by any.
 */
#pragma once

#include "gpu/checkpoint/checkpoint.h"
#include "gpu/graph/op_list.h"
#include "gpu/models/base/model_config.h"

struct model {
    struct model_config config;
    bool long_rope;                /* longrope's set for long contexts is taken, see rope_choose */
    struct op_list list;           /* of a rank of those that share a layer */
    struct checkpoint *checkpoint; /* tensors as the list numbers them; NULL: a synthetic model */
};

/* How a layer is shared: over so many ranks, of a mixture whole experts rather than columns of each. */
struct model_sharing {
    uint32_t ranks;
    bool whole_experts;
};

/* `context_max`: tokens of a sequence, 0: as the model has it. A checkpoint without a head's matrix
 * is tied, as in transformers. ERR_BAD_MODEL, or ERR_BAD_CONFIG where the model's sizes do not divide
 * by ranks, or there are no experts. */
int model_load_shared(const char *name, const struct model_sharing *sharing, uint32_t context_max,
                      struct model *ret, struct error *error);
static inline int model_load(const char *name, uint32_t ranks, uint32_t context_max,
                             struct model *ret, struct error *error)
{
    return model_load_shared(name, &(struct model_sharing){.ranks = ranks}, context_max, ret,
                             error);
}
void model_drop(struct model *model);

/* The list alone, of a config. */
int model_list(const struct model_config *config, uint32_t ranks, struct op_list *ret,
               struct error *error);
