/* Runs once for a weight; a thread takes sixteen bytes, within which everything stays. */
#include "gpu/kernels/common/device.cuh"
#include "gpu/kernels/common/whole.h"
#include "gpu/kernels/load/repack.h"

#define REPACK_THREADS 256
#define REPACK_BYTES 16

__device__ __forceinline__ uint32_t element_of(const uint32_t (&words)[4], uint32_t at,
                                               uint32_t bits)
{
    return words[at * bits / 32] >> at * bits % 32 & ((1u << bits) - 1);
}

__global__ void __launch_bounds__(REPACK_THREADS)
    repack_kernel(uint4 *blocks, uint64_t count, enum format format)
{
    grid_trigger();
    grid_wait();
    const uint32_t bits = format == FORMAT_U4 ? 4 : 8;
    for (uint64_t i = (uint64_t)blockIdx.x * REPACK_THREADS + threadIdx.x; i < count;
         i += (uint64_t)gridDim.x * REPACK_THREADS) {
        uint4 from = blocks[i];
        const uint32_t plain[4] = {from.x, from.y, from.z, from.w};
        uint32_t out[4] = {};
        for (uint32_t k = 0; k < REPACK_BYTES * 8 / bits; k++) {
            uint32_t to = whole_place(format, k);
            out[to * bits / 32] |= element_of(plain, k, bits) << to * bits % 32;
        }
        blocks[i] = make_uint4(out[0], out[1], out[2], out[3]);
    }
}

cudaError_t op_repack(const struct weight *weight, cudaStream_t stream)
{
    if (!weight->data || !whole_is(weight->format) || !whole_repacked(weight))
        return cudaSuccess;
    uint64_t count = format_bytes(weight->format, weight->n, weight->k) / REPACK_BYTES;
    uint64_t grid = (count + REPACK_THREADS - 1) / REPACK_THREADS;
    return launch(repack_kernel, dim3(grid < 65536 ? static_cast<unsigned>(grid) : 65536),
                  REPACK_THREADS, 0, stream, static_cast<uint4 *>(const_cast<void *>(weight->data)),
                  count, weight->format);
}
