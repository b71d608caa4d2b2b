#include "gpu/program/norms.h"

#include "gpu/base/cuda_error.h"

static int run(const struct walk *walk, const struct norm_args *args, struct error *error)
{
    CUDA_TRY(op_norm(args, walk->program->stream), error);
    return 0;
}

static int reduce(struct walk *walk, const struct norm_args *args, struct error *error)
{
    return p2p_allreduce_norm(&walk->program->comm->p2p, args, walk->program->stream, error);
}

/* What kernels do of a row beside its add. */
static bool is_simple(const struct op *norm)
{
    return norm->kind == OP_ROUND || norm->norm.kind != NORM_LAYER;
}

int norms_add(struct walk *walk, op_run ops, struct error *error)
{
    struct norm_args args = walk_norm(walk, ops[0], NULL);
    return run(walk, &args, error);
}

int norms_norm(struct walk *walk, op_run ops, struct error *error)
{
    struct norm_args args = walk_norm(walk, NULL, ops[0]);
    return run(walk, &args, error);
}

bool norms_add_norm_can(const struct walk *walk, op_run ops)
{
    (void)walk;
    return ops[1]->in[0] == ops[0]->out;
}

int norms_add_norm(struct walk *walk, op_run ops, struct error *error)
{
    struct norm_args args = walk_norm(walk, ops[0], ops[1]);
    return run(walk, &args, error);
}

/* ---- norms behind ---- */

/* A norm, what it gives added, and what there may be of the residual then. ops: NORM, ADD. */
static struct norm_args behind(const struct walk *walk, op_run ops, const struct op *norm)
{
    struct norm_args args = walk_norm(walk, ops[1], norm);
    walk_norm_behind(walk, ops[0], &args);
    return args;
}

bool norms_behind_add_can(const struct walk *walk, op_run ops)
{
    (void)walk;
    return is_simple(ops[0]) && ops[0]->in[0] == ops[0]->out && ops[1]->in[0] == ops[0]->out;
}

int norms_behind_add(struct walk *walk, op_run ops, struct error *error)
{
    struct norm_args args = behind(walk, ops, NULL);
    return run(walk, &args, error);
}

bool norms_behind_add_norm_can(const struct walk *walk, op_run ops)
{
    return is_simple(ops[2]) && norms_behind_add_can(walk, ops) &&
           norms_add_norm_can(walk, ops + 1);
}

int norms_behind_add_norm(struct walk *walk, op_run ops, struct error *error)
{
    struct norm_args args = behind(walk, ops, ops[2]);
    return run(walk, &args, error);
}

/* ---- of two values over their whole widths ---- */

int norms_squares(struct walk *walk, op_run ops, struct error *error)
{
    struct wide_norm_args args = walk_wide_norm(walk, ops[0]);
    CUDA_TRY(op_squares(&args, walk->program->stream), error);
    return 0;
}

int norms_wide(struct walk *walk, op_run ops, struct error *error)
{
    struct wide_norm_args args = walk_wide_norm(walk, ops[0]);
    CUDA_TRY(op_wide_norm(&args, walk->program->stream), error);
    return 0;
}

/* ---- with sums over ranks, peer to peer ---- */

int norms_reduce_add(struct walk *walk, op_run ops, struct error *error)
{
    struct norm_args args = walk_norm(walk, ops[1], NULL);
    return reduce(walk, &args, error);
}

bool norms_reduce_add_norm_can(const struct walk *walk, op_run ops)
{
    return walk->class.posts && is_simple(ops[2]) && norms_add_norm_can(walk, ops + 1);
}

int norms_reduce_add_norm(struct walk *walk, op_run ops, struct error *error)
{
    struct norm_args args = walk_norm(walk, ops[1], ops[2]);
    return reduce(walk, &args, error);
}

bool norms_reduce_behind_add_can(const struct walk *walk, op_run ops)
{
    return walk->class.posts && norms_behind_add_can(walk, ops + 1);
}

int norms_reduce_behind_add(struct walk *walk, op_run ops, struct error *error)
{
    struct norm_args args = behind(walk, ops + 1, NULL);
    return reduce(walk, &args, error);
}

bool norms_reduce_behind_add_norm_can(const struct walk *walk, op_run ops)
{
    return walk->class.posts && norms_behind_add_norm_can(walk, ops + 1);
}

int norms_reduce_behind_add_norm(struct walk *walk, op_run ops, struct error *error)
{
    struct norm_args args = behind(walk, ops + 1, ops[3]);
    return reduce(walk, &args, error);
}

int norms_reduce_wide(struct walk *walk, op_run ops, struct error *error)
{
    struct wide_norm_args args = walk_wide_norm(walk, ops[2]);
    return p2p_allreduce_wide_norm(&walk->program->comm->p2p, &args, walk->program->stream, error);
}
