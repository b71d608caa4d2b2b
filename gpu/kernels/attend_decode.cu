/* Decode attention on sm_90: rows of few queries, bound by reading keys and values once.
 *
 * One block per SM, for as long as there are items (attend_plan.cuh). Eight warps attend, warp w to
 * positions 32 w and on of a split of 256. Three warps fetch for them: bulk copies of 32 positions of
 * K or V into a warp's own ring, ahead through all items of the block, so that memory never waits for
 * arithmetic; lanes look up two splits at once. (One warp that fetched for all eight, in pieces of
 * 16: 82 % of the read rate instead.) A last one brings what else an item is: where it lies, its
 * queries.
 *
 * Scores are S^T = K Q^T and outputs O^T = V^T P^T, so that the few queries are the narrow side of
 * the tensor cores' tiles. Bulk copies cannot swizzle; the operands are taken by 16-byte loads and
 * the order of head dimensions inside the products is permuted to fit: K meets Q in chunks of eight
 * dimensions (lane t has chunks 4j + t), rows of O^T are dealt so that lane g has chunks next to
 * each other. What is left of bank conflicts is two-fold and does not matter at this rate. */
#include "gpu/kernels/attend_plan.cuh"
#include "gpu/kernels/facts.cuh"
#include "gpu/kernels/tensor.cuh"

#define DECODE_WARPS 8
#define DECODE_THREADS ((DECODE_WARPS + 4) * WARP) /* registers are dealt to groups of four warps  \
                                                    */
#define ITEMS 2                                    /* looked up ahead */
#define FETCH_WARPS 3
#define PIECE 16 /* positions that are next to each other in every cache */
#define SPAN (2 * PIECE) /* of a split, per warp */
#define STAGES_MAX 12 /* of a ring, each K or V of one warp's part of a split */
#define MERGE_ROWS 4 /* queries merged over the warps at a time */

struct decode_scratch {   /* of the scratch buffer */
    uint32_t *row_record; /* [rows_max] a row's first record, or PLAN_DIRECT */
    float2 *stat;         /* [capacity] maximum (of scores in powers of two) and sum */
    float *out;           /* [capacity][head_dim] */
    uint32_t capacity;
};

static size_t header_bytes(uint32_t rows)
{
    return ((size_t)rows * sizeof(uint32_t) + 255) / 256 * 256;
}

/* More records than this are not worth their memory: rows are then attended whole. */
#define RECORD_BYTES_MAX ((size_t)64 << 20)

size_t attend_scratch_bytes(const struct batch *bounds, uint32_t heads, uint32_t head_dim)
{
    if (bounds->context_max <= ATTEND_SPLIT)
        return 0;
    size_t tokens = (size_t)bounds->rows_max * ATTEND_DECODE_MAX;
    if (tokens > bounds->tokens_max)
        tokens = bounds->tokens_max;
    if (bounds->q_len_max && tokens > (size_t)bounds->rows_max * bounds->q_len_max)
        tokens = (size_t)bounds->rows_max * bounds->q_len_max;
    size_t splits = ceil_div(bounds->context_max, ATTEND_SPLIT);
    size_t bytes = tokens * heads * splits * (sizeof(float2) + sizeof(float) * head_dim);
    return header_bytes(bounds->rows_max) + (bytes < RECORD_BYTES_MAX ? bytes : RECORD_BYTES_MAX) +
           256;
}

static struct decode_scratch scratch_of(const struct attend_args *args)
{
    struct decode_scratch out = {};
    size_t header = header_bytes(args->batch.rows_max);
    size_t record = sizeof(float2) + sizeof(float) * args->head_dim;
    if (!args->scratch || args->scratch_bytes < header + 256 + record)
        return out;
    size_t capacity = (args->scratch_bytes - header - 256) / record;
    out.capacity = capacity < UINT32_MAX / 2 ? (uint32_t)capacity : UINT32_MAX / 2;
    char *base = static_cast<char *>(args->scratch);
    out.row_record = reinterpret_cast<uint32_t *>(base);
    out.stat = reinterpret_cast<float2 *>(base + header);
    size_t stats = ((size_t)out.capacity * sizeof(float2) + 255) / 256 * 256;
    out.out = reinterpret_cast<float *>(base + header + stats);
    return out;
}

template <int HD, int TILES> struct decode_shared {
    static const uint32_t piece = PIECE * HD * 2, part = 2 * piece; /* bytes of K, or V */
    attend_plan plan;
    uint64_t full[DECODE_WARPS][STAGES_MAX], empty[DECODE_WARPS][STAGES_MAX];
    uint64_t item_full[ITEMS]; /* its queries are there */
    attend_item item[ITEMS];
    alignas(16) __nv_bfloat16 q[ITEMS][8 * TILES][HD];
    float2 stat[DECODE_WARPS][8 * TILES];
    alignas(16) float merge[DECODE_WARPS][MERGE_ROWS][HD];
    /* then [DECODE_WARPS][stages][part], aligned to 128 */
};

/* One value of two splits together; written out, so that it rounds alike wherever it is done. */
__device__ __forceinline__ float fold_value(float before, float old, float split, float now)
{
    return __fmaf_rn(before, old, __fmul_rn(split, now));
}

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* What a lane of a fetching warp is to fetch: its warp's part of one split. */
struct fetch_part {
    uint32_t position, head, span;
    uint32_t block[2]; /* of the lower and the upper 16 positions */
    bool low, high;    /* which of them are wanted */
};

/* Asks for the block numbers, and does not wait for them: under load that takes microseconds, for the
 * answer queues behind all that was fetched. */
__device__ __forceinline__ fetch_part fetch_look_up(const attend_args &a,
                                                    const struct batch_group &group,
                                                    const attend_plan &plan, const plan_shape &shape,
                                                    uint32_t block_shift, uint32_t base,
                                                    uint32_t turn, uint32_t second, uint32_t warp,
                                                    bool mine)
{
    uint32_t number = plan.whole ? base : base + second * gridDim.x;
    bool exists = number < plan.items[plan_entries(plan)];
    attend_item item = plan_find(plan, a.batch, group, shape, exists ? number : base);
    uint32_t split = item.split + (plan.whole ? turn + second : 0);
    fetch_part out;
    exists = exists && mine && split < item.split_end;
    out.position = split * ATTEND_SPLIT + warp * SPAN;
    out.head = item.head;
    out.span = plan.whole ? item.split_end - item.split : 1;
    out.low = exists && out.position <= item.row.last && out.position + PIECE > item.row.first;
    out.high = exists && out.position + PIECE <= item.row.last &&
               out.position + SPAN > item.row.first;
    out.block[0] = out.low ? __ldg(item.row.table + (out.position >> block_shift)) : 0;
    out.block[1] = out.high ? __ldg(item.row.table + ((out.position + PIECE) >> block_shift)) : 0;
    return out;
}

/* One of the warps that fetch, for warps fetcher, fetcher + 3 and fetcher + 6. Lanes look up two splits
 * at a time (of one item where items are whole, else of two items): lane 4 i + c for warp
 * fetcher + 3 c in split i. Copies are issued in the order in which they are used, for a ring has few
 * stages: K and V of a split, then the next split's. */
template <int HD, int TILES>
__device__ static void decode_fetch(const attend_args &a, const struct batch_group &group,
                                    decode_shared<HD, TILES> &shared, const plan_shape &shape,
                                    uint32_t ring, uint32_t stages, uint32_t block_shift,
                                    uint32_t fetcher)
{
    const uint32_t part = decode_shared<HD, TILES>::part, half = part / 2;
    uint32_t total = shared.plan.items[plan_entries(shared.plan)];
    uint32_t step = gridDim.x * (shared.plan.whole ? 1 : 2), base = blockIdx.x, turn = 0;
    uint32_t lane = threadIdx.x % WARP, warp = fetcher + FETCH_WARPS * (lane % 4);
    uint32_t second = lane / 4 % 2, stage = 0, use = 0; /* the next of this lane's ring */
    bool mine = lane < 8 && lane % 4 < FETCH_WARPS && warp < DECODE_WARPS;
    uint64_t policy = policy_once(), to_v = a.kv.v - a.kv.k;
    ring += warp * stages * part;
    if (base >= total)
        return;
    fetch_part next = fetch_look_up(a, group, shared.plan, shape, block_shift, base, turn, second,
                                    warp, mine);
    while (base < total) {
        fetch_part now = next;
        const char *k[2] = {NULL, NULL};
        bool joined = now.low && now.high && block_shift > 4; /* next to each other */
        if (now.low)
            k[0] = attend_place_in(group, now.block[0], block_shift, now.position, now.head, a.kv.k,
                                   HD * 2);
        if (now.high && !joined)
            k[1] = attend_place_in(group, now.block[1], block_shift, now.position + PIECE, now.head,
                                   a.kv.k, HD * 2);
        turn += 2;
        if (turn >= now.span)
            turn = 0, base += step;
        if (base < total)
            next = fetch_look_up(a, group, shared.plan, shape, block_shift, base, turn, second, warp,
                                 mine);
        uint32_t bytes = (now.low ? half : 0) + (now.high ? half : 0);
        uint32_t all = __ballot_sync(FULL_MASK, now.low || now.high) >> lane % 4;
        for (uint32_t round = 0; round < 4; round++) {
            bool is_v = round % 2, fetched = all & (round / 2 ? 0x10 : 1);
            if (fetched && bytes && second == round / 2) {
                uint32_t full = shared_address(&shared.full[warp][stage]), to = ring + stage * part;
                if (use)
                    barrier_wait(shared_address(&shared.empty[warp][stage]), (use - 1) & 1);
                barrier_expect(full, bytes);
                if (now.low)
                    copy_bulk(to, k[0] + (is_v ? to_v : 0), joined ? part : half, full, policy);
                if (now.high && !joined)
                    copy_bulk(to + half, k[1] + (is_v ? to_v : 0), half, full, policy);
            }
            if (fetched && ++stage == stages)
                stage = 0, use++;
            __syncwarp();
        }
    }
}

/* Between the last warp and those that attend, by barriers with numbers: slot `slot` of the items is
 * filled, or read. */
__device__ __forceinline__ void items_sync(uint32_t slot, bool read)
{
    asm volatile("bar.sync %0, %1;" ::"r"(2 + slot + (read ? ITEMS : 0)),
                 "n"((DECODE_WARPS + 1) * WARP)
                 : "memory");
}

__device__ __forceinline__ void items_arrive(uint32_t slot, bool read)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(2 + slot + (read ? ITEMS : 0)),
                 "n"((DECODE_WARPS + 1) * WARP)
                 : "memory");
}

/* The last warp: where the items are, and their queries. Query r of an item is token r / group of
 * the row, head r % group of the KV head's. */
template <int HD, int TILES>
__device__ static void decode_items(const attend_args &a, const struct batch_group &group,
                                    decode_shared<HD, TILES> &shared, const plan_shape &shape)
{
    uint32_t total = shared.plan.items[plan_entries(shared.plan)], lane = threadIdx.x % WARP;
    uint32_t slot = 0, use = 0;
    for (uint32_t number = blockIdx.x; number < total; number += gridDim.x) {
        attend_item item = plan_find(shared.plan, a.batch, group, shape, number);
        uint32_t rows = item.row.q_len * shape.group - item.tile * shape.tile_rows;
        if (rows > shape.tile_rows)
            rows = shape.tile_rows;
        uint32_t full = shared_address(&shared.item_full[slot]);
        if (use)
            items_sync(slot, true);
        if (lane == 0) {
            shared.item[slot] = item;
            barrier_expect(full, rows * HD * 2);
        }
        __syncwarp();
        if (lane < rows) {
            uint32_t r = item.tile * shape.tile_rows + lane;
            size_t token = item.row.token + r / shape.group;
            uint32_t head = item.head * shape.group + r % shape.group;
            copy_bulk(shared_address(shared.q[slot][lane]),
                      static_cast<const __nv_bfloat16 *>(a.q) + token * a.q_stride + head * HD,
                      HD * 2, full);
        }
        items_arrive(slot, false);
        if (++slot == ITEMS)
            slot = 0, use++;
    }
}

template <int HD, int TILES> struct decode_state {
    uint4 q[TILES][HD / 32];
    float out[TILES][HD / 16][4];
    float most[TILES][2], sum[TILES][2];
};

/* Rows that the item does not have stay what they were: their results go nowhere. */
template <int HD, int TILES>
__device__ __forceinline__ void decode_load_q(decode_state<HD, TILES> &s,
                                              const __nv_bfloat16 (&q)[8 * TILES][HD])
{
    uint32_t lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int n = 0; n < TILES; n++)
#pragma unroll
        for (int j = 0; j < HD / 32; j++)
            s.q[n][j] = load_shared(shared_address(&q[n * 8 + g][(4 * j + t) * 8]));
}

/* Scores of one piece: rows are keys, columns queries. */
template <int HD, int TILES>
__device__ __forceinline__ void decode_scores(const decode_state<HD, TILES> &s,
                                              float (&score)[TILES][4], const attend_args &a,
                                              const attend_item &item, const plan_shape &shape,
                                              uint32_t window, uint32_t position, uint32_t stage)
{
    uint32_t lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int j = 0; j < HD / 32; j++) {
        uint4 low = load_shared(stage + g * (HD * 2) + (4 * j + t) * 16);
        uint4 high = load_shared(stage + (g + 8) * (HD * 2) + (4 * j + t) * 16);
#pragma unroll
        for (int n = 0; n < TILES; n++) {
            mma_bf16(score[n], low.x, high.x, low.y, high.y, s.q[n][j].x, s.q[n][j].y);
            mma_bf16(score[n], low.z, high.z, low.w, high.w, s.q[n][j].z, s.q[n][j].w);
        }
    }
    float unit = a.scale * ATTEND_LOG2E;
    /* Some key of the piece is unseen by some query. */
    bool edge = position + PIECE - 1 > item.row.position ||
                (window && position + window <= item.row.last);
#pragma unroll
    for (int n = 0; n < TILES; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            score[n][i] *= unit;
            if (edge) {
                uint32_t key = position + g + (i / 2) * 8;
                uint32_t r = item.tile * shape.tile_rows + n * 8 + 2 * t + i % 2;
                uint32_t query = item.row.position + r / shape.group;
                if (key > query || (window && key + window <= query))
                    score[n][i] = -INFINITY;
            }
        }
}

/* The softmax over both pieces of the warp: scores become weights. */
template <int HD, int TILES>
__device__ __forceinline__ void decode_softmax(decode_state<HD, TILES> &s,
                                               float (&score)[2][TILES][4])
{
#pragma unroll
    for (int n = 0; n < TILES; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float peak = fmaxf(fmaxf(score[0][n][i], score[0][n][i + 2]),
                               fmaxf(score[1][n][i], score[1][n][i + 2]));
#pragma unroll
            for (int offset = 4; offset < WARP; offset *= 2)
                peak = fmaxf(peak, __shfl_xor_sync(FULL_MASK, peak, offset));
            float origin = peak == -INFINITY ? 0.0f : peak, sum = 0;
#pragma unroll
            for (int c = 0; c < 2; c++)
#pragma unroll
                for (int half = 0; half < 4; half += 2) {
                    score[c][n][i + half] = exp2_fast(score[c][n][i + half] - origin);
                    sum += score[c][n][i + half];
                }
            s.most[n][i] = peak;
            s.sum[n][i] = sum;
        }
}

/* One piece's weights times its values. */
template <int HD, int TILES>
__device__ __forceinline__ void decode_values(decode_state<HD, TILES> &s,
                                              const float (&score)[TILES][4],
                                              const attend_item &item, uint32_t position,
                                              uint32_t stage)
{
    uint32_t lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    uint32_t p[TILES][2];
#pragma unroll
    for (int n = 0; n < TILES; n++) {
        p[n][0] = transpose_8x8(pack(score[n][0], score[n][1], DTYPE_BF16));
        p[n][1] = transpose_8x8(pack(score[n][2], score[n][3], DTYPE_BF16));
    }
    /* What lies in the cache at unseen positions may be anything, and 0 * NaN is NaN. */
    bool clean = position < item.row.first || position + PIECE - 1 > item.row.last;
    const int chunks = HD / 64; /* chunks of eight dimensions per lane g */
#pragma unroll
    for (int pair = 0; pair < (chunks + 1) / 2; pair++) {
        const int both = chunks > 1 ? 2 : 1;
        uint4 v[4][2];
#pragma unroll
        for (int i = 0; i < 4; i++) { /* keys 2t, 2t + 1, 2t + 8, 2t + 9 */
            uint32_t key = 2 * t + i % 2 + i / 2 * 8;
            uint32_t row = stage + key * (HD * 2) + (chunks * g + 2 * pair) * 16;
            if (both == 2) { /* odd t take the second chunk first: half the bank conflicts */
                uint4 one = load_shared(row + (t & 1) * 16);
                uint4 two = load_shared(row + (~t & 1) * 16);
                v[i][0] = t & 1 ? two : one;
                v[i][1] = t & 1 ? one : two;
            } else {
                v[i][0] = load_shared(row);
            }
            uint32_t at = position + key;
            if (clean && (at < item.row.first || at > item.row.last))
                v[i][0] = v[i][1] = make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int word = 0; word < 4; word++) {
            uint32_t w[4][2];
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int c = 0; c < both; c++)
                    w[i][c] = word == 0   ? v[i][c].x
                              : word == 1 ? v[i][c].y
                              : word == 2 ? v[i][c].z
                                          : v[i][c].w;
#pragma unroll
            for (int odd = 0; odd < 2; odd++) {
                uint32_t select = odd ? 0x7632 : 0x5410;
                uint32_t first[2], second[2];
#pragma unroll
                for (int c = 0; c < both; c++) {
                    first[c] = __byte_perm(w[0][c], w[1][c], select);
                    second[c] = __byte_perm(w[2][c], w[3][c], select);
                }
                /* Row tile m: dimension `word * 2 + odd` of two chunks; where lanes have one
                 * chunk only, of its two halves, so words 0, 1 pair with words 2, 3. */
                if (both == 2) {
                    int m = pair * 8 + word * 2 + odd;
#pragma unroll
                    for (int n = 0; n < TILES; n++)
                        mma_bf16(s.out[n][m], first[0], first[1], second[0], second[1], p[n][0],
                                 p[n][1]);
                } else if (word < 2) {
                    int m = word * 2 + odd;
                    uint32_t a1 = __byte_perm(word ? v[0][0].w : v[0][0].z,
                                              word ? v[1][0].w : v[1][0].z, select);
                    uint32_t a3 = __byte_perm(word ? v[2][0].w : v[2][0].z,
                                              word ? v[3][0].w : v[3][0].z, select);
#pragma unroll
                    for (int n = 0; n < TILES; n++)
                        mma_bf16(s.out[n][m], first[0], a1, second[0], a3, p[n][0], p[n][1]);
                }
            }
        }
    }
}

__device__ __forceinline__ void attend_warps_sync()
{
    asm volatile("bar.sync 1, %0;" ::"n"(DECODE_WARPS * WARP) : "memory");
}

/* Dimension of s.out[.][m][half * 2] for lane g: see the row tiles above. */
template <int HD> __device__ __forceinline__ uint32_t dimension_of(uint32_t g, int m, int half)
{
    const int chunks = HD / 64;
    if (chunks == 1)
        return 8 * g + 4 * half + m;
    return 8 * (chunks * g + 2 * (m / 8) + half) + m % 8;
}

template <int HD, int TILES> struct decode_fold {
    static const int values = MERGE_ROWS * HD / (DECODE_WARPS * WARP); /* per thread and pass */
    static const int passes = 8 * TILES / MERGE_ROWS;
    float out[passes][values], most[passes], sum[passes];
};

/* The warps' results of one split into one, added to those of the splits before. */
template <int HD, int TILES>
__device__ __forceinline__ void
decode_merge(decode_fold<HD, TILES> &fold, const decode_state<HD, TILES> &s,
             decode_shared<HD, TILES> &shared, uint32_t rows, bool first_split)
{
    typedef decode_fold<HD, TILES> fold_type;
    uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    uint32_t thread = threadIdx.x, row_in = thread * fold_type::values / HD;
    uint32_t dimension = thread * fold_type::values % HD;
#pragma unroll
    for (int n = 0; n < TILES; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float sum = s.sum[n][i];
#pragma unroll
            for (int offset = 4; offset < WARP; offset *= 2)
                sum += __shfl_xor_sync(FULL_MASK, sum, offset);
            if (g == 0)
                shared.stat[warp][n * 8 + 2 * t + i] = make_float2(s.most[n][i], sum);
        }
#pragma unroll
    for (int pass = 0; pass < fold_type::passes; pass++) {
        if (pass * MERGE_ROWS >= rows)
            break;
        const int n = pass * MERGE_ROWS / 8;
        if (t / 2 == pass % 2) {
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int half = 0; half < 2; half++)
#pragma unroll
                    for (int m = 0; m < HD / 16; m += 4) {
                        float *to =
                            &shared.merge[warp][t % 2 * 2 + i][dimension_of<HD>(g, m, half)];
                        *reinterpret_cast<float4 *>(to) = make_float4(
                            s.out[n][m][half * 2 + i], s.out[n][m + 1][half * 2 + i],
                            s.out[n][m + 2][half * 2 + i], s.out[n][m + 3][half * 2 + i]);
                    }
        }
        attend_warps_sync();
        float most = -INFINITY, sum = 0, out[fold_type::values] = {};
#pragma unroll
        for (int w = 0; w < DECODE_WARPS; w++)
            most = fmaxf(most, shared.stat[w][pass * MERGE_ROWS + row_in].x);
        float origin = most == -INFINITY ? 0.0f : most;
#pragma unroll
        for (int w = 0; w < DECODE_WARPS; w++) {
            float2 stat = shared.stat[w][pass * MERGE_ROWS + row_in];
            float factor = exp2_fast(stat.x - origin);
            sum += stat.y * factor;
#pragma unroll
            for (int v = 0; v < fold_type::values; v++)
                out[v] += shared.merge[w][row_in][dimension + v] * factor;
        }
        if (first_split) {
            fold.most[pass] = most;
            fold.sum[pass] = sum;
#pragma unroll
            for (int v = 0; v < fold_type::values; v++)
                fold.out[pass][v] = out[v];
        } else {
            float above = fmaxf(fold.most[pass], most);
            float base = above == -INFINITY ? 0.0f : above;
            float old = exp2_fast(fold.most[pass] - base), now = exp2_fast(most - base);
            fold.sum[pass] = fold_value(fold.sum[pass], old, sum, now);
#pragma unroll
            for (int v = 0; v < fold_type::values; v++)
                fold.out[pass][v] = fold_value(fold.out[pass][v], old, out[v], now);
            fold.most[pass] = above;
        }
        attend_warps_sync();
    }
}

template <int HD, int TILES>
__device__ __forceinline__ void decode_store(const decode_fold<HD, TILES> &fold,
                                             const attend_args &a, const decode_scratch &scratch,
                                             const attend_item &item, const plan_shape &shape,
                                             uint32_t rows)
{
    typedef decode_fold<HD, TILES> fold_type;
    uint32_t row_in = threadIdx.x * fold_type::values / HD;
    uint32_t dimension = threadIdx.x * fold_type::values % HD;
#pragma unroll
    for (int pass = 0; pass < fold_type::passes; pass++) {
        uint32_t in_tile = pass * MERGE_ROWS + row_in;
        if (in_tile >= rows)
            break;
        uint32_t r = item.tile * shape.tile_rows + in_tile, token = r / shape.group;
        uint32_t head = item.head * shape.group + r % shape.group;
        if (item.record == PLAN_DIRECT) {
            __nv_bfloat16 *to = static_cast<__nv_bfloat16 *>(a.out) +
                                (size_t)(item.row.token + token) * a.out_stride + head * HD +
                                dimension;
#pragma unroll
            for (int v = 0; v < fold_type::values; v++)
                to[v] = __float2bfloat16_rn(fold.out[pass][v] / fold.sum[pass]);
            continue;
        }
        uint32_t heads = shape.kv_heads * shape.group;
        size_t record =
            item.record +
            ((size_t)(item.split - item.row.split_first) * item.row.q_len + token) * heads + head;
        if (dimension == 0)
            scratch.stat[record] = make_float2(fold.most[pass], fold.sum[pass]);
#pragma unroll
        for (int v = 0; v < fold_type::values; v++)
            scratch.out[record * HD + dimension + v] = fold.out[pass][v];
    }
}

/* The warp is done with a stage of its ring, and goes to the next. */
__device__ __forceinline__ void decode_release(uint64_t *empty, uint32_t stages, uint32_t &stage,
                                               uint32_t &phase)
{
    __syncwarp();
    if (threadIdx.x % WARP == 0)
        barrier_arrive(shared_address(&empty[stage]));
    if (++stage == stages)
        stage = 0, phase ^= 1;
}

template <int HD, int TILES>
__device__ static void decode_attend(const attend_args &a, const struct batch_group &group,
                                     const decode_scratch &scratch,
                                     decode_shared<HD, TILES> &shared, const plan_shape &shape,
                                     uint32_t ring, uint32_t stages)
{
    const uint32_t part = decode_shared<HD, TILES>::part;
    uint32_t warp = threadIdx.x / WARP, stage = 0, phase = 0;
    uint32_t total = shared.plan.items[plan_entries(shared.plan)];
    ring += warp * stages * part;
    uint32_t slot = 0, slot_phase = 0;
    decode_state<HD, TILES> s;
    decode_fold<HD, TILES> fold;
    for (uint32_t number = blockIdx.x; number < total; number += gridDim.x) {
        items_sync(slot, false);
        barrier_wait(shared_address(&shared.item_full[slot]), slot_phase);
        attend_item item = shared.item[slot];
        uint32_t rows = item.row.q_len * shape.group - item.tile * shape.tile_rows;
        if (rows > shape.tile_rows)
            rows = shape.tile_rows;
        decode_load_q(s, shared.q[slot]);
        for (uint32_t split = item.split; split < item.split_end; split++) {
#pragma unroll
            for (int n = 0; n < TILES; n++)
#pragma unroll
                for (int m = 0; m < HD / 16; m++)
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        s.out[n][m][i] = 0;
            float score[2][TILES][4] = {};
            uint32_t position[2];
            bool valid[2];
#pragma unroll
            for (int c = 0; c < 2; c++) {
                position[c] = split * ATTEND_SPLIT + warp * SPAN + c * PIECE;
                valid[c] = position[c] <= item.row.last && position[c] + PIECE > item.row.first;
            }
            bool any = valid[0] || valid[1];
            if (any)
                barrier_wait(shared_address(&shared.full[warp][stage]), phase);
#pragma unroll
            for (int c = 0; c < 2; c++)
                if (valid[c])
                    decode_scores(s, score[c], a, item, shape, group.window, position[c],
                                  ring + stage * part + c * (part / 2));
                else
#pragma unroll
                    for (int n = 0; n < TILES; n++)
                        score[c][n][0] = score[c][n][1] = score[c][n][2] = score[c][n][3] =
                            -INFINITY;
            if (any)
                decode_release(shared.empty[warp], stages, stage, phase);
            decode_softmax<HD, TILES>(s, score);
            if (any)
                barrier_wait(shared_address(&shared.full[warp][stage]), phase);
#pragma unroll
            for (int c = 0; c < 2; c++)
                if (valid[c])
                    decode_values(s, score[c], item, position[c],
                                  ring + stage * part + c * (part / 2));
            if (any)
                decode_release(shared.empty[warp], stages, stage, phase);
            decode_merge(fold, s, shared, rows, split == item.split);
        }
        if (number + ITEMS * gridDim.x < total) /* else nobody waits for it */
            items_arrive(slot, true);
        if (++slot == ITEMS)
            slot = 0, slot_phase ^= 1;
        decode_store(fold, a, scratch, item, shape, rows);
    }
}

/* Where the combining kernel finds the records of each row; rows beyond the count have none. */
__device__ static void decode_tell(const attend_args &a, const struct batch_group &group,
                                   const decode_scratch &scratch, const attend_plan &plan,
                                   const plan_shape &shape)
{
    const uint32_t threads = DECODE_WARPS * WARP;
    for (uint32_t i = plan.rows + threadIdx.x; i < a.batch.rows_max; i += threads)
        scratch.row_record[i] = PLAN_DIRECT;
    for (uint32_t entry = threadIdx.x; entry < plan_entries(plan); entry += threads) {
        uint32_t record = plan.records[entry];
        for (uint32_t i = entry * plan.per; i < plan.rows && i < (entry + 1) * plan.per; i++) {
            uint32_t size = plan_row(shape, attend_row_at(a.batch, group, i), plan.whole).y;
            scratch.row_record[i] = size ? record : PLAN_DIRECT;
            record += size;
        }
    }
}

#endif

template <int HD, int TILES>
__global__ void __launch_bounds__(DECODE_THREADS, 1)
    decode_kernel(const __grid_constant__ struct attend_args a,
                  const __grid_constant__ struct decode_scratch scratch, uint32_t stages,
                  uint32_t block_shift)
{
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(128) char memory[];
    decode_shared<HD, TILES> &shared = *reinterpret_cast<decode_shared<HD, TILES> *>(memory);
    uint32_t ring = (shared_address(memory) + sizeof(shared) + 127) / 128 * 128;
    const struct batch_group &group = a.batch.groups[a.kv.group];
    plan_shape shape = {a.kv_heads, a.heads / a.kv_heads, 8 * TILES};
    grid_trigger();
    if (threadIdx.x < DECODE_WARPS)
        for (uint32_t i = 0; i < stages; i++) {
            barrier_init(shared_address(&shared.full[threadIdx.x][i]), 1);
            barrier_init(shared_address(&shared.empty[threadIdx.x][i]), 1);
        }
    if (threadIdx.x == 0)
        for (int i = 0; i < ITEMS; i++)
            barrier_init(shared_address(&shared.item_full[i]), 1);
    barrier_init_done();
    grid_wait();
    plan_count(shared.plan, a.batch, group, shape, false);
    if (shared.plan.records[plan_entries(shared.plan)] > scratch.capacity) {
        __syncthreads();
        plan_count(shared.plan, a.batch, group, shape, true);
    }
    if (threadIdx.x < DECODE_WARPS * WARP) {
        registers_more<224>();
        decode_attend<HD, TILES>(a, group, scratch, shared, shape, ring, stages);
        if (blockIdx.x == gridDim.x - 1 && scratch.row_record)
            decode_tell(a, group, scratch, shared.plan, shape);
    } else {
        registers_less<56>();
        uint32_t role = threadIdx.x / WARP - DECODE_WARPS;
        if (role < FETCH_WARPS)
            decode_fetch<HD, TILES>(a, group, shared, shape, ring, stages, block_shift, role);
        else
            decode_items<HD, TILES>(a, group, shared, shape);
    }
#endif
}

#define COMBINE_SPLITS WARP /* read at a time */

/* A block per row and head, a thread per dimension: its splits, from the first to the last. What they
 * are scaled by is found by 32 lanes at once; maxima know no order. */
template <int HD>
__global__ void __launch_bounds__(HD)
    combine_kernel(const __grid_constant__ struct attend_args a,
                   const __grid_constant__ struct decode_scratch scratch)
{
    grid_trigger();
    grid_wait();
    uint32_t index = blockIdx.x, head = blockIdx.y, lane = threadIdx.x % WARP;
    attend_row row = attend_row_at(a.batch, a.batch.groups[a.kv.group], index);
    uint32_t base = scratch.row_record[index];
    if (base == PLAN_DIRECT)
        return;
    size_t step = (size_t)row.q_len * a.heads;
    for (uint32_t token = 0; token < row.q_len; token++) {
        float most = -INFINITY, sum = 0, out = 0;
        size_t record = base + (size_t)token * a.heads + head;
        for (uint32_t done = 0; done < row.splits; done += COMBINE_SPLITS) {
            uint32_t count = row.splits - done;
            float part[COMBINE_SPLITS];
#pragma unroll
            for (int i = 0; i < COMBINE_SPLITS; i++)
                part[i] = i < count ? scratch.out[(record + (done + i) * step) * HD + threadIdx.x]
                                    : 0.0f;
            float2 stat = lane < count ? scratch.stat[record + (done + lane) * step]
                                       : make_float2(-INFINITY, 0);
            float above = stat.x;
#pragma unroll
            for (int offset = 1; offset < WARP; offset *= 2) {
                float other = __shfl_up_sync(FULL_MASK, above, offset);
                above = lane >= offset ? fmaxf(above, other) : above;
            }
            above = fmaxf(above, most);
            float below = __shfl_up_sync(FULL_MASK, above, 1);
            below = lane ? below : most;
            float origin = above == -INFINITY ? 0.0f : above;
            float old = exp2_fast(below - origin), now = exp2_fast(stat.x - origin);
            most = __shfl_sync(FULL_MASK, above, WARP - 1);
#pragma unroll
            for (int i = 0; i < COMBINE_SPLITS; i++) {
                float old_i = __shfl_sync(FULL_MASK, old, i), now_i = __shfl_sync(FULL_MASK, now, i);
                sum = fold_value(sum, old_i, __shfl_sync(FULL_MASK, stat.y, i), now_i);
                out = fold_value(out, old_i, part[i], now_i);
            }
        }
        static_cast<__nv_bfloat16 *>(
            a.out)[(size_t)(row.token + token) * a.out_stride + head * HD + threadIdx.x] =
            __float2bfloat16_rn(out / sum);
    }
}

bool attend_decode_can(const struct attend_args *args)
{
    const struct device_facts *device = device_facts();
    uint32_t dim = args->head_dim;
    return device->major == 9 && args->dtype == DTYPE_BF16 && args->kv.dtype == DTYPE_BF16 &&
           (dim == 64 || dim == 128 || dim == 256) && args->q_stride % 8 == 0 &&
           reinterpret_cast<uintptr_t>(args->q) % 16 == 0;
}

template <int HD, int TILES>
static cudaError_t decode_launch(const struct attend_args *args, cudaStream_t stream)
{
    const struct device_facts *device = device_facts();
    struct decode_scratch scratch = scratch_of(args);
    size_t fixed = sizeof(decode_shared<HD, TILES>) + 128;
    size_t stage = (size_t)DECODE_WARPS * decode_shared<HD, TILES>::part;
    uint32_t stages = static_cast<uint32_t>((device->shared_max - fixed) / stage);
    if (stages > STAGES_MAX)
        stages = STAGES_MAX;
    static struct device_once once;
    cudaError_t result = device_allow(&once, decode_kernel<HD, TILES>, device);
    if (result != cudaSuccess)
        return result;
    result = launch(decode_kernel<HD, TILES>, dim3(device->processors), DECODE_THREADS,
                    fixed + stage * stages, stream, *args, scratch, stages,
                    (uint32_t)__builtin_ctz(args->batch.block_tokens));
    if (result != cudaSuccess || args->batch.context_max <= ATTEND_SPLIT || !scratch.row_record)
        return result;
    return launch(combine_kernel<HD>, dim3(args->batch.rows_max, args->heads), HD, 0, stream, *args,
                  scratch);
}

template <int HD>
static cudaError_t decode_launch_dim(const struct attend_args *args, cudaStream_t stream)
{
    uint32_t q_len =
        args->batch.q_len_max < ATTEND_DECODE_MAX ? args->batch.q_len_max : ATTEND_DECODE_MAX;
    if (HD > 128 || q_len * (args->heads / args->kv_heads) <= 8)
        return decode_launch<HD, 1>(args, stream);
    return decode_launch<HD, (HD > 128 ? 1 : 2)>(args, stream);
}

cudaError_t attend_decode(const struct attend_args *args, cudaStream_t stream)
{
    if (args->head_dim == 64)
        return decode_launch_dim<64>(args, stream);
    if (args->head_dim == 128)
        return decode_launch_dim<128>(args, stream);
    return decode_launch_dim<256>(args, stream);
}
