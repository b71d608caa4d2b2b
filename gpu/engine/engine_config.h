/* What the model and the options together come to: the numbers of gpu/gpu.h that are fixed at open.
 *
 * No device is touched. Owns the open model. Any thread.
 */
#pragma once

#include <stdbool.h>

#include "gpu/adapters/adapters.h"
#include "gpu/gpu.h"
#include "gpu/kernels/common/kernel.h"
#include "gpu/models/model.h"
#include "gpu/weights/weights.h"

/* The model that guesses for another: its layers are further ones of the same blocks of KV. */
struct engine_draft {
    bool there;
    struct model source;               /* owned */
    uint64_t kv_first[GPU_GROUPS_MAX]; /* bytes of a block before its own */
    /* [vocab], owned: of a head that knows some tokens (spread.h); NULL: the first ones. */
    int32_t *places;
};

struct engine_config {
    uint32_t tp, pp;     /* ranks that share each layer, and stages that share the layers out */
    enum dtype dtype;    /* that the model is computed in, see device_dtype */
    enum format kv;      /* that keys and values are kept in */
    bool invariant;      /* only kernels of one order, see gpu_options */
    struct model source; /* owned */
    struct engine_draft draft;
    struct adapters adapters; /* likewise; the list has an ADAPT at each of their sites */
    uint32_t first[GPU_STAGES_MAX + 1]; /* layer of each stage, and one past the last */
    uint64_t block_bytes[GPU_STAGES_MAX][GPU_GROUPS_MAX]; /* of one rank of the stage */
    struct gpu_model model;
    struct gpu_limits limits;
};

/* ERR_BAD_MODEL, ERR_BAD_CONFIG or ERR_UNSUPPORTED with what is wrong. */
int engine_config_make(const struct gpu_options *options, struct engine_config *ret,
                       struct error *error);
void engine_config_drop(struct engine_config *facts);

/* The ops of a stage, in fresh memory; and where their weights come from, for its rank number
 * `rank`. */
int facts_stage(const struct engine_config *facts, uint32_t stage, struct op **ret_ops,
                uint32_t *ret_count, struct error *error);
struct weights_source facts_weights(const struct engine_config *facts, const struct op *ops,
                                    uint32_t op_count, uint32_t rank);
/* The same of the draft model, which is there. */
int facts_draft(const struct engine_config *facts, struct op **ret_ops, uint32_t *ret_count,
                struct error *error);
struct weights_source facts_draft_weights(const struct engine_config *facts, const struct op *ops,
                                          uint32_t op_count);
