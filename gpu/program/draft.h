/* The ops of a head that guesses for a model, and those by which the model leaves it what it reads,
 * as kernels take them. Thread: the rank's own. */
#pragma once

#include "gpu/kernels/draft/features.h"
#include "gpu/program/fuse.h"

/* Device memory that the two share; whoever has the head owns it. */
struct draft_memory {
    struct features features;
    float *carried;        /* [slots_max][hidden] */
    const int32_t *places; /* [vocab], see spread.h; NULL: the head's tokens are the first */
    struct weight table;   /* the model's embedding, for a head without one */
};

int draft_capture(struct walk *walk, const struct op *const *ops, struct error *error);
int draft_keep(struct walk *walk, const struct op *const *ops, struct error *error);
int draft_features(struct walk *walk, const struct op *const *ops, struct error *error);
int draft_state(struct walk *walk, const struct op *const *ops, struct error *error);
int draft_carry(struct walk *walk, const struct op *const *ops, struct error *error);
int draft_spread(struct walk *walk, const struct op *const *ops, struct error *error);
