/* The kernel of attention_decode_throughput.cu, for keys and values of 16 bits and of 8. */
#pragma once

#include "gpu/kernels/attention/attention_decode_throughput.cuh"
#include "gpu/kernels/common/device_props.cuh"

namespace HALF
{

/* WHOLE: records may not fit (attention_plan.cuh); other launches do not pay for the registers.
 * Before grid_wait only what kernels before op_rope have written is read: op_rope lets this one
 * start when it has waited for those itself. */
template <int HD, int TILES, bool WHOLE, bool CAP, bool EIGHT>
__global__ void __launch_bounds__(warp_shape<HD, EIGHT>::warps *WARP, 1)
    warps_kernel(const __grid_constant__ struct attention_args a,
                 const __grid_constant__ struct decode_scratch scratch, uint32_t ring_bytes,
                 uint32_t block_shift)
{
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(128) char memory[];
    warp_shared<HD> &shared = *reinterpret_cast<warp_shared<HD> *>(memory);
    const struct batch_group &group = a.batch.groups[a.kv.group];
    uint32_t warp = threadIdx.x / WARP;
    warp_world world = {};
    world.args = &a;
    world.group = &group;
    world.plan = &shared.plan;
    world.shape = {a.kv_heads, a.heads / a.kv_heads, 8 * TILES, a.invariant};
    world.block_shift = block_shift;
    world.full = shared_address(shared.full[warp]);
    world.policy = policy_once();
    grid_trigger();
    /* By one lane: what lanes make that are left out by a predicate, synccheck takes for real. */
    if (threadIdx.x % WARP == 0)
        ring_init(world.full, WARP_STAGES_MAX, 1);
    barrier_init_done();
    plan_count(shared.plan, a.batch, group, world.shape, false);
    if (WHOLE && shared.plan.records[plan_entries(shared.plan)] > scratch.capacity) {
        __syncthreads();
        plan_count(shared.plan, a.batch, group, world.shape, true);
    }
    world.total = shared.plan.items[plan_entries(shared.plan)];
    world.first = warp * gridDim.x + blockIdx.x;
    world.dealt = gridDim.x * warp_shape<HD, EIGHT>::warps;
    world.dealt = world.dealt < world.total ? world.dealt : world.total;
    /* The rings of warps that have nothing to do are the others'. */
    uint32_t active = (world.total + gridDim.x - 1) / gridDim.x;
    constexpr uint32_t most = warp_shape<HD, EIGHT>::warps;
    active = active < 1 ? 1 : active > most ? most : active;
    uint32_t stages =
        ring_stages(ring_bytes, active * warp_shape<HD, EIGHT>::part, WARP_STAGES_MAX);
    world.stages = stages;
    world.ring = (shared_address(memory) + sizeof(shared) + 127) / 128 * 128 +
                 warp * stages * warp_shape<HD, EIGHT>::part;
    warp_fetch fetch;
    fetch_begin<HD, EIGHT>(world, fetch);
    bool waited = false;
    for (uint32_t asked = 0; asked < stages; asked++) {
        /* With an item's last part the next one is taken: the kernel before may be taking, too. */
        bool last = fetch.now.span == fetch.now.span_last;
        if (!waited &&
            (last || fetch.now.number != world.first || fetch.now.span >= fetch.now.old)) {
            grid_wait();
            waited = true;
        }
        fetch_part<HD, EIGHT>(world, fetch, false);
    }
    if (!waited)
        grid_wait();
    ring_cursor at = {0, 0};
    decode_state<HD, TILES> s;
    eight_state<EIGHT, TILES> eight;
    for (;;) {
        uint32_t entry, number = fetch_item(fetch, &entry);
        if (number >= world.total)
            break;
        attention_item item = plan_item(shared.plan, a.batch, group, world.shape, number, entry);
        if constexpr (EIGHT)
            eight_load_q(s, eight, a, item, world.shape);
        else
            warp_load_q(s, a, item, world.shape);
        decode_positions(s, item, world.shape);
        warp_split<CAP, EIGHT>(world, fetch, s, item, item.split, at, eight);
        if (WHOLE && item.split + 1 < item.split_end) {
            decode_state<HD, TILES> all;
            warp_clear(all);
            warp_fold(all, s);
            for (uint32_t split = item.split + 1; split < item.split_end; split++) {
                warp_split<CAP, EIGHT>(world, fetch, s, item, split, at, eight);
                warp_fold(all, s);
            }
            warp_store(all, a, scratch, item, world.shape);
            continue;
        }
        warp_store(s, a, scratch, item, world.shape);
    }
#endif
}

template <int HD, int TILES, bool WHOLE, bool CAP, bool EIGHT>
static cudaError_t warps_launch(const struct attention_args *args,
                                const struct decode_scratch &scratch, cudaStream_t stream)
{
    const struct device_props *device = device_props();
    size_t fixed = sizeof(warp_shared<HD>) + 128 + LEFT_BYTES;
    uint32_t ring_bytes = static_cast<uint32_t>(device->shared_max - fixed) / 128 * 128;
    static struct device_once once;
    cudaError_t result = device_allow(&once, warps_kernel<HD, TILES, WHOLE, CAP, EIGHT>, device);
    if (result != cudaSuccess)
        return result;
    return launch(warps_kernel<HD, TILES, WHOLE, CAP, EIGHT>, dim3(device->processors),
                  warp_shape<HD, EIGHT>::warps * WARP, fixed - LEFT_BYTES + ring_bytes, stream,
                  *args, scratch, ring_bytes, (uint32_t)__builtin_ctz(args->batch.block_tokens));
}

template <int HD, int TILES, bool EIGHT>
static cudaError_t warps_launch_tiles(const struct attention_args *args,
                                      const struct decode_scratch &scratch, bool whole,
                                      cudaStream_t stream)
{
    const bool can_cap = HD > 64; /* attention_decode_latency_can() */
    if (args->softcap != 0)
        return whole ? warps_launch<HD, TILES, true, can_cap, EIGHT>(args, scratch, stream)
                     : warps_launch<HD, TILES, false, can_cap, EIGHT>(args, scratch, stream);
    return whole ? warps_launch<HD, TILES, true, false, EIGHT>(args, scratch, stream)
                 : warps_launch<HD, TILES, false, false, EIGHT>(args, scratch, stream);
}

template <int HD, bool EIGHT>
static cudaError_t warps_launch_dim(const struct attention_args *args,
                                    const struct decode_scratch &scratch, bool whole,
                                    cudaStream_t stream)
{
    const uint32_t queries = args->batch.decode_len_max * (args->heads / args->kv_heads);
    /* One tile sums scores otherwise than two. */
    if (HD > 128 || (queries <= 8 && !args->invariant))
        return warps_launch_tiles<HD, 1, EIGHT>(args, scratch, whole, stream);
    return warps_launch_tiles<HD, (HD > 128 ? 1 : 2), EIGHT>(args, scratch, whole, stream);
}

template <bool EIGHT>
static cudaError_t warps_launch_any(const struct attention_args *args,
                                    const struct decode_scratch *scratch, bool whole,
                                    cudaStream_t stream)
{
    if (!args->batch.next_item)
        return cudaErrorInvalidValue;
    if (args->head_dim == 64)
        return warps_launch_dim<64, EIGHT>(args, *scratch, whole, stream);
    if (args->head_dim == 96)
        return warps_launch_dim<96, EIGHT>(args, *scratch, whole, stream);
    if (args->head_dim == 128)
        return warps_launch_dim<128, EIGHT>(args, *scratch, whole, stream);
    return warps_launch_dim<256, EIGHT>(args, *scratch, whole, stream);
}

} // namespace HALF
