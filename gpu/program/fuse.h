/* Fusing: a pass over a rank's ops that puts one launch in the place of several, where the device
 * has it.
 *
 * What changes which values exist is decided here, once for each class of steps; which kernel
 * computes the same values is the launcher's choice (matmul.cu, attention.cu). A fusion is a row of
 * a table (fusions.c): consecutive ops, what it can, how it runs. Where several match, the longest
 * is taken; none whose inner values somebody else reads. Ops that nothing takes are launched alone,
 * and give the same on a device that fuses nothing.
 *
 * A norm between a product that adds to the residual and one that reads it can be done by the two:
 * it is split into NORM_OUT, what the first hands on, and NORM_IN, what the second still owes
 * (matmul.h). Where the input of a product is rounded, what a product before makes of its result (a
 * norm, an activation) may be handed on rounded: HAND_ROUNDED there, TAKE_ROUNDED before the reader.
 * Both stand for the reader's op.
 */
#pragma once

#include "gpu/graph/op_list.h"
#include "gpu/kernels/common/batch.h"
#include "protocol/base/error.h"

struct program;
struct walk;

#define FUSION_OPS_MAX 5

struct fusion {
    const char *name;
    uint8_t kinds[FUSION_OPS_MAX]; /* enum op_kind */
    uint8_t count;
    uint8_t inner; /* bit i: what op i gives is not left behind */
    bool needed;   /* there is no other way to run these ops */
    bool (*can)(const struct walk *walk, const struct op *const *ops); /* NULL: always */
    int (*run)(struct walk *walk, const struct op *const *ops, struct error *error);
};

/* One launch, or what is launched together. */
struct fused {
    const struct fusion *how;
    const struct op *ops[FUSION_OPS_MAX];
};

struct fused_list {
    struct fused *at;
    uint32_t count;
};

/* Classes of steps, by what fusions depend on: up to 2 rows, up to 16, up to 256, up to 320, more;
 * sums over ranks go peer to peer or not; all rows are single tokens or not; some row has an
 * adapter: else ADAPT is no part of the list. */
#define FUSE_ROWS 5
#define FUSE_CLASSES (FUSE_ROWS * 2 * 2 * 2)

struct fuse_class {
    uint32_t rows; /* 0 .. FUSE_ROWS - 1 */
    bool posts, single, adapted;
};

struct fuse_class fuse_class_of(const struct program *program, const struct batch *batch);
uint32_t fuse_class_index(const struct fuse_class *class);

/* The rank's ops for that class, in fresh memory. */
int fuse_make(const struct program *program, const struct fuse_class *class, struct fused_list *ret,
              struct error *error);

/* The table: the longest first, single ops last. */
extern const struct fusion fusions[];
extern const uint32_t fusion_count;
