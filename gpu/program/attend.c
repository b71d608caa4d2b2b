#include "gpu/program/attend.h"

#include "gpu/base/cuda_error.h"
#include "gpu/kernels/attention/rope_attention.h"
#include "gpu/program/walk.h"

typedef const struct op *const *op_run; /* consecutive ops of the list */

static cudaStream_t stream_of(const struct walk *walk)
{
    return walk->program->stream;
}

static struct kv_layer kv_of(const struct walk *walk, const struct op *attention)
{
    const struct program *program = walk->program;
    uint64_t bytes = kv_bytes(program->kv, attention->attention.kv_heads, program->block_tokens,
                              attention->attention.head_dim);
    uint64_t layer = attention->attention.layer;
    uint64_t first = program->kv_first[attention->attention.group];
    return (struct kv_layer){.k = first + layer * 2 * bytes,
                             .v = first + (layer * 2 + 1) * bytes,
                             .group = attention->attention.group,
                             .format = program->kv};
}

static const struct list_value *value_of(const struct walk *walk, value_id value)
{
    return &walk_list(walk)->values[value];
}

/* q, k and v stand side by side in one row. ops: ROPE, KV_WRITE, ATTENTION. */
bool attend_rope_can(const struct walk *walk, op_run ops)
{
    const struct list_value *q = value_of(walk, ops[0]->in[0]), *k = value_of(walk, ops[0]->in[1]);
    const struct list_value *v = value_of(walk, ops[1]->in[1]);
    return q->of != LIST_NONE && q->of == k->of && q->of == v->of && q->first == 0 &&
           k->first == q->width && v->first == k->first + k->width &&
           ops[1]->in[0] == ops[0]->in[1] && ops[2]->in[0] == ops[0]->in[0] &&
           ops[0]->rope.head_dim == ops[2]->attention.head_dim;
}

bool attend_heads_rope_can(const struct walk *walk, op_run ops)
{
    return ops[0]->in[0] == ops[2]->in[0] && ops[1]->in[0] == ops[2]->in[1] &&
           ops[0]->norm.eps == ops[1]->norm.eps && ops[0]->norm.kind == ops[1]->norm.kind &&
           ops[0]->norm.size == ops[4]->attention.head_dim &&
           ops[1]->norm.size == ops[0]->norm.size && attend_rope_can(walk, ops + 2);
}

/* A value that is part of another stands in its rows. */
static uint32_t stride_of(const struct walk *walk, value_id value)
{
    const struct list_value *own = value_of(walk, value);
    return own->of == LIST_NONE ? own->width : value_of(walk, own->of)->width;
}

static struct attention_args attend_of(const struct walk *walk, const struct op *op)
{
    return (struct attention_args){
        .batch = walk->launch->batch,
        .kv = kv_of(walk, op),
        .q = walk_value(walk, op->in[0]),
        .out = walk_value(walk, op->out),
        .q_stride = stride_of(walk, op->in[0]),
        .out_stride = value_of(walk, op->out)->width,
        .dtype = walk->program->dtype,
        .heads = op->attention.heads,
        .kv_heads = op->attention.kv_heads,
        .head_dim = op->attention.head_dim,
        .scale = op->attention.scale,
        .softcap = op->attention.softcap,
        .sinks = op->weight == LIST_NONE ? NULL : walk_weight(walk, op->weight)->data,
        .scratch = walk_value(walk, op->in[1]),
        .scratch_bytes = walk->layout.size[op->in[1]],
        .invariant = walk->program->invariant,
    };
}

/* The norms of heads: NULL: none. */
static int rope_run(const struct walk *walk, const struct op *q_norm,
                              const struct op *k_norm, op_run ops, struct error *error)
{
    const struct op *op = ops[2];
    struct attention_args attend = attend_of(walk, op);
    struct rope_args rope = {
        .batch = attend.batch,
        .kv = attend.kv,
        .qkv = walk_value(walk, value_of(walk, op->in[0])->of),
        .stride = attend.q_stride,
        .dtype = attend.dtype,
        .heads = attend.heads,
        .kv_heads = attend.kv_heads,
        .head_dim = attend.head_dim,
        .k_scale = ops[1]->attention.k_scale,
        .v_scale = ops[1]->attention.v_scale,
        .angles = walk_value(walk, ops[0]->in[2]),
        .q_norm = q_norm ? walk_weight(walk, q_norm->weight)->data : NULL,
        .k_norm = k_norm ? walk_weight(walk, k_norm->weight)->data : NULL,
        .norm_dtype = walk->program->weights->vector,
        .eps = q_norm ? q_norm->norm.eps : 0,
        .norm_offset = q_norm ? walk_offset(q_norm) : 0,
    };
    CUDA_TRY(op_rope_attention(&rope, &attend, stream_of(walk)), error);
    return 0;
}

int attend_rope(struct walk *walk, op_run ops, struct error *error)
{
    return rope_run(walk, NULL, NULL, ops, error);
}

int attend_heads_rope(struct walk *walk, op_run ops, struct error *error)
{
    return rope_run(walk, ops[0], ops[1], ops + 2, error);
}

int attend_head_norm(struct walk *walk, op_run ops, struct error *error)
{
    const struct op *op = ops[0];
    struct head_norm_args args = {
        .rows = walk->rows,
        .x = walk_value(walk, op->out),
        .stride = stride_of(walk, op->out),
        .heads = value_of(walk, op->out)->width / op->norm.size,
        .head_dim = op->norm.size,
        .dtype = scratch_dtype(walk->program, op->out),
        .weight = walk_weight(walk, op->weight)->data,
        .weight_dtype = walk->program->weights->vector,
        .eps = op->norm.eps,
        .offset = walk_offset(op),
    };
    CUDA_TRY(op_head_norm(&args, stream_of(walk)), error);
    return 0;
}

int attend_rotate(struct walk *walk, op_run ops, struct error *error)
{
    value_id q = ops[0]->in[0], k = ops[0]->in[1];
    uint32_t head_dim = ops[0]->rope.head_dim;
    struct rotate_args args = {
        .rows = walk->rows,
        .q = walk_value(walk, q),
        .k = walk_value(walk, k),
        .q_stride = stride_of(walk, q),
        .k_stride = stride_of(walk, k),
        .heads = value_of(walk, q)->width / head_dim,
        .kv_heads = value_of(walk, k)->width / head_dim,
        .head_dim = head_dim,
        .dtype = scratch_dtype(walk->program, q),
        .angles = walk_value(walk, ops[0]->in[2]),
    };
    CUDA_TRY(op_rotate(&args, stream_of(walk)), error);
    return 0;
}

int attend_kv_write(struct walk *walk, op_run ops, struct error *error)
{
    value_id k = ops[0]->in[0], v = ops[0]->in[1];
    struct kv_write_args args = {
        .batch = walk->launch->batch,
        .kv = kv_of(walk, ops[0]),
        .k = walk_value(walk, k),
        .v = walk_value(walk, v),
        .k_stride = stride_of(walk, k),
        .v_stride = stride_of(walk, v),
        .kv_heads = ops[0]->attention.kv_heads,
        .head_dim = ops[0]->attention.head_dim,
        .dtype = scratch_dtype(walk->program, k),
        .k_scale = ops[0]->attention.k_scale,
        .v_scale = ops[0]->attention.v_scale,
    };
    CUDA_TRY(op_kv_write(&args, stream_of(walk)), error);
    return 0;
}

int attend(struct walk *walk, op_run ops, struct error *error)
{
    struct attention_args args = attend_of(walk, ops[0]);
    CUDA_TRY(op_attention(&args, stream_of(walk)), error);
    return 0;
}
