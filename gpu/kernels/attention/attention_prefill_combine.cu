/* Behind attention_prefill_wgmma.cu where it cut keys into spans: puts the records of a query
 * together, from the first span to the last. A warp has a query; lane i what span i is scaled by.
 * Which unit a query is of is read from the batch ahead of the wait. */
#include "gpu/kernels/attention/attention_prefill_spans.cuh"
#include "gpu/kernels/attention/attention_tuned.cuh"
#include "gpu/kernels/common/mma.cuh"

#define COMBINE_WARPS 8
#define AT_ONCE 4 /* spans that are asked for before the first is waited for */

namespace HALF
{

template <int HD> struct span_part {
    float2 of[HD / 64];
};

template <int HD>
__device__ __forceinline__ span_part<HD> span_load(const prefill_spans &spans, size_t record)
{
    const float2 *from = reinterpret_cast<const float2 *>(spans.out + record * HD) +
                         threadIdx.x % WARP * (HD / 64);
    span_part<HD> out;
#pragma unroll
    for (int i = 0; i < HD / 64; i++)
        out.of[i] = from[i];
    return out;
}

template <int HD>
__global__ void __launch_bounds__(COMBINE_WARPS *WARP)
    prefill_combine_kernel(const __grid_constant__ struct attention_args a,
                           const __grid_constant__ struct prefill_spans spans)
{
    grid_trigger();
    const struct batch_group &group = a.batch.groups[a.kv.group];
    const uint32_t per = a.heads / a.kv_heads, size = QUERIES<HD>, lane = threadIdx.x % WARP;
    uint32_t token = blockIdx.x, head = blockIdx.y * COMBINE_WARPS + threadIdx.x / WARP;
    bool exists = token < a.batch.counts->tokens && head < a.heads;
    attention_row row = attention_row_at(a.batch, group, exists ? a.batch.token_row[token] : 0);
    grid_wait();
    if (!exists || row.q_len <= ATTENTION_DECODE_MAX)
        return;
    uint32_t query = (token - row.token) * per + head % per, tile = query / size;
    const uint32_t count =
        spans_of(row.position, row.q_len, per, size, tile, group.window, spans.tiles).count;
    if (count == 1)
        return;
    const size_t step = (size_t)a.kv_heads * size, unit = spans.tile_unit[row.token + tile];
    size_t record = (unit * a.kv_heads + head / per) * size + query % size;
    float2 stat = lane < count ? spans.stat[record + lane * step] : make_float2(-INFINITY, 0);
    float most = stat.x;
#pragma unroll
    for (int offset = WARP / 2; offset; offset /= 2)
        most = fmaxf(most, __shfl_xor_sync(FULL_MASK, most, offset));
    float scale = exp2_fast(stat.x - (most == -INFINITY ? 0.0f : most)), sum = 0;
    span_part<HD> out = {};
    for (uint32_t first = 0; first < count; first += AT_ONCE) {
        span_part<HD> part[AT_ONCE];
#pragma unroll
        for (uint32_t i = 0; i < AT_ONCE; i++)
            part[i] = span_load<HD>(spans, record + min(first + i, count - 1) * step);
#pragma unroll
        for (uint32_t i = 0; i < AT_ONCE; i++) {
            float now = __shfl_sync(FULL_MASK, scale, first + i);
            float more = __shfl_sync(FULL_MASK, stat.y, first + i);
            if (first + i >= count)
                break;
            sum = fmaf(more, now, sum);
#pragma unroll
            for (int j = 0; j < HD / 64; j++) {
                out.of[j].x = fmaf(part[i].of[j].x, now, out.of[j].x);
                out.of[j].y = fmaf(part[i].of[j].y, now, out.of[j].y);
            }
        }
    }
    uint32_t *to = reinterpret_cast<uint32_t *>(static_cast<half_t *>(a.out) +
                                                (size_t)token * a.out_stride + head * HD) +
                   lane * (HD / 64);
    float inverse = attention_sink(a, head, most, &sum) / sum;
#pragma unroll
    for (int j = 0; j < HD / 64; j++)
        to[j] = pack(out.of[j].x * inverse, out.of[j].y * inverse, DTYPE_HALF);
}

cudaError_t attention_prefill_combine(const struct attention_args *args,
                                      const struct prefill_spans *spans, cudaStream_t stream)
{
    dim3 grid(args->batch.tokens_max, ceil_div(args->heads, COMBINE_WARPS));
    if (args->head_dim == 64)
        return launch(prefill_combine_kernel<64>, grid, COMBINE_WARPS * WARP, 0, stream, *args,
                      *spans);
    return launch(prefill_combine_kernel<128>, grid, COMBINE_WARPS * WARP, 0, stream, *args,
                  *spans);
}

} // namespace HALF
