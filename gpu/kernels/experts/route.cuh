/* From a row's logits to the experts that it goes through, by one warp; the ways to logits. */
#pragma once

#include "gpu/kernels/common/device.cuh"
#include "gpu/kernels/experts/norm_route.h"

/* By tensor cores, of the namespace's dtype. `norm` and `segments`: NULL, or what is made on the
 * way; route_tiles_norms() and route_tiles_segments() say when that can be. */
#define ROUTE_OF_HALF                                                                              \
    bool route_tiles_can(const struct route_args *args);                                           \
    bool route_tiles_norms(const struct norm_args *norm, const struct route_args *args);           \
    cudaError_t route_tiles(const struct norm_args *norm, const struct route_args *args,           \
                            const struct segments_args *segments, cudaStream_t stream);
namespace bf16
{
ROUTE_OF_HALF
}
namespace f16
{
ROUTE_OF_HALF
}

/* Segments of more rows want a kernel that sees all of them. */
static inline bool route_tiles_segments(const struct route_args *args)
{
    return args->rows.max == 1;
}

__device__ __forceinline__ float route_sigmoid(float x)
{
    return 1.0f / (1.0f + __expf(-x));
}

__device__ __forceinline__ float route_added(const struct route_args &a, uint32_t e)
{
    return a.added && e < a.count ? a.added[e] : 0.0f;
}

/* What logits are turned into by `scale * exp(logit - most)`; a logit that is none makes all so. */
__device__ __forceinline__ void route_softmax(const float *logits, uint32_t count, uint32_t lane,
                                              float *most, float *sum)
{
    float top = -INFINITY, terms = 0.0f;
    for (uint32_t e = lane; e < count; e += WARP)
        top = fmaxf(top, logits[e]);
#pragma unroll
    for (int offset = WARP / 2; offset; offset /= 2)
        top = fmaxf(top, __shfl_xor_sync(FULL_MASK, top, offset));
    for (uint32_t e = lane; e < count; e += WARP)
        terms += __expf(logits[e] - top);
    *most = top;
    *sum = warp_sum(terms);
}

#define ROUTE_TAKEN 0u /* of what is taken, or no expert */

/* A number that is the greater, the earlier its expert is taken; what is no number comes last. */
__device__ __forceinline__ uint32_t route_order(float x)
{
    uint32_t bits = __float_as_uint(x + 0.0f); /* the two zeros are one */
    return x != x ? ROUTE_TAKEN + 1 : bits >> 31 ? ~bits : bits | 0x80000000u;
}

/* The lane's experts are every 32nd, SLOTS of them. */
template <int SLOTS>
__device__ __forceinline__ void route_best(const uint32_t (&orders)[SLOTS], uint32_t *order,
                                           uint32_t *slot)
{
    *order = ROUTE_TAKEN;
#pragma unroll
    for (int i = SLOTS - 1; i >= 0; i--) /* of equal ones the first */
        if (orders[i] >= *order) {
            *order = orders[i];
            *slot = (uint32_t)i;
        }
}

/* The `top` experts in the order in which they are taken: lane i knows the i-th. */
template <int SLOTS>
__device__ __forceinline__ uint32_t route_choose(const struct route_args &a, const float *logits,
                                                 uint32_t lane)
{
    uint32_t orders[SLOTS], order, slot, mine = 0;
#pragma unroll
    for (int i = 0; i < SLOTS; i++) {
        uint32_t e = (uint32_t)i * WARP + lane;
        float key = e < a.count ? logits[e] : 0.0f;
        if (a.bias && e < a.count)
            key = route_sigmoid(key) + a.bias[e];
        orders[i] = e < a.count ? route_order(key) : ROUTE_TAKEN;
    }
    route_best(orders, &order, &slot);
    for (uint32_t i = 0; i < a.top; i++) {
        uint32_t most = __reduce_max_sync(FULL_MASK, order), e = slot * WARP + lane;
        uint32_t best = __reduce_min_sync(FULL_MASK, order == most ? e : UINT32_MAX);
        if (lane == i)
            mine = best;
        if (best % WARP != lane)
            continue;
#pragma unroll
        for (int j = 0; j < SLOTS; j++)
            orders[j] = (uint32_t)j == best / WARP ? ROUTE_TAKEN : orders[j];
        route_best(orders, &order, &slot);
    }
    return mine;
}

/* The segments of the only row, whose routes each lane has one of. */
__device__ __forceinline__ void route_segments(const struct segments_args &s, uint32_t expert,
                                               uint32_t lane)
{
    uint32_t own = lane < s.top ? min(expert - s.own.first, s.own.count) : s.own.count, at = 0;
    for (uint32_t base = 0; base <= s.own.count; base += WARP) {
        uint32_t first = base + lane, before = 0;
        for (uint32_t i = 0; i < s.top; i++)
            before += __shfl_sync(FULL_MASK, own, i) < first;
        if (first <= s.own.count)
            s.segments[first] = before;
    }
    for (uint32_t i = 0; i < s.top; i++)
        at += __shfl_sync(FULL_MASK, own, i) < own;
    if (own < s.own.count)
        s.segments[s.own.count + 1 + at] = lane;
}

/* A row's routes, by a warp. The lane's expert, of those that are taken. */
__device__ __forceinline__ uint32_t route_take(const struct route_args &a, const float *logits,
                                               struct route *routes, uint32_t lane)
{
    static_assert(ROUTE_TOP_MAX <= WARP, "each lane has a route");
    static_assert(ROUTE_EXPERTS_MAX == 16 * WARP, "as many slots");
    float most = 0.0f, sum = 1.0f;
    bool softmax = a.scores == ROUTE_SCORES_SOFTMAX;
    if (softmax)
        route_softmax(logits, a.count, lane, &most, &sum);
    uint32_t mine = a.count <= 2 * WARP   ? route_choose<2>(a, logits, lane)
                    : a.count <= 4 * WARP ? route_choose<4>(a, logits, lane)
                                          : route_choose<16>(a, logits, lane);
    float weight = softmax ? __expf(logits[mine] - most) / sum : route_sigmoid(logits[mine]);
    float all = warp_sum(lane < a.top ? weight : 0.0f);
    if (lane < a.top)
        routes[lane] = {mine, (a.normalised ? weight / all : weight) * a.scale};
    if (a.shared && lane == 0)
        routes[a.top] = {a.count, a.w.n > a.count ? route_sigmoid(logits[a.count]) : 1.0f};
    return mine;
}
