/* Every block puts its share of this rank's columns before it waits for others', and there are no
 * more blocks than SMs: see allreduce_norm.cu. Chunks of 16 bytes where the slices allow it. */
#include "gpu/kernels/collective/all_gather.h"
#include "gpu/kernels/collective/inbox.cuh"
#include "gpu/kernels/common/device_props.cuh"

#define THREADS 512
#define AHEAD 4 /* chunks of a thread that are on their way at a time */

/* Chunks of a row: of the whole, of a full slice, of rank r's slice. */
template <class Chunk> struct widths {
    uint32_t row, share;
    __device__ explicit widths(const struct all_gather_args &a)
        : row(a.width / (sizeof(Chunk) / 4)), share(a.share / (sizeof(Chunk) / 4))
    {
    }
    __device__ uint32_t slice(uint32_t rank) const
    {
        uint32_t first = rank * share, left = row > first ? row - first : 0;
        return left < share ? left : share;
    }
};

template <class Chunk>
__device__ void put(const struct all_gather_args &a, const widths<Chunk> &width, size_t rows)
{
    uint32_t slice = width.slice(a.inboxes.rank);
    const Chunk *x = reinterpret_cast<const Chunk *>(a.x) + a.inboxes.rank * width.share;
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < rows * slice;
         i += (size_t)gridDim.x * THREADS) {
        size_t row = i / slice, column = i % slice;
        inbox_put(a.inboxes, row * width.share + column, x[row * width.row + column]);
    }
}

/* False: the group has failed. */
template <class Chunk>
__device__ bool take(const struct all_gather_args &a, const widths<Chunk> &width, size_t rows,
                     uint32_t from)
{
    const struct inboxes &inboxes = a.inboxes;
    uint32_t slice = width.slice(from);
    Chunk *x = reinterpret_cast<Chunk *>(a.x) + from * width.share;
    size_t step = (size_t)gridDim.x * THREADS;
    for (size_t first = (size_t)blockIdx.x * THREADS + threadIdx.x; first < rows * slice;
         first += AHEAD * step) {
        Chunk got[AHEAD];
        bool there = false;
        for (uint32_t turn = 1; !there; turn++) {
            there = true;
#pragma unroll
            for (int k = 0; k < AHEAD; k++) {
                size_t i = first + k * step;
                if (i >= rows * slice)
                    break;
                got[k] = inbox_load(inbox_chunk<Chunk>(inboxes, inboxes.rank, from,
                                                       i / slice * width.share + i % slice));
                there = there && inbox_there(got[k]);
            }
            if (!there && inbox_let_go(inboxes, turn))
                return false;
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            size_t i = first + k * step;
            if (i >= rows * slice)
                break;
            inbox_clear(inbox_chunk<Chunk>(inboxes, inboxes.rank, from,
                                           i / slice * width.share + i % slice));
            x[i / slice * width.row + i % slice] = got[k];
        }
    }
    return true;
}

template <class Chunk>
__global__ void __launch_bounds__(THREADS, 1) collect_kernel(struct all_gather_args a)
{
    grid_trigger();
    grid_wait();
    widths<Chunk> width(a);
    uint32_t rows = range_rows(a.rows);
    put<Chunk>(a, width, rows);
    bool going = true;
    for (uint32_t i = 1; going && i < a.inboxes.ranks; i++)
        going = take<Chunk>(a, width, rows, (a.inboxes.rank + i) % a.inboxes.ranks);
}

cudaError_t op_all_gather(const struct all_gather_args *args, cudaStream_t stream)
{
    if (args->inboxes.ranks > INBOX_RANKS_MAX)
        return cudaErrorInvalidValue;
    bool wide = (args->width | args->share) % 4 == 0;
    unsigned blocks = ceil_div((uint64_t)args->rows.max * args->share / (wide ? 4 : 1), THREADS);
    unsigned most = device_props()->processors;
    dim3 grid(args->rows.max == 0 ? 0 : blocks < 1 ? 1 : blocks < most ? blocks : most);
    if (wide)
        return launch(collect_kernel<uint4>, grid, THREADS, 0, stream, *args);
    return launch(collect_kernel<uint32_t>, grid, THREADS, 0, stream, *args);
}
