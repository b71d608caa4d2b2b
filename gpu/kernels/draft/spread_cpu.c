#include "gpu/kernels/draft/spread.h"

#include <math.h>

#include "gpu/kernels/cpu/body.h"

static void spread_row(const void *params, uint32_t row)
{
    const struct spread_args *args = params;
    if (row >= body_rows(&args->rows))
        return;
    const float *in = body_at(args->in, DTYPE_F32, row, args->known);
    float *out = body_at(args->out, DTYPE_F32, row, args->size);
    const int32_t *places = args->places ? dev(args->places) : NULL;
    for (uint32_t i = 0; i < args->size; i++) {
        int32_t place = places ? places[i] : i < args->known ? (int32_t)i : SPREAD_NONE;
        out[i] = place == SPREAD_NONE ? -INFINITY : in[place];
    }
}

cudaError_t op_spread(const struct spread_args *args, cudaStream_t stream)
{
    return body_launch(stream, "spread", spread_row, args, sizeof *args, args->rows.max);
}
