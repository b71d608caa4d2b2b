#include "gpu/program/hand.h"

#include "gpu/base/cuda_error.h"
#include "gpu/kernels/hand/hand.h"

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

/* How the product that stands for HAND_ROUNDED, or TAKE_ROUNDED, reads. */
static const struct weight_input *input_of(const struct walk *walk, const struct op *reader)
{
    return &walk_weight(walk, reader->weight)->input;
}

/* ops: ADD NORM HAND_ROUNDED, or ACTIVATION HAND_ROUNDED. */
static struct matmul_args norm_handed(const struct walk *walk, op_run ops, struct matmul_args args)
{
    walk_add(walk, ops[0], &args);
    walk_norm_out(walk, ops[1], &args);
    args.hands = *input_of(walk, ops[2]);
    return args;
}

static struct matmul_args activation_handed(const struct walk *walk, op_run ops,
                                            struct matmul_args args)
{
    walk_activate(walk, ops[0], &args);
    args.hands = *input_of(walk, ops[1]);
    return args;
}

bool hand_norm_can(const struct walk *walk, op_run ops)
{
    struct matmul_args args = norm_handed(walk, ops + 1, walk_product(walk, ops[0]));
    return matmul_fuses(&args);
}

int hand_norm(struct walk *walk, op_run ops, struct error *error)
{
    struct matmul_args args = norm_handed(walk, ops + 1, walk_product(walk, ops[0]));
    return product(walk, &args, error);
}

bool hand_activation_can(const struct walk *walk, op_run ops)
{
    struct matmul_args args = activation_handed(walk, ops + 1, walk_product(walk, ops[0]));
    return matmul_fuses(&args);
}

int hand_activation(struct walk *walk, op_run ops, struct error *error)
{
    struct matmul_args args = activation_handed(walk, ops + 1, walk_product(walk, ops[0]));
    return product(walk, &args, error);
}

/* ---- by the norm, or the activation ---- */

bool hand_add_norm_alone_can(const struct walk *walk, op_run ops)
{
    struct norm_args args = walk_norm(walk, ops[0], ops[1]);
    return norms_add_norm_can(walk, ops) && hand_norm_fuses(&args, input_of(walk, ops[2]));
}

int hand_add_norm_alone(struct walk *walk, op_run ops, struct error *error)
{
    struct norm_args args = walk_norm(walk, ops[0], ops[1]);
    CUDA_TRY(op_hand_norm(&args, input_of(walk, ops[2]), walk->program->stream), error);
    return 0;
}

bool hand_norm_alone_can(const struct walk *walk, op_run ops)
{
    struct norm_args args = walk_norm(walk, NULL, ops[0]);
    return hand_norm_fuses(&args, input_of(walk, ops[1]));
}

int hand_norm_alone(struct walk *walk, op_run ops, struct error *error)
{
    struct norm_args args = walk_norm(walk, NULL, ops[0]);
    CUDA_TRY(op_hand_norm(&args, input_of(walk, ops[1]), walk->program->stream), error);
    return 0;
}

bool hand_activation_alone_can(const struct walk *walk, op_run ops)
{
    struct activation_args args = walk_activation_alone(walk, ops[0]);
    return hand_activation_fuses(&args, input_of(walk, ops[1]));
}

int hand_activation_alone(struct walk *walk, op_run ops, struct error *error)
{
    struct activation_args args = walk_activation_alone(walk, ops[0]);
    CUDA_TRY(op_hand_activation(&args, input_of(walk, ops[1]), walk->program->stream), error);
    return 0;
}

/* ---- inputs that come so ---- */

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

bool take_hand_norm_can(const struct walk *walk, op_run ops)
{
    struct matmul_args args = norm_handed(walk, ops + 2, taken(walk, ops));
    return matmul_fuses(&args);
}

int take_hand_norm(struct walk *walk, op_run ops, struct error *error)
{
    struct matmul_args args = norm_handed(walk, ops + 2, taken(walk, ops));
    return product(walk, &args, error);
}

bool take_hand_activation_can(const struct walk *walk, op_run ops)
{
    struct matmul_args args = activation_handed(walk, ops + 2, taken(walk, ops));
    return matmul_fuses(&args);
}

int take_hand_activation(struct walk *walk, op_run ops, struct error *error)
{
    struct matmul_args args = activation_handed(walk, ops + 2, taken(walk, ops));
    return product(walk, &args, error);
}
