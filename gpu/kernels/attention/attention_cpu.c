/* An index of the kernel is one token and one KV head: its query heads share the loads of K and V.
 * A split is computed from its own maximum, then combined, so it never matters where a row began.
 */
#include "gpu/kernels/attention/attention.h"

#include <assert.h>
#include <math.h>

#include "gpu/kernels/attention/kv_place_cpu.h"
#include "gpu/kernels/cpu/body.h"

#define ATTENTION_HEADS 8 /* query heads at a time */

struct attention_state {
    float q[ATTENTION_HEADS][ATTENTION_HEAD_DIM_MAX];
    float weight[ATTENTION_HEADS][ATTENTION_SPLIT]; /* scores, then their exponentials */
    float out[ATTENTION_HEADS][ATTENTION_HEAD_DIM_MAX];
    float part[ATTENTION_HEADS][ATTENTION_HEAD_DIM_MAX];
    float cache[KV_PIECE * ATTENTION_HEAD_DIM_MAX]; /* of eight bits, as numbers */
    float max[ATTENTION_HEADS], sum[ATTENTION_HEADS]; /* of what is combined */
    float part_max[ATTENTION_HEADS], part_sum[ATTENTION_HEADS];
    float doubt[ATTENTION_HEADS]; /* 0, or no number where a score is none or infinite */
    uint32_t heads;
};

static_assert(ATTENTION_SPLIT == ATTENTION_HEAD_DIM_MAX, "simd_values has one stride for both");

/* Positions first .. end - 1, which lie in one split, by what lies together. */
struct attention_piece {
    const void *at; /* keys or values of position `first`, this KV head */
    uint32_t count;
    enum dtype dtype;
};

/* `offset`: kv.k, or kv.v. */
static struct attention_piece attention_piece(const struct attention_args *args,
                                              struct attention_state *state, uint64_t offset,
                                              uint32_t slot, uint32_t kv_head, uint32_t first,
                                              uint32_t end)
{
    const struct batch *batch = &args->batch;
    bool eight = args->kv.format == FORMAT_E4M3;
    uint32_t together = eight ? KV_PIECE : batch->block_tokens, count = together - first % together;
    count = count < end - first ? count : end - first;
    struct kv_place place = kv_place_of(batch, &args->kv, args->head_dim, slot, first, kv_head,
                                        offset);
    if (!eight)
        return (struct attention_piece){place.elements, count, (enum dtype)args->kv.format};
    kv_widen(state->cache, &place, count, args->head_dim);
    return (struct attention_piece){state->cache, count, DTYPE_F32};
}

static void attention_scores(const struct attention_args *args, struct attention_state *state,
                             uint32_t slot, uint32_t kv_head, uint32_t first, uint32_t end)
{
    for (uint32_t h = 0; h < state->heads; h++) {
        state->doubt[h] = 0;
        for (uint32_t i = 0; i < ATTENTION_SPLIT; i++)
            state->weight[h][i] = -INFINITY;
    }
    for (struct attention_piece piece; first < end; first += piece.count) {
        piece = attention_piece(args, state, args->kv.k, slot, kv_head, first, end);
        uint32_t offset = first % ATTENTION_SPLIT;
        struct simd_panel panel = {
            .w = piece.at,
            .x = state->q,
            .y = &state->weight[0][offset],
            .w_stride = args->head_dim,
            .x_stride = ATTENTION_HEAD_DIM_MAX,
            .y_stride = ATTENTION_SPLIT,
            .n = piece.count,
            .rows = state->heads,
            .k = args->head_dim,
            .w_dtype = piece.dtype,
            .x_dtype = DTYPE_F32,
        };
        simd_best()->panel(&panel);
        for (uint32_t h = 0; h < state->heads; h++)
            for (uint32_t i = 0; i < piece.count; i++)
                state->weight[h][offset + i] *= args->scale;
        /* The exponential of such a score is 0, as if nothing had been there. */
        for (uint32_t h = 0; h < state->heads; h++)
            for (uint32_t i = 0; i < piece.count; i++)
                state->doubt[h] += state->weight[h][offset + i] * 0;
        for (uint32_t h = 0; args->softcap != 0 && h < state->heads; h++)
            simd_softcap(&state->weight[h][offset], args->softcap, piece.count);
    }
}

static void attention_weights(struct attention_state *state)
{
    for (uint32_t h = 0; h < state->heads; h++) {
        float max = -INFINITY, lanes[SIMD_LANES] = {0};
        for (uint32_t i = 0; i < ATTENTION_SPLIT; i++)
            max = state->weight[h][i] > max ? state->weight[h][i] : max;
        simd_best()->exps(lanes, state->weight[h], state->weight[h], max, ATTENTION_SPLIT);
        state->part_max[h] = max;
        state->part_sum[h] = simd_add_lanes(lanes) + state->doubt[h];
    }
}

static void attention_values(const struct attention_args *args, struct attention_state *state,
                             uint32_t slot, uint32_t kv_head, uint32_t first, uint32_t end)
{
    for (uint32_t h = 0; h < state->heads; h++)
        memset(state->part[h], 0, args->head_dim * sizeof(float));
    for (struct attention_piece piece; first < end; first += piece.count) {
        piece = attention_piece(args, state, args->kv.v, slot, kv_head, first, end);
        struct simd_values values = {
            .v = piece.at,
            .p = &state->weight[0][first % ATTENTION_SPLIT],
            .sum = &state->part[0][0],
            .stride = ATTENTION_SPLIT,
            .heads = state->heads,
            .count = piece.count,
            .head_dim = args->head_dim,
            .v_dtype = piece.dtype,
        };
        simd_best()->values(&values);
    }
}

static void attention_combine(struct attention_state *state, uint32_t head_dim, bool first)
{
    for (uint32_t h = 0; h < state->heads; h++) {
        float *out = state->out[h], *part = state->part[h];
        if (first) {
            state->max[h] = state->part_max[h];
            state->sum[h] = state->part_sum[h];
            memcpy(out, part, head_dim * sizeof *out);
            continue;
        }
        float max = state->max[h] > state->part_max[h] ? state->max[h] : state->part_max[h];
        float old = simd_exp(state->max[h] - max), new = simd_exp(state->part_max[h] - max);
        state->max[h] = max;
        state->sum[h] = state->sum[h] * old + state->part_sum[h] * new;
        for (uint32_t d = 0; d < head_dim; d++)
            out[d] = out[d] * old + part[d] * new;
    }
}

/* One score more, of no value. */
static void attention_sink(struct attention_state *state, uint32_t head_dim, const float *sinks)
{
    for (uint32_t h = 0; h < state->heads; h++) {
        float max = state->max[h] > sinks[h] ? state->max[h] : sinks[h];
        float old = simd_exp(state->max[h] - max);
        state->sum[h] = state->sum[h] * old + simd_exp(sinks[h] - max);
        for (uint32_t d = 0; d < head_dim; d++)
            state->out[h][d] *= old;
    }
}

static void attention_heads(const struct attention_args *args, uint32_t token, uint32_t kv_head,
                            uint32_t head, uint32_t heads)
{
    struct attention_state state;
    const struct batch_row *rows = dev(args->batch.rows);
    uint32_t slot = rows[((const uint32_t *)dev(args->batch.token_row))[token]].slot;
    uint32_t end = ((const uint32_t *)dev(args->batch.token_position))[token] + 1;
    uint32_t window = args->batch.groups[args->kv.group].window;
    uint32_t start = window && end > window ? end - window : 0, dim = args->head_dim;
    state.heads = heads;
    char *q = body_at(args->q, args->dtype, token, args->q_stride);
    for (uint32_t h = 0; h < heads; h++)
        number_widen(state.q[h], number_at(q, args->dtype, (head + h) * (size_t)dim), args->dtype,
                     dim);
    for (uint32_t first = start, next; first < end; first = next) {
        next = (first / ATTENTION_SPLIT + 1) * ATTENTION_SPLIT;
        next = next < end ? next : end;
        attention_scores(args, &state, slot, kv_head, first, next);
        attention_weights(&state);
        attention_values(args, &state, slot, kv_head, first, next);
        attention_combine(&state, dim, first == start);
    }
    if (args->sinks)
        attention_sink(&state, dim, (const float *)dev(args->sinks) + head);
    char *out = body_at(args->out, args->dtype, token, args->out_stride);
    for (uint32_t h = 0; h < heads; h++) {
        for (uint32_t d = 0; d < dim; d++)
            state.out[h][d] /= state.sum[h];
        number_round(number_at(out, args->dtype, (head + h) * (size_t)dim), state.out[h],
                     args->dtype, dim);
    }
}

static void attention_index(const void *params, uint32_t index)
{
    const struct attention_args *args = params;
    uint32_t token = index / args->kv_heads, kv_head = index % args->kv_heads;
    uint32_t group = args->heads / args->kv_heads;
    if (token >= ((const struct batch_counts *)dev(args->batch.counts))->tokens)
        return;
    for (uint32_t h = 0; h < group; h += ATTENTION_HEADS)
        attention_heads(args, token, kv_head, kv_head * group + h,
                        group - h < ATTENTION_HEADS ? group - h : ATTENTION_HEADS);
}

size_t attention_scratch_bytes(const struct batch *bounds, uint32_t heads, uint32_t head_dim)
{
    (void)bounds;
    (void)heads;
    (void)head_dim;
    return 0;
}

cudaError_t op_attention(const struct attention_args *args, cudaStream_t stream)
{
    if (args->head_dim > ATTENTION_HEAD_DIM_MAX || args->heads % args->kv_heads)
        return cudaErrorInvalidValue;
    return body_launch(stream, "attend", attention_index, args, sizeof *args,
                       (uint64_t)args->batch.tokens_max * args->kv_heads);
}
