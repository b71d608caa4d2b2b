#include "gpu/forward.h"

#include "gpu/cuda.h"
#include "gpu/device.h"
#include "gpu/kernels/attend.h"
#include "gpu/kernels/count.h"
#include "gpu/kernels/embed.h"
#include "gpu/kernels/gather.h"
#include "gpu/kernels/norm.h"
#include "gpu/kernels/pool.h"
#include "gpu/kernels/product.h"
#include "gpu/kernels/rope.h"
#include "gpu/kernels/sample.h"
#include "gpu/kernels/score.h"
#include "gpu/kernels/swiglu.h"
#include "gpu/room.h"

#define OVERLAP_ROWS 512 /* of a step whose sums over ranks are made in halves */

struct run {
    const struct forward *forward;
    const struct forward_step *step;
    const struct model_config *config;
    struct room room;
    struct span tokens;
    enum dtype dtype, delta_dtype;
    bool posts; /* sums over ranks are made by the norms behind them */
};

static uint64_t kv_bytes(const struct model_config *config, uint32_t block_tokens, enum dtype dtype)
{
    return (uint64_t)config->kv_heads * block_tokens * config->head_dim * dtype_bytes(dtype);
}

uint64_t forward_block_bytes(const struct model_config *config, uint32_t group,
                             uint32_t block_tokens, enum dtype dtype)
{
    uint64_t bytes = config->groups[group].layers * 2 * kv_bytes(config, block_tokens, dtype);
    return mem_round(bytes ? bytes : 1); /* a stage may have no layer of the group */
}

enum dtype forward_delta_dtype(const struct forward *forward)
{
    bool biased = forward->config->o_bias || forward->config->mlp_bias;
    return forward->comm || biased ? forward->dtype : DTYPE_F32;
}

uint64_t forward_scratch_bytes(const struct forward *forward, const struct batch *batch)
{
    struct room room;
    room_cut(&room, NULL, forward, batch);
    return room.bytes;
}

struct forward_state forward_state_of(const struct forward *forward, const struct batch *batch,
                                      void *scratch, uint32_t tokens)
{
    struct room room;
    uint64_t elements = (uint64_t)tokens * forward->config->hidden;
    room_cut(&room, scratch, forward, batch);
    return (struct forward_state){.residual = room.residual,
                                  .delta = room.delta,
                                  .residual_bytes = elements * sizeof(float),
                                  .delta_bytes =
                                      elements * dtype_bytes(forward_delta_dtype(forward))};
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static int product_to(const struct run *run, struct span rows, const struct weight *weight,
                      const void *bias, const void *x, void *y, uint32_t y_stride,
                      enum dtype y_dtype, struct error *error)
{
    struct product_args args = {
        .rows = rows,
        .w = *weight,
        .bias = bias,
        .x = x,
        .y = y,
        .x_stride = weight->k,
        .y_stride = y_stride,
        .x_dtype = run->dtype,
        .y_dtype = y_dtype,
        .bias_dtype = run->forward->weights->vector,
        .workspace = run->room.workspace,
        .workspace_bytes = device_traits.workspace_bytes,
    };
    CUDA_TRY(op_product(&args, run->step->stream), error);
    return 0;
}

static int product(const struct run *run, struct span rows, const struct weight *weight,
                   const void *bias, const void *x, void *y, struct error *error)
{
    return product_to(run, rows, weight, bias, x, y, weight->n, run->dtype, error);
}

static void *row_at(const struct run *run, const void *base, uint64_t row, uint32_t width)
{
    return (char *)base + row * width * dtype_bytes(run->dtype);
}

/* The product that is added to the residual, of which every rank has a part of each sum. The bias
 * is rank 0's to add. Where sums go by post, the norm behind makes it. */
static int product_summed(const struct run *run, const struct weight *weight, const void *bias,
                          const void *x, struct error *error)
{
    struct comm *comm = run->forward->comm;
    void *y = run->room.delta;
    if (comm && comm->rank > 0)
        bias = NULL;
    if (!comm || run->posts)
        return product_to(run, run->tokens, weight, bias, x, y, weight->n, run->delta_dtype, error);
    uint32_t most = run->tokens.max, half = most >= OVERLAP_ROWS ? (most + 1) / 2 : most;
    int status = 0;
    for (uint32_t first = 0; !status && first < most; first += half) {
        struct span rows = {
            .count = run->tokens.count, .first = first, .max = least(half, most - first)};
        void *to = row_at(run, y, first, weight->n);
        status = product(run, rows, weight, bias, row_at(run, x, first, weight->k), to, error);
        if (!status)
            status = comm_sum(comm, to, (uint64_t)rows.max * weight->n, run->dtype,
                              run->step->stream, error);
    }
    return status ? status : comm_join(comm, run->step->stream, error);
}

/* Adds delta to the residual, unless it is the first norm, and leaves the normed residual in x. */
static int norm(const struct run *run, const void *weight, bool first, struct error *error)
{
    uint32_t hidden = run->config->hidden;
    struct norm_args args = {
        .rows = run->tokens,
        .residual = run->room.residual,
        .delta = first ? NULL : run->room.delta,
        .weight = weight,
        .out = run->room.x,
        .size = hidden,
        .residual_stride = hidden,
        .delta_stride = hidden,
        .out_stride = hidden,
        .residual_dtype = DTYPE_F32,
        .delta_dtype = run->delta_dtype,
        .weight_dtype = run->forward->weights->vector,
        .out_dtype = run->dtype,
        .eps = run->config->norm_eps,
    };
    if (run->posts && !first)
        return post_norm(&run->forward->comm->post, &args, run->step->stream, error);
    CUDA_TRY(op_norm(&args, run->step->stream), error);
    return 0;
}

static int start(const struct run *run, struct error *error)
{
    const struct forward_step *step = run->step;
    struct embed_args embed = {
        .batch = step->batch,
        .table = run->forward->weights->embed,
        .out = run->room.residual,
        .stride = run->config->hidden,
        .out_dtype = DTYPE_F32,
    };
    if (!run->forward->takes_over)
        CUDA_TRY(op_embed(&embed, step->stream), error);
    struct angle_args angle = {
        .batch = step->batch,
        .inverse_frequency = run->forward->weights->inverse_frequency,
        .attention = run->config->rope.attention,
        .pairs = run->config->rope.pairs,
        .angles = run->room.angles,
    };
    CUDA_TRY(op_angle(&angle, step->stream), error);
    return 0;
}

static int attention(const struct run *run, const struct layer_weights *layer, struct kv_layer kv,
                     struct error *error)
{
    const struct model_config *config = run->config;
    const struct room *room = &run->room;
    int status = product(run, run->tokens, &layer->qkv, layer->qkv_bias, room->x, room->qkv, error);
    if (status)
        return status;
    struct rope_args rope = {
        .batch = run->step->batch,
        .kv = kv,
        .qkv = room->qkv,
        .stride = room_qkv_width(config),
        .dtype = run->dtype,
        .heads = config->heads,
        .kv_heads = config->kv_heads,
        .head_dim = config->head_dim,
        .angles = room->angles,
        .q_norm = layer->q_norm,
        .k_norm = layer->k_norm,
        .norm_dtype = run->forward->weights->vector,
        .eps = config->norm_eps,
    };
    CUDA_TRY(op_rope(&rope, run->step->stream), error);
    struct attend_args attend = {
        .batch = run->step->batch,
        .kv = kv,
        .q = room->qkv,
        .out = room->attended,
        .q_stride = room_qkv_width(config),
        .out_stride = config->heads * config->head_dim,
        .dtype = run->dtype,
        .heads = config->heads,
        .kv_heads = config->kv_heads,
        .head_dim = config->head_dim,
        .scale = config->attention_scale,
        .scratch = room->attend_scratch,
        .scratch_bytes = room->attend_bytes,
    };
    CUDA_TRY(op_attend(&attend, run->step->stream), error);
    return product_summed(run, &layer->o, layer->o_bias, room->attended, error);
}

static int mlp(const struct run *run, const struct layer_weights *layer, struct error *error)
{
    const struct room *room = &run->room;
    uint32_t size = run->config->intermediate;
    int status = product(run, run->tokens, &layer->gate_up, layer->gate_up_bias, room->x,
                         room->gate_up, error);
    if (status)
        return status;
    struct swiglu_args swiglu = {
        .rows = run->tokens,
        .in = room->gate_up,
        .out = room->activated,
        .size = size,
        .in_stride = 2 * size,
        .out_stride = size,
        .dtype = run->dtype,
    };
    CUDA_TRY(op_swiglu(&swiglu, run->step->stream), error);
    return product_summed(run, &layer->down, layer->down_bias, room->activated, error);
}

static int layers(const struct run *run, struct error *error)
{
    const struct model_config *config = run->config;
    uint64_t bytes = kv_bytes(config, run->forward->block_tokens, run->dtype);
    uint32_t seen[MODEL_GROUPS_MAX] = {0}; /* layers of each group so far */
    bool whole = !run->forward->takes_over || run->posts; /* the residual lacks nothing */
    for (uint32_t i = 0; i < config->layers; i++) {
        const struct layer_weights *layer = &run->forward->weights->layers[i];
        uint32_t group = config->layer_group[i];
        struct kv_layer kv = {.k = seen[group] * 2 * bytes,
                              .v = (seen[group] * 2 + 1) * bytes,
                              .group = group,
                              .dtype = run->dtype};
        seen[group]++;
        int status = norm(run, layer->input_norm, i == 0 && whole, error);
        if (!status)
            status = attention(run, layer, kv, error);
        if (!status)
            status = norm(run, layer->post_norm, false, error);
        if (!status)
            status = mlp(run, layer, error);
        if (status)
            return status;
    }
    /* What went by post is added up before it is handed on: a step's number of sums stays even.
     * What the norm gives is of no use. */
    if (run->forward->hands_on && run->posts)
        return norm(run, run->forward->weights->layers[0].input_norm, false, error);
    return 0;
}

/* Logits of this rank's slice of the vocabulary, made whole by adding them up over zeros. */
static int logits_summed(const struct run *run, struct span rows, struct error *error)
{
    const struct weights *weights = run->forward->weights;
    struct comm *comm = run->forward->comm;
    uint32_t vocab = run->config->vocab;
    uint64_t count = (uint64_t)rows.max * vocab;
    CUDA_TRY(cudaMemsetAsync(run->room.logits, 0, count * sizeof(float), run->step->stream), error);
    int status = product_to(run, rows, &weights->head, NULL, run->room.picked,
                            run->room.logits + weights->head_first, vocab, DTYPE_F32, error);
    if (!status)
        status = comm_sum(comm, run->room.logits, count, DTYPE_F32, run->step->stream, error);
    return status ? status : comm_join(comm, run->step->stream, error);
}

/* Logits of the positions that `index` lists. */
static int logits(const struct run *run, struct span rows, const uint32_t *index,
                  struct error *error)
{
    uint32_t hidden = run->config->hidden;
    struct gather_args gather = {
        .rows = rows,
        .index = index,
        .in = run->room.x,
        .out = run->room.picked,
        .size = hidden,
        .in_stride = hidden,
        .out_stride = hidden,
        .dtype = run->dtype,
    };
    CUDA_TRY(op_gather(&gather, run->step->stream), error);
    const struct weights *weights = run->forward->weights;
    uint32_t vocab = run->config->vocab;
    if (run->forward->comm && !post_logits(&run->forward->comm->post))
        return logits_summed(run, rows, error);
    int status = product_to(run, rows, &weights->head, NULL, run->room.picked,
                            run->room.logits + weights->head_first, vocab, DTYPE_F32, error);
    if (!status && run->forward->comm)
        status = post_collect(&run->forward->comm->post, rows, run->room.logits, vocab,
                              run->step->stream, error);
    return status;
}

static int samples(const struct run *run, struct error *error)
{
    const struct forward_step *step = run->step;
    if (step->counts) {
        struct count_args count = {.batch = step->batch, .vocab = run->config->vocab};
        CUDA_TRY(op_count(&count, step->stream), error);
    }
    if (!step->batch.samples_max)
        return 0;
    struct span rows = {.count = &step->batch.counts->samples, .max = step->batch.samples_max};
    int status = logits(run, rows, step->batch.sample_token, error);
    if (status)
        return status;
    struct sample_args args = {
        .batch = step->batch,
        .logits = run->room.logits,
        .stride = run->config->vocab,
        .vocab = run->config->vocab,
        .eos_count = run->forward->eos_count,
        .samples = step->samples,
        .tops = step->tops,
        .scratch = run->room.sample_scratch,
        .scratch_bytes = run->room.sample_bytes,
    };
    for (uint32_t i = 0; i < args.eos_count; i++)
        args.eos[i] = run->forward->eos[i];
    CUDA_TRY(op_sample(&args, step->stream), error);
    return 0;
}

static int scores(const struct run *run, struct error *error)
{
    const struct forward_step *step = run->step;
    uint32_t chunk = run->room.logit_rows;
    for (uint32_t first = 0; first < step->batch.scores_max; first += chunk) {
        struct span rows = {.count = &step->batch.counts->scores,
                            .first = first,
                            .max = least(chunk, step->batch.scores_max - first)};
        int status = logits(run, rows, step->batch.score_token, error);
        if (status)
            return status;
        struct score_args args = {
            .rows = rows,
            .logits = run->room.logits,
            .stride = run->config->vocab,
            .vocab = run->config->vocab,
            .targets = step->batch.score_target,
            .scores = step->scores,
        };
        CUDA_TRY(op_score(&args, step->stream), error);
    }
    return 0;
}

static int embeddings(const struct run *run, struct error *error)
{
    const struct forward_step *step = run->step;
    struct pool_args args = {
        .batch = step->batch,
        .hidden = run->room.x,
        .size = run->config->hidden,
        .stride = run->config->hidden,
        .dtype = run->dtype,
        .out = step->embeds,
    };
    if (step->pools)
        CUDA_TRY(op_pool_add(&args, step->stream), error);
    if (step->batch.embeds_max)
        CUDA_TRY(op_pool_out(&args, step->stream), error);
    return 0;
}

/* Of a step that has come through all layers: what was asked for. */
static int answers(const struct run *run, struct error *error)
{
    int status = norm(run, run->forward->weights->final_norm, false, error);
    if (!status)
        status = embeddings(run, error);
    if (!status)
        status = scores(run, error);
    if (!status)
        status = samples(run, error);
    return status;
}

int forward_run(const struct forward *forward, const struct forward_step *step, struct error *error)
{
    if (!step->batch.tokens_max)
        return 0;
    struct run run = {
        .forward = forward,
        .step = step,
        .config = forward->config,
        .tokens = {.count = &step->batch.counts->tokens, .max = step->batch.tokens_max},
        .dtype = forward->dtype,
        .delta_dtype = forward_delta_dtype(forward),
    };
    room_cut(&run.room, step->scratch, forward, &step->batch);
    if (forward->comm) {
        comm_begin(forward->comm);
        run.posts = post_sums(&forward->comm->post, step->batch.tokens_max, run.config->hidden,
                              run.delta_dtype);
    }
    int status = start(&run, error);
    if (!status)
        status = layers(&run, error);
    if (!status && !forward->hands_on)
        status = answers(&run, error);
    return status;
}
