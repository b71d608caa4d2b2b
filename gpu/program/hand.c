#include "gpu/program/hand.h"

#include "gpu/base/cuda_error.h"

static int product(const struct walk *walk, const struct matmul_args *args, struct error *error)
{
    CUDA_TRY(op_matmul(args, walk->program->stream), error);
    return 0;
}

/* Of TAKE_ROUNDED MATMUL. */
static struct matmul_args taken(const struct walk *walk, op_run ops)
{
    struct matmul_args args = walk_product(walk, ops[1]);
    args.x_rounded = true;
    return args;
}

/* ops: ADD NORM HAND_ROUNDED, or ACTIVATION HAND_ROUNDED. */
static void norm_handed(const struct walk *walk, op_run ops, struct matmul_args *args)
{
    walk_add(walk, ops[0], args);
    walk_norm_out(walk, ops[1], args);
    args->hands = walk_weight(walk, ops[2]->weight)->input;
}

static void activation_handed(const struct walk *walk, op_run ops, struct matmul_args *args)
{
    walk_activate(walk, ops[0], args);
    args->hands = walk_weight(walk, ops[1]->weight)->input;
}

int hand_norm(struct walk *walk, op_run ops, struct error *error)
{
    struct matmul_args args = walk_product(walk, ops[0]);
    norm_handed(walk, ops + 1, &args);
    return product(walk, &args, error);
}

int hand_activation(struct walk *walk, op_run ops, struct error *error)
{
    struct matmul_args args = walk_product(walk, ops[0]);
    activation_handed(walk, ops + 1, &args);
    return product(walk, &args, error);
}

int take(struct walk *walk, op_run ops, struct error *error)
{
    struct matmul_args args = taken(walk, ops);
    return product(walk, &args, error);
}

static struct matmul_args taken_added(const struct walk *walk, op_run ops)
{
    struct matmul_args args = taken(walk, ops);
    walk_add(walk, ops[2], &args);
    return args;
}

bool take_add_can(const struct walk *walk, op_run ops)
{
    struct matmul_args args = taken(walk, ops);
    bool exact = args.y_dtype == DTYPE_F32 && ops[2]->scale.by == 1;
    args = taken_added(walk, ops);
    return exact && matmul_fuses(&args);
}

int take_add(struct walk *walk, op_run ops, struct error *error)
{
    struct matmul_args args = taken_added(walk, ops);
    return product(walk, &args, error);
}

bool take_activation_can(const struct walk *walk, op_run ops)
{
    struct matmul_args args = taken(walk, ops);
    walk_activate(walk, ops[2], &args);
    return matmul_fuses(&args);
}

int take_activation(struct walk *walk, op_run ops, struct error *error)
{
    struct matmul_args args = taken(walk, ops);
    walk_activate(walk, ops[2], &args);
    return product(walk, &args, error);
}

int take_hand_norm(struct walk *walk, op_run ops, struct error *error)
{
    struct matmul_args args = taken(walk, ops);
    norm_handed(walk, ops + 2, &args);
    return product(walk, &args, error);
}

int take_hand_activation(struct walk *walk, op_run ops, struct error *error)
{
    struct matmul_args args = taken(walk, ops);
    activation_handed(walk, ops + 2, &args);
    return product(walk, &args, error);
}
