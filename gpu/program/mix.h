/* A mixture of experts' ops as kernels take them. Thread: the rank's own. */
#pragma once

#include "gpu/program/fuse.h"
#include "gpu/program/walk.h"

int mix_route(struct walk *walk, const struct op *const *ops, struct error *error);
int mix_segments(struct walk *walk, const struct op *const *ops, struct error *error);
int mix_experts(struct walk *walk, const struct op *const *ops, struct error *error);
int mix_combine(struct walk *walk, const struct op *const *ops, struct error *error);
