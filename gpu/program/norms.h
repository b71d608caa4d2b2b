/* Norms, and what is added to the residual, as rows of the table of fusions run them (fusions.c).
 *
 * A norm behind stands between a sum and its add; it is done by the kernel that adds. Where ranks
 * have parts of the sum, and sums go peer to peer, that kernel adds those up as well. `ops` are
 * the row's. Thread: the rank's own. */
#pragma once

#include "gpu/program/walk.h"

typedef const struct op *const *op_run; /* consecutive ops of the list */

/* ADD; NORM, or ROUND; ADD with one of them. */
int norms_add(struct walk *walk, op_run ops, struct error *error);
int norms_norm(struct walk *walk, op_run ops, struct error *error);
bool norms_add_norm_can(const struct walk *walk, op_run ops);
int norms_add_norm(struct walk *walk, op_run ops, struct error *error);

/* NORM ADD; NORM ADD with NORM or ROUND. */
bool norms_behind_add_can(const struct walk *walk, op_run ops);
int norms_behind_add(struct walk *walk, op_run ops, struct error *error);
bool norms_behind_add_norm_can(const struct walk *walk, op_run ops);
int norms_behind_add_norm(struct walk *walk, op_run ops, struct error *error);

int norms_squares(struct walk *walk, op_run ops, struct error *error);
int norms_wide(struct walk *walk, op_run ops, struct error *error);

/* The same behind ALL_REDUCE, peer to peer; of the last, behind SQUARES ALL_REDUCE. */
int norms_reduce_add(struct walk *walk, op_run ops, struct error *error);
bool norms_reduce_add_norm_can(const struct walk *walk, op_run ops);
int norms_reduce_add_norm(struct walk *walk, op_run ops, struct error *error);
bool norms_reduce_behind_add_can(const struct walk *walk, op_run ops);
int norms_reduce_behind_add(struct walk *walk, op_run ops, struct error *error);
bool norms_reduce_behind_add_norm_can(const struct walk *walk, op_run ops);
int norms_reduce_behind_add_norm(struct walk *walk, op_run ops, struct error *error);
int norms_reduce_wide(struct walk *walk, op_run ops, struct error *error);
