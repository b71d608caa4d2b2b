#include "gpu/program/fuse.h"

#include <stdlib.h>

#include "gpu/program/mix.h"
#include "gpu/program/walk.h"

static const uint32_t class_rows[FUSE_ROWS] = {MATMUL_ROUNDS_MAX, GEMV_ROWS_MAX, MATMUL_GATED_MAX,
                                               MATMUL_APART_MAX, UINT16_MAX};

struct fuse_class fuse_class_of(const struct program *program, const struct batch *batch)
{
    const struct op_list *list = program->list;
    struct fuse_class class = {.rows = 0, .single = batch->q_len_max == 1};
    while (class.rows + 1 < FUSE_ROWS && batch->tokens_max > class_rows[class.rows])
        class.rows++;
    if (program->comm && list->sum != LIST_NONE)
        class.posts = p2p_can_allreduce(&program->comm->p2p, batch->tokens_max, list->hidden,
                                        scratch_dtype(program, list->sum));
    return class;
}

uint32_t fuse_class_index(const struct fuse_class *class)
{
    return class->rows * 8 + (class->adapted ? 4 : 0) + (class->posts ? 2 : 0) +
           (class->single ? 1 : 0);
}

/* The ops with split norms as two, and what is between products that round as two more. */
struct item {
    uint8_t kind;
    const struct op *op;
};

struct pass {
    const struct program *program;
    const struct walk *walk;
    struct item *items;
    uint32_t count;
};

static bool reads(const struct op_list *list, const struct op *op, value_id value)
{
    for (int i = 0; i < 3; i++) {
        value_id in = op->in[i];
        if (in != LIST_NONE && (in == value || list->values[in].of == value))
            return true;
    }
    return false;
}

/* Whether an op from number `first` on reads the value before it is written anew. */
static bool read_later(const struct pass *pass, uint32_t first, value_id value)
{
    for (uint32_t i = first; i < pass->count; i++) {
        if (reads(pass->program->list, pass->items[i].op, value))
            return true;
        if (pass->items[i].op->out == value)
            return false;
    }
    return false;
}

/* ---- norms between two products ---- */

/* ops: product, add. */
static bool product_hands(const struct pass *pass, const struct item *items, const struct op *norm)
{
    struct matmul_args giver = walk_product(pass->walk, items[0].op);
    if (items[1].op->scale.by != 1 || giver.y_dtype != DTYPE_F32)
        return false;
    walk_add(pass->walk, items[1].op, &giver);
    if (!matmul_fuses(&giver))
        return false;
    walk_norm_out(pass->walk, norm, &giver);
    return matmul_fuses(&giver);
}

/* What stands in front of the norm: a product, or an expert's and what makes one of them, and an
 * add. */
static bool norm_handed(const struct pass *pass, uint32_t norm)
{
    const struct item *items = pass->items + norm;
    if (norm >= 2 && items[-1].kind == OP_ADD && items[-2].kind == OP_MATMUL)
        return product_hands(pass, items - 2, items->op);
    if (norm < 3 || items[-1].kind != OP_ADD || items[-2].kind != OP_COMBINE ||
        items[-3].kind != OP_EXPERTS)
        return false;
    const struct op *ops[] = {items[-3].op, items[-2].op, items[-1].op};
    return mix_hands(pass->walk, ops, items->op);
}

/* items: the norm, the product that reads it, and what is behind. */
static bool norm_splits(const struct pass *pass, uint32_t norm)
{
    const struct item *items = pass->items + norm;
    const struct walk *walk = pass->walk;
    if (norm + 2 >= pass->count || items[0].kind != OP_NORM || items[1].kind != OP_MATMUL ||
        items[0].op->norm.kind == NORM_LAYER || !walk_value(walk, walk_list(walk)->squares) ||
        items[1].op->in[0] != items[0].op->out || read_later(pass, norm + 2, items[0].op->out) ||
        !norm_handed(pass, norm))
        return false;
    struct matmul_args reader = walk_product(walk, items[1].op);
    if (items[2].kind == OP_ACTIVATION) {
        struct matmul_args active = reader;
        walk_activate(walk, items[2].op, &active);
        reader = matmul_fuses(&active) ? active : reader;
    }
    walk_norm_in(walk, items[0].op, &reader);
    return matmul_fuses(&reader);
}

static void norms_split(struct pass *pass)
{
    for (uint32_t i = 0; i < pass->count; i++) {
        if (pass->items[i].kind != OP_NORM || !norm_splits(pass, i))
            continue;
        for (uint32_t j = pass->count; j > i; j--)
            pass->items[j] = pass->items[j - 1];
        pass->items[i].kind = OP_NORM_OUT;
        pass->items[i + 1].kind = OP_NORM_IN;
        pass->count++;
    }
}

/* ---- inputs that are handed on rounded ---- */

/* What gives the value that the product behind `last`, a norm or an activation, reads: a product,
 * with an add before the norm. */
static bool rounds_here(const struct pass *pass, uint32_t last)
{
    const bool norm = pass->items[last].kind == OP_NORM;
    const struct item *items = pass->items + last, *add = items - 1;
    const struct walk *walk = pass->walk;
    if (last < 2 || last + 1 >= pass->count || items[1].kind != OP_MATMUL)
        return false;
    const struct op *giver_op = items[norm ? -2 : -1].op, *reader_op = items[1].op;
    value_id value = items[0].op->out;
    if (items[norm ? -2 : -1].kind != OP_MATMUL || (norm && add->kind != OP_ADD) ||
        reader_op->in[0] != value || read_later(pass, last + 2, value) ||
        (last + 2 < pass->count && items[2].kind == OP_ALL_GATHER))
        return false;
    struct matmul_args giver = walk_product(walk, giver_op);
    struct matmul_args reader = walk_product(walk, reader_op);
    if (reader.w.input.rounding == ROUNDING_NONE)
        return false;
    if (norm) {
        if (add->op->scale.by != 1 || giver.y_dtype != DTYPE_F32 ||
            items[0].op->in[0] != add->op->out || items[0].op->norm.kind == NORM_LAYER)
            return false;
        walk_add(walk, add->op, &giver);
        walk_norm_out(walk, items[0].op, &giver);
    } else {
        walk_activate(walk, items[0].op, &giver);
    }
    giver.hands = reader.w.input;
    reader.x_rounded = true;
    return matmul_fuses(&giver) && matmul_fuses(&reader);
}

static void rounds_hand(struct pass *pass)
{
    for (uint32_t i = 0; i < pass->count; i++) {
        bool may = pass->items[i].kind == OP_NORM || pass->items[i].kind == OP_ACTIVATION;
        if (!may || !rounds_here(pass, i))
            continue;
        for (uint32_t j = pass->count + 1; j > i + 2; j--)
            pass->items[j] = pass->items[j - 2];
        pass->items[i + 1] = (struct item){OP_HAND_ROUNDED, pass->items[i + 3].op};
        pass->items[i + 2] = (struct item){OP_TAKE_ROUNDED, pass->items[i + 3].op};
        pass->count += 2;
    }
}

/* ---- matching ---- */

static bool kinds_match(const struct pass *pass, uint32_t first, const struct fusion *fusion)
{
    if (first + fusion->count > pass->count)
        return false;
    for (uint32_t i = 0; i < fusion->count; i++) {
        if (pass->items[first + i].kind != fusion->kinds[i])
            return false;
    }
    return true;
}

static bool inner_unread(const struct pass *pass, uint32_t first, const struct fusion *fusion)
{
    for (uint32_t i = 0; i < fusion->count; i++) {
        value_id value = pass->items[first + i].op->out;
        if ((fusion->inner >> i & 1) && value != LIST_NONE &&
            read_later(pass, first + fusion->count, value))
            return false;
    }
    return true;
}

static const struct fusion *match(const struct pass *pass, uint32_t first, struct fused *ret)
{
    for (uint32_t i = 0; i < fusion_count; i++) {
        const struct fusion *fusion = &fusions[i];
        bool allowed = fusion->count == 1 || fusion->needed || !pass->program->plain;
        if (!allowed || !kinds_match(pass, first, fusion) || !inner_unread(pass, first, fusion))
            continue;
        for (uint32_t j = 0; j < fusion->count; j++)
            ret->ops[j] = pass->items[first + j].op;
        ret->how = fusion;
        if (!fusion->can || fusion->can(pass->walk, ret->ops))
            return fusion;
    }
    return NULL;
}

static int items_match(struct pass *pass, struct fused_list *ret, struct error *error)
{
    struct fused_list list = {.at = calloc(pass->count, sizeof *list.at)};
    if (!list.at)
        return error_set(error, ERR_NO_MEMORY, "no memory for %u launches", pass->count);
    for (uint32_t i = 0; i < pass->count;) {
        const struct fusion *fusion = match(pass, i, &list.at[list.count]);
        if (!fusion) {
            free(list.at);
            return error_set(error, ERR_UNSUPPORTED, "nothing on this device does %s here",
                             op_name(pass->items[i].kind));
        }
        i += fusion->count;
        list.count++;
    }
    *ret = list;
    return 0;
}

/* Bounds of the class, and addresses that are as aligned as a step's. */
static void class_bound(const struct program *program, const struct fuse_class *class,
                        struct launch *ret)
{
    void *somewhere = (void *)(uintptr_t)MEM_ALIGN;
    *ret = (struct launch){.scratch = somewhere, .batch = {.counts = somewhere}};
    ret->batch.tokens_max = class_rows[class->rows];
    ret->batch.rows_max = ret->batch.samples_max = 1;
    ret->batch.q_len_max = class->single ? 1 : 2;
    ret->batch.block_tokens = program->block_tokens;
}

int fuse_make(const struct program *program, const struct fuse_class *class, struct fused_list *ret,
              struct error *error)
{
    struct launch launch;
    struct walk walk;
    class_bound(program, class, &launch);
    walk_begin(&walk, program, &launch);
    walk.class = *class;
    struct pass pass = {
        .program = program,
        .walk = &walk,
        .items = calloc(2 * (size_t)program->op_count, sizeof *pass.items),
    };
    if (!pass.items)
        return error_set(error, ERR_NO_MEMORY, "no memory for %u ops", program->op_count);
    for (uint32_t i = 0; i < program->op_count; i++) {
        if (program->ops[i].kind != OP_ADAPT || class->adapted)
            pass.items[pass.count++] = (struct item){program->ops[i].kind, &program->ops[i]};
    }
    if (!program->plain) {
        if (class_rows[class->rows] > MATMUL_ROUNDS_MAX) /* fewer are rounded by their products */
            rounds_hand(&pass);
        norms_split(&pass);
    }
    int status = items_match(&pass, ret, error);
    free(pass.items);
    return status;
}
