/* What a head that guesses reads of its model: of each position the residuals of some layers, side
 * by side, its features.
 *
 * The model's step leaves those of all its tokens in `step`. op_keep, which ends that, keeps those
 * of a row's last tokens for the slot, for the guesses of later steps: position p at p %
 * FEATURES_KEPT, and in FEATURES_KEPT what stood there for the position before the row's first,
 * which the row itself may have taken the place of. Beside each stands the position that it is of.
 * op_features gives them to the head's rows: out[t] is that of the token's own position, zeros
 * where nobody kept it, or the slot's sequence had it not computed itself. */
#pragma once

#include "gpu/kernels/common/batch.h"

#define FEATURES_KEPT 16u /* more than a row has guesses, which are read once more */
#define FEATURES_NONE UINT32_MAX

/* Of a slot, in the step. */
struct features_row {
    uint32_t position, token; /* of its row's first token */
};

struct features {
    void *step;                /* [tokens_max][width] */
    void *kept;                /* [slots_max][FEATURES_KEPT + 1][width] */
    uint32_t *positions;       /* [slots_max][FEATURES_KEPT + 1]; FEATURES_NONE: of nothing */
    struct features_row *rows; /* [slots_max] */
    uint32_t width;
    enum dtype dtype;
};

struct keep_args {
    struct batch batch;
    struct features features;
};

struct features_args {
    struct batch batch; /* the head's */
    struct features features;
    bool step; /* those of the step that has just ended, which had all slots of the batch; else what
                * is kept */
    void *out; /* [tokens_max][width] */
};

OP_C cudaError_t op_keep(const struct keep_args *args, cudaStream_t stream);
OP_C cudaError_t op_features(const struct features_args *args, cudaStream_t stream);
