#include "gpu/kernels/draft/state.h"

#include <string.h>

#include "gpu/kernels/cpu/body.h"

static uint32_t slot_of(const struct batch *batch, uint32_t row)
{
    return ((const struct batch_row *)dev(batch->rows))[row].slot;
}

static void state_token(const void *params, uint32_t token)
{
    const struct state_args *args = params;
    const struct batch_counts *counts = dev(args->batch.counts);
    if (token >= counts->tokens)
        return;
    float *residual = body_at(args->residual, DTYPE_F32, token, args->size);
    if (args->in) {
        number_widen(residual, body_at(args->in, args->in_dtype, token, args->in_stride),
                     args->in_dtype, args->size);
        return;
    }
    uint32_t row = ((const uint32_t *)dev(args->batch.token_row))[token];
    memcpy(residual, body_at(args->carried, DTYPE_F32, slot_of(&args->batch, row), args->size),
           args->size * sizeof(float));
}

cudaError_t op_state(const struct state_args *args, cudaStream_t stream)
{
    return body_launch(stream, "state", state_token, args, sizeof *args, args->batch.tokens_max);
}

static void carry_sample(const void *params, uint32_t index)
{
    const struct state_args *args = params;
    const struct batch *batch = &args->batch;
    const struct batch_counts *counts = dev(batch->counts);
    if (index >= counts->samples)
        return;
    uint32_t token = ((const uint32_t *)dev(batch->sample_token))[index];
    uint32_t slot = slot_of(batch, ((const uint32_t *)dev(batch->sample_row))[index]);
    memcpy(body_at(args->carried, DTYPE_F32, slot, args->size),
           body_at(args->residual, DTYPE_F32, token, args->size), args->size * sizeof(float));
}

cudaError_t op_carry(const struct state_args *args, cudaStream_t stream)
{
    return body_launch(stream, "carry", carry_sample, args, sizeof *args, args->batch.samples_max);
}
