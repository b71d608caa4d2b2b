#include "gpu/program/fuse.h"

#include <stdlib.h>

#include "gpu/program/hand.h"
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

/* A product, with an add before a norm, does also what is in `last`, and rounds it. */
static bool product_rounds(const struct pass *pass, uint32_t last)
{
    const bool norm = pass->items[last].kind == OP_NORM;
    const struct op *ops[FUSION_OPS_MAX];
    uint32_t before = norm ? 2 : 1;
    if (last < before || pass->items[last - before].kind != OP_MATMUL)
        return false;
    for (uint32_t i = 0; i <= before + 1; i++)
        ops[i] = pass->items[last - before + i].op;
    if (!norm)
        return hand_activation_can(pass->walk, ops);
    return pass->items[last - 1].kind == OP_ADD && ops[1]->scale.by == 1 &&
           walk_product(pass->walk, ops[0]).y_dtype == DTYPE_F32 &&
           norms_add_norm_can(pass->walk, ops + 1) && ops[2]->norm.kind != NORM_LAYER &&
           hand_norm_can(pass->walk, ops);
}

/* Whether what is in `last` may become a part of what is before it, but of an add. */
static bool is_taken(const struct pass *pass, uint32_t last)
{
    const struct op *ops[FUSION_OPS_MAX];
    for (uint32_t i = 0; i < fusion_count; i++) {
        const struct fusion *fusion = &fusions[i];
        uint32_t first = last + 1 - fusion->count;
        bool adds = fusion->count == 2 && fusion->kinds[0] == OP_ADD;
        if (fusion->count < 2 || fusion->count > last + 1 || adds ||
            !kinds_match(pass, first, fusion))
            continue;
        for (uint32_t j = 0; j < fusion->count; j++)
            ops[j] = pass->items[first + j].op;
        if (!fusion->can || fusion->can(pass->walk, ops))
            return true;
    }
    return false;
}

/* What is in `last` rounds by itself, and the add that may be done with it is no hindrance. Sums
 * over ranks that are made in halves stay so. */
static bool rounds_alone(const struct pass *pass, uint32_t last)
{
    const struct item *items = pass->items + last;
    const struct op *ops[] = {last ? items[-1].op : NULL, items[0].op, items[1].op};
    bool halves = last + 2 < pass->count && items[2].kind == OP_ALL_REDUCE &&
                  !pass->walk->class.posts;
    if (halves || items[0].op->rows != ROWS_TOKENS || is_taken(pass, last))
        return false;
    if (items[0].kind == OP_ACTIVATION)
        return hand_activation_alone_can(pass->walk, ops + 1);
    bool adds = last && items[-1].kind == OP_ADD && norms_add_norm_can(pass->walk, ops);
    return hand_norm_alone_can(pass->walk, ops + 1) &&
           (!adds || hand_add_norm_alone_can(pass->walk, ops));
}

/* Whether what is in `last`, a norm or an activation, is rounded for the product behind it. */
static bool rounds_here(const struct pass *pass, uint32_t last)
{
    const struct item *items = pass->items + last;
    value_id value = items[0].op->out;
    if (last + 1 >= pass->count || items[1].kind != OP_MATMUL || items[1].op->in[0] != value ||
        read_later(pass, last + 2, value) ||
        (last + 2 < pass->count && items[2].kind == OP_ALL_GATHER))
        return false;
    struct matmul_args reader = walk_product(pass->walk, items[1].op);
    reader.x_rounded = true;
    return reader.w.input.rounding != ROUNDING_NONE && matmul_fuses(&reader) &&
           (product_rounds(pass, last) || rounds_alone(pass, last));
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
