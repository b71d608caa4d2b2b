#include "daemon/text/bpe_merge.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/text/codepoint.h"

#define SHORT_MAX 48        /* up to here a plain search beats the heap */
#define ROOM_KEPT (1 << 16) /* symbols: 1 MiB */
#define RANK_NONE UINT32_MAX
#define CODEPOINTS 0x110000

static uint32_t pair_hash(uint32_t left, uint32_t right)
{
    uint64_t hash = ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(hash >> 32 ^ hash >> 13);
}

bool bpe_init(struct bpe *bpe, size_t merges_max)
{
    size_t room = 16;
    while (room < merges_max * 2)
        room *= 2;
    bpe->merges = malloc(room * sizeof(*bpe->merges));
    bpe->joinable = calloc(BPE_JOINABLE_BITS / 64, sizeof(*bpe->joinable));
    bpe->known = calloc(CODEPOINTS / 64, sizeof(*bpe->known));
    if (!bpe->merges || !bpe->joinable || !bpe->known)
        return false;
    bpe->merges_mask = (uint32_t)(room - 1);
    bpe->longest = CODEPOINT_BYTES_MAX;
    for (size_t i = 0; i < room; i++)
        bpe->merges[i].left = IDMAP_NONE;
    for (uint32_t id = 0; id < bpe->words.bound; id++) {
        size_t length = 0, at = 0;
        const char *text = vocab_text(&bpe->words, id, &length);
        if (!text || bpe->flags.byte_level)
            continue;
        uint32_t code = codepoint_next(text, &at);
        if (at == length)
            bpe->known[code / 64] |= (uint64_t)1 << code % 64;
    }
    return true;
}

void bpe_free(struct bpe *bpe)
{
    free(bpe->merges);
    free(bpe->joinable);
    free(bpe->known);
    vocab_free(&bpe->words);
    *bpe = (struct bpe){0};
}

static uint32_t last_code(const struct bpe *bpe, uint32_t id)
{
    size_t length = 0, start;
    const char *text = vocab_text(&bpe->words, id, &length);
    return bpe->flags.byte_level ? (unsigned char)text[length - 1]
                                 : codepoint_before(text, length, &start);
}

static uint32_t first_code(const struct bpe *bpe, uint32_t id)
{
    size_t length = 0, at = 0;
    const char *text = vocab_text(&bpe->words, id, &length);
    return bpe->flags.byte_level ? (unsigned char)text[0] : codepoint_next(text, &at);
}

bool bpe_add_merge(struct bpe *bpe, const struct bpe_merge *merge)
{
    uint32_t hash = pair_hash(merge->left, merge->right);
    for (uint32_t probe = 0; probe < IDMAP_PROBES_MAX; probe++) {
        struct bpe_merge *entry = &bpe->merges[(hash + probe) & bpe->merges_mask];
        if (entry->left != IDMAP_NONE &&
            (entry->left != merge->left || entry->right != merge->right))
            continue;
        *entry = *merge;
        size_t length = 0;
        (void)vocab_text(&bpe->words, merge->id, &length);
        bpe->longest = length > bpe->longest ? length : bpe->longest;
        uint32_t bit = bpe_seam(last_code(bpe, merge->left), first_code(bpe, merge->right));
        bpe->joinable[bit / 64] |= (uint64_t)1 << bit % 64;
        return true;
    }
    return false;
}

static int compare_ids(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return (left > right) - (left < right);
}

void bpe_ready(struct bpe *bpe)
{
    uint32_t sorted[256];
    memcpy(sorted, bpe->byte_ids, sizeof sorted);
    qsort(sorted, 256, sizeof sorted[0], compare_ids);
    bpe->bytes_alone = bpe->flags.byte_fallback && sorted[255] != IDMAP_NONE;
    for (size_t i = 0; bpe->bytes_alone && i <= bpe->merges_mask; i++) {
        const struct bpe_merge *merge = &bpe->merges[i];
        bpe->bytes_alone = merge->left == IDMAP_NONE ||
                           (!bsearch(&merge->left, sorted, 256, sizeof sorted[0], compare_ids) &&
                            !bsearch(&merge->right, sorted, 256, sizeof sorted[0], compare_ids));
    }
}

static const struct bpe_merge *find(const struct bpe *bpe, uint32_t left, uint32_t right)
{
    uint32_t at = pair_hash(left, right);
    for (uint32_t probe = 0; probe < IDMAP_PROBES_MAX; probe++) {
        const struct bpe_merge *entry = &bpe->merges[(at + probe) & bpe->merges_mask];
        if (entry->left == left && entry->right == right)
            return entry;
        if (entry->left == IDMAP_NONE)
            return NULL;
    }
    return NULL; /* no entry is farther from its place */
}

uint32_t bpe_symbol_at(const struct bpe *bpe, const char *piece, size_t *at)
{
    if (bpe->flags.byte_level)
        return bpe->byte_ids[(unsigned char)piece[(*at)++]];
    size_t start = *at;
    *at += codepoint_bytes((unsigned char)piece[start]);
    return vocab_find(&bpe->words, piece + start, *at - start);
}

bool bpe_scratch_reserve(struct bpe_scratch *scratch, size_t symbols)
{
    if (symbols <= scratch->room)
        return true;
    size_t room = scratch->room > 0 ? scratch->room : SHORT_MAX;
    while (room < symbols)
        room *= 2;
    free(scratch->symbols);
    free(scratch->heap);
    scratch->symbols = malloc(room * sizeof(*scratch->symbols));
    scratch->heap = malloc(2 * room * sizeof(*scratch->heap));
    scratch->room = scratch->symbols && scratch->heap ? room : 0;
    return scratch->room > 0;
}

void bpe_scratch_trim(struct bpe_scratch *scratch)
{
    if (scratch->room <= ROOM_KEPT)
        return;
    free(scratch->symbols);
    free(scratch->heap);
    scratch->symbols = NULL;
    scratch->heap = NULL;
    scratch->room = 0;
}

/* The rank and the result of a pair; the result is kept in `next`, which a short list has no use
 * for. */
static void rate(const struct bpe *bpe, struct bpe_symbol *left)
{
    const struct bpe_merge *merge = find(bpe, left[0].id, left[1].id);
    left->rank = merge ? merge->rank : RANK_NONE;
    left->next = merge ? merge->id : 0;
}

size_t bpe_merge_short(const struct bpe *bpe, struct bpe_symbol *symbols, size_t count)
{
    for (size_t i = 0; i + 1 < count; i++)
        rate(bpe, &symbols[i]);
    while (count > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; i++)
            if (symbols[i].rank < symbols[best].rank)
                best = i;
        if (symbols[best].rank == RANK_NONE)
            break;
        symbols[best].id = symbols[best].next;
        memmove(&symbols[best + 1], &symbols[best + 2], (count - best - 2) * sizeof(*symbols));
        count--;
        if (best + 1 < count)
            rate(bpe, &symbols[best]);
        if (best > 0)
            rate(bpe, &symbols[best - 1]);
    }
    return count;
}

static void heap_sink(uint64_t *heap, size_t count, size_t at)
{
    uint64_t value = heap[at];
    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= value)
            break;
        heap[at] = heap[child];
    }
    heap[at] = value;
}

static void heap_push(uint64_t *heap, size_t *count, uint64_t value)
{
    size_t at = (*count)++;
    for (; at > 0 && heap[(at - 1) / 2] > value; at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = value;
}

/* Rank above place: what the heap orders by is what the merges go by. */
static bool offer(const struct bpe *bpe, const struct bpe_symbol *symbols, uint32_t place,
                  uint64_t *ret_entry)
{
    const struct bpe_merge *merge = find(bpe, symbols[place].id, symbols[symbols[place].next].id);
    if (merge)
        *ret_entry = (uint64_t)merge->rank << 32 | place;
    return merge != NULL;
}

/* Each merge takes one entry off and puts at most two on, so twice the room always suffices. A
 * place whose pair has changed since is known by its rank: a rank belongs to one pair. */
static void merge_by_heap(const struct bpe *bpe, struct bpe_scratch *scratch, uint32_t count)
{
    struct bpe_symbol *symbols = scratch->symbols;
    uint64_t *heap = scratch->heap, entry;
    size_t entries = 0;
    for (uint32_t i = 0; i < count; i++) {
        symbols[i].prev = i - 1;
        symbols[i].next = i + 1;
    }
    for (uint32_t i = 0; i + 1 < count; i++) {
        if (i % HALT_LOOK == 0 && halt_code(scratch->halt))
            return;
        if (offer(bpe, symbols, i, &entry))
            heap[entries++] = entry;
    }
    for (size_t i = entries / 2; i-- > 0;) {
        if (i % HALT_LOOK == 0 && halt_code(scratch->halt))
            return;
        heap_sink(heap, entries, i);
    }
    for (uint32_t turn = 1; entries > 0; turn++) {
        if (turn % HALT_LOOK == 0 && halt_code(scratch->halt))
            return;
        uint32_t place = (uint32_t)heap[0], rank = (uint32_t)(heap[0] >> 32);
        heap[0] = heap[--entries];
        heap_sink(heap, entries, 0);
        struct bpe_symbol *left = &symbols[place];
        if (left->id == IDMAP_NONE || left->next == count)
            continue;
        struct bpe_symbol *right = &symbols[left->next];
        const struct bpe_merge *merge = find(bpe, left->id, right->id);
        if (!merge || merge->rank != rank)
            continue;
        left->id = merge->id;
        right->id = IDMAP_NONE;
        left->next = right->next;
        if (left->next < count) {
            symbols[left->next].prev = place;
            if (offer(bpe, symbols, place, &entry))
                heap_push(heap, &entries, entry);
        }
        if (place > 0 && offer(bpe, symbols, left->prev, &entry))
            heap_push(heap, &entries, entry);
    }
}

size_t bpe_merge_long(const struct bpe *bpe, struct bpe_scratch *scratch, size_t count)
{
    merge_by_heap(bpe, scratch, (uint32_t)count);
    size_t left = 0;
    for (size_t i = 0; i < count; i = scratch->symbols[i].next, left++) {
        scratch->symbols[left].id = scratch->symbols[i].id;
        scratch->symbols[left].at = scratch->symbols[i].at;
    }
    return left;
}

size_t bpe_merge_symbols(const struct bpe *bpe, struct bpe_scratch *scratch, size_t count)
{
    return count <= SHORT_MAX ? bpe_merge_short(bpe, scratch->symbols, count)
                              : bpe_merge_long(bpe, scratch, count);
}
