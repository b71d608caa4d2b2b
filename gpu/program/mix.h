/* A mixture of experts' ops as kernels take them. Thread: the rank's own. */
#pragma once

#include "gpu/program/fuse.h"
#include "gpu/program/walk.h"

int mix_route(struct walk *walk, const struct op *const *ops, struct error *error);
int mix_segments(struct walk *walk, const struct op *const *ops, struct error *error);
int mix_experts(struct walk *walk, const struct op *const *ops, struct error *error);
int mix_combine(struct walk *walk, const struct op *const *ops, struct error *error);

/* ops: NORM, ROUTE, SEGMENTS, the first not always. */
bool mix_norm_route_can(const struct walk *walk, const struct op *const *ops);
int mix_norm_route(struct walk *walk, const struct op *const *ops, struct error *error);
int mix_route_segments(struct walk *walk, const struct op *const *ops, struct error *error);
/* ops: COMBINE, ADD, NORM. */
bool mix_combine_norm_can(const struct walk *walk, const struct op *const *ops);
int mix_combine_norm(struct walk *walk, const struct op *const *ops, struct error *error);
/* ops: EXPERTS, COMBINE, and ADD, and NORM_OUT. */
bool mix_sum_can(const struct walk *walk, const struct op *const *ops);
int mix_sum(struct walk *walk, const struct op *const *ops, struct error *error);
bool mix_sum_add_can(const struct walk *walk, const struct op *const *ops);
int mix_sum_add(struct walk *walk, const struct op *const *ops, struct error *error);
int mix_sum_add_norm_out(struct walk *walk, const struct op *const *ops, struct error *error);
/* Whether it can hand on what the norm behind it wants; `norm` is that op. */
bool mix_hands(const struct walk *walk, const struct op *const *ops, const struct op *norm);
