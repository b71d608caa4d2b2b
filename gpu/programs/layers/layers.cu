#include <cuda_runtime.h>

#include "gpu/programs/layers/layers.h"

#define SIDE 16 /* threads of a block, each way */
#define THREADS (SIDE * SIDE)
#define EACH 4             /* rows, and outputs, of a thread: every 16th of the tile */
#define TILE (SIDE * EACH) /* of rows, and of outputs */
#define DEPTH 32           /* of k that lie in shared memory at a time */

/* A tile of 64 rows, or of 64 outputs' weights, so much of k: k by k, as it is read. What lies
 * beyond is 0, and adds nothing. A column more keeps neighbours out of one bank. */
static __device__ void load(float (*tile)[TILE + 1], const uint16_t *from, uint32_t first,
                            uint32_t count, uint32_t at, uint32_t width)
{
    for (uint32_t i = threadIdx.x; i < TILE * DEPTH; i += THREADS) {
        const uint32_t row = first + i / DEPTH, k = at + i % DEPTH;
        tile[i % DEPTH][i / DEPTH] =
            row < count && k < width ? layers_float(from[(uint64_t)row * width + k]) : 0;
    }
}

/* A block of threads for each tile of the result; each sum is from the first k to the last. */
static __global__ void __launch_bounds__(THREADS) dense(const struct layers_step step)
{
    __shared__ float x[DEPTH][TILE + 1], w[DEPTH][TILE + 1];
    const uint32_t row = blockIdx.y * TILE, output = blockIdx.x * TILE;
    const uint32_t down = threadIdx.x / SIDE, across = threadIdx.x % SIDE;
    float sums[EACH][EACH] = {};
    for (uint32_t at = 0; at < step.width; at += DEPTH) {
        load(x, step.from, row, step.rows, at, step.width);
        load(w, step.weights, output, step.width, at, step.width);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < DEPTH; k++)
#pragma unroll
            for (int i = 0; i < EACH; i++)
#pragma unroll
                for (int j = 0; j < EACH; j++)
                    sums[i][j] = fmaf(x[k][down + i * SIDE], w[k][across + j * SIDE], sums[i][j]);
        __syncthreads();
    }
    for (int i = 0; i < EACH; i++)
        for (int j = 0; j < EACH; j++) {
            const uint32_t r = row + down + i * SIDE, o = output + across + j * SIDE;
            if (r < step.rows && o < step.width)
                step.to[(uint64_t)r * step.width + o] =
                    layers_result(sums[i][j], step.bias[o], step.last);
        }
}

static int layers_dense(const struct layers_step *step, const struct sluice_batch *batch,
                        const struct sluice_streams *streams, uint32_t stream)
{
    const dim3 grid((step->width + TILE - 1) / TILE, (step->rows + TILE - 1) / TILE);
    (void)batch;
    dense<<<grid, THREADS, 0, streams->streams[stream]>>>(*step);
    return (int)cudaGetLastError();
}

/* By the addresses, CUDA knows on which devices both lie: between two of them it is a peer copy. */
static int layers_copy(void *to, const void *from, uint64_t bytes, const struct sluice_batch *batch,
                       const struct sluice_streams *streams)
{
    (void)batch;
    return (int)cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, streams->streams[LAYERS_LINK]);
}

static int layers_join(const struct sluice_streams *streams, uint32_t before, uint32_t behind,
                       uint32_t event)
{
    const cudaError_t status = cudaEventRecord(streams->events[event], streams->streams[before]);
    return (int)(status ? status
                        : cudaStreamWaitEvent(streams->streams[behind], streams->events[event], 0));
}

SLUICE_EXPORT const struct sluice_program sluice_program_cuda = LAYERS;
