#include "gpu/kernels/sampling/mean_pool.h"

#include <math.h>

#include "gpu/kernels/cpu/body.h"

#define POOL_PIECE 512

static void pool_add_row(const void *params, uint32_t index)
{
    const struct mean_pool_args *args = params;
    if (index >= ((const struct batch_counts *)dev(args->batch.counts))->rows)
        return;
    const struct batch_row *row = (const struct batch_row *)dev(args->batch.rows) + index;
    if (!(row->want & GPU_POOL_ADD))
        return;
    float *sum = body_at(args->batch.pool, DTYPE_F32, row->slot, args->size), value[POOL_PIECE];
    if (!row->position)
        memset(sum, 0, args->size * sizeof *sum);
    for (uint32_t t = row->token; t < row->token + row->q_len; t++) {
        const void *hidden = body_at(args->hidden, args->dtype, t, args->stride);
        for (uint32_t i = 0; i < args->size; i += POOL_PIECE) {
            uint32_t count = args->size - i < POOL_PIECE ? args->size - i : POOL_PIECE;
            number_widen(value, number_at(hidden, args->dtype, i), args->dtype, count);
            for (uint32_t j = 0; j < count; j++)
                sum[i + j] += value[j];
        }
    }
}

static void pool_out_index(const void *params, uint32_t index)
{
    const struct mean_pool_args *args = params;
    if (index >= ((const struct batch_counts *)dev(args->batch.counts))->embeds)
        return;
    const struct batch_embed *embed = (const struct batch_embed *)dev(args->batch.embeds) + index;
    const struct batch_row *row = (const struct batch_row *)dev(args->batch.rows) + embed->row;
    float *out = body_at(args->out, DTYPE_F32, index, args->size);
    if (embed->mean) {
        const float *sum = body_at(args->batch.pool, DTYPE_F32, row->slot, args->size);
        float count = (float)(row->position + row->q_len);
        for (uint32_t i = 0; i < args->size; i++)
            out[i] = sum[i] / count;
    } else {
        number_widen(out, body_at(args->hidden, args->dtype, embed->token, args->stride),
                     args->dtype, args->size);
    }
    if (embed->normalize) {
        float lanes[SIMD_LANES] = {0};
        simd_best()->squares(lanes, out, args->size);
        float length = sqrtf(simd_add_lanes(lanes));
        for (uint32_t i = 0; length > 0 && i < args->size; i++)
            out[i] /= length;
    }
}

cudaError_t op_mean_pool_add(const struct mean_pool_args *args, cudaStream_t stream)
{
    return body_launch(stream, "pool_add", pool_add_row, args, sizeof *args, args->batch.rows_max);
}

cudaError_t op_mean_pool_out(const struct mean_pool_args *args, cudaStream_t stream)
{
    return body_launch(stream, "pool_out", pool_out_index, args, sizeof *args,
                       args->batch.embeds_max);
}
