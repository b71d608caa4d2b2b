/* What the model and the options together come to: the numbers of gpu/gpu.h that are fixed at open.
 *
 * No device is touched. Owns the checkpoint, whose headers it has read. Any thread.
 */
#pragma once

#include <stdbool.h>

#include "gpu/gpu.h"
#include "gpu/kernels/op.h"
#include "gpu/model/checkpoint.h"

struct facts {
    bool null; /* synthetic:null: nothing is computed, there is no config */
    uint32_t tp, pp; /* ranks that share each layer, and stages that share the layers out */
    enum dtype dtype; /* that the model is computed in, see device_dtype */
    struct model_config config;
    struct model_config share; /* the same with the sizes of one rank's part */
    uint32_t first[GPU_STAGES_MAX + 1]; /* layer of each stage, and one past the last */
    struct checkpoint *checkpoint; /* NULL: a synthetic model; owned */
    struct gpu_model model;
    struct gpu_limits limits;
};

/* ERR_BAD_MODEL, ERR_BAD_CONFIG or ERR_UNSUPPORTED with what is wrong. */
int facts_make(const struct gpu_options *options, struct facts *ret, struct error *error);
void facts_drop(struct facts *facts);
