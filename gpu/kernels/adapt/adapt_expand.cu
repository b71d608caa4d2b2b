/* The second kernel of few rows (adapt_few.cuh): an item is up to 256 outputs of a tile, of gate
 * and up both where they are activated. A block adds up the slices of A x of its items' tiles, and
 * has a thread for each output: tensor cores would idle where a tile has one row. */
#include "gpu/kernels/activation/activation.cuh"
#include "gpu/kernels/adapt/adapt_few.cuh"

namespace HALF
{

#define SLOTS 4 /* tiles of the items, whose A x a block has */
#define FEW_RANK_MAX 64
#define EXPAND_BYTES (103u << 10) /* of shared memory, beside FEW_STATIC: for two blocks an SM */
#define EXPAND_STAGES 2           /* at least */

struct expand_room {
    uint32_t rows, rank; /* of a tile; values of its A x */
    uint32_t size;       /* bytes of a value of y */
    uint32_t b, y, all;  /* bytes of a stage, of each part; of all */
    uint32_t inner;      /* bytes of A x of all tiles, before the stages */
};

__host__ __device__ static inline expand_room expand_room_of(const struct adapt_args &a,
                                                             uint32_t rows)
{
    expand_room room = {};
    room.rows = rows;
    room.rank = ADAPT_RANK_ROOM(a.rank_max);
    room.size = a.y_dtype == DTYPE_F32 ? 4 : 2;
    room.b = PIECE * a.rank_max * 2;
    room.y = rows * PIECE * room.size;
    room.all = (a.gated ? 2 : 1) * (room.b + room.y);
    room.inner = SLOTS * a.part_count * rows * room.rank * 4;
    return room;
}

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

struct expand_item {
    const half_t *b[2]; /* its rows of B, of gate and of up; NULL: there is none */
    uint32_t inner[2];  /* where A x is that it reads */
    uint32_t first, count;
    uint32_t begin; /* in y */
    uint32_t outputs, rank;
    float scale;
};

struct expand_shared {
    few_shared few;
    struct expand_item items[ITEMS];
    uint32_t tile, tiles; /* that these are of */
    uint32_t seen;        /* items, with those that are not valid */
};

__device__ __forceinline__ uint32_t pieces_of(const struct adapt_args &a, uint32_t p)
{
    return (a.ends[p] - part_begin(a, p) + PIECE - 1) / PIECE;
}

__device__ __forceinline__ uint32_t pieces_all(const struct adapt_args &a)
{
    uint32_t pieces = 0;
    for (uint32_t p = 0; p < counted_parts(a); p++)
        pieces += pieces_of(a, p);
    return pieces;
}

__device__ __forceinline__ uint32_t expand_items(const struct adapt_args &a, const few_shared &s)
{
    return pieces_all(a) * (a.gated ? s.list[0] >> 16 : s.list[0] & 0xffff);
}

/* A warp: items from `number` to `end`, of up to SLOTS tiles. */
template <bool GATED>
__device__ __forceinline__ void expand_find(const struct adapt_args &a, expand_shared &s,
                                            const expand_room &room, uint32_t number, uint32_t end)
{
    uint32_t pieces = pieces_all(a), first = number / pieces, lane = threadIdx.x % WARP, p = 0;
    expand_item item = {};
    number += lane;
    uint32_t slot = number / pieces - first, piece = number % pieces;
    bool seen = number < end && slot < SLOTS, valid = seen;
    if (seen) {
        struct adapt_tile tile = tile_of(a, s.few, first + slot);
        for (; p + 1 < counted_parts(a) && piece >= pieces_of(a, p); p++)
            piece -= pieces_of(a, p);
        item.first = tile.first;
        item.count = tile.count;
        item.begin = part_begin(a, p) + piece * PIECE;
        item.outputs = min(a.ends[p] - item.begin, PIECE);
        if (tile.adapter) {
            const struct adapt_place *place = a.places + (tile.adapter - 1);
            item.rank = place->rank;
            item.scale = place->scale;
#pragma unroll
            for (uint32_t q = 0; q < (GATED ? 2 : 1); q++) {
                const half_t *b = static_cast<const half_t *>(place->parts[p + q].b);
                item.b[q] = b ? b + (size_t)piece * PIECE * item.rank : b;
                item.inner[q] =
                    (slot * a.part_count + place->parts[p + q].from) * room.rows * room.rank;
            }
        }
        valid = GATED || item.b[0];
    }
    items_keep(s.few, s.items, item, valid);
    uint32_t all = __ballot_sync(FULL_MASK, seen);
    if (lane + 1 == __popc(all)) {
        s.tile = first;
        s.tiles = slot + 1;
        s.seen = lane + 1;
    }
}

/* Where 16 bytes of B are in a stage: eight threads that read them of a row each find all banks, of
 * rows of 1, 2, 4 or 8 such. */
__device__ __forceinline__ uint32_t b_chunk(uint32_t chunk, uint32_t rank)
{
    uint32_t of_row = rank / 8;
    return of_row & (of_row - 1) ? chunk : chunk ^ (chunk / 8 & (of_row - 1));
}

/* A warp: B. */
template <bool GATED>
__device__ __forceinline__ void expand_ask_b(const expand_item &item, const expand_room &room,
                                             uint32_t stage)
{
    uint32_t chunks = item.outputs * item.rank / 8, rank = item.rank % 8 ? 8 : item.rank;
#pragma unroll
    for (uint32_t q = 0; q < (GATED ? 2 : 1); q++) {
        const half_t *b = item.b[q];
#pragma unroll 4
        for (uint32_t i = threadIdx.x % WARP; b && i < chunks; i += WARP)
            copy_async(stage + q * room.b + b_chunk(i, rank) * 16, b + i * 8, true);
    }
}

/* A warp: y. */
template <bool GATED>
__device__ __forceinline__ void expand_ask_y(const struct adapt_args &a, const expand_shared &s,
                                             const expand_item &item, const expand_room &room,
                                             uint32_t stage)
{
    uint32_t parts = GATED ? 2 : 1, bytes = item.outputs * room.size;
    uint32_t to = stage + parts * room.b;
#pragma unroll 4
    for (uint32_t row = 0; row < item.count; row++) {
        size_t first = row_of(s.few, item.first, row) * a.y_stride + item.begin;
        const char *from = static_cast<const char *>(a.y) + first * room.size;
        for (uint32_t i = threadIdx.x % WARP * 16; i < bytes; i += WARP * 16)
#pragma unroll
            for (uint32_t q = 0; q < parts; q++)
                copy_async(to + q * room.y + row * PIECE * room.size + i,
                           from + (size_t)q * a.ends[0] * room.size + i, true);
    }
}

/* A warp: B, or y, of the items. */
template <bool GATED>
__device__ __forceinline__ void expand_fill(const struct adapt_args &a, const expand_shared &s,
                                            const expand_room &room, const few_ring &ring,
                                            ring_cursor &fill, bool rows)
{
    for (uint32_t i = 0; i < s.few.count; i++, ring_next(fill, ring.stages)) {
        ring_wait_empty(ring.empty, fill);
        if (rows)
            expand_ask_y<GATED>(a, s, s.items[i], room, stage_at(ring, fill));
        else
            expand_ask_b<GATED>(s.items[i], room, stage_at(ring, fill));
        copies_arrive(ring_barrier(ring.full, fill));
    }
}

/* Those that multiply: A x of the items' tiles, all parts. */
__device__ __forceinline__ void inner_sum(const struct adapt_args &a, const expand_shared &s,
                                          const expand_room &room, float *inner)
{
    uint32_t quads = room.rank / 4;
    for (uint32_t slot = 0; slot < s.tiles; slot++) {
        struct adapt_tile tile = tile_of(a, s.few, s.tile + slot);
        uint32_t all = tile.adapter ? a.part_count * tile.count * quads : 0;
        for (uint32_t i = threadIdx.x; i < all; i += FEW_WARPS * WARP) {
            uint32_t r = i % quads * 4, row = i / quads % tile.count, p = i / quads / tile.count;
            const float *from =
                a.sums +
                ((row_of(s.few, tile.first, row) * ADAPT_PARTS + p) * ADAPT_SLICES) * room.rank + r;
            float4 of[ADAPT_SLICES], sum = {};
#pragma unroll
            for (int slice = 0; slice < ADAPT_SLICES; slice++)
                of[slice] = *reinterpret_cast<const float4 *>(from + slice * room.rank);
#pragma unroll
            for (int slice = 0; slice < ADAPT_SLICES; slice++) {
                sum.x += of[slice].x;
                sum.y += of[slice].y;
                sum.z += of[slice].z;
                sum.w += of[slice].w;
            }
            *reinterpret_cast<float4 *>(
                inner + ((slot * a.part_count + p) * room.rows + row) * room.rank + r) = sum;
        }
    }
    multiplying_meet();
}

/* Eight of a row of B, from value r on; 0 behind its end. */
__device__ __forceinline__ float8 b_eight(const uint8_t *b, uint32_t n, uint32_t r, uint32_t rank)
{
    if (rank % 8 == 0)
        return load_whole(b, b_chunk((n * rank + r) / 8, rank) * 8, DTYPE_HALF);
    float8 out;
#pragma unroll
    for (uint32_t i = 0; i < 8; i++)
        out.v[i] = r + i < rank ? load_value(b, n * rank + r + i, DTYPE_HALF) : 0;
    return out;
}

/* A thread: c[row] += its row of B times A x of up to THIN rows of the tile. */
__device__ __forceinline__ void expand_multiply(float (&c)[THIN], const uint8_t *b,
                                                const float *inner, uint32_t rows, uint32_t rank,
                                                uint32_t room)
{
    for (uint32_t r = 0; r < rank; r += 8) {
        float8 of = b_eight(b, threadIdx.x, r, rank);
#pragma unroll
        for (uint32_t row = 0; row < THIN; row++) {
            if (row >= rows)
                break;
            const float4 *from = reinterpret_cast<const float4 *>(inner + row * room + r);
            float4 low = from[0], high = from[1];
            c[row] += of.v[0] * low.x;
            c[row] += of.v[1] * low.y;
            c[row] += of.v[2] * low.z;
            c[row] += of.v[3] * low.w;
            c[row] += of.v[4] * high.x;
            c[row] += of.v[5] * high.y;
            c[row] += of.v[6] * high.z;
            c[row] += of.v[7] * high.w;
        }
    }
}

/* A thread: its output of a stage, of all rows of the tile. */
template <bool GATED>
__device__ __forceinline__ void expand_one(const struct adapt_args &a, const expand_shared &s,
                                           const expand_item &item, const uint8_t *stage,
                                           const expand_room &room, const float *inner)
{
    uint32_t n = threadIdx.x, parts = GATED ? 2 : 1;
    const uint8_t *y = stage + parts * room.b;
    for (uint32_t first = 0; first < item.count; first += THIN) {
        float c[GATED ? 2 : 1][THIN] = {};
        uint32_t rows = item.count - first;
#pragma unroll
        for (uint32_t q = 0; q < parts; q++)
            if (item.b[q])
                expand_multiply(c[q], stage + q * room.b, inner + item.inner[q] + first * room.rank,
                                rows, item.rank, room.rank);
#pragma unroll
        for (uint32_t i = 0; i < THIN; i++) {
            if (i >= rows)
                break;
            size_t number = row_of(s.few, item.first, first + i);
            uint32_t at = (first + i) * PIECE + n;
            float gate = load_value(y, at, a.y_dtype) + item.scale * c[0][i];
            if (!GATED) {
                store_value(a.y, number * a.y_stride + item.begin + n, a.y_dtype, gate);
                continue;
            }
            float up = load_value(y + room.y, at, a.y_dtype) + item.scale * c[GATED][i];
            float active = a.activation == ACTIVATE_SILU ? activated<ACTIVATE_SILU>(gate)
                                                         : activated<ACTIVATE_GELU_TANH>(gate);
            store_value(a.out, number * a.out_stride + item.begin + n, a.y_dtype, active * up);
        }
    }
}

template <bool GATED>
__device__ __forceinline__ void expand_consume(const struct adapt_args &a, const expand_shared &s,
                                               uint8_t *memory, const expand_room &room,
                                               const few_ring &ring, ring_cursor &read)
{
    inner_sum(a, s, room, reinterpret_cast<float *>(memory));
    for (uint32_t i = 0; i < s.few.count; i++) {
        const expand_item item = s.items[i];
        ring_wait_full(ring.full, read);
        if (threadIdx.x < item.outputs)
            expand_one<GATED>(a, s, item, memory + room.inner + read.stage * ring.stage_bytes, room,
                              reinterpret_cast<const float *>(memory));
        stage_leave(ring, read);
    }
}

#endif

template <bool GATED>
__global__ void __launch_bounds__(FEW_THREADS, FEW_BLOCKS)
    adapt_expand_kernel(const __grid_constant__ struct adapt_args a, uint32_t bytes)
{
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(128) uint8_t memory[];
    __shared__ expand_shared s;
    bool thin = list_read(a, s.few);
    expand_room room = expand_room_of(a, thin ? THIN : ADAPT_TILE);
    few_ring ring = ring_make(s.few, memory + room.inner, bytes - room.inner, room.all);
    ring_cursor at = {};
    uint64_t items = expand_items(a, s.few);
    uint32_t number = items * blockIdx.x / gridDim.x, end = items * (blockIdx.x + 1) / gridDim.x;
    enum few_role role = few_role();
    while (number < end) {
        if (role == FILLS_WEIGHTS)
            expand_find<GATED>(a, s, room, number, end);
        __syncthreads();
        number += s.seen;
        if (role != FILLS_WEIGHTS) {
            grid_wait();
            grid_trigger();
        }
        if (role == MULTIPLIES)
            expand_consume<GATED>(a, s, memory, room, ring, at);
        else
            expand_fill<GATED>(a, s, room, ring, at, role == FILLS_ROWS);
        __syncthreads();
    }
    grid_wait();
#endif
}

static uint32_t expand_bytes(const struct adapt_args *a)
{
    expand_room room = expand_room_of(*a, ADAPT_TILE);
    uint32_t least = room.inner + EXPAND_STAGES * room.all;
    return least > EXPAND_BYTES ? least : EXPAND_BYTES;
}

bool adapt_few_can(const struct adapt_args *a)
{
    return adapt_tiled_can(a) && a->spreads && a->sums && a->rows.max <= ADAPT_FEW &&
           a->rank_max <= FEW_RANK_MAX &&
           expand_bytes(a) + FEW_STATIC <= device_props()->shared_max;
}

template <bool GATED>
static cudaError_t expand_launch(const struct adapt_args *args, cudaStream_t stream)
{
    static struct device_once once;
    const struct device_props *device = device_props();
    uint32_t bytes = expand_bytes(args), blocks = bytes > EXPAND_BYTES ? 1 : FEW_BLOCKS;
    cudaError_t result = device_allow(&once, adapt_expand_kernel<GATED>, device, FEW_STATIC);
    if (result != cudaSuccess)
        return result;
    return launch(adapt_expand_kernel<GATED>, dim3(blocks * device->processors), FEW_THREADS, bytes,
                  stream, *args, bytes);
}

cudaError_t adapt_few(const struct adapt_args *args, cudaStream_t stream)
{
    cudaError_t result = adapt_shrink(args, stream);
    if (result != cudaSuccess)
        return result;
    return args->gated ? expand_launch<true>(args, stream) : expand_launch<false>(args, stream);
}

} // namespace HALF
