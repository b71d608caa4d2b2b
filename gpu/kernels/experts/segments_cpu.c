#include "gpu/kernels/experts/segments.h"

#include "gpu/kernels/cpu/body.h"

/* Of a pair, counted from the first that is here; at least own.count: it is not. */
static uint32_t expert_of(const struct segments_args *args, const struct route *routes, uint32_t p)
{
    return routes[(size_t)(p / args->top) * args->stride + p % args->top].expert - args->own.first;
}

static void segments_all(const void *params, uint32_t index)
{
    const struct segments_args *args = params;
    const struct route *routes = dev(args->routes);
    uint32_t own = args->own.count, *first = dev(args->segments), *pairs = first + own + 1;
    uint32_t next[ROUTE_EXPERTS_MAX + 1] = {0}, count = body_rows(&args->rows) * args->top;
    (void)index;
    for (uint32_t p = 0; p < count; p++) {
        uint32_t expert = expert_of(args, routes, p);
        if (expert < own)
            next[expert + 1]++;
    }
    for (uint32_t e = 0; e < own; e++)
        next[e + 1] += next[e];
    memcpy(first, next, (own + 1) * sizeof *first);
    for (uint32_t p = 0; p < count; p++) {
        uint32_t expert = expert_of(args, routes, p);
        if (expert < own)
            pairs[next[expert]++] = p;
    }
}

cudaError_t op_segments(const struct segments_args *args, cudaStream_t stream)
{
    if (args->own.count > ROUTE_EXPERTS_MAX)
        return cudaErrorNotSupported;
    return body_launch(stream, "segments", segments_all, args, sizeof *args,
                       args->rows.max ? 1 : 0);
}
