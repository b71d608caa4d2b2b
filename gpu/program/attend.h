/* How the ops of attention run, fused and each alone: rows of the table in fusions.c. */
#pragma once

#include <stdbool.h>

#include "protocol/base/error.h"

struct op;
struct walk;

/* q, k and v stand side by side in one row, as one product gives them. */
bool attend_rope_can(const struct walk *walk, const struct op *const *ops);
bool attend_heads_rope_can(const struct walk *walk, const struct op *const *ops);
int attend_rope(struct walk *walk, const struct op *const *ops, struct error *error);
int attend_heads_rope(struct walk *walk, const struct op *const *ops, struct error *error);

int attend_head_norm(struct walk *walk, const struct op *const *ops, struct error *error);
int attend_rotate(struct walk *walk, const struct op *const *ops, struct error *error);
int attend_kv_write(struct walk *walk, const struct op *const *ops, struct error *error);
int attend(struct walk *walk, const struct op *const *ops, struct error *error);
