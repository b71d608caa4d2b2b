/* Decode attention on sm_90: rows of few queries, bound by reading keys and values once.
 *
 * One block per SM, for as long as there are items (attend_plan.cuh). Eight warps attend. A ninth
 * fetches for all of them: bulk copies of 16 positions of K and of V into a warp's own ring, ahead
 * through all items of the block, so that memory never waits for arithmetic; its lanes look up the
 * 16 pieces of two splits at once. A tenth brings what else an item is: where it lies, its queries.
 * Of a split of 256 positions warp w has the 16 from 16 w and the 16 from 128 + 16 w.
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
#define PIECE 16 /* positions of a bulk copy; every block has a multiple of it */
#define PIECES (ATTEND_SPLIT / PIECE)
#define STAGES_MAX 8
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
    static const uint32_t part = PIECE * HD * 2; /* bytes of K, or V, of a piece */
    attend_plan plan;
    uint64_t full[DECODE_WARPS][STAGES_MAX], empty[DECODE_WARPS][STAGES_MAX];
    uint64_t item_full[ITEMS], item_empty[ITEMS];
    attend_item item[ITEMS];
    alignas(16) __nv_bfloat16 q[ITEMS][8 * TILES][HD];
    float2 stat[DECODE_WARPS][8 * TILES];
    alignas(16) float merge[DECODE_WARPS][MERGE_ROWS][HD];
    /* then [DECODE_WARPS][stages][K, V][part], aligned to 128 */
};

/* One value of two splits together; written out, so that it rounds alike wherever it is done. */
__device__ __forceinline__ float fold_value(float before, float old, float split, float now)
{
    return __fmaf_rn(before, old, __fmul_rn(split, now));
}

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* The ninth warp: all pieces of all warps. Lanes look up two splits at a time (of one item where
 * items are whole, else of two items), two pieces for each warp: lane 16 i + 8 j + w piece j of
 * warp w in split i. They are issued in that order, for a ring has few stages. */
template <int HD, int TILES>
__device__ static void decode_fetch(const attend_args &a, const struct batch_group &group,
                                    decode_shared<HD, TILES> &shared, const plan_shape &shape,
                                    uint32_t ring, uint32_t stages, uint32_t block_shift)
{
    const uint32_t part = decode_shared<HD, TILES>::part;
    uint32_t total = shared.plan.items[plan_entries(shared.plan)], whole = shared.plan.whole;
    uint32_t lane = threadIdx.x % WARP, warp = lane % DECODE_WARPS, piece = lane % 16;
    uint32_t second = lane / 16, issued = 0; /* pieces of this lane's warp so far */
    ring += warp * stages * 2 * part;
    for (uint32_t base = blockIdx.x; base < total; base += gridDim.x * (whole ? 1 : 2)) {
        uint32_t number = whole ? base : base + second * gridDim.x;
        attend_item item =
            plan_find(shared.plan, a.batch, group, shape, number < total ? number : base);
        uint32_t span = whole ? item.split_end - item.split : 1;
        for (uint32_t turn = 0; turn < span; turn += 2) {
            uint32_t split = item.split + (whole ? turn + second : 0);
            uint32_t position = split * ATTEND_SPLIT + piece * PIECE;
            bool valid = number < total && split < item.split_end && position <= item.row.last &&
                         position + PIECE > item.row.first;
            const char *k = NULL;
            if (valid)
                k = attend_place(group, item.row.table, block_shift, position, item.head, a.kv.k,
                                 HD * 2);
            uint32_t mine = 0x01010101u << warp;
            uint32_t all = __ballot_sync(FULL_MASK, valid) & mine;
            uint32_t order = issued + __popc(all & ((1u << lane) - 1));
            issued += __popc(all);
            uint32_t stage = order % stages, use = order / stages;
#pragma unroll
            for (uint32_t round = 0; round < 4; round++) {
                if (lane / 8 == round && valid) {
                    uint32_t full = shared_address(&shared.full[warp][stage]);
                    uint32_t to = ring + stage * 2 * part;
                    if (use)
                        barrier_wait(shared_address(&shared.empty[warp][stage]), (use - 1) & 1);
                    barrier_expect(full, 2 * part);
                    copy_bulk(to, k, part, full);
                    copy_bulk(to + part, k + (a.kv.v - a.kv.k), part, full);
                }
                __syncwarp();
            }
        }
    }
}

/* The tenth warp: where the items are, and their queries. Query r of an item is token r / group of
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
            barrier_wait(shared_address(&shared.item_empty[slot]), (use - 1) & 1);
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

/* One piece: scores, the running softmax, and the products with V. */
template <int HD, int TILES>
__device__ __forceinline__ void decode_piece(decode_state<HD, TILES> &s, const attend_args &a,
                                             const attend_item &item, const plan_shape &shape,
                                             uint32_t window, uint32_t position, uint32_t stage)
{
    const uint32_t part = decode_shared<HD, TILES>::part;
    uint32_t lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    float score[TILES][4] = {};
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
    bool edge =
        position + PIECE - 1 > item.row.position || (window && position + window <= item.row.last);
    uint32_t p[TILES][2];
#pragma unroll
    for (int n = 0; n < TILES; n++) {
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
        float peak[2], keep[2];
        bool same = true;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            peak[i] = fmaxf(score[n][i], score[n][i + 2]);
#pragma unroll
            for (int offset = 4; offset < WARP; offset *= 2)
                peak[i] = fmaxf(peak[i], __shfl_xor_sync(FULL_MASK, peak[i], offset));
            peak[i] = fmaxf(peak[i], s.most[n][i]);
            same = same && peak[i] == s.most[n][i];
        }
        if (!__all_sync(FULL_MASK, same)) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                keep[i] = peak[i] == -INFINITY ? 1.0f : exp2_fast(s.most[n][i] - peak[i]);
                s.sum[n][i] *= keep[i];
                s.most[n][i] = peak[i];
            }
#pragma unroll
            for (int m = 0; m < HD / 16; m++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    s.out[n][m][i] *= keep[i % 2];
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float origin = s.most[n][i % 2] == -INFINITY ? 0.0f : s.most[n][i % 2];
            score[n][i] = exp2_fast(score[n][i] - origin);
            s.sum[n][i % 2] += score[n][i];
        }
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
            uint32_t row = stage + part + key * (HD * 2) + (chunks * g + 2 * pair) * 16;
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

template <int HD, int TILES>
__device__ static void decode_attend(const attend_args &a, const struct batch_group &group,
                                     const decode_scratch &scratch,
                                     decode_shared<HD, TILES> &shared, const plan_shape &shape,
                                     uint32_t ring, uint32_t stages)
{
    const uint32_t part = decode_shared<HD, TILES>::part;
    uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, stage = 0, phase = 0;
    uint32_t total = shared.plan.items[plan_entries(shared.plan)];
    ring += warp * stages * 2 * part;
    uint32_t slot = 0, slot_phase = 0;
    decode_state<HD, TILES> s;
    decode_fold<HD, TILES> fold;
    for (uint32_t number = blockIdx.x; number < total; number += gridDim.x) {
        barrier_wait(shared_address(&shared.item_full[slot]), slot_phase);
        attend_item item = shared.item[slot];
        uint32_t rows = item.row.q_len * shape.group - item.tile * shape.tile_rows;
        if (rows > shape.tile_rows)
            rows = shape.tile_rows;
        decode_load_q(s, shared.q[slot]);
        for (uint32_t split = item.split; split < item.split_end; split++) {
#pragma unroll
            for (int n = 0; n < TILES; n++) {
                s.most[n][0] = s.most[n][1] = -INFINITY;
                s.sum[n][0] = s.sum[n][1] = 0;
#pragma unroll
                for (int m = 0; m < HD / 16; m++)
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        s.out[n][m][i] = 0;
            }
            for (uint32_t p = warp; p < PIECES; p += DECODE_WARPS) {
                uint32_t position = split * ATTEND_SPLIT + p * PIECE;
                if (position > item.row.last || position + PIECE <= item.row.first)
                    continue;
                barrier_wait(shared_address(&shared.full[warp][stage]), phase);
                decode_piece(s, a, item, shape, group.window, position, ring + stage * 2 * part);
                __syncwarp();
                if (lane == 0)
                    barrier_arrive(shared_address(&shared.empty[warp][stage]));
                if (++stage == stages)
                    stage = 0, phase ^= 1;
            }
            decode_merge(fold, s, shared, rows, split == item.split);
        }
        if (threadIdx.x == 0) /* all warps are past the merge, and so past the item */
            barrier_arrive(shared_address(&shared.item_empty[slot]));
        if (++slot == ITEMS)
            slot = 0, slot_phase ^= 1;
        decode_store(fold, a, scratch, item, shape, rows);
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
        for (int i = 0; i < ITEMS; i++) {
            barrier_init(shared_address(&shared.item_full[i]), 1);
            barrier_init(shared_address(&shared.item_empty[i]), 1);
        }
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
        if (blockIdx.x == 0 && scratch.row_record)
            for (uint32_t entry = threadIdx.x; entry < plan_entries(shared.plan);
                 entry += DECODE_WARPS * WARP) {
                uint32_t record = shared.plan.records[entry];
                for (uint32_t i = entry * shared.plan.per;
                     i < shared.plan.rows && i < (entry + 1) * shared.plan.per; i++) {
                    uint32_t size =
                        plan_row(shape, attend_row_at(a.batch, group, i), shared.plan.whole).y;
                    scratch.row_record[i] = size ? record : PLAN_DIRECT;
                    record += size;
                }
            }
    } else {
        registers_less<56>();
        if (threadIdx.x / WARP == DECODE_WARPS)
            decode_fetch<HD, TILES>(a, group, shared, shape, ring, stages, block_shift);
        else if (threadIdx.x / WARP == DECODE_WARPS + 1)
            decode_items<HD, TILES>(a, group, shared, shape);
    }
#endif
}

#define COMBINE_WARPS 8

/* A warp per row and head: its splits, from the first to the last. */
template <int HD>
__global__ void __launch_bounds__(COMBINE_WARPS *WARP)
    combine_kernel(const __grid_constant__ struct attend_args a,
                   const __grid_constant__ struct decode_scratch scratch)
{
    const int values = HD / WARP;
    grid_trigger();
    grid_wait();
    uint32_t index = blockIdx.x, lane = threadIdx.x % WARP;
    uint32_t head = blockIdx.y * COMBINE_WARPS + threadIdx.x / WARP;
    if (index >= a.batch.counts->rows || head >= a.heads)
        return;
    uint32_t base = scratch.row_record[index];
    if (base == PLAN_DIRECT)
        return;
    attend_row row = attend_row_at(a.batch, a.batch.groups[a.kv.group], index);
    for (uint32_t token = 0; token < row.q_len; token++) {
        float most = -INFINITY, sum = 0, out[values] = {};
        size_t step = (size_t)row.q_len * a.heads;
        size_t record = base + (size_t)token * a.heads + head;
#pragma unroll 4
        for (uint32_t split = 0; split < row.splits; split++, record += step) {
            float2 stat = scratch.stat[record];
            float part[values];
#pragma unroll
            for (int v = 0; v < values; v += 2) {
                float2 pair = *reinterpret_cast<const float2 *>(
                    &scratch.out[record * HD + lane * 2 + v * WARP]);
                part[v] = pair.x;
                part[v + 1] = pair.y;
            }
            float above = fmaxf(most, stat.x), origin = above == -INFINITY ? 0.0f : above;
            float old = exp2_fast(most - origin), now = exp2_fast(stat.x - origin);
            sum = fold_value(sum, old, stat.y, now);
#pragma unroll
            for (int v = 0; v < values; v++)
                out[v] = fold_value(out[v], old, part[v], now);
            most = above;
        }
        __nv_bfloat16 *to = static_cast<__nv_bfloat16 *>(a.out) +
                            (size_t)(row.token + token) * a.out_stride + head * HD;
#pragma unroll
        for (int v = 0; v < values; v++)
            to[lane * 2 + v / 2 * 2 * WARP + v % 2] = __float2bfloat16_rn(out[v] / sum);
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
    size_t stage = (size_t)DECODE_WARPS * 2 * decode_shared<HD, TILES>::part;
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
    return launch(combine_kernel<HD>,
                  dim3(args->batch.rows_max, ceil_div(args->heads, COMBINE_WARPS)),
                  COMBINE_WARPS * WARP, 0, stream, *args, scratch);
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
