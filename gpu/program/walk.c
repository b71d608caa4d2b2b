#include "gpu/program/walk.h"

#include "gpu/base/device.h"

void walk_begin(struct walk *walk, const struct program *program, const struct launch *launch)
{
    walk->program = program;
    walk->launch = launch;
    walk->class = fuse_class_of(program, &launch->batch);
    /* A row without an adapter may not depend on whether another has one. */
    walk->class.adapted = launch->adapted || (program->invariant && program->adapters);
    if (launch->follows)
        walk->class.single = false; /* which may have more in one with the step's begin */
    scratch_layout_make(&walk->layout, program, &launch->batch);
    walk->rows = walk_rows(walk, ROWS_TOKENS);
}

struct row_range walk_rows(const struct walk *walk, enum op_rows rows)
{
    const struct batch *batch = &walk->launch->batch;
    const struct batch_counts *counts = batch->counts;
    switch (rows) {
    case ROWS_SCORED:
        return (struct row_range){.count = &counts->scores, .max = batch->scores_max};
    case ROWS_SAMPLED:
        return (struct row_range){.count = &counts->samples, .max = batch->samples_max};
    case ROWS_FEATURED:
        if (walk->launch->takes == TAKES_OWN)
            return (struct row_range){.count = &counts->tokens};
        break;
    case ROWS_TOKENS:
        break;
    }
    return (struct row_range){.count = &counts->tokens, .max = batch->tokens_max};
}

static value_id base_of(const struct op_list *list, value_id value)
{
    return list->values[value].of == LIST_NONE ? value : list->values[value].of;
}

void *walk_value(const struct walk *walk, value_id value)
{
    if (value == LIST_NONE || !walk->layout.size[base_of(walk_list(walk), value)])
        return NULL;
    return (char *)walk->launch->scratch + walk->layout.at[value];
}

void *walk_row(const struct walk *walk, value_id value, uint32_t row)
{
    uint64_t width = walk_list(walk)->values[value].width;
    return (char *)walk_value(walk, value) +
           row * width * dtype_bytes(scratch_dtype(walk->program, value));
}

static uint32_t width_of(const struct walk *walk, value_id value)
{
    return walk_list(walk)->values[value].width;
}

/* A table that is the head as well is whole on every rank, which reads its own rows of it. */
static struct weight head_rows(const struct walk *walk, const struct op *matmul)
{
    const struct weights *weights = walk->program->weights;
    struct weight w = weights->at[matmul->weight];
    if (walk_list(walk)->weights[matmul->weight].split == SPLIT_VOCABULARY)
        return w;
    w.n = weights->vocabulary_rows;
    w.data = (const char *)w.data + format_bytes(w.format, weights->vocabulary_first, w.k);
    return w;
}

struct matmul_args walk_product(const struct walk *walk, const struct op *matmul)
{
    const struct program *program = walk->program;
    bool head = matmul->matmul.split == SPLIT_VOCABULARY;
    /* Of a sum the bias is rank 0's to add. */
    bool biased = matmul->bias != LIST_NONE &&
                  (matmul->matmul.split != SPLIT_COLUMNS || !program->comm || !program->comm->rank);
    const struct weight *w = walk_weight(walk, matmul->weight);
    struct matmul_args args = {
        .rows = walk->rows,
        .w = head ? head_rows(walk, matmul) : *walk_weight(walk, matmul->weight),
        .bias = biased ? walk_weight(walk, matmul->bias)->data : NULL,
        .x = walk_value(walk, matmul->in[0]),
        .y = walk_value(walk, matmul->out),
        .x_stride = width_of(walk, matmul->in[0]),
        .y_stride = width_of(walk, matmul->out),
        .x_dtype = scratch_dtype(program, matmul->in[0]),
        .y_dtype = scratch_dtype(program, matmul->out),
        .bias_dtype = program->weights->vector,
        .workspace_bytes = device_traits.workspace_bytes,
        .invariant = program->invariant,
        .scratch_bytes = weight_is_plain(w) ? 0 : walk->layout.product_bytes,
    };
    if (args.scratch_bytes > 0)
        args.scratch = (char *)walk->launch->scratch + walk->layout.product;
    if (head)
        args.y = (float *)args.y + program->weights->vocabulary_first;
    if (device_traits.workspace_bytes)
        args.workspace = (char *)walk->launch->scratch + walk->layout.workspace;
    return args;
}

/* The first of a step. */
static bool adapts_first(const struct program *program, const struct op *op)
{
    const struct op *first = program->ops;
    while (first->kind != OP_ADAPT)
        first++;
    return first == op;
}

struct adapt_args walk_adapt(const struct walk *walk, const struct op *op)
{
    const struct program *program = walk->program;
    const struct adapter_weights *adapters = program->adapters;
    const struct list_weight *weight = &walk_list(walk)->weights[op->weight];
    uint32_t ranks = op->adapt.split == SPLIT_ROWS ? walk_list(walk)->ranks : 1, end = 0;
    struct adapt_args args = {
        .rows = walk->rows,
        .token_row = walk->launch->batch.token_row,
        .batch_rows = walk->launch->batch.rows,
        .places = adapters->places + (size_t)op->adapt.site * adapters->count,
        .x = walk_value(walk, op->in[0]),
        .y = walk_value(walk, op->out),
        .inner = walk_value(walk, op->in[1]),
        .k = width_of(walk, op->in[0]),
        .x_stride = width_of(walk, op->in[0]),
        .y_stride = width_of(walk, op->out),
        .rank_max = adapters->rank_max,
        .number = op->adapt.site + 1,
        .part_count = weight->part_count,
        .x_dtype = scratch_dtype(program, op->in[0]),
        .y_dtype = scratch_dtype(program, op->out),
        .lists = adapts_first(program, op),
        .spreads = walk->launch->spread != ADAPT_SHARED,
        .invariant = program->invariant,
        .alike = program->dtype != DTYPE_F32 &&
                 scratch_dtype(program, op->in[0]) == program->dtype, /* A and B are kept in it */
    };
    args.list = (uint32_t *)args.inner + (size_t)args.rows.max * ADAPT_PARTS * args.rank_max;
    args.sums = (float *)(args.list + (size_t)args.rows.max * ADAPT_LIST);
    for (uint32_t p = 0; p < weight->part_count; p++)
        args.ends[p] = end += weight->parts[p].rows / ranks;
    return args;
}

void walk_adapt_activate(const struct walk *walk, const struct op *activation,
                         struct adapt_args *args)
{
    args->gated = activation->activation.gated;
    args->activation = walk_activation(activation);
    args->out = walk_value(walk, activation->out);
    args->out_stride = width_of(walk, activation->out);
}

void walk_norm_out(const struct walk *walk, const struct op *norm, struct matmul_args *args)
{
    args->norm_out = (struct matmul_norm_out){
        .weight = walk_weight(walk, norm->weight)->data,
        .out = walk_value(walk, norm->out),
        .squares = walk_value(walk, walk_list(walk)->squares),
        .out_stride = norm->norm.size,
        .weight_dtype = walk->program->weights->vector,
        .offset = walk_offset(norm),
        .eps = norm->norm.eps,
    };
}

void walk_norm_in(const struct walk *walk, const struct op *norm, struct matmul_args *args)
{
    args->norm_in.squares = walk_value(walk, walk_list(walk)->squares);
    args->norm_in.eps = norm->norm.eps;
    args->norm_in.residual = walk_value(walk, norm->in[0]);
    args->norm_in.residual_stride = width_of(walk, norm->in[0]);
    args->norm_in.weight = walk_weight(walk, norm->weight)->data;
    args->norm_in.weight_dtype = walk->program->weights->vector;
    args->norm_in.offset = walk_offset(norm);
}

enum activation walk_activation(const struct op *activation)
{
    return activation->activation.kind == ACTIVATION_SILU ? ACTIVATE_SILU : ACTIVATE_GELU_TANH;
}

struct activation_args walk_activation_alone(const struct walk *walk, const struct op *activation)
{
    uint32_t size = width_of(walk, activation->out);
    return (struct activation_args){
        .rows = walk->rows,
        .in = walk_value(walk, activation->in[0]),
        .out = walk_value(walk, activation->out),
        .size = size,
        .in_stride = width_of(walk, activation->in[0]),
        .out_stride = size,
        .dtype = scratch_dtype(walk->program, activation->out),
        .kind = walk_activation(activation),
        .gated = activation->activation.gated,
    };
}

void walk_activate(const struct walk *walk, const struct op *activation, struct matmul_args *args)
{
    args->gated = activation->activation.gated;
    args->activates = !activation->activation.gated;
    args->activation = walk_activation(activation);
    args->y = walk_value(walk, activation->out);
    args->y_stride = width_of(walk, activation->out);
}

void walk_add(const struct walk *walk, const struct op *add, struct matmul_args *args)
{
    args->adds = true;
    args->y = walk_value(walk, add->out);
    args->y_dtype = DTYPE_F32;
}

/* What `norm`, which may be a ROUND, makes of the row. */
static void norm_becomes(const struct walk *walk, const struct op *norm, struct norm_args *args)
{
    args->out = walk_value(walk, norm->out);
    args->out_stride = width_of(walk, base_of(walk_list(walk), norm->out));
    args->out_dtype = scratch_dtype(walk->program, norm->out);
    if (norm->kind == OP_ROUND) {
        args->form = NORM_ROUNDED;
        return;
    }
    args->weight = walk_weight(walk, norm->weight)->data;
    args->eps = norm->norm.eps;
    args->offset = walk_offset(norm);
    args->form = norm->norm.kind == NORM_LAYER ? NORM_CENTERED : NORM_SCALED;
    if (norm->bias != LIST_NONE)
        args->bias = walk_weight(walk, norm->bias)->data;
}

void walk_norm_behind(const struct walk *walk, const struct op *behind, struct norm_args *args)
{
    args->delta_normed = true;
    args->delta_weight = walk_weight(walk, behind->weight)->data;
    args->delta_eps = behind->norm.eps;
    args->delta_offset = walk_offset(behind);
}

struct norm_args walk_norm(const struct walk *walk, const struct op *add, const struct op *norm)
{
    const struct program *program = walk->program;
    value_id residual = add ? add->out : norm->in[0];
    uint32_t size = width_of(walk, residual);
    enum dtype delta = add ? scratch_dtype(program, add->in[0]) : DTYPE_F32;
    value_id sum = walk_list(walk)->sum;
    struct norm_args args = {
        .rows = walk->rows,
        .residual = walk_value(walk, residual),
        .delta = add ? walk_value(walk, add->in[0]) : NULL,
        .size = size,
        .residual_stride = size,
        .delta_stride = size,
        .out_stride = size,
        .residual_dtype = scratch_dtype(program, residual),
        .delta_dtype = add ? delta : scratch_dtype(program, sum),
        .weight_dtype = program->weights->vector,
        .out_dtype = program->dtype,
        .delta_scale = add ? add->scale.by : 1,
    };
    if (norm)
        norm_becomes(walk, norm, &args);
    return args;
}

struct wide_norm_args walk_wide_norm(const struct walk *walk, const struct op *op)
{
    const struct op_list *list = walk_list(walk);
    value_id base = list->values[op->in[0]].of;
    bool norms = op->kind == OP_WIDE_NORM;
    struct wide_norm_args args = {
        .rows = walk->rows,
        .at = walk_value(walk, base),
        .stride = width_of(walk, base),
        .dtype = scratch_dtype(walk->program, base),
        .weight_dtype = walk->program->weights->vector,
        .ranks = list->ranks,
        .squares = walk_value(walk, norms ? op->in[2] : op->out),
    };
    for (int i = 0; i < WIDE_VALUES; i++) {
        args.value[i].first = list->values[op->in[i]].first;
        args.value[i].size = width_of(walk, op->in[i]);
    }
    if (!norms)
        return args;
    args.value[0].weight = walk_weight(walk, op->weight)->data;
    args.value[1].weight = walk_weight(walk, op->bias)->data;
    args.eps = op->norm.eps;
    args.offset = walk_offset(op);
    return args;
}

/* ops: BEGIN, COPY_BLOCKS, EMBED, ANGLES, NORM or ROUND. */
static struct step_begin_first first_of(const struct walk *walk, const struct op *const *ops)
{
    const struct op *embed = ops[2], *angles = ops[3], *norm = ops[4];
    const struct model_rope *rope = &walk_list(walk)->ropes[angles->rope.table];
    return (struct step_begin_first){
        .table = *walk_weight(walk, embed->weight),
        .residual = walk_value(walk, embed->out),
        .norm = norm->kind == OP_NORM ? walk_weight(walk, norm->weight)->data : NULL,
        .x = walk_value(walk, norm->out),
        .inverse_frequency = walk->program->weights->inverse_frequency[angles->rope.table],
        .angles = walk_value(walk, angles->out),
        .pairs = rope->pairs,
        .attention = rope->attention,
        .eps = norm->kind == OP_NORM ? norm->norm.eps : 0,
        .offset = norm->kind == OP_NORM ? walk_offset(norm) : 0,
        .norm_dtype = walk->program->weights->vector,
        .x_dtype = walk->program->dtype,
    };
}

struct step_begin_args walk_expand(const struct walk *walk, const struct op *const *ops)
{
    struct step_begin_args args = {.wire = walk->launch->wire,
                                   .batch = walk->launch->batch,
                                   .control = walk->program->control};
    if (ops)
        args.first = first_of(walk, ops);
    return args;
}
