/* How attention_prefill_wgmma.cu fills the GPU with few short chunks behind long contexts.
 *
 * Packed: an item is of a KV head, and its queries are those of the head's query heads, token by
 * token ("query" q of a row is head q % per of token q / per). And where some processors would be
 * done long before others, the keys of items that have more than so many are cut into spans of
 * whole tiles, alike as far as tiles allow. An item's spans leave records, which
 * attention_prefill_combine.cu puts together from the first to the last; an item of one span writes
 * its output itself.
 *
 * A unit is a span of a tile of queries; units are numbered through the rows of more than
 * ATTENTION_DECODE_MAX tokens, in a row from the last tile and in a tile from the first span. */
#pragma once

#include "gpu/kernels/attention/attention.cuh"

#define PREFILL_KEYS 128 /* of a tile */
#define SPAN_TILES_MIN 4 /* of keys: shorter spans are not worth their records */
#define SPANS_MAX 32     /* of an item: a lane has one each */
#define SPAN_TURNS 3     /* of the processors: so many items more than without spans */
#define SPAN_WHOLE UINT32_MAX

/* Groups of 64 queries that attend. Of dimension 64 three fit, and keys are brought for half as
 * many queries again. */
template <int HD> constexpr uint32_t CONSUMERS = HD == 64 ? 3 : 2;
template <int HD> constexpr uint32_t QUERIES = 64 * CONSUMERS<HD>;

struct prefill_spans {
    uint32_t tiles;      /* of keys in a span at most; SPAN_WHOLE: all */
    uint32_t *tile_unit; /* [tokens_max] the first unit of tile t of a row, at its token t */
    float2 *stat;        /* [units][kv_heads][QUERIES] maximum, of scores in powers of two; sum */
    float *out;          /* [units][kv_heads][QUERIES][head_dim] unscaled */
};

static inline size_t spans_record_bytes(uint32_t head_dim)
{
    size_t queries = head_dim == 64 ? QUERIES<64> : QUERIES<128>;
    return queries * (sizeof(float2) + sizeof(float) * head_dim);
}

static inline size_t spans_header_bytes(uint32_t tokens)
{
    return ((size_t)tokens * sizeof(uint32_t) + 255) / 256 * 256;
}

/* What the host's bounds say of a step, as items. */
struct spans_step {
    uint32_t items, tiles; /* tiles of keys that an item has at most */
    uint64_t total;        /* of all items */
};

/* Where each token has `per` queries of a head, `size` to an item. A row has no more items than
 * (q_len * per + size - 1) / size, and each no more keys than position + q_len. */
static inline spans_step spans_step_of(const struct batch *bounds, uint32_t heads, uint32_t per,
                                       uint32_t size)
{
    spans_step out;
    uint64_t queries = (uint64_t)bounds->prefill_tokens_max * per, rows = bounds->prefill_rows_max;
    uint64_t sum = (queries + rows * (size - 1)) / size;
    uint64_t each = rows * ceil_div((uint64_t)bounds->q_len_max * per, size);
    out.items = (uint32_t)(heads * (sum < each ? sum : each));
    out.tiles = ceil_div(bounds->prefill_context_max, PREFILL_KEYS);
    uint64_t keys = bounds->prefill_pairs_max * per + bounds->prefill_keys_max * (size - 1);
    uint64_t total = heads * (keys / ((uint64_t)size * PREFILL_KEYS) + 1) + out.items;
    out.total = total < (uint64_t)out.items * out.tiles ? total : (uint64_t)out.items * out.tiles;
    return out;
}

/* Units at most where no span has more than so many tiles of keys. */
static inline uint64_t spans_units(const spans_step &step, uint32_t span)
{
    uint64_t sum = step.total / span + step.items;
    uint64_t each = (uint64_t)step.items * ceil_div(step.tiles, span);
    return sum < each ? sum : each;
}

/* When the last processor is done with so many items of `total` and at most `longest` each, at the
 * latest. */
static inline uint64_t spans_end(uint64_t items, uint64_t total, uint64_t longest,
                                 uint32_t processors)
{
    uint64_t turns = (items + processors - 1) / processors * longest;
    uint64_t filled = total / processors + longest;
    return turns < filled ? turns : filled;
}

/* The most tiles of keys in a span: that with which the step ends first, in tiles, where a span
 * costs one more, for its record and its start, and the kernel behind two. SPAN_WHOLE where that
 * is not a tenth less than whole, or there is no room for the records. */
static inline uint32_t spans_choose(const spans_step &step, uint64_t room, uint32_t processors)
{
    uint32_t best = SPAN_WHOLE;
    uint64_t least = spans_end(step.items, step.total, step.tiles, processors) * 9 / 10;
    for (uint32_t count = 2; count <= SPANS_MAX && count * SPAN_TILES_MIN <= step.tiles; count++) {
        uint32_t span = ceil_div(step.tiles, count);
        uint64_t units = spans_units(step, span);
        uint64_t end = spans_end(units, step.total + units, span + 1, processors) + 2;
        if (units <= room && end < least)
            least = end, best = span;
    }
    return best;
}

/* Room for the records of most steps' choices: of how many KV heads they are is not known. */
static inline size_t spans_scratch_bytes(const struct batch *bounds, uint32_t heads,
                                         uint32_t head_dim, uint32_t processors)
{
    if (head_dim != 64 && head_dim != 128)
        return 0;
    spans_step step =
        spans_step_of(bounds, heads, 1, head_dim == 64 ? QUERIES<64> : QUERIES<128>);
    uint64_t most = (uint64_t)step.items * (step.tiles / SPAN_TILES_MIN);
    uint64_t some = step.items + (uint64_t)SPAN_TURNS * processors;
    if (step.tiles < 2 * SPAN_TILES_MIN || step.total >= 2ull * processors * step.tiles)
        return 0;
    return spans_header_bytes(bounds->tokens_max) +
           (most < some ? most : some) * spans_record_bytes(head_dim);
}

/* Keys that some query of a tile sees; how many spans these are. */
struct spans_reach {
    uint32_t first, last, count;
};

__device__ __forceinline__ uint32_t spans_tiles(uint32_t q_len, uint32_t per, uint32_t size)
{
    return (q_len * per + size - 1) / size;
}

/* Whether all tiles of a row are of one span, and units so tiles. */
__device__ __forceinline__ bool spans_are_tiles(uint32_t position, uint32_t q_len, uint32_t span)
{
    return span == SPAN_WHOLE || (position + q_len - 1) / PREFILL_KEYS < span;
}

__device__ __forceinline__ spans_reach spans_of(uint32_t position, uint32_t q_len, uint32_t per,
                                                uint32_t size, uint32_t tile, uint32_t window,
                                                uint32_t span)
{
    spans_reach out;
    uint32_t lowest = position + tile * size / per;
    out.last = position + min(((tile + 1) * size - 1) / per, q_len - 1);
    out.first = window && lowest >= window ? lowest - window + 1 : 0;
    uint32_t tiles = out.last / PREFILL_KEYS - out.first / PREFILL_KEYS + 1;
    out.count = span == SPAN_WHOLE ? 1 : (tiles + span - 1) / span;
    return out;
}

/* Tiles of keys that come before span `index` of `count`. */
__device__ __forceinline__ uint32_t spans_before(const spans_reach &reach, uint32_t index)
{
    uint32_t begin = reach.first / PREFILL_KEYS, tiles = reach.last / PREFILL_KEYS - begin + 1;
    return begin + index * tiles / reach.count;
}
