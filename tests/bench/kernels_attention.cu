#include <string.h>

#include "gpu/kernels/attention/attention.h"
#include "tests/bench/kernels.cuh"

struct row_spec {
    uint32_t position, q_len;
};

struct world {
    uint32_t heads, kv_heads, dim, block_tokens, window;
    enum dtype dtype;
    std::vector<row_spec> rows;
    uint32_t layers = 1, layer = 0;
    /* made by build() */
    std::vector<float> q, k, v; /* k, v: [row][position][kv_head][dim] */
    std::vector<size_t> kv_start;
    std::vector<uint32_t> token_row, token_position;
    struct attention_args args = {};
    size_t out_count = 0;
    std::vector<void *> owned;
};

static const uint32_t SLAB_BLOCKS = 8;
static const uint32_t APART_MAX = 512; /* blocks; each takes memcheck a while */

template <class T> static T *keep(struct world &w, T *pointer)
{
    w.owned.push_back(const_cast<void *>(static_cast<const void *>(pointer)));
    return pointer;
}

static void release(struct world &w)
{
    for (void *pointer : w.owned)
        MUST(cudaFree(pointer));
    w.owned.clear();
}

/* Keys and values of every position that may be read; NaN everywhere else, and block numbers that
 * lead nowhere for blocks that no query sees. */
static void build_cache(struct world &w, random_state &random)
{
    uint32_t bytes = dtype_bytes(w.dtype), blocks_max = 0, blocks = 0;
    std::vector<std::vector<uint32_t>> lists;
    for (const row_spec &row : w.rows) {
        uint32_t need = (row.position + row.q_len + w.block_tokens - 1) / w.block_tokens;
        blocks_max = std::max(blocks_max, need + 2);
        blocks += need;
    }
    /* For memcheck each block is an allocation of its own. */
    uint32_t slab_blocks = getenv("RIG_APART") && blocks <= APART_MAX ? 1 : SLAB_BLOCKS;
    uint32_t slabs = (blocks + slab_blocks - 1) / slab_blocks;
    std::vector<uint32_t> order(slabs * slab_blocks);
    for (uint32_t i = 0; i < order.size(); i++)
        order[i] = i;
    for (uint32_t i = order.size() - 1; i > 0; i--)
        std::swap(order[i], order[random.below(i + 1)]);
    size_t part = (size_t)w.kv_heads * w.block_tokens * w.dim * bytes;
    size_t block_bytes = (w.layers * 2 * part + 255) / 256 * 256;
    std::vector<uint8_t> image((size_t)slabs * slab_blocks * block_bytes, 0xff);
    std::vector<uint32_t> tables(w.rows.size() * blocks_max, 0x7ffffff0u);
    uint32_t taken = 0;
    for (size_t r = 0; r < w.rows.size(); r++) {
        const row_spec &row = w.rows[r];
        uint32_t context = row.position + row.q_len;
        uint32_t first = w.window && row.position >= w.window ? row.position - w.window + 1 : 0;
        for (uint32_t j = first / w.block_tokens; j * w.block_tokens < context; j++)
            tables[r * blocks_max + j] = order[taken++];
        for (uint32_t p = first; p < context; p++)
            for (uint32_t h = 0; h < w.kv_heads; h++) {
                uint32_t block = tables[r * blocks_max + p / w.block_tokens];
                size_t at = block * block_bytes + w.layer * 2 * part +
                            ((size_t)h * w.block_tokens + p % w.block_tokens) * w.dim * bytes;
                size_t from = w.kv_start[r] + ((size_t)p * w.kv_heads + h) * w.dim;
                for (uint32_t i = 0; i < w.dim; i++) {
                    if (w.dtype == DTYPE_F32) {
                        memcpy(&image[at + i * 4], &w.k[from + i], 4);
                        memcpy(&image[at + part + i * 4], &w.v[from + i], 4);
                    } else {
                        uint16_t key = half_bits(w.k[from + i]);
                        uint16_t value = half_bits(w.v[from + i]);
                        memcpy(&image[at + i * 2], &key, 2);
                        memcpy(&image[at + part + i * 2], &value, 2);
                    }
                }
            }
    }
    std::vector<void *> slab_list(slabs);
    size_t slab_bytes = slab_blocks * block_bytes;
    for (uint32_t i = 0; i < slabs; i++) {
        auto slab = image.begin() + (ptrdiff_t)(i * slab_bytes);
        slab_list[i] = keep(w, to_device(std::vector<uint8_t>(slab, slab + (ptrdiff_t)slab_bytes)));
    }
    struct batch_group &group = w.args.batch.groups[0];
    group.tables = keep(w, to_device(tables));
    group.slabs = keep(w, to_device(slab_list));
    group.block_bytes = block_bytes;
    group.blocks_max = blocks_max;
    group.slab_blocks = slab_blocks;
    group.window = w.window;
    w.args.kv = {w.layer * 2 * part, w.layer * 2 * part + part, 0, format_plain(w.dtype)};
}

static void build_batch(struct world &w, uint32_t spare)
{
    std::vector<struct batch_row> rows;
    struct batch_counts counts = {};
    struct batch &batch = w.args.batch;
    attention_bounds_clear(&batch);
    w.token_row.clear();
    w.token_position.clear();
    for (size_t r = 0; r < w.rows.size(); r++) {
        struct batch_row row = {};
        row.slot = r;
        row.position = w.rows[r].position;
        row.q_len = w.rows[r].q_len;
        row.token = w.token_row.size();
        rows.push_back(row);
        for (uint32_t i = 0; i < row.q_len; i++) {
            w.token_row.push_back(r);
            w.token_position.push_back(row.position + i);
        }
        attention_bounds_add(&batch, row.position, row.q_len);
    }
    counts.rows = rows.size();
    rows.resize(rows.size() + spare);
    counts.tokens = w.token_row.size();
    batch.counts = keep(w, to_device(std::vector<struct batch_counts>(1, counts)));
    batch.rows = keep(w, to_device(rows));
    batch.token_row = keep(w, to_device(w.token_row));
    batch.token_position = keep(w, to_device(w.token_position));
    batch.next_item = keep(w, to_device(std::vector<uint32_t>(1, 0)));
    batch.block_tokens = w.block_tokens;
    batch.rows_max = counts.rows + spare;
    batch.tokens_max = counts.tokens + spare;
}

static void build(struct world &w, random_state &random, uint32_t spare)
{
    size_t kv = 0, tokens = 0;
    for (const row_spec &row : w.rows) {
        w.kv_start.push_back(kv);
        kv += (size_t)(row.position + row.q_len) * w.kv_heads * w.dim;
        tokens += row.q_len;
    }
    bool round = w.dtype == half_t;
    auto draw = [&](std::vector<float> &to, size_t count) {
        to.resize(count);
        for (float &x : to)
            x = round ? to_half(random.normal()) : random.normal();
    };
    struct attention_args &a = w.args;
    a.dtype = w.dtype;
    a.heads = w.heads;
    a.kv_heads = w.kv_heads;
    a.head_dim = w.dim;
    a.q_stride = (w.heads + 2 * w.kv_heads) * w.dim;
    a.out_stride = w.heads * w.dim;
    a.scale = 1.0f / sqrtf((float)w.dim);
    draw(w.k, kv);
    draw(w.v, kv);
    draw(w.q, tokens * a.q_stride);
    build_cache(w, random);
    build_batch(w, spare);
    a.q = keep(w, upload(w.q, w.dtype));
    w.out_count = (size_t)a.batch.tokens_max * a.out_stride;
    MUST(cudaMalloc(&a.out, w.out_count * dtype_bytes(w.dtype)));
    keep(w, a.out);
    a.scratch_bytes = attention_scratch_bytes(&a.batch, a.heads, a.head_dim);
    if (a.scratch_bytes) {
        MUST(cudaMalloc(&a.scratch, a.scratch_bytes));
        keep(w, a.scratch);
    }
}

static std::vector<float> attend(struct world &w)
{
    MUST(cudaMemset(w.args.out, 0xff, w.out_count * dtype_bytes(w.dtype)));
    if (w.args.scratch)
        MUST(cudaMemset(w.args.scratch, 0xff, w.args.scratch_bytes));
    MUST(cudaDeviceSynchronize());
    MUST(op_attention(&w.args, stream));
    MUST(cudaStreamSynchronize(stream));
    return download(w.args.out, w.out_count, w.dtype);
}

static double reference(const struct world &w, const std::vector<float> &out, uint32_t every)
{
    struct distance far;
    std::vector<double> weight, value(w.dim);
    size_t tokens = w.token_row.size();
    for (size_t item = 0; item < tokens * w.heads; item += every) {
        size_t t = item / w.heads, h = item % w.heads, r = w.token_row[t];
        uint32_t last = w.token_position[t], group = w.heads / w.kv_heads;
        uint32_t first = w.window && last >= w.window ? last - w.window + 1 : 0;
        const float *q = &w.q[t * w.args.q_stride + h * w.dim];
        double peak = -INFINITY, sum = 0;
        weight.assign(last + 1, 0);
        for (uint32_t p = first; p <= last; p++) {
            const float *k = &w.k[w.kv_start[r] + ((size_t)p * w.kv_heads + h / group) * w.dim];
            double s = 0;
            for (uint32_t i = 0; i < w.dim; i++)
                s += (double)q[i] * k[i];
            weight[p] = s * w.args.scale;
            peak = std::max(peak, weight[p]);
        }
        std::fill(value.begin(), value.end(), 0.0);
        for (uint32_t p = first; p <= last; p++) {
            const float *v = &w.v[w.kv_start[r] + ((size_t)p * w.kv_heads + h / group) * w.dim];
            double e = exp(weight[p] - peak);
            sum += e;
            for (uint32_t i = 0; i < w.dim; i++)
                value[i] += e * v[i];
        }
        for (uint32_t i = 0; i < w.dim; i++)
            far.add(out[t * w.args.out_stride + h * w.dim + i], value[i] / sum);
    }
    for (size_t i = tokens * w.args.out_stride; i < w.out_count; i++)
        if (!isnan(out[i])) /* rows beyond the count were written */
            return INFINITY;
    return far.value();
}

/* Whether two results have the same bits, NaN included. */
static double differing(const std::vector<float> &a, const std::vector<float> &b)
{
    double count = 0;
    for (size_t i = 0; i < a.size(); i++)
        count += memcmp(&a[i], &b[i], 4) != 0;
    return count;
}

static double allowed(const struct world &w)
{
    return w.dtype == DTYPE_F32 ? 2e-6 : w.dtype == DTYPE_BF16 ? 6e-3 : 1e-3;
}

/* Of rows drawn from the seed, every so many queries of them beside the reference. */
static std::vector<float> check_attend(const char *name, struct world &w, uint64_t seed,
                                       uint32_t every)
{
    random_state random = {seed};
    char text[128];
    build(w, random, 3);
    std::vector<float> out = attend(w);
    snprintf(text, sizeof(text), "attend %s: %u/%u heads of %u, blocks of %u, window %u", name,
             w.heads, w.kv_heads, w.dim, w.block_tokens, w.window);
    verdict(text, reference(w, out, every), allowed(w));
    return out;
}

static void check_one(const char *name, struct world w, uint64_t seed, uint32_t every)
{
    if (!check_is_ours())
        return;
    std::vector<float> out = check_attend(name, w, seed, every);
    double changed = differing(out, attend(w));
    if (w.args.scratch) { /* without room for partial results: the same bits by another way */
        w.args.scratch = NULL;
        changed += differing(out, attend(w));
    }
    if (changed > 0)
        verdict("    the same bits again, and without scratch", changed, 0);
    release(w);
}

/* Chunks whose keys are shared out: again to the same bits, and without room for that to others. */
static void check_spans(const char *name, struct world w, uint64_t seed)
{
    if (!check_is_ours())
        return;
    std::vector<float> out = check_attend(name, w, seed, 5);
    verdict("    the same bits again", differing(out, attend(w)), 0);
    w.args.scratch = NULL;
    verdict("    without scratch", reference(w, attend(w), 5), allowed(w));
    release(w);
}

/* A prompt as one row and cut in two rows (each of the prefill path). */
static void check_cut(uint32_t dim)
{
    if (!check_is_ours())
        return;
    random_state random = {77};
    struct world w = {8, 2, dim, 32, 0, half_t, {{0, 700}}};
    build(w, random, 0);
    std::vector<float> whole = attend(w), parts(whole);
    uint32_t cut = 333, stride = w.args.out_stride;
    w.rows[0] = {0, cut};
    build_batch(w, 0);
    std::vector<float> first = attend(w);
    w.rows[0] = {cut, 700 - cut};
    build_batch(w, 0);
    w.args.q = static_cast<const uint16_t *>(w.args.q) + (size_t)cut * w.args.q_stride;
    std::vector<float> second = attend(w);
    std::copy(first.begin(), first.begin() + cut * stride, parts.begin());
    std::copy(second.begin(), second.begin() + (700 - cut) * stride, parts.begin() + cut * stride);
    verdict("attend: bits that differ when a prompt is cut", differing(whole, parts), 0);
    release(w);
}

void attention_check()
{
    std::vector<row_spec> decode, few, mixed, prompts, tiny;
    random_state random = {5};
    for (int i = 0; i < 37; i++)
        decode.push_back({random.below(1500), 1});
    for (int i = 0; i < 19; i++)
        few.push_back({random.below(900), 1 + random.below(8)});
    for (uint32_t length : {1u, 15u, 16u, 255u, 256u, 257u, 511u})
        decode.push_back({length, 1});
    for (int i = 0; i < 6; i++)
        mixed.push_back({random.below(300), 1}),
            mixed.push_back({random.below(500), 200 + random.below(300)}),
            mixed.push_back({random.below(100), 1 + random.below(20)});
    prompts = {{0, 64}, {0, 129}, {0, 9}, {63, 65}, {128, 300}, {0, 777}, {1, 128}};
    for (int i = 0; i < 9; i++)
        tiny.push_back({random.below(200), 1 + random.below(12)});
    std::vector<row_spec> many, behind = {{1900, 33}, {70, 1}, {1024, 9}, {0, 150}, {1500, 130}};
    for (int i = 0; i < 3000; i++)
        many.push_back({random.below(20), 1});
    for (uint32_t dim : {64u, 128u, 256u, 80u, 96u}) {
        check_one("decode", {8, 2, dim, 32, 0, half_t, decode}, dim, 3);
        check_one("decode, few tokens", {12, 4, dim, 16, 0, half_t, few}, dim + 1, 3);
        check_one("decode, window", {16, 1, dim, 64, 300, half_t, few}, dim + 2, 3);
        check_one("prompts", {4, 2, dim, 32, 0, half_t, prompts}, dim + 3, 7);
        check_one("prompts, window", {4, 4, dim, 128, 100, half_t, prompts}, dim + 4, 7);
        check_one("mixed", {8, 2, dim, 256, 0, half_t, mixed}, dim + 5, 11);
        check_one("mixed, window", {6, 3, dim, 16, 77, half_t, mixed}, dim + 6, 11);
    }
    check_one("many rows", {8, 8, 64, 16, 0, half_t, many}, 9, 17);
    check_one("second layer", {8, 2, 128, 32, 0, half_t, mixed, 3, 2}, 10, 11);
    check_one("tiny", {4, 2, 16, 16, 0, DTYPE_F32, tiny}, 11, 1);
    check_one("odd dimension", {3, 1, 20, 16, 40, half_t, tiny}, 12, 1);
    check_one("float32", {8, 2, 128, 32, 0, DTYPE_F32, mixed}, 13, 31);
    for (uint32_t dim : {64u, 128u}) {
        check_spans("behind", {8, 2, dim, 32, 0, half_t, {{2900, 65}}}, dim + 7);
        check_spans("several behind", {8, 1, dim, 64, 0, half_t, behind}, dim + 8);
        check_spans("behind, window", {4, 4, dim, 16, 1200, half_t, behind}, dim + 9);
    }
    check_cut(128);
    check_cut(64);
}

/* ---- figures --------------------------------------------------------------------------------- */

static const uint32_t LAYERS = 16; /* figures go through all of them, so that the L2 holds none */

/* Pieces of keys or values in e4m3: magnitudes of 1 to 2, both signs, and scales of 1. */
__global__ void eight_fill_kernel(uint32_t *to, size_t words, uint32_t dim)
{
    uint32_t elements = KV_PIECE * dim / 4, step = gridDim.x * blockDim.x;
    uint32_t hash = blockIdx.x * blockDim.x + threadIdx.x + 1;
    for (size_t i = hash - 1; i < words; i += step) {
        hash = hash * 1664525 + 1013904223;
        bool is_scale = i % (elements + KV_PIECE) >= elements;
        to[i] = is_scale ? __float_as_uint(1.0f) : (hash >> 1 & 0x87878787) | 0x38383838;
    }
}

static size_t big_part(const struct world &w)
{
    return kv_bytes(w.args.kv.format, w.kv_heads, w.block_tokens, w.dim);
}

static struct world big_world(uint32_t heads, uint32_t kv_heads, uint32_t dim,
                              uint32_t block_tokens, uint32_t count, row_spec row,
                              const std::vector<uint32_t> &fresh = {},
                              enum format format = format_plain(half_t))
{
    struct world w = {heads, kv_heads, dim, block_tokens, 0, half_t, {}, LAYERS, 0};
    w.rows.assign(count, row);
    for (uint32_t length : fresh)
        w.rows.push_back({0, length});
    count += (uint32_t)fresh.size();
    struct attention_args &a = w.args;
    a.dtype = half_t;
    a.kv.format = format;
    a.heads = heads;
    a.kv_heads = kv_heads;
    a.head_dim = dim;
    a.q_stride = (heads + 2 * kv_heads) * dim;
    a.out_stride = heads * dim;
    a.scale = 1.0f / sqrtf((float)dim);
    build_batch(w, 0);
    uint32_t blocks = (row.position + row.q_len + block_tokens - 1) / block_tokens;
    size_t block_bytes = big_part(w) * 2 * LAYERS, cache_bytes = block_bytes * blocks * count;
    char *cache;
    MUST(cudaMalloc(&cache, cache_bytes));
    keep(w, cache);
    fill_random(cache, cache_bytes);
    if (format == FORMAT_E4M3) {
        eight_fill_kernel<<<2048, 256, 0, stream>>>(reinterpret_cast<uint32_t *>(cache),
                                                    cache_bytes / 4, dim);
        MUST(cudaGetLastError());
        MUST(cudaStreamSynchronize(stream));
    }
    std::vector<uint32_t> table(blocks * count);
    random_state random = {1};
    for (uint32_t i = 0; i < table.size(); i++)
        table[i] = i;
    for (uint32_t i = table.size() - 1; i > 0; i--)
        std::swap(table[i], table[random.below(i + 1)]);
    struct batch_group &group = a.batch.groups[0];
    group.tables = keep(w, to_device(table));
    group.slabs = keep(w, to_device(std::vector<void *>(1, cache)));
    group.block_bytes = block_bytes;
    group.blocks_max = blocks;
    group.slab_blocks = blocks * count;
    void *q;
    size_t bytes = (size_t)a.batch.tokens_max * a.q_stride * 2;
    MUST(cudaMalloc(&q, bytes));
    fill_random(keep(w, q), bytes);
    a.q = q;
    MUST(cudaMalloc(&a.out, (size_t)a.batch.tokens_max * a.out_stride * 2));
    keep(w, a.out);
    a.scratch_bytes = attention_scratch_bytes(&a.batch, heads, dim);
    if (a.scratch_bytes) {
        MUST(cudaMalloc(&a.scratch, a.scratch_bytes));
        keep(w, a.scratch);
    }
    return w;
}

/* Milliseconds of one layer. */
static double time_world(struct world &w)
{
    size_t part = big_part(w);
    return time_graph_ms([&] {
               for (uint32_t i = 0; i < LAYERS; i++) {
                   w.args.kv.k = i * 2 * part;
                   w.args.kv.v = i * 2 * part + part;
                   MUST(op_attention(&w.args, stream));
               }
           }) /
           LAYERS;
}

static void decode_figure(uint32_t count, uint32_t context, uint32_t dim, uint32_t block_tokens,
                          uint32_t bound = 0)
{
    struct world w = big_world(32, 8, dim, block_tokens, count, {context - 1, 1});
    if (bound) { /* as in a captured step, whose bounds are a bucket's */
        w.args.batch.context_max = bound;
        w.args.scratch_bytes = attention_scratch_bytes(&w.args.batch, 32, dim);
        MUST(cudaMalloc(&w.args.scratch, w.args.scratch_bytes));
        keep(w, w.args.scratch);
    }
    double ms = time_world(w), bytes = 2.0 * count * context * 8 * dim * 2;
    printf("decode attention %3u x %6u, 32/8 heads of %3u, blocks of %3u%s: %8.1f us %5.0f GB/s = "
           "%4.1f %% of "
           "read\n",
           count, context, dim, block_tokens, bound ? ", bound 8192" : "", ms * 1e3,
           bytes / ms / 1e6, 100 * bytes / ms / 1e6 / read_rate);
    fflush(stdout);
    release(w);
}

/* `fresh`: more rows of so many tokens, behind none. */
static void prefill_figure(uint32_t count, uint32_t tokens, uint32_t dim, uint32_t behind = 0,
                           std::vector<uint32_t> fresh = {},
                           enum format format = format_plain(half_t))
{
    struct world w = big_world(32, 8, dim, 32, count, {behind, tokens}, fresh, format);
    double pairs = count * ((double)tokens * tokens / 2 + (double)tokens * behind);
    char more[64] = "";
    for (uint32_t length : fresh) {
        pairs += (double)length * length / 2;
        snprintf(more + strlen(more), sizeof(more) - strlen(more), " + %u", length);
    }
    double ms = time_world(w), work = 4.0 * 32 * dim * pairs;
    printf(
        "prefill attention %2u x %5u behind %5u%s, 32/8 heads of %3u%s: %8.1f us %5.0f TFLOP/s\n",
        count, tokens, behind, more, dim, format == FORMAT_E4M3 ? ", e4m3 KV" : "", ms * 1e3,
        work / ms / 1e9);
    fflush(stdout);
    release(w);
}

void decode_bench()
{
    decode_figure(32, 4096, 128, 32);
    decode_figure(32, 4096, 128, 16);
    decode_figure(32, 4096, 128, 64);
    decode_figure(32, 4096, 128, 256);
    decode_figure(64, 4096, 64, 32);
    decode_figure(128, 1024, 128, 32);
    decode_figure(256, 256, 128, 32);
    decode_figure(128, 256, 128, 32, 8192);
    decode_figure(1, 200, 128, 32);
    decode_figure(1, 200, 128, 32, 8192);
    decode_figure(1, 4096, 128, 32);
    decode_figure(1, 32768, 128, 32);
    decode_figure(8, 16384, 128, 32);
}

/* What has no tuned kernel beside what has. */
void dimension_bench()
{
    for (uint32_t dim : {64u, 80u, 96u, 128u, 256u})
        decode_figure(32, 4096, dim, 32);
    for (uint32_t dim : {64u, 80u, 96u, 128u, 256u})
        prefill_figure(1, 8192, dim);
}

void prefill_bench()
{
    prefill_figure(1, 8192, 128);
    prefill_figure(4, 2048, 128);
    prefill_figure(16, 512, 128);
    prefill_figure(2, 4096, 128);
    prefill_figure(1, 4096, 128);
    prefill_figure(1, 8192, 64);
    prefill_figure(16, 512, 64);
    prefill_figure(1, 128, 128);
    prefill_figure(64, 20, 128);
    for (uint32_t dim : {128u, 64u})
        for (uint32_t behind : {8064u, 32768u})
            for (uint32_t tokens : {16u, 65u, 200u, 512u})
                prefill_figure(1, tokens, dim, behind);
    prefill_figure(3, 65, 128, 8064);
    prefill_figure(8, 65, 128, 2048);
    prefill_figure(1, 65, 128, 8064, {512});
    prefill_figure(1, 65, 128, 8064, {300, 1500, 40});
    for (uint32_t dim : {128u, 64u}) {
        prefill_figure(16, 512, dim, 0, {}, FORMAT_E4M3);
        prefill_figure(1, 4096, dim, 0, {}, FORMAT_E4M3);
        prefill_figure(1, 8192, dim, 0, {}, FORMAT_E4M3);
        for (uint32_t tokens : {16u, 65u, 512u})
            prefill_figure(1, tokens, dim, 8064, {}, FORMAT_E4M3);
    }
    prefill_figure(1, 65, 128, 8064, {300, 1500, 40}, FORMAT_E4M3);
}
