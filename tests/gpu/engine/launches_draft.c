/* The launchers by which a head guesses, and its model leaves what that reads. */
#include "gpu/kernels/draft/features.h"
#include "gpu/kernels/draft/spread.h"
#include "gpu/kernels/draft/state.h"
#include "tests/gpu/engine/launches.h"

cudaError_t op_keep(const struct keep_args *args, cudaStream_t stream)
{
    (void)stream;
    launches_note("keep %u of %u, dtype %d", args->batch.rows_max, args->features.width,
                  (int)args->features.dtype);
    return cudaSuccess;
}

cudaError_t op_features(const struct features_args *args, cudaStream_t stream)
{
    (void)stream;
    launches_note("features %u of %u, dtype %d, of the step %d", args->batch.tokens_max,
                  args->features.width, (int)args->features.dtype, args->step);
    return cudaSuccess;
}

cudaError_t op_state(const struct state_args *args, cudaStream_t stream)
{
    (void)stream;
    launches_note("state %u of %u, given %d %u %d", args->batch.tokens_max, args->size,
                  args->in != NULL, args->in_stride, (int)args->in_dtype);
    return cudaSuccess;
}

cudaError_t op_carry(const struct state_args *args, cudaStream_t stream)
{
    (void)stream;
    launches_note("carry %u of %u", args->batch.samples_max, args->size);
    return cudaSuccess;
}

cudaError_t op_spread(const struct spread_args *args, cudaStream_t stream)
{
    (void)stream;
    launches_note("spread %u of %u in %u, named %d", args->rows.max, args->known, args->size,
                  args->places != NULL);
    return cudaSuccess;
}
