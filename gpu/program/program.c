#include "gpu/program/program.h"

#include <stdlib.h>

#include "gpu/kernels/experts/experts.h"
#include "gpu/program/walk.h"

static void use(struct program *program, value_id value)
{
    const struct list_value *values = program->list->values;
    if (value == LIST_NONE)
        return;
    program->used[value] = true;
    if (values[value].of != LIST_NONE)
        program->used[values[value].of] = true;
}

static void lists_free(struct program *program)
{
    for (uint32_t i = 0; i < FUSE_CLASSES; i++) {
        free(program->lists[i].at);
        program->lists[i] = (struct fused_list){.at = NULL};
    }
}

int program_fuse(struct program *program, struct error *error)
{
    int status = 0;
    lists_free(program);
    for (uint32_t i = 0; !status && i < FUSE_CLASSES; i++) {
        struct fuse_class class = {
            .rows = i / 8, .adapted = i / 4 % 2, .posts = i / 2 % 2, .single = i % 2};
        if (!class.adapted || program->adapters)
            status = fuse_make(program, &class, &program->lists[i], error);
    }
    return status;
}

static bool scaled_known(const struct program *program, const struct program_scaled *scaled)
{
    const struct weight *weight = &scaled->weight;
    for (uint32_t i = 0; i < program->scaled_count; i++) {
        const struct weight *at = &program->scaled[i].weight;
        if (program->scaled[i].top == scaled->top && program->scaled[i].spread == scaled->spread &&
            program->scaled[i].own == scaled->own &&
            at->n == weight->n && at->k == weight->k && at->format == weight->format &&
            !at->order == !weight->order && at->input.rounding == weight->input.rounding &&
            at->input.group == weight->input.group)
            return true;
    }
    return false;
}

static int scaled_add(struct program *program, const struct op *op, struct error *error)
{
    struct program_scaled scaled = {.weight = program->weights->at[op->weight]};
    if (op->kind == OP_EXPERTS) {
        scaled.top = op->experts.top;
        scaled.own = op->experts.own;
        scaled.spread = op->experts.spread;
    }
    if (scaled.top && !experts_takes(&scaled.weight))
        return error_set(
            error, ERR_UNSUPPORTED,
            "%s: the device does not multiply by experts in %s as they are quantized",
            program->list->tensors[program->list->weights[op->weight].parts[0].tensor].name,
            format_info(scaled.weight.format).name);
    if (weight_is_plain(&scaled.weight) || scaled_known(program, &scaled))
        return 0;
    if (program->scaled_count == PROGRAM_SCALED_MAX)
        return error_set(error, ERR_UNSUPPORTED, "more than %d shapes of quantized weights",
                         PROGRAM_SCALED_MAX);
    program->scaled[program->scaled_count++] = scaled;
    return 0;
}

/* The shapes that may want scratch of their own: a step asks for each. */
static int scaled_list(struct program *program, struct error *error)
{
    int status = 0;
    for (uint32_t i = 0; !status && i < program->op_count; i++) {
        const struct op *op = &program->ops[i];
        if (op->kind == OP_MATMUL || op->kind == OP_EXPERTS)
            status = scaled_add(program, op, error);
    }
    return status;
}

int program_open(struct program *program, struct error *error)
{
    int status = scaled_list(program, error);
    if (status)
        return status;
    for (uint32_t i = 0; i < program->op_count; i++) {
        const struct op *op = &program->ops[i];
        for (int j = 0; j < 3; j++)
            use(program, op->in[j]);
        use(program, op->out);
    }
    return program_fuse(program, error);
}

void program_close(struct program *program)
{
    lists_free(program);
    free(program->ops);
    program->ops = NULL;
}

uint64_t program_block_bytes(const struct op_list *list, const struct op *ops, uint32_t op_count,
                             uint32_t group, uint32_t block_tokens, enum format kv)
{
    const struct list_group *of = &list->groups[group];
    uint64_t layer = of->position_bytes * block_tokens, layers = of->layers;
    if (!of->position_bytes) {
        layer = 2 * kv_bytes(kv, of->kv_heads, block_tokens, of->head_dim);
        layers = 0;
        for (uint32_t i = 0; i < op_count; i++)
            layers += ops[i].kind == OP_ATTENTION && ops[i].attention.group == group;
    }
    uint64_t bytes = layers * layer;
    if (of->position_bytes)
        return bytes;
    return mem_round(bytes ? bytes : 1); /* a stage may have no layer of the group */
}

uint64_t program_scratch_bytes(const struct program *program, const struct batch *batch)
{
    struct scratch_layout layout;
    if (!batch->tokens_max)
        return 0;
    scratch_layout_make(&layout, program, batch);
    return layout.bytes;
}

struct stage_state program_state(const struct program *program, const struct batch *batch,
                                 void *scratch, uint32_t tokens)
{
    struct scratch_layout layout;
    const struct op_list *list = program->list;
    scratch_layout_make(&layout, program, batch);
    return (struct stage_state){.residual = (char *)scratch + layout.at[list->residual],
                                .bytes = (uint64_t)tokens * list->hidden * sizeof(float)};
}

static const struct fused_list *list_of(const struct program *program, const struct walk *walk)
{
    return &program->lists[fuse_class_index(&walk->class)];
}

struct step_begin_args program_begin(const struct program *program, const struct launch *launch)
{
    struct walk walk;
    walk_begin(&walk, program, launch);
    const struct fused *first = &list_of(program, &walk)->at[0];
    return walk_expand(&walk, first->how->count > 1 ? first->ops : NULL);
}

static bool is_begin(const struct fused *fused)
{
    uint8_t first = fused->how->kinds[0];
    return first == OP_BEGIN || first == OP_COPY_BLOCKS;
}

/* What every step has, with tokens or without. */
static bool is_frame(const struct fused *fused)
{
    return is_begin(fused) || fused->how->kinds[fused->how->count - 1] == OP_END;
}

/* Bytes of the weights' memory up to the last that it takes. */
static uint64_t weights_end(const struct weights *weights, const struct fused *fused)
{
    uint64_t end = 0;
    for (uint32_t i = 0; i < fused->how->count; i++) {
        const struct op *op = fused->ops[i];
        const weight_id taken[] = {op->weight, op->bias};
        if (op->kind == OP_ANGLES && weights->tables > end)
            end = weights->tables;
        for (int j = 0; j < 2; j++) {
            if (taken[j] != LIST_NONE && weights->ends[taken[j]] > end)
                end = weights->ends[taken[j]];
        }
    }
    return end;
}

/* Behind what it takes of weights that are still coming. */
static int launch(struct walk *walk, const struct fused *fused, struct error *error)
{
    const struct program *program = walk->program;
    int status = 0;
    if (program->arrival && arrival_on(program->arrival))
        status = arrival_await(program->arrival, weights_end(program->weights, fused),
                               program->stream, error);
    return status ? status : fused->how->run(walk, fused->ops, error);
}

/* Ops over scored rows, `count` of them, for a chunk of rows at a time. */
static int scored_run(struct walk *walk, const struct fused *fused, uint32_t count,
                      struct error *error)
{
    uint32_t chunk = walk->layout.logit_rows, most = walk->launch->batch.scores_max;
    int status = 0;
    for (uint32_t first = 0; !status && first < most; first += chunk) {
        walk->rows = walk_rows(walk, ROWS_SCORED);
        walk->rows.first = first;
        walk->rows.max = chunk < most - first ? chunk : most - first;
        for (uint32_t i = 0; !status && i < count; i++)
            status = launch(walk, &fused[i], error);
    }
    return status;
}

static int fused_run(struct walk *walk, const struct fused *fused, struct error *error)
{
    walk->rows = walk_rows(walk, fused->ops[0]->rows);
    if ((!walk->rows.max && !is_frame(fused)) || (walk->launch->follows && is_begin(fused)))
        return 0;
    return launch(walk, fused, error);
}

static uint32_t scored_count(const struct fused_list *list, uint32_t first)
{
    uint32_t count = 0;
    while (first + count < list->count && list->at[first + count].ops[0]->rows == ROWS_SCORED)
        count++;
    return count;
}

int program_run(const struct program *program, const struct launch *launch, struct error *error)
{
    struct walk walk;
    int status = 0;
    walk_begin(&walk, program, launch);
    const struct fused_list *list = list_of(program, &walk);
    if (program->comm && launch->batch.tokens_max)
        comm_begin(program->comm);
    for (uint32_t i = 0; !status && i < list->count;) {
        uint32_t scored = scored_count(list, i);
        status = scored ? scored_run(&walk, &list->at[i], scored, error)
                        : fused_run(&walk, &list->at[i], error);
        i += scored ? scored : 1;
    }
    return status;
}
