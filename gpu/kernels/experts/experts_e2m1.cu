/* Products with experts in e2m1 beside BF16 on sm_90, of few pairs and of many: of few bound by
 * what it takes to make numbers of 16 bits of the weights, more than by reading them, and of many
 * by the tensor cores.
 *
 * A tile is up to PAIRS pairs of one expert and 64 rows of its matrix for each of GROUPS
 * warpgroups: outputs, or half of them gate's and the others up's of the same channels, so that a
 * lane has both. Weights are the left operand, out of registers, where a lane makes BF16 of them;
 * pairs are the right one, in shared memory. A lane has 32 columns of a row at a time, which have
 * one exponent: elements j and j + 4 of a word are a pair by a shift and masks, put where a BF16
 * number has its sign, its last two bits of exponent and its first of mantissa, which is 2^-126 of
 * what the element is; one product makes that, times the exponent's power of two, exactly. Inputs
 * stand in scratch in the order that follows, those of an expert behind one another: a kernel
 * before puts them there.
 *
 * Blocks stay and take tile after tile, those of the same weights next to each other; which one is
 * next they count in scratch, so that no SM is behind by more than a tile. One lane of a warp
 * behind those that multiply fills a ring of stages of 128 columns, ahead also of the next tile:
 * weights, which do not wait for the inputs to be put in order, and inputs by boxes, and exponents
 * of whole tiles at once. What tile it is stands beside its first stage. */
#include "gpu/kernels/common/device_props.cuh"
#include "gpu/kernels/common/ring.cuh"
#include "gpu/kernels/common/tensor_map.cuh"
#include "gpu/kernels/common/wgmma.cuh"
#include "gpu/kernels/experts/experts_find.cuh"
#include "gpu/kernels/experts/experts_packed.cuh"

namespace HALF
{

#define STEP 128 /* columns of a stage */
#define GROUP_THREADS 128
#define BOX_BYTES (STEP / 2)
#define SIDE 32 /* rows of w in a box, for each group, of the two that a stage has */
#define STAGES_MAX 16
#define ALIGNMENT 1024
#define RESERVED 1024 /* of an SM's shared memory, for each block */
#define K_MAX 8192    /* beside exponents of two tiles are two stages: a warp has both at a time */
#define ORDER_THREADS 256
#define ASK_AHEAD 4u  /* steps before a tile's end its next one is asked for */
#define E2M1_FEW 16   /* pairs of a tile, up to which each warp multiplies by itself */

struct e2m1_args {
    CUtensorMap w, x;
    struct experts_args a;
    uint32_t columns, outputs; /* tiles along the outputs, of so many */
    uint32_t second;           /* rows of w from a tile's first box to its other */
    uint32_t steps, stages;
    uint32_t *turn; /* how many tiles were taken behind each block's first */
};

/* Pairs in a box of inputs. */
template <int PAIRS> __host__ __device__ __forceinline__ constexpr uint32_t e2m1_x_box()
{
    return PAIRS < 16 ? PAIRS : 16;
}

template <int GROUPS> __host__ __device__ __forceinline__ constexpr uint32_t e2m1_threads()
{
    return GROUPS * GROUP_THREADS + WARP;
}

/* Of one of a stage's two boxes of weights. */
template <int GROUPS> __host__ __device__ __forceinline__ constexpr uint32_t e2m1_w_bytes()
{
    return GROUPS * SIDE * BOX_BYTES;
}

template <int GROUPS, int PAIRS>
__host__ __device__ __forceinline__ constexpr uint32_t e2m1_stage_bytes()
{
    return PAIRS * STEP * 2 + 2 * e2m1_w_bytes<GROUPS>();
}

struct e2m1_tile {
    uint32_t expert, first, count; /* of the segments' pairs */
    uint32_t output;
};

/* ---- the order of inputs ---- */

/* A thread what a word of weights of each of four blocks of 32 columns meets: unit 4 w + j of a
 * stage has, of the four blocks' words w, elements j and j + 4. */
__global__ void __launch_bounds__(ORDER_THREADS)
    e2m1_order_kernel(const __grid_constant__ struct experts_args a, uint32_t steps, uint4 *to,
                      uint32_t *turn)
{
    grid_wait();
    grid_trigger(); /* behind the wait: the kernel behind reads segments before we end */
    uint32_t thread = blockIdx.x * ORDER_THREADS + threadIdx.x, word = thread % 4;
    if (thread == 0)
        *turn = 0;
    uint32_t place = thread / 4 / steps, k = thread / 4 % steps * STEP + word * 8;
    if (place >= a.segments[a.own.count])
        return;
    const uint16_t *from = static_cast<const uint16_t *>(a.x) +
                           experts_input(a, a.segments[a.own.count + 1 + place]) + k;
    uint4 of[4];
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        of[i] = k + i * PACKED_EXPONENT < a.w.k
                    ? *reinterpret_cast<const uint4 *>(from + i * PACKED_EXPONENT)
                    : make_uint4(0, 0, 0, 0);
#pragma unroll
    for (uint32_t j = 0; j < 4; j++) {
        uint32_t low = j / 2, high = j / 2 + 2, take = j % 2 ? 0x7632 : 0x5410;
        to[(size_t)thread * 4 + j] =
            make_uint4(__byte_perm(word_of(of[0], low), word_of(of[0], high), take),
                       __byte_perm(word_of(of[1], low), word_of(of[1], high), take),
                       __byte_perm(word_of(of[2], low), word_of(of[2], high), take),
                       __byte_perm(word_of(of[3], low), word_of(of[3], high), take));
    }
}

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

struct e2m1_room {
    uint32_t stages, exponents; /* shared addresses */
    uint32_t full, empty;       /* barriers */
    e2m1_tile *tiles;           /* of stages that are the first of one; of no pairs: none is left */
};

/* A warp. An expert's pairs are shared out evenly over its tiles, and those of the same weights are
 * next to each other. */
template <int PAIRS>
__device__ __forceinline__ bool e2m1_find(const e2m1_args &e, uint32_t number, e2m1_tile &ret)
{
    const struct experts_args &a = e.a;
    tile at;
    if (!tile_find<PAIRS>(a, {0, a.own.count}, number / e.columns, at))
        return false;
    uint32_t start = a.segments[at.expert], count = a.segments[at.expert + 1] - start;
    uint32_t parts = (count + PAIRS - 1) / PAIRS, each = ((count + parts - 1) / parts + 7) / 8 * 8;
    uint32_t local = (at.first - start) / PAIRS * e.columns + number % e.columns;
    uint32_t skipped = local % parts * each;
    ret = {at.expert, start + skipped, min(each, count - skipped), local / parts * e.outputs};
    return true;
}

/* ---- filling the ring ---- */

/* One lane. `buffer`: where the exponents of the tile are, of two places: a ring is no longer than
 * a tile, so those of the tile before last have been read. */
template <int GROUPS, int PAIRS>
__device__ __forceinline__ void e2m1_bring_w(const e2m1_args &e, const e2m1_room &room,
                                             const e2m1_tile &tile, uint32_t step, uint32_t stage,
                                             uint32_t buffer)
{
    constexpr uint32_t bytes = e2m1_w_bytes<GROUPS>(), rows = GROUPS * SIDE;
    const uint32_t row = tile.expert * e.a.w.n + tile.output, other = row + e.second;
    const uint32_t blocks = e.a.w.k / PACKED_EXPONENT, total = e.a.own.count * e.a.w.n;
    const uint32_t barrier = room.full + stage * 8;
    const uint32_t to = room.stages + stage * e2m1_stage_bytes<GROUPS, PAIRS>() + PAIRS * STEP * 2;
    const uint32_t boxes = (tile.count + e2m1_x_box<PAIRS>() - 1) / e2m1_x_box<PAIRS>();
    const uint64_t policy = policy_once();
    uint32_t first = step ? 0 : min(rows, total - row) * blocks;
    uint32_t second = step || other >= total ? 0 : min(rows, total - other) * blocks;
    barrier_expect(barrier, 2 * bytes + boxes * e2m1_x_box<PAIRS>() * STEP * 2 + first + second);
    copy_box(to, &e.w, step * BOX_BYTES, row, barrier, policy);
    copy_box(to + bytes, &e.w, step * BOX_BYTES, other, barrier, policy);
    if (step)
        return;
    const uint8_t *from = static_cast<const uint8_t *>(e.a.w.scales.data);
    uint32_t exponents = room.exponents + buffer * 2 * rows * blocks;
    copy_bulk(exponents, from + (size_t)row * blocks, first, barrier, policy);
    if (second)
        copy_bulk(exponents + rows * blocks, from + (size_t)other * blocks, second, barrier,
                  policy);
}

template <int GROUPS, int PAIRS>
__device__ __forceinline__ void e2m1_bring_x(const e2m1_args &e, const e2m1_room &room,
                                             const e2m1_tile &tile, uint32_t step, uint32_t stage)
{
    constexpr uint32_t box = e2m1_x_box<PAIRS>();
    const uint64_t policy = policy_again();
    uint32_t to = room.stages + stage * e2m1_stage_bytes<GROUPS, PAIRS>();
    for (uint32_t i = 0; i < tile.count; i += box, to += box * STEP) {
        copy_box(to, &e.x, step * STEP, tile.first + i, room.full + stage * 8, policy);
        copy_box(to + PAIRS * STEP, &e.x, step * STEP + STEP / 2, tile.first + i,
                 room.full + stage * 8, policy);
    }
}

/* A warp. */
template <int GROUPS, int PAIRS>
__device__ __forceinline__ void e2m1_feed(const e2m1_args &e, const e2m1_room &room)
{
    e2m1_tile tile;
    uint32_t step = 0, buffer = 0, turn = 0;
    bool there = e2m1_find<PAIRS>(e, blockIdx.x, tile), alone = warp_elect();
    if (there && alone)
        room.tiles[0] = tile;
    for (; there && step < e.stages; step++)
        if (alone)
            e2m1_bring_w<GROUPS, PAIRS>(e, room, tile, step, step, buffer);
    e2m1_tile second; /* where no block has one, none asks: all ask one place, which takes long */
    const bool more = there && e2m1_find<PAIRS>(e, gridDim.x, second);
    grid_wait();
    grid_trigger();
    for (uint32_t i = 0; i < step; i++)
        if (alone)
            e2m1_bring_x<GROUPS, PAIRS>(e, room, tile, i, i);
    ring_cursor at = {0, there};
    while (there) {
        const uint32_t ask = max(step, e.steps - min(e.steps, ASK_AHEAD));
        for (;; step++) {
            if (more && step == ask && threadIdx.x % WARP == 0)
                turn = atomicAdd(e.turn, 1);
            if (step == e.steps)
                break;
            ring_wait_empty(room.empty, at);
            if (alone) {
                reads_before_copy(); /* for all readers */
                if (step == 0)
                    room.tiles[at.stage] = tile;
                e2m1_bring_w<GROUPS, PAIRS>(e, room, tile, step, at.stage, buffer);
                e2m1_bring_x<GROUPS, PAIRS>(e, room, tile, step, at.stage);
            }
            __syncwarp();
            ring_next(at, e.stages);
        }
        step = 0;
        buffer ^= 1;
        there = more && e2m1_find<PAIRS>(e, gridDim.x + __shfl_sync(FULL_MASK, turn, 0), tile);
    }
    ring_wait_empty(room.empty, at);
    if (alone) {
        room.tiles[at.stage].count = 0;
        barrier_arrive(ring_barrier(room.full, at));
    }
}

/* ---- multiplying ---- */

/* Where a lane's two rows begin in a stage, and their exponents in a tile's. */
struct e2m1_lane {
    uint32_t words, exponents, pairs;
};

/* What a lane has of a stage: 32 columns of both rows, their exponents, and the powers of two that
 * they are times 2^126, as pairs of BF16. `large`: some lane's is beyond what that can be. */
struct e2m1_raw {
    uint4 rows[2];
    uint32_t exponents[2], scales[2];
    bool large;
};

__device__ __forceinline__ uint32_t e2m1_times(uint32_t pair, uint32_t scale)
{
    uint32_t out;
    asm("mul.rn." HALF_PTX "x2 %0, %1, %2;" : "=r"(out) : "r"(pair), "r"(scale));
    return out;
}

template <int GROUPS>
__device__ __forceinline__ void e2m1_load(const e2m1_lane &lane, uint32_t stage, uint32_t exponents,
                                          uint32_t rows_bytes, e2m1_raw &raw)
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        raw.rows[i] = load_shared(stage + lane.words + i * e2m1_w_bytes<GROUPS>());
        raw.exponents[i] = load_shared_byte(exponents + lane.exponents + i * rows_bytes);
        raw.scales[i] = min(raw.exponents[i], 128u) * 0x00800080 + 126 * 0x00800080;
    }
    raw.large = __any_sync(FULL_MASK, max(raw.exponents[0], raw.exponents[1]) > 128);
}

/* The pairs of a word. */
__device__ __forceinline__ void e2m1_pairs(uint32_t word, uint32_t scale, uint32_t (&out)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t from = i < 2 ? word : word >> 8;
        uint32_t both = i % 2 ? (from & 0x00f000f0) * 0x104 : (from & 0x000f000f) * 0x1040;
        out[i] = e2m1_times(both & 0x81c081c0, scale);
    }
}

/* Words 2 half and 2 half + 1, as four left operands. Exponents are up to 252: numbers and sums are
 * infinite beyond. */
__device__ __forceinline__ void e2m1_take(const e2m1_raw &raw, int half, uint32_t (&out)[4][4])
{
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int row = 0; row < 2; row++) {
            uint32_t pairs[4];
            e2m1_pairs(word_of(raw.rows[row], half * 2 + i), raw.scales[row], pairs);
#pragma unroll
            for (int j = 0; j < 4; j++)
                out[i * 2 + j / 2][j % 2 * 2 + row] = pairs[j];
        }
    if (!raw.large)
        return;
#pragma unroll
    for (int row = 0; row < 2; row++) {
        uint32_t more = (min(max(raw.exponents[row], 128u), 252u) - 1) * 0x00800080;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            out[i][row] = e2m1_times(out[i][row], more);
            out[i][row + 2] = e2m1_times(out[i][row + 2], more);
        }
    }
}

/* Starts c += the products of half a stage. */
template <int N, int PAIRS>
__device__ __forceinline__ void e2m1_start(float (&c)[N / 2], const uint32_t (&w)[4][4],
                                           uint32_t stage, int half)
{
    const uint64_t x = wgmma_operand(stage, 16);
    const uint32_t low = static_cast<uint32_t>(x); /* the address, in units of 16 bytes */
    wgmma_begin();
#pragma unroll
    for (int i = 0; i < 4; i++)
        wgmma_registers(c, w[i],
                        (x & ~0xffffffffull) | (low + (half * PAIRS * STEP + i * 32) / 16), 1);
    wgmma_commit();
}

/* Two channels of a pair, of those that a warp's 8 x 8 are: a lane gives one of two pairs. */
__device__ __forceinline__ uint32_t e2m1_turned(uint32_t pair)
{
    uint32_t out;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(pair));
    return out;
}

template <int N>
__device__ __forceinline__ void e2m1_store(const e2m1_args &e, const e2m1_tile &of,
                                           const float (&c)[N / 2])
{
    const struct experts_args &a = e.a;
    const uint32_t lane = threadIdx.x % WARP, outputs = experts_outputs(&a);
    const uint32_t first = of.output + threadIdx.x / WARP * 8; /* of the warp */
    const uint32_t *pairs = a.segments + a.own.count + 1 + of.first;
    float bias[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t n = first + lane / 4 + i * e.second;
        bias[i] = n < a.w.n ? experts_bias(a, of.expert, n) : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < N / 8; i++) {
        uint32_t pair = i * 8 + lane / 4, two[2];
        bool there = pair < of.count;
        uint16_t *y = static_cast<uint16_t *>(a.y) + first + lane % 4 * 2;
        if (there)
            y += (size_t)pairs[pair] * a.y_stride;
        float low[2] = {c[i * 4] + bias[0], c[i * 4 + 1] + bias[0]};
        float high[2] = {c[i * 4 + 2] + bias[1], c[i * 4 + 3] + bias[1]};
        if (a.gated) {
            two[0] = pack(experts_gated(a, low[0], high[0]), experts_gated(a, low[1], high[1]),
                          DTYPE_HALF);
        } else {
            two[0] = pack(low[0], low[1], DTYPE_HALF);
            two[1] = e2m1_turned(pack(high[0], high[1], DTYPE_HALF));
        }
        two[0] = e2m1_turned(two[0]);
        if (there && first < outputs)
            *reinterpret_cast<uint32_t *>(y) = two[0];
        if (there && !a.gated && first + e.second < outputs)
            *reinterpret_cast<uint32_t *>(y + e.second) = two[1];
    }
}

/* Of few pairs: a warp by itself, whose products take less time than what a warpgroup's wait for.
 * Eight pairs have two sums each, as products of one wait for each other. */
template <int GROUPS, int PAIRS>
__device__ __forceinline__ void e2m1_multiply_few(const e2m1_args &e, const e2m1_room &room,
                                                  const e2m1_lane &lane, const e2m1_tile &of,
                                                  uint32_t buffer, ring_cursor &at)
{
    constexpr uint32_t bytes = e2m1_stage_bytes<GROUPS, PAIRS>(), x_bytes = PAIRS * STEP * 2;
    constexpr int SETS = PAIRS == 8 ? 2 : 1;
    const uint32_t rows_bytes = GROUPS * SIDE * (e.a.w.k / PACKED_EXPONENT);
    uint32_t exponents = room.exponents + buffer * 2 * rows_bytes;
    uint32_t stage = room.stages + at.stage * bytes;
    float c[SETS][PAIRS / 8][4] = {}, sums[PAIRS / 2];
    e2m1_raw raw;
    ring_wait_full(room.full, at);
    e2m1_load<GROUPS>(lane, stage + x_bytes, exponents, rows_bytes, raw);
    for (uint32_t left = e.steps; left > 0; left--) {
        const uint32_t x = stage + lane.pairs;
        const ring_cursor now = at;
        ring_next(at, e.stages);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t w[4][4];
            e2m1_take(raw, half, w);
            if (half == 1 && left > 1) {
                exponents += STEP / PACKED_EXPONENT;
                stage = room.stages + at.stage * bytes;
                ring_wait_full(room.full, at);
                e2m1_load<GROUPS>(lane, stage + x_bytes, exponents, rows_bytes, raw);
            }
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int tile = 0; tile < PAIRS / 8; tile++) {
                    uint32_t b[4];
                    load_matrices(b, (x ^ i * 64) + half * (PAIRS * STEP) + tile * 1024);
                    mma_half(c[0][tile], w[i * 2][0], w[i * 2][1], w[i * 2][2], w[i * 2][3], b[0],
                             b[1]);
                    mma_half(c[SETS - 1][tile], w[i * 2 + 1][0], w[i * 2 + 1][1], w[i * 2 + 1][2],
                             w[i * 2 + 1][3], b[2], b[3]);
                }
        }
        __syncwarp();
        if (threadIdx.x % WARP == 0)
            ring_give_back(room.empty, now);
    }
#pragma unroll
    for (int i = 0; i < PAIRS / 2; i++)
        sums[i] = SETS == 2 ? c[0][i / 4][i % 4] + c[SETS - 1][i / 4][i % 4] : c[0][i / 4][i % 4];
    e2m1_store<PAIRS>(e, of, sums);
}

template <int GROUPS, int PAIRS, int N>
__device__ __forceinline__ void e2m1_multiply(const e2m1_args &e, const e2m1_room &room,
                                              const e2m1_lane &lane, const e2m1_tile &of,
                                              uint32_t buffer, ring_cursor &at)
{
    constexpr uint32_t bytes = e2m1_stage_bytes<GROUPS, PAIRS>(), x_bytes = PAIRS * STEP * 2;
    const uint32_t rows_bytes = GROUPS * SIDE * (e.a.w.k / PACKED_EXPONENT);
    uint32_t exponents = room.exponents + buffer * 2 * rows_bytes, operands[2][4][4];
    uint32_t stage = room.stages + at.stage * bytes;
    float c[N / 2] = {};
    e2m1_raw raw;
    ring_wait_full(room.full, at);
    e2m1_load<GROUPS>(lane, stage + x_bytes, exponents, rows_bytes, raw);
    e2m1_take(raw, 0, operands[0]);
    for (uint32_t left = e.steps; left > 0; left--) {
        uint32_t x = __shfl_sync(FULL_MASK, stage, 0); /* the compiler sees that all have one */
        ring_cursor now = at;
        e2m1_start<N, PAIRS>(c, operands[0], x, 0);
        e2m1_take(raw, 1, operands[1]);
        e2m1_start<N, PAIRS>(c, operands[1], x, 1);
        ring_next(at, e.stages);
        if (left > 1) {
            exponents += STEP / PACKED_EXPONENT;
            stage = room.stages + at.stage * bytes;
            ring_wait_full(room.full, at);
            e2m1_load<GROUPS>(lane, stage + x_bytes, exponents, rows_bytes, raw);
            wgmma_wait<1>();
            e2m1_take(raw, 0, operands[0]);
        }
        wgmma_wait<0>();
        wgmma_hold(c);
        __syncwarp();
        if (threadIdx.x % WARP == 0)
            ring_give_back(room.empty, now);
    }
    e2m1_store<N>(e, of, c);
}

template <int GROUPS, int PAIRS>
__device__ __forceinline__ void e2m1_multiply_all(const e2m1_args &e, const e2m1_room &room)
{
    const uint32_t lane = threadIdx.x % WARP, side = threadIdx.x / WARP * 8 + lane / 4;
    const e2m1_lane at = {side * BOX_BYTES + ((lane % 4) ^ (side / 2 % 4)) * 16,
                          side * (e.a.w.k / PACKED_EXPONENT) + lane % 4,
                          lane % 8 * STEP + ((lane / 8 ^ lane % 8) << 4)};
    ring_cursor ring = {0, 0};
    for (uint32_t buffer = 0;; buffer ^= 1) {
        ring_wait_full(room.full, ring);
        const e2m1_tile of = room.tiles[ring.stage];
        if (of.count == 0)
            return;
        if constexpr (PAIRS <= E2M1_FEW)
            e2m1_multiply_few<GROUPS, PAIRS>(e, room, at, of, buffer, ring);
        else if (of.count > PAIRS / 4 * 3)
            e2m1_multiply<GROUPS, PAIRS, PAIRS>(e, room, at, of, buffer, ring);
        else if (of.count > PAIRS / 2)
            e2m1_multiply<GROUPS, PAIRS, PAIRS / 4 * 3>(e, room, at, of, buffer, ring);
        else
            e2m1_multiply<GROUPS, PAIRS, PAIRS / 2>(e, room, at, of, buffer, ring);
    }
}

#endif

template <int GROUPS, int PAIRS, int BLOCKS>
__global__ void __launch_bounds__(e2m1_threads<GROUPS>(), BLOCKS)
    e2m1_kernel(const __grid_constant__ struct e2m1_args e)
{
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(ALIGNMENT) char memory[];
    __shared__ ring_barriers<STAGES_MAX> barriers;
    __shared__ e2m1_tile tiles[STAGES_MAX];
    e2m1_room room;
    room.tiles = tiles;
    room.stages = (shared_address(memory) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    room.exponents = room.stages + e.stages * e2m1_stage_bytes<GROUPS, PAIRS>();
    room.full = shared_address(barriers.full);
    room.empty = shared_address(barriers.empty);
    if (threadIdx.x == 0) {
        ring_init(room.full, STAGES_MAX, 1);
        ring_init(room.empty, STAGES_MAX, GROUPS * GROUP_THREADS / WARP);
        barrier_init_done();
    }
    __syncthreads();
    if (threadIdx.x >= GROUPS * GROUP_THREADS) {
        e2m1_feed<GROUPS, PAIRS>(e, room);
        return;
    }
    grid_wait();
    grid_trigger();
    e2m1_multiply_all<GROUPS, PAIRS>(e, room);
#endif
}

/* ---- launching ---- */

/* In scratch: inputs in order, and behind them which tile is next. */
static size_t ordered_bytes(const struct weight *w, uint64_t pairs)
{
    return pairs * ceil_div(w->k, STEP) * STEP * 2;
}

size_t experts_e2m1_bytes(const struct weight *w, uint32_t own, uint64_t pairs, enum dtype dtype)
{
    bool can = w->format == FORMAT_E2M1 && dtype == DTYPE_BF16 && w->scales.exponents &&
               device_props()->major == 9;
    uint64_t most = EXPERTS_E2M1_MOST * (uint64_t)own;
    return can ? ordered_bytes(w, pairs < most ? pairs : most) + sizeof(uint32_t) : 0;
}

/* Rows of exponents are copied by 16 bytes, and outputs written by two. */
bool experts_e2m1_can(const struct experts_args *args)
{
    const struct weight *w = &args->w;
    uint64_t rows = (uint64_t)args->own.count * w->n, pairs = (uint64_t)args->rows.max * args->top;
    size_t bytes = experts_e2m1_bytes(w, args->own.count, pairs, args->dtype);
    return bytes > 0 && !args->invariant && args->scratch_bytes >= bytes &&
           pairs <= EXPERTS_E2M1_MOST * (uint64_t)args->own.count && tensor_map_can() &&
           w->scales.n == 1 && w->k % PACKED_EXPONENT == 0 && w->k <= K_MAX && w->n % 16 == 0 &&
           experts_outputs(args) % 16 == 0 && rows <= INT32_MAX && args->x_stride % 8 == 0 &&
           args->y_stride % 2 == 0 && !w->order && w->input.rounding == ROUNDING_NONE &&
           reinterpret_cast<uintptr_t>(args->x) % 16 == 0 &&
           reinterpret_cast<uintptr_t>(args->y) % 4 == 0 &&
           reinterpret_cast<uintptr_t>(w->data) % 16 == 0 &&
           reinterpret_cast<uintptr_t>(w->scales.data) % 16 == 0;
}

template <int GROUPS, int PAIRS, int BLOCKS>
static cudaError_t e2m1_launch(const struct experts_args *args, cudaStream_t stream)
{
    static struct device_once once;
    const struct device_props *device = device_props();
    const struct weight *w = &args->w;
    const uint64_t pairs = (uint64_t)args->rows.max * args->top;
    const uint32_t stage = e2m1_stage_bytes<GROUPS, PAIRS>();
    struct e2m1_args e = {};
    e.a = *args;
    e.outputs = (args->gated ? 1 : 2) * GROUPS * SIDE;
    e.columns = ceil_div(experts_outputs(args), e.outputs);
    e.second = args->gated ? w->n / 2 : GROUPS * SIDE;
    e.steps = ceil_div(w->k, STEP);
    e.turn = reinterpret_cast<uint32_t *>(static_cast<char *>(args->scratch) +
                                          ordered_bytes(w, pairs));
    uint32_t fixed = ALIGNMENT + 4 * GROUPS * SIDE * (w->k / PACKED_EXPONENT) + 16;
    uint32_t room = (device->shared_max + RESERVED) / BLOCKS - RESERVED - ALIGNMENT - fixed;
    e.stages = ring_stages(room, stage, STAGES_MAX < e.steps ? STAGES_MAX : e.steps);
    cudaError_t result = tensor_map_bytes(&e.w, w->data, args->own.count * w->n, w->k / 2, w->k / 2,
                                          BOX_BYTES, GROUPS * SIDE);
    if (result == cudaSuccess)
        result = tensor_map(&e.x, args->scratch, DTYPE_HALF, static_cast<uint32_t>(pairs),
                            e.steps * STEP, e.steps * STEP, e2m1_x_box<PAIRS>());
    if (result == cudaSuccess)
        result = device_allow(&once, e2m1_kernel<GROUPS, PAIRS, BLOCKS>, device, ALIGNMENT);
    if (result == cudaSuccess)
        result = launch(e2m1_order_kernel, dim3(ceil_div(pairs * e.steps * 4, ORDER_THREADS)),
                        ORDER_THREADS, 0, stream, *args, e.steps,
                        static_cast<uint4 *>(args->scratch), e.turn);
    if (result != cudaSuccess)
        return result;
    uint64_t least = pairs < args->own.count ? pairs : args->own.count;
    uint64_t tiles = (pairs / PAIRS + least) * e.columns, slots = device->processors * BLOCKS;
    return launch(e2m1_kernel<GROUPS, PAIRS, BLOCKS>,
                  dim3(static_cast<unsigned>(tiles < slots ? tiles : slots)),
                  e2m1_threads<GROUPS>(), fixed + e.stages * stage, stream, e);
}

/* By an expert's pairs, if all have as many. */
cudaError_t experts_e2m1(const struct experts_args *args, cudaStream_t stream)
{
    uint64_t each = (uint64_t)args->rows.max * args->top / args->own.count;
    return each <= 4    ? e2m1_launch<1, 8, 4>(args, stream)
           : each <= 12 ? e2m1_launch<1, 16, 4>(args, stream)
           : each <= 40 ? e2m1_launch<4, 64, 1>(args, stream)
                        : e2m1_launch<3, 128, 1>(args, stream);
}

} // namespace HALF
