/* A block per row, or token, and part of its width; bound by memory. What a thread has of a row it
 * has of all its tokens, so that nothing is read behind a thread that takes its place. */
#include "gpu/kernels/common/device.cuh"
#include "gpu/kernels/draft/features.h"

#define PLACES (FEATURES_KEPT + 1)

/* Eight elements of one row of `width` to another. */
__device__ __forceinline__ void eight_copy(const struct features &f, void *to, size_t to_row,
                                           const void *from, size_t from_row, uint32_t i)
{
    size_t at = from_row * f.width, out = to_row * f.width;
    float8 value = load_float8(from, at + i, at + f.width, f.dtype);
    store_float8(to, out + i, out + f.width, f.dtype, value);
}

__global__ void keep_kernel(struct keep_args a)
{
    grid_trigger();
    grid_wait();
    const struct features &f = a.features;
    uint32_t i = (blockIdx.y * blockDim.x + threadIdx.x) * 8;
    if (blockIdx.x >= a.batch.counts->rows || i >= f.width)
        return;
    struct batch_row row = a.batch.rows[blockIdx.x];
    size_t places = (size_t)row.slot * PLACES;
    uint32_t before = (row.position - 1) % FEATURES_KEPT;
    uint32_t first = row.q_len > FEATURES_KEPT ? row.q_len - FEATURES_KEPT : 0;
    bool tells = i == 0;
    if (tells) {
        f.rows[row.slot].position = row.position;
        f.rows[row.slot].token = row.token;
        f.positions[places + FEATURES_KEPT] =
            row.position > 0 ? f.positions[places + before] : FEATURES_NONE;
    }
    if (row.position > 0)
        eight_copy(f, f.kept, places + FEATURES_KEPT, f.kept, places + before, i);
    for (uint32_t j = first; j < row.q_len; j++) {
        uint32_t position = row.position + j, place = position % FEATURES_KEPT;
        eight_copy(f, f.kept, places + place, f.step, row.token + j, i);
        if (tells)
            f.positions[places + place] = position;
    }
}

cudaError_t op_keep(const struct keep_args *args, cudaStream_t stream)
{
    unsigned threads = threads_for(args->features.width, 256);
    return launch(keep_kernel,
                  dim3(args->batch.rows_max, ceil_div(args->features.width, threads * 8)), threads,
                  0, stream, *args);
}

__global__ void features_kernel(struct features_args a)
{
    grid_trigger();
    grid_wait();
    const struct features &f = a.features;
    uint32_t token = blockIdx.x, i = (blockIdx.y * blockDim.x + threadIdx.x) * 8;
    if (token >= a.batch.counts->tokens || i >= f.width)
        return;
    uint32_t slot = a.batch.rows[a.batch.token_row[token]].slot;
    uint32_t position = a.batch.token_position[token];
    struct features_row row = f.rows[slot];
    uint32_t place = a.step ? FEATURES_KEPT : position % FEATURES_KEPT;
    size_t places = (size_t)slot * PLACES;
    if (position < a.batch.slots[slot].first) {
        place = PLACES;
    } else if (a.step && position >= row.position) {
        eight_copy(f, a.out, token, f.step, row.token + position - row.position, i);
        return;
    }
    if (place < PLACES && f.positions[places + place] == position) {
        eight_copy(f, a.out, token, f.kept, places + place, i);
        return;
    }
    size_t at = (size_t)token * f.width;
    store_float8(a.out, at + i, at + f.width, f.dtype, float8{});
}

cudaError_t op_features(const struct features_args *args, cudaStream_t stream)
{
    unsigned threads = threads_for(args->features.width, 256);
    return launch(features_kernel,
                  dim3(args->batch.tokens_max, ceil_div(args->features.width, threads * 8)),
                  threads, 0, stream, *args);
}
