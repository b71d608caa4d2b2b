/* A step on its way through a rank's ops, and the arguments of kernels as ops say them.
 * Thread: the rank's own. */
#pragma once

#include "gpu/kernels/activation/activation.h"
#include "gpu/kernels/adapted/adapted.h"
#include "gpu/kernels/matmul/matmul.h"
#include "gpu/kernels/norm/norm.h"
#include "gpu/kernels/norm/wide_norm.h"
#include "gpu/program/scratch_layout.h"

struct walk {
    const struct program *program;
    const struct launch *launch;
    struct scratch_layout layout;
    struct fuse_class class;
    struct row_range rows; /* that ops go over now */
};

void walk_begin(struct walk *walk, const struct program *program, const struct launch *launch);
/* The rows of ops of that kind, all of them. */
struct row_range walk_rows(const struct walk *walk, enum op_rows rows);

static inline const struct op_list *walk_list(const struct walk *walk)
{
    return walk->program->list;
}

static inline const struct weight *walk_weight(const struct walk *walk, weight_id weight)
{
    return &walk->program->weights->at[weight];
}

/* What a norm adds to its weight. */
static inline float walk_offset(const struct op *norm)
{
    return norm->norm.kind == NORM_RMS_PLUS_ONE ? 1 : 0;
}

/* A value's address; NULL where it has no room. */
void *walk_value(const struct walk *walk, value_id value);
/* And its row. */
void *walk_row(const struct walk *walk, value_id value, uint32_t row);

struct matmul_args walk_product(const struct walk *walk, const struct op *matmul);
struct adapt_args walk_adapt(const struct walk *walk, const struct op *op);
/* What it gives goes through the activation, which is gated. */
void walk_adapt_activate(const struct walk *walk, const struct op *activation,
                         struct adapt_args *args);
/* What a norm between two products adds to the one before it, and to the one behind it. */
void walk_norm_out(const struct walk *walk, const struct op *norm, struct matmul_args *args);
void walk_norm_in(const struct walk *walk, const struct op *norm, struct matmul_args *args);
/* As kernels name it. */
enum activation walk_activation(const struct op *activation);
/* The activation alone. */
struct activation_args walk_activation_alone(const struct walk *walk, const struct op *activation);
/* The result goes through the activation. */
void walk_activate(const struct walk *walk, const struct op *activation, struct matmul_args *args);
/* The result is added to the residual. */
void walk_add(const struct walk *walk, const struct op *add, struct matmul_args *args);

/* `add`, `norm` or ROUND: NULL: not that part. */
struct norm_args walk_norm(const struct walk *walk, const struct op *add, const struct op *norm);
/* What is added is normed before. */
void walk_norm_behind(const struct walk *walk, const struct op *behind, struct norm_args *args);
/* Of WIDE_NORM, or of SQUARES. */
struct wide_norm_args walk_wide_norm(const struct walk *walk, const struct op *op);

/* Of the step's first kernel; the ops behind BEGIN and COPY_BLOCKS: NULL, or what it does as well.
 */
struct step_begin_args walk_expand(const struct walk *walk, const struct op *const *ops);
