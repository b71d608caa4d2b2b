#include <cuda_runtime.h>

#include "gpu/programs/relevance/relevance_math.h"

#define THREADS 256
#define WARPS (THREADS / 32)
#define TILE 32 /* pixels of a block, each way */
#define AROUND (TILE + 2)

/* ---- of a block --------------------------------------------------------------------------------
 */

/* Of all threads' values, in all threads. */
template <typename T, typename JOIN> static __device__ T block_join(T value, JOIN join)
{
    __shared__ T parts[WARPS];
    for (int offset = 16; offset > 0; offset /= 2)
        value = join(value, __shfl_xor_sync(0xffffffffu, value, offset));
    if (threadIdx.x % 32 == 0)
        parts[threadIdx.x / 32] = value;
    __syncthreads();
    value = parts[0];
    for (int i = 1; i < WARPS; i++)
        value = join(value, parts[i]);
    __syncthreads();
    return value;
}

template <typename T> static __device__ T block_sum(T value)
{
    return block_join(value, [](T one, T other) { return one + other; });
}

static __device__ uint32_t block_max(uint32_t value)
{
    return block_join(value, [](uint32_t one, uint32_t other) { return max(one, other); });
}

/* ---- texture -----------------------------------------------------------------------------------
 */

static __device__ int within(int place, int count)
{
    return place < 0 ? 0 : place < count ? place : count - 1;
}

/* A tile and a pixel around it, as lightness, a and b; beyond the image's edge it goes on as it
 * ends. */
static __device__ void load_tile(const struct sluice_item *item, int left, int top,
                                 const float *linear, float (*lab)[AROUND * AROUND])
{
    const int height = (int)item->sizes[0], width = (int)item->sizes[1];
    const unsigned char *image = (const unsigned char *)item->inputs[0];
    for (int i = threadIdx.x; i < AROUND * AROUND; i += THREADS) {
        const int x = within(left + i % AROUND - 1, width);
        const int y = within(top + i / AROUND - 1, height);
        const unsigned char *rgb = image + ((uint64_t)y * width + x) * 3;
        const struct relevance_lab own =
            relevance_lab(linear[rgb[0]], linear[rgb[1]], linear[rgb[2]]);
        lab[0][i] = own.l;
        lab[1][i] = own.a;
        lab[2][i] = own.b;
    }
}

static __device__ void write_pixel(const struct sluice_item *item, int x, int y, int in_tile,
                                   float (*lab)[AROUND * AROUND])
{
    const uint64_t pixels = relevance_pixels(item), pixel = y * item->sizes[1] + x;
    const unsigned char *rgb = (const unsigned char *)item->inputs[0] + pixel * 3;
    float *planes = relevance_plane(item, 0), around[3][9];
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < 9; j++)
            around[i][j] = lab[i][in_tile + (j / 3 - 1) * AROUND + j % 3 - 1];
        planes[(CHANNEL_RED + i) * pixels + pixel] = (float)rgb[i] / 255;
        planes[(CHANNEL_LIGHTNESS + i) * pixels + pixel] = around[i][4];
    }
    relevance_edges(around, planes, pixels, pixel);
    relevance_place(item, (uint32_t)x, (uint32_t)y, planes, pixels, pixel);
}

/* A block for each tile of each image. */
static __global__ void __launch_bounds__(THREADS) texture(const struct sluice_item *items)
{
    __shared__ float linear[256], lab[3][AROUND * AROUND];
    const struct sluice_item *item = &items[blockIdx.z];
    const int left = blockIdx.x * TILE, top = blockIdx.y * TILE;
    const int height = (int)item->sizes[0], width = (int)item->sizes[1];
    if (left >= width || top >= height)
        return;
    linear[threadIdx.x] = relevance_linear(threadIdx.x);
    __syncthreads();
    load_tile(item, left, top, linear, lab);
    __syncthreads();
    for (int i = threadIdx.x; i < TILE * TILE; i += THREADS) {
        const int x = i % TILE, y = i / TILE;
        if (left + x < width && top + y < height)
            write_pixel(item, left + x, top + y, (y + 1) * AROUND + x + 1, lab);
    }
}

/* ---- relevance ---------------------------------------------------------------------------------
 */

/* The pixels of a slice, in rows: which one is the how manieth. */
struct slice {
    struct relevance_patch patch;
    uint32_t first_row, count;
    uint64_t width;
};

static __device__ struct slice slice_of(const struct sluice_item *item, uint32_t number)
{
    struct slice slice;
    slice.patch = relevance_patch(item, number / RELEVANCE_SLICES);
    slice.first_row = number % RELEVANCE_SLICES;
    slice.width = item->sizes[1];
    const uint32_t height = slice.patch.height;
    slice.count = height > slice.first_row ? (height - slice.first_row + RELEVANCE_SLICES - 1) /
                                                 RELEVANCE_SLICES * slice.patch.width
                                           : 0;
    return slice;
}

static __device__ uint64_t pixel_of(const struct slice *slice, uint32_t number)
{
    const uint32_t row = number / slice->patch.width, column = number % slice->patch.width;
    return (slice->patch.y + slice->first_row + row * RELEVANCE_SLICES) * slice->width +
           slice->patch.x + column;
}

/* A block for each slice of each image. */
static __global__ void __launch_bounds__(THREADS) sums(const struct sluice_item *items)
{
    __shared__ uint32_t histogram[RELEVANCE_BINS];
    const struct sluice_item *item = &items[blockIdx.y];
    if (blockIdx.x >= relevance_patches(item) * RELEVANCE_SLICES)
        return;
    const struct slice slice = slice_of(item, blockIdx.x);
    const uint64_t pixels = relevance_pixels(item);
    const float *planes = relevance_plane(item, 0);
    struct relevance_slice *out = &relevance_slices(item)[blockIdx.x];
    int64_t own[CHANNELS] = {0};
    if (threadIdx.x < RELEVANCE_BINS)
        histogram[threadIdx.x] = 0;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < slice.count; i += THREADS) {
        const uint64_t pixel = pixel_of(&slice, i);
#pragma unroll
        for (int j = 0; j < CHANNELS; j++)
            own[j] += relevance_fixed(planes[j * pixels + pixel]);
        atomicAdd(&histogram[relevance_bin(planes[CHANNEL_LIGHTNESS * pixels + pixel])], 1u);
    }
#pragma unroll
    for (int j = 0; j < CHANNELS; j++) {
        const int64_t sum = block_sum(own[j]);
        if (threadIdx.x == 0)
            out->sums[j] = sum;
    }
    if (threadIdx.x < RELEVANCE_BINS) /* all have added: block_sum() waits for all */
        out->histogram[threadIdx.x] = histogram[threadIdx.x];
}

static __device__ struct relevance_lab mean_of(const struct sluice_item *item)
{
    const struct relevance_slice *slices = relevance_slices(item);
    const uint32_t count = relevance_patches(item) * RELEVANCE_SLICES;
    int64_t all[3] = {0, 0, 0};
    for (uint32_t i = threadIdx.x; i < count; i += THREADS)
        for (int j = 0; j < 3; j++)
            all[j] += slices[i].sums[CHANNEL_LIGHTNESS + j];
    for (int j = 0; j < 3; j++)
        all[j] = block_sum(all[j]);
    return relevance_mean(all, relevance_pixels(item));
}

static __global__ void __launch_bounds__(THREADS) salience(const struct sluice_item *items)
{
    const struct sluice_item *item = &items[blockIdx.y];
    if (blockIdx.x >= relevance_patches(item) * RELEVANCE_SLICES)
        return;
    const struct slice slice = slice_of(item, blockIdx.x);
    const struct relevance_lab mean = mean_of(item);
    const uint64_t pixels = relevance_pixels(item);
    int64_t own = 0;
    for (uint32_t i = threadIdx.x; i < slice.count; i += THREADS)
        own += relevance_salience(relevance_plane(item, 0), pixels, pixel_of(&slice, i), mean);
    own = block_sum(own);
    if (threadIdx.x == 0)
        relevance_slices(item)[blockIdx.x].salience = own;
}

/* ---- allocation --------------------------------------------------------------------------------
 */

/* Of all patches of an image, in shared memory. */
struct ballot {
    uint32_t scores[SCORES][RELEVANCE_PATCHES_MAX];
    uint32_t weights[RELEVANCE_PATCHES_MAX];
    uint32_t shares[RELEVANCE_PATCHES_MAX];
    uint32_t rests[RELEVANCE_PATCHES_MAX];
    int64_t sums[WARPS][CHANNELS];
};

/* A warp's: two bins a lane, then a channel a lane, then one lane for the rest. */
static __device__ void score(const struct sluice_item *item, uint32_t patch, struct ballot *ballot)
{
    const struct relevance_patch bounds = relevance_patch(item, patch);
    const struct relevance_slice *slices = relevance_slices(item) + patch * RELEVANCE_SLICES;
    const uint32_t pixels = bounds.width * bounds.height;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned long long count_logs = 0;
    for (int bin = lane; bin < RELEVANCE_BINS; bin += 32) {
        uint32_t count = 0;
        for (int i = 0; i < RELEVANCE_SLICES; i++)
            count += slices[i].histogram[bin];
        if (count > 0)
            count_logs += (unsigned long long)count * relevance_log2(count);
    }
    for (int offset = 16; offset > 0; offset /= 2)
        count_logs += __shfl_xor_sync(0xffffffffu, count_logs, offset);
    if (lane < CHANNELS) {
        int64_t sum = 0;
        for (int i = 0; i < RELEVANCE_SLICES; i++)
            sum += slices[i].sums[lane];
        ballot->sums[warp][lane] = sum;
    }
    __syncwarp();
    if (lane == 0) {
        int64_t stands_out = 0;
        for (int i = 0; i < RELEVANCE_SLICES; i++)
            stands_out += slices[i].salience;
        ballot->scores[SCORE_ENTROPY][patch] = relevance_entropy(count_logs, pixels);
        ballot->scores[SCORE_SALIENCE][patch] = (uint32_t)((uint64_t)stands_out / pixels);
        ballot->scores[SCORE_SIMILARITY][patch] =
            relevance_similarity(ballot->sums[warp], pixels, &item->values[RELEVANCE_QUERY_FIRST]);
    }
    __syncwarp(); /* the sums are the next patch's */
}

/* From here on a thread has each 256th patch, and reads others' when all have written. */
static __device__ void weigh(struct ballot *ballot, uint32_t patches)
{
    for (uint32_t i = threadIdx.x; i < patches; i += THREADS)
        ballot->weights[i] = 1; /* so that where all are alike all get the same */
    for (int which = 0; which < SCORES; which++) {
        const uint32_t *scores = ballot->scores[which];
        uint32_t greatest = 0, least = 0; /* the least one's complement is the greatest */
        for (uint32_t i = threadIdx.x; i < patches; i += THREADS) {
            greatest = max(greatest, scores[i]);
            least = max(least, ~scores[i]);
        }
        greatest = block_max(greatest);
        least = ~block_max(least);
        for (uint32_t i = threadIdx.x; i < patches; i += THREADS)
            ballot->weights[i] += relevance_balanced(scores[i], least, greatest);
    }
}

/* In turns: who would get more than its room in proportion gets that, and the others share the
 * rest. *spare and the sum of their weights are what is left for them. */
static __device__ uint64_t fill(struct ballot *ballot, uint32_t patches, uint64_t *spare)
{
    for (;;) {
        uint64_t sum = 0;
        uint32_t full = 0;
        for (uint32_t i = threadIdx.x; i < patches; i += THREADS)
            sum += ballot->shares[i] < RELEVANCE_ROOM ? ballot->weights[i] : 0;
        sum = block_sum(sum);
        for (uint32_t i = threadIdx.x; i < patches; i += THREADS)
            if (ballot->shares[i] < RELEVANCE_ROOM &&
                *spare * ballot->weights[i] >= RELEVANCE_ROOM * sum) {
                ballot->shares[i] = RELEVANCE_ROOM;
                full++;
            }
        full = block_sum(full);
        if (full == 0)
            return sum;
        *spare -= (uint64_t)full * RELEVANCE_ROOM;
    }
}

/* How many have a greater remainder, or the same and come first. */
static __device__ uint32_t rank_of(const struct ballot *ballot, uint32_t patches, uint32_t patch)
{
    const uint32_t own = ballot->rests[patch];
    uint32_t rank = 0;
    for (uint32_t i = 0; i < patches; i++)
        rank += ballot->rests[i] > own || (ballot->rests[i] == own && i < patch);
    return rank;
}

/* Largest remainders: each gets its share rounded down, and those that lost the most by that one
 * more; of equal ones the first. Who is full has no remainder. */
static __device__ void apportion(struct ballot *ballot, uint32_t patches, uint64_t spare,
                                 int32_t *budgets)
{
    for (uint32_t i = threadIdx.x; i < patches; i += THREADS)
        ballot->shares[i] = 0;
    const uint64_t sum = fill(ballot, patches, &spare);
    uint64_t given = 0;
    for (uint32_t i = threadIdx.x; i < patches; i += THREADS) {
        ballot->rests[i] = 0;
        if (ballot->shares[i] == RELEVANCE_ROOM)
            continue;
        ballot->shares[i] = (uint32_t)(spare * ballot->weights[i] / sum);
        ballot->rests[i] = (uint32_t)(spare * ballot->weights[i] % sum);
        given += ballot->shares[i];
    }
    const uint64_t left = spare - block_sum(given); /* and all remainders are there */
    for (uint32_t i = threadIdx.x; i < patches; i += THREADS) {
        const bool more = ballot->rests[i] > 0 && rank_of(ballot, patches, i) < left;
        budgets[i] = (int32_t)(RELEVANCE_BUDGET_MIN + ballot->shares[i] + more);
    }
}

/* A block for each image. */
static __global__ void __launch_bounds__(THREADS) allocate(const struct sluice_item *items)
{
    __shared__ struct ballot ballot;
    const struct sluice_item *item = &items[blockIdx.x];
    const uint32_t patches = relevance_patches(item);
    float *told = (float *)item->outputs[1];
    for (uint32_t patch = threadIdx.x / 32; patch < patches; patch += WARPS)
        score(item, patch, &ballot);
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < patches * SCORES; i += THREADS)
        told[i] = (float)ballot.scores[i % SCORES][i / SCORES] / RELEVANCE_ONE;
    weigh(&ballot, patches);
    apportion(&ballot, patches,
              (uint64_t)item->values[RELEVANCE_TOTAL].integer - patches * RELEVANCE_BUDGET_MIN,
              (int32_t *)item->outputs[0]);
}

/* ---- the streams -------------------------------------------------------------------------------
 */

/* What stage k + 1 needs of stage k; the event is free again at once: a wait is for what was
 * recorded when it was enqueued. */
static void hand_on(const struct sluice_streams *streams, int stage)
{
    (void)cudaEventRecord(streams->events[stage], streams->streams[stage]);
    (void)cudaStreamWaitEvent(streams->streams[stage + 1], streams->events[stage], 0);
}

static void enqueue_group(const struct sluice_batch *batch, uint32_t first, uint32_t count,
                          const struct sluice_streams *streams)
{
    const struct sluice_item *items = batch->device_items + first;
    uint64_t height = 1, width = 1, slices = 1;
    for (uint32_t i = first; i < first + count; i++) {
        const uint64_t *sizes = batch->items[i].sizes;
        const uint64_t own = sizes[2] * sizes[3] * RELEVANCE_SLICES;
        height = sizes[0] > height ? sizes[0] : height;
        width = sizes[1] > width ? sizes[1] : width;
        slices = own > slices ? own : slices;
    }
    const dim3 tiles((unsigned)((width + TILE - 1) / TILE), (unsigned)((height + TILE - 1) / TILE),
                     count);
    const dim3 parts((unsigned)slices, count);
    texture<<<tiles, THREADS, 0, streams->streams[0]>>>(items);
    hand_on(streams, 0);
    sums<<<parts, THREADS, 0, streams->streams[1]>>>(items);
    salience<<<parts, THREADS, 0, streams->streams[1]>>>(items);
    hand_on(streams, 1);
    allocate<<<count, THREADS, 0, streams->streams[2]>>>(items);
}

static int enqueue(const struct sluice_batch *batch, const struct sluice_streams *streams,
                   struct sluice_allocator *allocator)
{
    (void)allocator;
    for (uint32_t first = 0, count; first < batch->count; first += count) {
        count = relevance_group(batch, first);
        enqueue_group(batch, first, count, streams);
    }
    return (int)cudaGetLastError();
}

SLUICE_EXPORT const struct sluice_program sluice_program_cuda = RELEVANCE;
