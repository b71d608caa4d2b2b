#include "gpu/kernels/experts/segments.h"

#include "gpu/kernels/cpu/body.h"

static void segments_all(const void *params, uint32_t index)
{
    const struct segments_args *args = params;
    const struct route *routes = dev(args->routes);
    uint32_t *first = dev(args->segments), *pairs = first + args->count + 1;
    uint32_t next[ROUTE_EXPERTS_MAX + 1] = {0}, count = body_rows(&args->rows) * args->top;
    (void)index;
    for (uint32_t p = 0; p < count; p++)
        next[routes[p / args->top * args->stride + p % args->top].expert + 1]++;
    for (uint32_t e = 0; e < args->count; e++)
        next[e + 1] += next[e];
    memcpy(first, next, (args->count + 1) * sizeof *first);
    for (uint32_t p = 0; p < count; p++)
        pairs[next[routes[p / args->top * args->stride + p % args->top].expert]++] = p;
}

cudaError_t op_segments(const struct segments_args *args, cudaStream_t stream)
{
    if (args->count > ROUTE_EXPERTS_MAX)
        return cudaErrorNotSupported;
    return body_launch(stream, "segments", segments_all, args, sizeof *args,
                       args->rows.max ? 1 : 0);
}
