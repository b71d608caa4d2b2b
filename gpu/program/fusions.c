/* What a device has for several ops at once, and how each op runs alone. */
#include "gpu/base/cuda_error.h"
#include "gpu/base/device.h"
#include "gpu/kernels/attention/rope.h"
#include "gpu/kernels/sampling/count.h"
#include "gpu/kernels/sampling/gather.h"
#include "gpu/kernels/sampling/mean_pool.h"
#include "gpu/kernels/sampling/sample.h"
#include "gpu/kernels/sampling/score.h"
#include "gpu/kernels/sampling/softcap.h"
#include "gpu/kernels/step/copy_blocks.h"
#include "gpu/kernels/step/embed.h"
#include "gpu/kernels/step/null.h"
#include "gpu/kernels/step/step_end.h"
#include "gpu/program/attend.h"
#include "gpu/program/hand.h"
#include "gpu/program/mix.h"
#include "gpu/program/norms.h"
#include "protocol/base/minimum.h"

#define OVERLAP_ROWS 512 /* of a step whose sums over ranks are made in halves */

static cudaStream_t stream_of(const struct walk *walk)
{
    return walk->program->stream;
}

/* ---- begin ---- */

static int begin(struct walk *walk, op_run ops, struct error *error)
{
    (void)ops;
    struct step_begin_args args = walk_expand(walk, NULL);
    CUDA_TRY(op_step_begin(&args, stream_of(walk)), error);
    return 0;
}

static int copy_blocks(struct walk *walk, op_run ops, struct error *error)
{
    (void)ops;
    struct copy_blocks_args args = {.batch = walk->launch->batch};
    if (args.batch.moves_max)
        CUDA_TRY(op_copy_blocks(&args, stream_of(walk)), error);
    return 0;
}

static bool begin_model_can(const struct walk *walk, op_run ops)
{
    struct step_begin_args args = walk_expand(walk, ops);
    bool simple = ops[4]->kind == OP_ROUND || ops[4]->norm.kind != NORM_LAYER;
    return ops[2]->scale.by == 1 && simple && expand_begins(&args);
}

static int begin_model(struct walk *walk, op_run ops, struct error *error)
{
    struct step_begin_args args = walk_expand(walk, ops);
    CUDA_TRY(op_step_begin(&args, stream_of(walk)), error);
    return copy_blocks(walk, ops + 1, error);
}

static int embed(struct walk *walk, op_run ops, struct error *error)
{
    struct embed_args args = {
        .batch = walk->launch->batch,
        .table = ops[0]->weight == LIST_NONE ? walk->program->draft_memory->table
                                             : *walk_weight(walk, ops[0]->weight),
        .out = walk_value(walk, ops[0]->out),
        .stride = walk_list(walk)->hidden,
        .out_dtype = scratch_dtype(walk->program, ops[0]->out),
        .scale = ops[0]->scale.by,
    };
    CUDA_TRY(op_embed(&args, stream_of(walk)), error);
    return 0;
}

static int angles(struct walk *walk, op_run ops, struct error *error)
{
    const struct model_rope *rope = &walk_list(walk)->ropes[ops[0]->rope.table];
    struct angle_args args = {
        .batch = walk->launch->batch,
        .inverse_frequency = walk->program->weights->inverse_frequency[ops[0]->rope.table],
        .attention = rope->attention,
        .pairs = rope->pairs,
        .angles = walk_value(walk, ops[0]->out),
    };
    CUDA_TRY(op_angle(&args, stream_of(walk)), error);
    return 0;
}

/* ---- products ---- */

static int product(const struct walk *walk, const struct matmul_args *args, struct error *error)
{
    CUDA_TRY(op_matmul(args, stream_of(walk)), error);
    return 0;
}

static int matmul(struct walk *walk, op_run ops, struct error *error)
{
    struct matmul_args args = walk_product(walk, ops[0]);
    return product(walk, &args, error);
}

/* What rows' adapters add to the product before. */
static int adapt(struct walk *walk, op_run ops, struct error *error)
{
    struct adapt_args args = walk_adapt(walk, ops[0]);
    CUDA_TRY(op_adapt(&args, stream_of(walk)), error);
    return 0;
}

static bool adapt_activation_can(const struct walk *walk, op_run ops)
{
    struct adapt_args args = walk_adapt(walk, ops[0]);
    walk_adapt_activate(walk, ops[1], &args);
    return ops[1]->in[0] == ops[0]->out && adapt_fuses(&args);
}

static int adapt_activation(struct walk *walk, op_run ops, struct error *error)
{
    struct adapt_args args = walk_adapt(walk, ops[0]);
    walk_adapt_activate(walk, ops[1], &args);
    CUDA_TRY(op_adapt(&args, stream_of(walk)), error);
    return 0;
}

static bool matmul_add_can(const struct walk *walk, op_run ops)
{
    struct matmul_args args = walk_product(walk, ops[0]);
    bool exact = args.y_dtype == DTYPE_F32 && ops[1]->scale.by == 1;
    walk_add(walk, ops[1], &args);
    return exact && matmul_fuses(&args);
}

static int matmul_add(struct walk *walk, op_run ops, struct error *error)
{
    struct matmul_args args = walk_product(walk, ops[0]);
    walk_add(walk, ops[1], &args);
    return product(walk, &args, error);
}

static int matmul_add_norm_out(struct walk *walk, op_run ops, struct error *error)
{
    struct matmul_args args = walk_product(walk, ops[0]);
    walk_add(walk, ops[1], &args);
    walk_norm_out(walk, ops[2], &args);
    return product(walk, &args, error);
}

static int norm_in_matmul(struct walk *walk, op_run ops, struct error *error)
{
    struct matmul_args args = walk_product(walk, ops[1]);
    walk_norm_in(walk, ops[0], &args);
    return product(walk, &args, error);
}

static struct matmul_args activated(const struct walk *walk, const struct op *matmul_op,
                                    const struct op *activation)
{
    struct matmul_args args = walk_product(walk, matmul_op);
    walk_activate(walk, activation, &args);
    return args;
}

static bool matmul_activation_can(const struct walk *walk, op_run ops)
{
    struct matmul_args args = activated(walk, ops[0], ops[1]);
    return matmul_fuses(&args);
}

static int matmul_activation(struct walk *walk, op_run ops, struct error *error)
{
    struct matmul_args args = activated(walk, ops[0], ops[1]);
    return product(walk, &args, error);
}

static bool norm_in_matmul_activation_can(const struct walk *walk, op_run ops)
{
    return matmul_activation_can(walk, ops + 1);
}

static int norm_in_matmul_activation(struct walk *walk, op_run ops, struct error *error)
{
    struct matmul_args args = activated(walk, ops[1], ops[2]);
    walk_norm_in(walk, ops[0], &args);
    return product(walk, &args, error);
}

/* As many rows as there is a way for; more of a class go op by op, to the same places. */
static bool adapted_can(const struct walk *walk, struct matmul_args product,
                        struct adapt_args adapts)
{
    if (walk->rows.max <= GEMV_ROWS_MAX || walk->rows.max > MATMUL_GATED_MAX)
        return false;
    product.rows.max = adapts.rows.max = min_u32(adapts.rows.max, ADAPTED_ROWS_ANY);
    return adapted_fuses(&product, &adapts);
}

static bool matmul_adapt_can(const struct walk *walk, op_run ops)
{
    return adapted_can(walk, walk_product(walk, ops[0]), walk_adapt(walk, ops[1]));
}

/* Many adapters' A and B of several parts, not activated, are read faster by kernels made for it. */
static bool adapted_here(const struct walk *walk, const struct matmul_args *args,
                         const struct adapt_args *adapts)
{
    bool here = args->gated || adapts->part_count == 1 || walk->launch->spread != ADAPT_SPREAD;
    return here && adapted_fuses(args, adapts);
}

static int adapted(const struct walk *walk, const struct matmul_args *product,
                   const struct adapt_args *adapts, struct error *error)
{
    CUDA_TRY(op_adapted(product, adapts, stream_of(walk)), error);
    return 0;
}

static int matmul_adapt(struct walk *walk, op_run ops, struct error *error)
{
    struct matmul_args args = walk_product(walk, ops[0]);
    struct adapt_args adapts = walk_adapt(walk, ops[1]);
    if (adapted_here(walk, &args, &adapts))
        return adapted(walk, &args, &adapts, error);
    int status = product(walk, &args, error);
    return status ? status : adapt(walk, ops + 1, error);
}

static bool matmul_adapt_add_can(const struct walk *walk, op_run ops)
{
    const struct op *const without[] = {ops[0], ops[2]};
    struct matmul_args args = walk_product(walk, ops[0]);
    walk_add(walk, ops[2], &args);
    return matmul_add_can(walk, without) && adapted_can(walk, args, walk_adapt(walk, ops[1]));
}

/* Adapters may add to the residual, too. */
static int matmul_adapt_add(struct walk *walk, op_run ops, struct error *error)
{
    struct matmul_args args = walk_product(walk, ops[0]);
    struct adapt_args adapts = walk_adapt(walk, ops[1]);
    walk_add(walk, ops[2], &args);
    adapts.y = args.y;
    adapts.y_dtype = args.y_dtype;
    if (adapted_here(walk, &args, &adapts))
        return adapted(walk, &args, &adapts, error);
    int status = product(walk, &args, error);
    if (!status)
        CUDA_TRY(op_adapt(&adapts, stream_of(walk)), error);
    return status;
}

static bool matmul_adapt_activation_can(const struct walk *walk, op_run ops)
{
    struct matmul_args args = activated(walk, ops[0], ops[2]);
    return adapt_activation_can(walk, ops + 1) && adapted_can(walk, args, walk_adapt(walk, ops[1]));
}

static int matmul_adapt_activation(struct walk *walk, op_run ops, struct error *error)
{
    struct matmul_args args = activated(walk, ops[0], ops[2]);
    struct adapt_args adapts = walk_adapt(walk, ops[1]);
    if (adapted_here(walk, &args, &adapts))
        return adapted(walk, &args, &adapts, error);
    int status = matmul(walk, ops, error);
    return status ? status : adapt_activation(walk, ops + 1, error);
}

static int activation(struct walk *walk, op_run ops, struct error *error)
{
    struct activation_args args = walk_activation_alone(walk, ops[0]);
    CUDA_TRY(op_activation(&args, stream_of(walk)), error);
    return 0;
}

/* ---- ranks ---- */

static const struct list_value *value_of(const struct walk *walk, value_id value)
{
    return &walk_list(walk)->values[value];
}

static bool posts(const struct walk *walk, op_run ops)
{
    (void)ops;
    return walk->class.posts;
}

static bool posts_not(const struct walk *walk, op_run ops)
{
    return !posts(walk, ops);
}

static int all_reduce(struct walk *walk, op_run ops, struct error *error)
{
    value_id sum = ops[0]->out;
    uint64_t count = (uint64_t)walk->rows.max * value_of(walk, sum)->width;
    int status = comm_sum(walk->program->comm, walk_value(walk, sum), count,
                          scratch_dtype(walk->program, sum), stream_of(walk), error);
    return status ? status : comm_join(walk->program->comm, stream_of(walk), error);
}

/* In a long step one half travels while the other is computed. */
static int matmul_all_reduce(struct walk *walk, op_run ops, struct error *error)
{
    struct comm *comm = walk->program->comm;
    uint32_t most = walk->rows.max, half = most >= OVERLAP_ROWS ? (most + 1) / 2 : most;
    struct matmul_args args = walk_product(walk, ops[0]);
    int status = 0;
    for (uint32_t first = 0; !status && first < most; first += half) {
        args.rows = (struct row_range){
            .count = walk->rows.count, .first = first, .max = min_u32(half, most - first)};
        args.x = walk_row(walk, ops[0]->in[0], first);
        args.y = walk_row(walk, ops[0]->out, first);
        status = product(walk, &args, error);
        if (!status)
            status = comm_sum(comm, args.y, (uint64_t)args.rows.max * args.w.n, args.y_dtype,
                              stream_of(walk), error);
    }
    return status ? status : comm_join(comm, stream_of(walk), error);
}

/* Each rank's slice of the vocabulary; the others' peer to peer, or by adding up over zeros. */
static int matmul_all_gather(struct walk *walk, op_run ops, struct error *error)
{
    struct comm *comm = walk->program->comm;
    float *logits = walk_value(walk, ops[0]->out);
    uint32_t vocab = walk_list(walk)->vocab;
    uint64_t count = (uint64_t)walk->rows.max * vocab;
    bool sums = !p2p_can_gather(&comm->p2p);
    if (sums)
        CUDA_TRY(cudaMemsetAsync(logits, 0, count * sizeof(float), stream_of(walk)), error);
    int status = matmul(walk, ops, error);
    if (status)
        return status;
    if (!sums)
        return p2p_all_gather(&comm->p2p, walk->rows, logits, vocab, stream_of(walk), error);
    status = comm_sum(comm, logits, count, DTYPE_F32, stream_of(walk), error);
    return status ? status : comm_join(comm, stream_of(walk), error);
}

/* ---- behind the layers ---- */

static int pool(struct walk *walk, op_run ops, struct error *error)
{
    const struct launch *launch = walk->launch;
    struct mean_pool_args args = {
        .batch = launch->batch,
        .hidden = walk_value(walk, ops[0]->in[0]),
        .size = walk_list(walk)->hidden,
        .stride = walk_list(walk)->hidden,
        .dtype = walk->program->dtype,
        .out = launch->embeds,
    };
    if (launch->pools)
        CUDA_TRY(op_mean_pool_add(&args, stream_of(walk)), error);
    if (launch->batch.embeds_max)
        CUDA_TRY(op_mean_pool_out(&args, stream_of(walk)), error);
    return 0;
}

static int gather(struct walk *walk, op_run ops, struct error *error)
{
    const struct batch *batch = &walk->launch->batch;
    uint32_t size = walk_list(walk)->hidden;
    struct gather_args args = {
        .rows = walk->rows,
        .index = ops[0]->rows == ROWS_SCORED ? batch->score_token : batch->sample_token,
        .in = walk_value(walk, ops[0]->in[0]),
        .out = walk_value(walk, ops[0]->out),
        .size = size,
        .in_stride = size,
        .out_stride = size,
        .dtype = walk->program->dtype,
        .scale = ops[0]->scale.by,
    };
    CUDA_TRY(op_gather(&args, stream_of(walk)), error);
    return 0;
}

static int softcap(struct walk *walk, op_run ops, struct error *error)
{
    uint32_t size = walk_list(walk)->vocab;
    struct softcap_args args = {.rows = walk->rows,
                                .x = walk_value(walk, ops[0]->out),
                                .size = size,
                                .stride = size,
                                .cap = ops[0]->softcap.cap};
    CUDA_TRY(op_softcap(&args, stream_of(walk)), error);
    return 0;
}

static int score(struct walk *walk, op_run ops, struct error *error)
{
    struct score_args args = {
        .rows = walk->rows,
        .logits = walk_value(walk, ops[0]->in[0]),
        .stride = walk_list(walk)->vocab,
        .vocab = walk_list(walk)->vocab,
        .targets = walk->launch->batch.score_target,
        .scores = walk->launch->scores,
        .tops = walk->launch->score_tops,
        .tokens = walk->launch->batch.score_token,
        .token_row = walk->launch->batch.token_row,
        .batch_rows = walk->launch->batch.rows,
        .slots = walk->launch->batch.slots,
    };
    CUDA_TRY(op_score(&args, stream_of(walk)), error);
    return 0;
}

static int count(struct walk *walk, op_run ops, struct error *error)
{
    (void)ops;
    struct count_args args = {.batch = walk->launch->batch, .vocab = walk_list(walk)->vocab};
    if (walk->launch->counts && !walk->program->drafts)
        CUDA_TRY(op_count(&args, stream_of(walk)), error);
    return 0;
}

static int sample_run(const struct walk *walk, const struct op *op,
                      const struct step_control *control, struct error *error)
{
    const struct program *program = walk->program;
    struct sample_args args = {
        .batch = walk->launch->batch,
        .logits = walk_value(walk, op->in[0]),
        .stride = walk_list(walk)->vocab,
        .vocab = walk_list(walk)->vocab,
        .ahead = walk_list(walk)->features ? 1 : 0,
        .eos_count = program->eos_count,
        .samples = program->samples,
        .tops = program->tops,
        .control = control,
        .slots_max = program->slots_max,
        .scratch = walk_value(walk, op->in[1]),
        .scratch_bytes = walk->layout.size[op->in[1]],
    };
    for (uint32_t i = 0; i < args.eos_count; i++)
        args.eos[i] = program->eos[i];
    CUDA_TRY(op_sample(&args, stream_of(walk)), error);
    return 0;
}

static int sample(struct walk *walk, op_run ops, struct error *error)
{
    return sample_run(walk, ops[0], NULL, error);
}

static int end(struct walk *walk, op_run ops, struct error *error)
{
    (void)ops;
    const struct program *program = walk->program;
    const struct batch *batch = &walk->launch->batch;
    struct step_end_args args = {
        .control = program->control,
        .counts = batch->counts,
        .samples = program->samples,
        .tops = program->tops,
        .samples_max = program->has_next_stage ? 0 : batch->samples_max,
        .slots = batch->slots,
        .slots_max = program->slots_max,
    };
    CUDA_TRY(op_step_end(&args, stream_of(walk)), error);
    return 0;
}

/* The sampler brings the step's results to their place, where there is anything to sample. */
static int sample_end(struct walk *walk, op_run ops, struct error *error)
{
    if (!walk->launch->batch.samples_max)
        return end(walk, ops + 1, error);
    return sample_run(walk, ops[0], walk->program->control, error);
}

static int null(struct walk *walk, op_run ops, struct error *error)
{
    const struct program *program = walk->program;
    struct null_args args = {
        .batch = walk->launch->batch,
        .samples = program->samples,
        .tops = program->tops,
        .scores = walk->launch->scores,
        .score_tops = walk->launch->score_tops,
        .embeds = walk->launch->embeds,
        .states = walk_value(walk, ops[0]->out),
    };
    CUDA_TRY(op_null(&args, stream_of(walk)), error);
    CUDA_TRY(op_null_results(&args, stream_of(walk)), error);
    return 0;
}

/* ---- the table ---- */

#define SEVERAL(does, inner_ops, must, asked, ...)                                                 \
    {                                                                                              \
        .name = #does, .kinds = {__VA_ARGS__}, .inner = inner_ops, .needed = must, .can = asked,   \
        .count = sizeof((uint8_t[]){__VA_ARGS__}), .run = does                                     \
    }
#define ALONE(op, does)                                                                            \
    {                                                                                              \
        .name = #does, .kinds = {op}, .count = 1, .run = does                                      \
    }

const struct fusion fusions[] = {
    SEVERAL(begin_model, 0, false, begin_model_can, OP_BEGIN, OP_COPY_BLOCKS, OP_EMBED, OP_ANGLES,
            OP_NORM),
    SEVERAL(begin_model, 0, false, begin_model_can, OP_BEGIN, OP_COPY_BLOCKS, OP_EMBED, OP_ANGLES,
            OP_ROUND),
    SEVERAL(attend_heads_rope, 0, false, attend_heads_rope_can, OP_HEAD_NORM, OP_HEAD_NORM, OP_ROPE,
            OP_KV_WRITE, OP_ATTENTION),
    SEVERAL(take_hand_norm, 2, false, take_hand_norm_can, OP_TAKE_ROUNDED, OP_MATMUL, OP_ADD,
            OP_NORM, OP_HAND_ROUNDED),
    SEVERAL(take_hand_activation, 2, false, take_hand_activation_can, OP_TAKE_ROUNDED, OP_MATMUL,
            OP_ACTIVATION, OP_HAND_ROUNDED),
    SEVERAL(hand_norm, 1, false, hand_norm_can, OP_MATMUL, OP_ADD, OP_NORM, OP_HAND_ROUNDED),
    SEVERAL(norms_reduce_behind_add_norm, 3, false, norms_reduce_behind_add_norm_can, OP_ALL_REDUCE,
            OP_NORM, OP_ADD, OP_NORM),
    SEVERAL(norms_reduce_behind_add_norm, 3, false, norms_reduce_behind_add_norm_can, OP_ALL_REDUCE,
            OP_NORM, OP_ADD, OP_ROUND),
    SEVERAL(hand_activation, 1, false, hand_activation_can, OP_MATMUL, OP_ACTIVATION,
            OP_HAND_ROUNDED),
    SEVERAL(hand_add_norm_alone, 0, false, hand_add_norm_alone_can, OP_ADD, OP_NORM,
            OP_HAND_ROUNDED),
    SEVERAL(mix_sum_add_norm_out, 3, false, NULL, OP_EXPERTS, OP_COMBINE, OP_ADD, OP_NORM_OUT),
    SEVERAL(mix_sum_add, 3, false, mix_sum_add_can, OP_EXPERTS, OP_COMBINE, OP_ADD),
    SEVERAL(mix_norm_route, 0, false, mix_norm_route_can, OP_NORM, OP_ROUTE, OP_SEGMENTS),
    SEVERAL(mix_combine_norm, 1, false, mix_combine_norm_can, OP_COMBINE, OP_ADD, OP_NORM),
    SEVERAL(take_add, 2, false, take_add_can, OP_TAKE_ROUNDED, OP_MATMUL, OP_ADD),
    SEVERAL(take_activation, 2, false, take_activation_can, OP_TAKE_ROUNDED, OP_MATMUL,
            OP_ACTIVATION),
    SEVERAL(take, 0, false, NULL, OP_TAKE_ROUNDED, OP_MATMUL),
    SEVERAL(matmul_add_norm_out, 1, false, NULL, OP_MATMUL, OP_ADD, OP_NORM_OUT),
    SEVERAL(norm_in_matmul_activation, 2, false, norm_in_matmul_activation_can, OP_NORM_IN,
            OP_MATMUL, OP_ACTIVATION),
    SEVERAL(attend_rope, 0, false, attend_rope_can, OP_ROPE, OP_KV_WRITE, OP_ATTENTION),
    SEVERAL(matmul_adapt_activation, 3, false, matmul_adapt_activation_can, OP_MATMUL, OP_ADAPT,
            OP_ACTIVATION),
    SEVERAL(matmul_adapt_add, 3, false, matmul_adapt_add_can, OP_MATMUL, OP_ADAPT, OP_ADD),
    SEVERAL(norms_reduce_add_norm, 1, false, norms_reduce_add_norm_can, OP_ALL_REDUCE, OP_ADD,
            OP_NORM),
    SEVERAL(norms_reduce_behind_add, 3, false, norms_reduce_behind_add_can, OP_ALL_REDUCE, OP_NORM,
            OP_ADD),
    SEVERAL(norms_reduce_wide, 3, false, posts, OP_SQUARES, OP_ALL_REDUCE, OP_WIDE_NORM),
    SEVERAL(norms_behind_add_norm, 1, false, norms_behind_add_norm_can, OP_NORM, OP_ADD, OP_NORM),
    SEVERAL(norms_behind_add_norm, 1, false, norms_behind_add_norm_can, OP_NORM, OP_ADD, OP_ROUND),
    SEVERAL(mix_sum, 1, false, mix_sum_can, OP_EXPERTS, OP_COMBINE),
    SEVERAL(mix_route_segments, 0, false, NULL, OP_ROUTE, OP_SEGMENTS),
    SEVERAL(norm_in_matmul, 0, false, NULL, OP_NORM_IN, OP_MATMUL),
    SEVERAL(matmul_activation, 1, false, matmul_activation_can, OP_MATMUL, OP_ACTIVATION),
    SEVERAL(matmul_adapt, 0, false, matmul_adapt_can, OP_MATMUL, OP_ADAPT),
    SEVERAL(adapt_activation, 1, false, adapt_activation_can, OP_ADAPT, OP_ACTIVATION),
    SEVERAL(matmul_add, 1, false, matmul_add_can, OP_MATMUL, OP_ADD),
    SEVERAL(matmul_all_reduce, 0, false, posts_not, OP_MATMUL, OP_ALL_REDUCE),
    SEVERAL(matmul_all_gather, 0, true, NULL, OP_MATMUL, OP_ALL_GATHER),
    SEVERAL(norms_reduce_add, 1, false, posts, OP_ALL_REDUCE, OP_ADD),
    SEVERAL(norms_behind_add, 1, false, norms_behind_add_can, OP_NORM, OP_ADD),
    SEVERAL(norms_add_norm, 0, false, norms_add_norm_can, OP_ADD, OP_NORM),
    SEVERAL(norms_add_norm, 0, false, norms_add_norm_can, OP_ADD, OP_ROUND),
    SEVERAL(hand_norm_alone, 0, false, NULL, OP_NORM, OP_HAND_ROUNDED),
    SEVERAL(hand_activation_alone, 0, false, NULL, OP_ACTIVATION, OP_HAND_ROUNDED),
    SEVERAL(sample_end, 0, false, NULL, OP_SAMPLE, OP_END),
    ALONE(OP_BEGIN, begin),
    ALONE(OP_COPY_BLOCKS, copy_blocks),
    ALONE(OP_EMBED, embed),
    ALONE(OP_ANGLES, angles),
    ALONE(OP_NORM, norms_norm),
    ALONE(OP_ROUND, norms_norm),
    ALONE(OP_SQUARES, norms_squares),
    ALONE(OP_WIDE_NORM, norms_wide),
    ALONE(OP_MATMUL, matmul),
    ALONE(OP_ADAPT, adapt),
    ALONE(OP_HEAD_NORM, attend_head_norm),
    ALONE(OP_ROPE, attend_rotate),
    ALONE(OP_KV_WRITE, attend_kv_write),
    ALONE(OP_ATTENTION, attend),
    ALONE(OP_ACTIVATION, activation),
    ALONE(OP_ADD, norms_add),
    ALONE(OP_ROUTE, mix_route),
    ALONE(OP_SEGMENTS, mix_segments),
    ALONE(OP_EXPERTS, mix_experts),
    ALONE(OP_COMBINE, mix_combine),
    ALONE(OP_ALL_REDUCE, all_reduce),
    ALONE(OP_POOL, pool),
    ALONE(OP_GATHER, gather),
    ALONE(OP_SOFTCAP, softcap),
    ALONE(OP_COUNT, count),
    ALONE(OP_SAMPLE, sample),
    ALONE(OP_SCORE, score),
    ALONE(OP_END, end),
    ALONE(OP_CAPTURE, draft_capture),
    ALONE(OP_KEEP, draft_keep),
    ALONE(OP_FEATURES, draft_features),
    ALONE(OP_STATE, draft_state),
    ALONE(OP_CARRY, draft_carry),
    ALONE(OP_SPREAD, draft_spread),
    ALONE(OP_NULL, null),
};

const uint32_t fusion_count = sizeof fusions / sizeof fusions[0];
