#include "gpu/forward.h"

#include "gpu/cuda.h"
#include "gpu/device.h"
#include "gpu/kernels/count.h"
#include "gpu/kernels/embed.h"
#include "gpu/kernels/gather.h"
#include "gpu/kernels/norm.h"
#include "gpu/kernels/pool.h"
#include "gpu/kernels/product.h"
#include "gpu/kernels/rope_attend.h"
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
    bool posts;  /* sums over ranks are made by the norms behind them */
    bool owes;   /* delta is still to be added to the residual */
    bool ready;  /* x is normed for the first layer */
    bool handed; /* x is the residual times the norm's weight: its reader owes the scale */
};

/* What stands behind a sum: a norm, and the product that reads it. */
struct behind {
    const void *norm; /* its weight; NULL: no such two */
    struct product_args reader;
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

static struct product_args product_of(const struct run *run, struct span rows,
                                      const struct weight *weight, const void *bias, const void *x,
                                      void *y)
{
    return (struct product_args){
        .rows = rows,
        .w = *weight,
        .bias = bias,
        .x = x,
        .y = y,
        .x_stride = weight->k,
        .y_stride = weight->n,
        .x_dtype = run->dtype,
        .y_dtype = run->dtype,
        .bias_dtype = run->forward->weights->vector,
        .workspace = run->room.workspace,
        .workspace_bytes = device_traits.workspace_bytes,
    };
}

static int product(const struct run *run, const struct product_args *args, struct error *error)
{
    CUDA_TRY(op_product(args, run->step->stream), error);
    return 0;
}

static void *row_at(const struct run *run, const void *base, uint64_t row, uint32_t width)
{
    return (char *)base + row * width * dtype_bytes(run->dtype);
}

static struct product_args owing(const struct run *run, const struct product_args *args)
{
    struct product_args out = *args;
    out.owed.squares = run->room.squares;
    out.owed.eps = run->config->norm_eps;
    return out;
}

/* Whether the norm behind is done by the two products that it stands between. */
static bool hand(const struct run *run, struct product_args *args, const struct behind *behind)
{
    if (!behind->norm || !run->room.squares)
        return false;
    struct product_args reader = owing(run, &behind->reader), giver = *args;
    giver.hands = (struct product_hands){
        .weight = behind->norm,
        .out = run->room.x,
        .squares = run->room.squares,
        .out_stride = run->config->hidden,
        .weight_dtype = run->forward->weights->vector,
    };
    if (!product_fuses(&giver) || !product_fuses(&reader))
        return false;
    *args = giver;
    return true;
}

/* The product that is added to the residual, of which every rank has a part of each sum. The bias
 * is rank 0's to add. Where sums go by post, the norm behind makes it; where the device can, this
 * product itself, unless the sum is the next stage's. */
static int product_summed(struct run *run, struct product_args args, const struct behind *behind,
                          bool hands_on, struct error *error)
{
    struct comm *comm = run->forward->comm;
    args.y_dtype = run->delta_dtype;
    args.y = run->room.residual;
    args.adds = true;
    run->owes = comm || hands_on || run->delta_dtype != DTYPE_F32 || !product_fuses(&args);
    if (!run->owes) {
        run->handed = hand(run, &args, behind);
        return product(run, &args, error);
    }
    args.y = run->room.delta;
    args.adds = false;
    if (comm && comm->rank > 0)
        args.bias = NULL;
    if (!comm || run->posts)
        return product(run, &args, error);
    uint32_t most = run->tokens.max, half = most >= OVERLAP_ROWS ? (most + 1) / 2 : most;
    const void *x = args.x;
    int status = 0;
    for (uint32_t first = 0; !status && first < most; first += half) {
        args.rows = (struct span){
            .count = run->tokens.count, .first = first, .max = least(half, most - first)};
        args.x = row_at(run, x, first, args.w.k);
        args.y = row_at(run, run->room.delta, first, args.w.n);
        status = product(run, &args, error);
        if (!status)
            status = comm_sum(comm, args.y, (uint64_t)args.rows.max * args.w.n, run->dtype,
                              run->step->stream, error);
    }
    return status ? status : comm_join(comm, run->step->stream, error);
}

/* Adds delta to the residual, where it is owed, and leaves the normed residual in x. */
static int norm(struct run *run, const void *weight, struct error *error)
{
    uint32_t hidden = run->config->hidden;
    if (run->ready) {
        run->ready = false;
        return 0;
    }
    struct norm_args args = {
        .rows = run->tokens,
        .residual = run->room.residual,
        .delta = run->owes ? run->room.delta : NULL,
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
    bool posted = run->posts && run->owes;
    run->owes = false;
    if (posted)
        return post_norm(&run->forward->comm->post, &args, run->step->stream, error);
    CUDA_TRY(op_norm(&args, run->step->stream), error);
    return 0;
}

/* The product of the normed residual. */
static int product_normed(struct run *run, const struct product_args *args, const void *weight,
                          struct error *error)
{
    if (run->handed) {
        struct product_args scaled = owing(run, args);
        run->handed = false;
        return product(run, &scaled, error);
    }
    int status = norm(run, weight, error);
    return status ? status : product(run, args, error);
}

struct expand_first forward_first(const struct forward *forward, const struct batch *batch,
                                  void *scratch)
{
    struct room room;
    const struct model_config *config = forward->config;
    if (forward->takes_over || !batch->tokens_max)
        return (struct expand_first){.pairs = 0};
    room_cut(&room, scratch, forward, batch);
    return (struct expand_first){
        .table = forward->weights->embed,
        .residual = room.residual,
        .norm = forward->weights->layers[0].input_norm,
        .x = room.x,
        .inverse_frequency = forward->weights->inverse_frequency,
        .angles = room.angles,
        .pairs = config->rope.pairs,
        .attention = config->rope.attention,
        .eps = config->norm_eps,
        .norm_dtype = forward->weights->vector,
        .x_dtype = forward->dtype,
    };
}

static int start(const struct run *run, struct error *error)
{
    const struct forward_step *step = run->step;
    if (step->begun)
        return 0;
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

/* gate and up as one product: what comes of it is what down reads, where the device can. */
static struct product_args gate_up_of(const struct run *run, const struct layer_weights *layer)
{
    const struct room *room = &run->room;
    struct product_args args = product_of(run, run->tokens, &layer->gate_up, layer->gate_up_bias,
                                          room->x, room->activated);
    args.y_stride = run->config->intermediate;
    args.gated = true;
    if (product_fuses(&args))
        return args;
    args.gated = false;
    args.y = room->gate_up;
    args.y_stride = layer->gate_up.n;
    return args;
}

static struct product_args qkv_of(const struct run *run, const struct layer_weights *layer)
{
    return product_of(run, run->tokens, &layer->qkv, layer->qkv_bias, run->room.x, run->room.qkv);
}

static int attention(struct run *run, const struct layer_weights *layer, struct kv_layer kv,
                     struct error *error)
{
    const struct model_config *config = run->config;
    const struct room *room = &run->room;
    struct product_args qkv = qkv_of(run, layer);
    int status = product_normed(run, &qkv, layer->input_norm, error);
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
    CUDA_TRY(op_rope_attend(&rope, &attend, run->step->stream), error);
    struct product_args o =
        product_of(run, run->tokens, &layer->o, layer->o_bias, room->attended, NULL);
    struct behind behind = {.norm = layer->post_norm, .reader = gate_up_of(run, layer)};
    return product_summed(run, o, &behind, false, error);
}

/* `next`: the layer behind; NULL: this is the last of the stage. */
static int mlp(struct run *run, const struct layer_weights *layer, const struct layer_weights *next,
               struct error *error)
{
    const struct room *room = &run->room;
    uint32_t size = run->config->intermediate;
    struct product_args gate_up = gate_up_of(run, layer);
    int status = product_normed(run, &gate_up, layer->post_norm, error);
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
    if (!gate_up.gated)
        CUDA_TRY(op_swiglu(&swiglu, run->step->stream), error);
    struct product_args down =
        product_of(run, run->tokens, &layer->down, layer->down_bias, room->activated, NULL);
    struct behind behind = {.norm = NULL};
    if (next)
        behind = (struct behind){.norm = next->input_norm, .reader = qkv_of(run, next)};
    return product_summed(run, down, &behind, !next && run->forward->hands_on, error);
}

static int layers(struct run *run, struct error *error)
{
    const struct model_config *config = run->config;
    const struct weights *weights = run->forward->weights;
    uint64_t bytes = kv_bytes(config, run->forward->block_tokens, run->dtype);
    uint32_t seen[MODEL_GROUPS_MAX] = {0}; /* layers of each group so far */
    run->owes = run->forward->takes_over && !run->posts;
    for (uint32_t i = 0; i < config->layers; i++) {
        const struct layer_weights *layer = &weights->layers[i];
        const struct layer_weights *next = i + 1 < config->layers ? layer + 1 : NULL;
        uint32_t group = config->layer_group[i];
        struct kv_layer kv = {.k = seen[group] * 2 * bytes,
                              .v = (seen[group] * 2 + 1) * bytes,
                              .group = group,
                              .dtype = run->dtype};
        seen[group]++;
        int status = attention(run, layer, kv, error);
        if (!status)
            status = mlp(run, layer, next, error);
        if (status)
            return status;
    }
    /* What went by post is added up before it is handed on: a step's number of sums stays even.
     * What the norm gives is of no use. */
    if (run->forward->hands_on && run->posts)
        return norm(run, weights->layers[0].input_norm, error);
    return 0;
}

/* Of the rows that were picked. */
static struct product_args head_of(const struct run *run, struct span rows)
{
    const struct weights *weights = run->forward->weights;
    struct product_args args = product_of(run, rows, &weights->head, NULL, run->room.picked,
                                          run->room.logits + weights->head_first);
    args.y_stride = run->config->vocab;
    args.y_dtype = DTYPE_F32;
    return args;
}

/* Logits of this rank's slice of the vocabulary, made whole by adding them up over zeros. */
static int logits_summed(const struct run *run, struct span rows, struct error *error)
{
    struct comm *comm = run->forward->comm;
    uint64_t count = (uint64_t)rows.max * run->config->vocab;
    struct product_args head = head_of(run, rows);
    CUDA_TRY(cudaMemsetAsync(run->room.logits, 0, count * sizeof(float), run->step->stream), error);
    int status = product(run, &head, error);
    if (!status)
        status = comm_sum(comm, run->room.logits, count, DTYPE_F32, run->step->stream, error);
    return status ? status : comm_join(comm, run->step->stream, error);
}

/* Logits of the positions that `index` lists, from the last norm's results. */
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
    if (run->forward->comm && !post_logits(&run->forward->comm->post))
        return logits_summed(run, rows, error);
    struct product_args head = head_of(run, rows);
    int status = product(run, &head, error);
    if (!status && run->forward->comm)
        status = post_collect(&run->forward->comm->post, rows, run->room.logits, run->config->vocab,
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
        .control = step->control,
        .slots_max = step->slots_max,
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
static int answers(struct run *run, struct error *error)
{
    int status = norm(run, run->forward->weights->final_norm, error);
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
        .ready = step->begun,
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
