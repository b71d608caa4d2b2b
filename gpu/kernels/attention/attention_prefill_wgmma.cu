/* Prefill attention with wgmma (sm_90a), for head dimensions 64 and 128; bound by the tensor cores.
 *
 * A block has 64 queries of a row and query head for each group of four warps that attends, two or
 * three (attention_prefill_attend.cuh); one group more brings queries, and keys and values
 * (attention_prefill_load.cuh): tiles of 128 positions at multiples of 128, in as many buffers as
 * there is room for. The copy engine brings them, as much of a block of the cache at a time as is
 * next to each other, through a map of all memory, for blocks lie anywhere (memory_map.cuh). What
 * the L2 gives is scarce: two blocks are a cluster, have two query heads of a KV head, and each
 * brings half of a tile for both. What is kept in e4m3 (EIGHT) comes by bulk
 * copies, and the group makes it 16 bits from shared memory to shared memory
 * (attention_prefill_eight.cuh), for which it has more registers. Blocks stay until no item is left
 * (attention_prefill_items.cuh).
 *
 * But where few items have most of a step's keys, or are fewer than processors, keys are shared out
 * (attention_prefill_spans.cuh), and bits depend on how they are cut.
 * Figures: tests/bench/EXPERIMENTS.md. */
#include "gpu/kernels/attention/attention_prefill_attend.cuh"
#include "gpu/kernels/attention/attention_prefill_eight.cuh"
#include "gpu/kernels/common/device_props.cuh"
#include "gpu/kernels/common/tensor_map.cuh"

template <int HD> constexpr uint32_t WGMMA_THREADS = GROUP_THREADS *(CONSUMERS<HD> + 1);

namespace HALF
{

/* What stands behind spans reads the batch before its wait, and may not start before ours is over.
 */
template <int HD, bool CAP, bool EIGHT, bool PACKED, uint32_t BLOCKS>
__global__ void __launch_bounds__(WGMMA_THREADS<HD>, 1)
    wgmma_kernel(const __grid_constant__ struct attention_args a, uint32_t block_shift,
                 const __grid_constant__ prefill_spans spans,
                 const __grid_constant__ wgmma_memory kept)
{
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(1024) char memory[];
    wgmma_shared<HD, EIGHT> &shared = *reinterpret_cast<wgmma_shared<HD, EIGHT> *>(
        memory + (1024 - shared_address(memory) % 1024) % 1024);
    const struct batch_group &group = a.batch.groups[a.kv.group];
    if (!PACKED)
        grid_trigger();
    if (threadIdx.x == 0) {
        const uint32_t warps = CONSUMERS<HD> * GROUP_THREADS / WARP;
        ring_init(shared_address(shared.k_ring.full), K_STAGES<HD, EIGHT>,
                  EIGHT ? GROUP_THREADS : 1);
        ring_init(shared_address(shared.v_ring.full), V_STAGES<HD, EIGHT>,
                  EIGHT ? GROUP_THREADS : 1);
        ring_init(shared_address(shared.k_ring.empty), K_STAGES<HD, EIGHT>, warps * BLOCKS);
        ring_init(shared_address(shared.v_ring.empty), V_STAGES<HD, EIGHT>, warps * BLOCKS);
        ring_init(shared_address(shared.q_ring.full), Q_STAGES, Q_THREADS<EIGHT>);
        ring_init(shared_address(shared.q_ring.empty), Q_STAGES, warps);
        if constexpr (EIGHT) {
            ring_init(shared_address(shared.kept.full), sizeof(shared.kept.full) / 8, 1);
        } else {
            ring_init(shared_address(shared.cut), V_STAGES<HD, EIGHT>, 1);
            ring_init(shared_address(shared.told.ring.full), ITEMS, 1);
            ring_init(shared_address(shared.told.ring.empty), ITEMS, ITEM_READERS * BLOCKS);
            ring_init(shared_address(&shared.told.wanted), 1, 1);
        }
        barrier_init_done();
    }
    if (BLOCKS > 1)
        cluster_sync();
    else
        __syncthreads();
    grid_wait();
    if (PACKED)
        grid_trigger();
    if (threadIdx.x < CONSUMERS<HD> * GROUP_THREADS) {
        registers_more<CONSUMERS<HD> == 3 ? 160 : EIGHT ? 216 : 224>();
        wgmma_consume<HD, CAP, EIGHT, PACKED, BLOCKS>(a, group.window, spans, shared);
    } else {
        registers_less<CONSUMERS<HD> == 3 ? 32 : EIGHT ? 72 : 56>();
        if constexpr (EIGHT)
            wgmma_load_eight<HD, PACKED>(a, group, spans, shared, block_shift);
        else
            wgmma_load<HD, PACKED, BLOCKS>(a, group, spans, kept, shared, block_shift);
    }
    __syncwarp();
    if (BLOCKS > 1)
        cluster_sync(); /* nobody's memory goes while the other one may write or tell there */
#endif
}

/* Rows of a head stand at multiples of their size, where slabs do. */
static bool wgmma_rows_aligned(const struct attention_args *args)
{
    uint64_t row = args->head_dim * 2;
    return args->kv.format == FORMAT_E4M3 ||
           (args->batch.groups[args->kv.group].block_bytes | args->kv.k | args->kv.v) % row == 0;
}

bool attention_prefill_wgmma_can(const struct attention_args *args)
{
    uint32_t dim = args->head_dim;
    return device_props()->major == 9 && args->dtype == DTYPE_HALF &&
           (args->kv.format == FORMAT_HALF || args->kv.format == FORMAT_E4M3) &&
           ((dim == 64 && args->softcap == 0) || dim == 128) && args->q_stride % 8 == 0 &&
           tensor_map_can() && wgmma_rows_aligned(args) && args->out_stride % 8 == 0 &&
           reinterpret_cast<uintptr_t>(args->q) % 16 == 0 &&
           reinterpret_cast<uintptr_t>(args->out) % 16 == 0;
}

/* What the step's bounds say, with the window of this layer. */
template <int HD> static spans_step wgmma_step(const struct attention_args *args, bool packed)
{
    uint32_t per = packed ? args->heads / args->kv_heads : 1;
    spans_step step =
        spans_step_of(&args->batch, packed ? args->kv_heads : args->heads, per, QUERIES<HD>);
    uint64_t window = args->batch.groups[args->kv.group].window;
    uint64_t seen = (window + QUERIES<HD>) / KEYS + 2;
    if (window && seen < step.tiles)
        step.tiles = (uint32_t)seen;
    if (step.total > (uint64_t)step.items * step.tiles)
        step.total = (uint64_t)step.items * step.tiles;
    return step;
}

template <int HD>
static prefill_spans wgmma_spans(const struct attention_args *args, const spans_step &step)
{
    prefill_spans spans = {SPAN_WHOLE, NULL, NULL, NULL};
    size_t header = spans_header_bytes(args->batch.tokens_max);
    bool fits = args->heads / args->kv_heads <= QUERIES<HD>; /* a tile has a token of its own */
    if (!args->scratch || args->scratch_bytes < header || !fits)
        return spans;
    size_t room = (args->scratch_bytes - header) / spans_record_bytes(HD);
    spans.tiles = spans_choose(step, room, device_props()->processors);
    if (spans.tiles == SPAN_WHOLE)
        return spans;
    char *base = static_cast<char *>(args->scratch);
    size_t stats = spans_units(step, spans.tiles) * QUERIES<HD> * sizeof(float2);
    spans.tile_unit = reinterpret_cast<uint32_t *>(base);
    spans.stat = reinterpret_cast<float2 *>(base + header);
    spans.out = reinterpret_cast<float *>(base + header + stats);
    return spans;
}

/* Boxes of as many rows as are next to each other everywhere; two blocks bring some each. */
template <int HD>
static cudaError_t wgmma_memory_of(const struct attention_args *args, uint32_t blocks,
                                   wgmma_memory *out)
{
    const uint32_t most = KEYS / blocks, rows = args->batch.block_tokens;
    out->rows = rows < most ? rows : most;
    return args->kv.format == FORMAT_E4M3 ? cudaSuccess
                                          : tensor_map_memory(&out->map, DTYPE_HALF, HD, out->rows);
}

template <int HD, bool CAP, bool EIGHT, bool PACKED, uint32_t BLOCKS>
static cudaError_t wgmma_launch_items(const struct attention_args *args, const prefill_spans &spans,
                                      uint32_t items, cudaStream_t stream)
{
    static_assert(sizeof(wgmma_shared<HD, EIGHT>) + 1024 <= 227 << 10, "of one block");
    const auto kernel = wgmma_kernel<HD, CAP, EIGHT, PACKED, BLOCKS>;
    const uint32_t room = device_clusters(device_props(), BLOCKS), shift = args->batch.block_tokens;
    static struct device_once once;
    wgmma_memory memory;
    cudaError_t result = device_allow(&once, kernel, device_props());
    if (result == cudaSuccess)
        result = wgmma_memory_of<HD>(args, BLOCKS, &memory);
    if (result != cudaSuccess || !items)
        return result;
    cudaLaunchAttribute attributes[2];
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((items < room ? items : room) * BLOCKS);
    config.blockDim = dim3(WGMMA_THREADS<HD>);
    config.dynamicSmemBytes = sizeof(wgmma_shared<HD, EIGHT>) + 1024;
    config.stream = stream;
    config.attrs = attributes;
    attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
    if (BLOCKS > 1) {
        attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
        attributes[config.numAttrs++].val.clusterDim = {BLOCKS, 1, 1};
    }
    return cudaLaunchKernelEx(&config, kernel, *args, (uint32_t)__builtin_ctz(shift), spans,
                              memory);
}

/* Packed where that is a fifth fewer turns of the processors, or where spans are cut. */
template <int HD, bool CAP, bool EIGHT>
static cudaError_t wgmma_launch_format(const struct attention_args *args, cudaStream_t stream)
{
    if (!args->batch.next_item)
        return cudaErrorInvalidValue;
    const spans_step step = wgmma_step<HD>(args, false), packed = wgmma_step<HD>(args, true);
    const uint32_t processors = device_props()->processors;
    prefill_spans spans = wgmma_spans<HD>(args, packed);
    if (spans.tiles != SPAN_WHOLE) {
        uint32_t units = (uint32_t)spans_units(packed, spans.tiles);
        cudaError_t result =
            wgmma_launch_items<HD, CAP, EIGHT, true, 1>(args, spans, units, stream);
        return result == cudaSuccess ? attention_prefill_combine(args, &spans, stream) : result;
    }
    if (ceil_div(packed.items, processors) * 5 <= ceil_div(step.items, processors) * 4)
        return wgmma_launch_items<HD, CAP, EIGHT, true, 1>(args, spans, packed.items, stream);
    if constexpr (!EIGHT) {
        if (args->heads / args->kv_heads % 2 == 0)
            return wgmma_launch_items<HD, CAP, EIGHT, false, 2>(args, spans, step.items / 2,
                                                                stream);
    }
    return wgmma_launch_items<HD, CAP, EIGHT, false, 1>(args, spans, step.items, stream);
}

template <int HD, bool CAP>
static cudaError_t wgmma_launch(const struct attention_args *args, cudaStream_t stream)
{
    return args->kv.format == FORMAT_E4M3 ? wgmma_launch_format<HD, CAP, true>(args, stream)
                                          : wgmma_launch_format<HD, CAP, false>(args, stream);
}

cudaError_t attention_prefill_wgmma(const struct attention_args *args, cudaStream_t stream)
{
    if (args->head_dim == 64)
        return wgmma_launch<64, false>(args, stream);
    return args->softcap != 0 ? wgmma_launch<128, true>(args, stream)
                              : wgmma_launch<128, false>(args, stream);
}

} // namespace HALF
