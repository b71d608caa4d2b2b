#include "daemon/constrain/vocabulary.h"

#include <stdlib.h>
#include <string.h>

#include "protocol/base/utf8.h"

struct sorted {
    const char *bytes;
    uint32_t length, id;
};

/* What a token begins with. */
struct beginning {
    uint16_t characters, bytes; /* plain ones; how many bytes they are */
};

static int by_bytes(const void *left, const void *right)
{
    const struct sorted *a = left, *b = right;
    int order = memcmp(a->bytes, b->bytes, a->length < b->length ? a->length : b->length);
    if (order)
        return order;
    if (a->length != b->length)
        return a->length < b->length ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

/* How many plain characters a token begins with, and how many bytes these are. */
static struct beginning beginning_of(const char *bytes, size_t length)
{
    uint32_t count = 0;
    size_t at = 0;
    for (; at < length; count++) {
        unsigned char first = (unsigned char)bytes[at];
        size_t step = utf8_length((const unsigned char *)bytes + at, length - at);
        if (step == 0 || first < ' ' || first == '"' || first == '\\')
            break;
        at += step;
    }
    return (struct beginning){(uint16_t)count, (uint16_t)at};
}

uint64_t vocabulary_kind(uint8_t byte)
{
    static const char *const others[] = {" ", "\"", "\\", "-_", ".", "/", ":", ","};
    if (byte >= 'a' && byte <= 'z')
        return 1ull << (byte - 'a');
    if (byte >= 'A' && byte <= 'Z')
        return 1ull << (26 + byte - 'A');
    if (byte >= 0x80 || byte < ' ' || (byte >= '0' && byte <= '9'))
        return byte >= 0x80 ? 1ull << 63 : byte < ' ' ? 1ull << 62 : 1ull << 61;
    for (unsigned i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (strchr(others[i], byte))
            return 1ull << (53 + i);
    return 1ull << 52;
}

/* From the last node to the first: what is below one stands behind it. */
static void find_below(struct vocabulary_trie *trie)
{
    uint64_t below[VOCABULARY_TOKEN_BYTES_MAX + 2] = {0};
    for (uint32_t at = trie->count; at-- > 0;) {
        struct vocabulary_node *node = &trie->nodes[at];
        node->below = below[node->depth + 1];
        below[node->depth + 1] = 0;
        below[node->depth] |= node->below | vocabulary_kind(node->byte);
    }
}

/* Of sorted tokens: each adds the bytes that the one before does not share. */
static bool make_trie(struct sorted *sorted, uint32_t count, struct vocabulary_trie *trie)
{
    qsort(sorted, count, sizeof(*sorted), by_bytes);
    uint32_t path[VOCABULARY_TOKEN_BYTES_MAX + 1], depth = 0;
    size_t total = 1;
    for (uint32_t i = 0; i < count; i++)
        total += sorted[i].length;
    struct vocabulary_node *nodes = malloc(total * sizeof(*nodes));
    trie->order = malloc((count + (size_t)1) * sizeof(uint32_t));
    trie->nodes = nodes;
    if (!nodes || !trie->order)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        const struct sorted *token = &sorted[i];
        uint32_t shared = 0;
        while (i > 0 && shared < token->length && shared < sorted[i - 1].length &&
               token->bytes[shared] == sorted[i - 1].bytes[shared])
            shared++;
        for (; depth > shared; depth--)
            nodes[path[depth]].skip = trie->count;
        for (; depth < token->length; trie->count++) {
            path[++depth] = trie->count;
            nodes[trie->count] = (struct vocabulary_node){
                .first = i, .depth = (uint16_t)depth, .byte = (uint8_t)token->bytes[depth - 1]};
        }
        nodes[path[depth]].token = true;
        trie->order[i] = token->id;
    }
    for (; depth > 0; depth--)
        nodes[path[depth]].skip = trie->count;
    nodes[trie->count] = (struct vocabulary_node){.first = count};
    struct vocabulary_node *fit = realloc(nodes, (trie->count + (size_t)1) * sizeof(*nodes));
    trie->nodes = fit ? fit : nodes;
    find_below(trie);
    return true;
}

static struct sorted token_of(const struct vocabulary *vocabulary, uint32_t id)
{
    uint32_t from = vocabulary->offset[id];
    return (struct sorted){vocabulary->bytes + from, vocabulary->offset[id + 1] - from, id};
}

enum { TAILS_ALL = VOCABULARY_PLAIN_MAX + 1, TAILS_LONGER };

/* Tails of tokens that begin with so many plain characters, or with any number that there are tries
 * for, or the tokens that begin with more. */
static bool make_tails(struct vocabulary *vocabulary, const struct beginning *begins,
                       struct sorted *room, uint32_t which)
{
    uint32_t count = 0;
    for (uint32_t id = 0; id < vocabulary->tokens; id++) {
        struct sorted token = token_of(vocabulary, id);
        uint32_t bytes = begins[id].bytes, characters = begins[id].characters;
        bool more = characters > VOCABULARY_PLAIN_MAX;
        if (which == TAILS_LONGER ? !more : more || bytes == token.length)
            continue;
        if (which < TAILS_ALL && characters != which)
            continue;
        if (!more) {
            token.bytes += bytes;
            token.length -= bytes;
        }
        room[count++] = token;
    }
    return make_trie(room, count,
                     which == TAILS_ALL      ? &vocabulary->all_tails
                     : which == TAILS_LONGER ? &vocabulary->longer
                                             : &vocabulary->tails[which]);
}

static bool make_tries(struct vocabulary *vocabulary, struct beginning *begins, struct sorted *room)
{
    struct sorted *rest = room + vocabulary->tokens;
    uint32_t plain_count = 0, rest_count = 0;
    for (uint32_t id = 0; id < vocabulary->tokens; id++) {
        struct sorted token = token_of(vocabulary, id);
        begins[id] = beginning_of(token.bytes, token.length);
        uint32_t bytes = begins[id].bytes, characters = begins[id].characters;
        bool plain = bytes == token.length && characters <= VOCABULARY_PLAIN_MAX;
        if (token.length == 0)
            continue;
        for (uint32_t n = characters; plain && n <= VOCABULARY_PLAIN_MAX; n++) {
            vocabulary->plain_mask[(size_t)n * vocabulary->words + id / 32] |= 1u << id % 32;
            vocabulary->plain_count[n]++;
        }
        if (plain)
            room[plain_count++] = token;
        else
            rest[rest_count++] = token;
    }
    bool made = make_trie(room, plain_count, &vocabulary->plain) &&
                make_trie(rest, rest_count, &vocabulary->rest);
    for (uint32_t which = 0; made && which <= TAILS_LONGER; which++)
        made = make_tails(vocabulary, begins, room, which);
    return made;
}

static bool copy_tokens(struct vocabulary *vocabulary, const struct vocabulary_token *tokens)
{
    size_t total = 0;
    for (uint32_t id = 0; id < vocabulary->tokens; id++)
        if (tokens[id].bytes && tokens[id].length <= VOCABULARY_TOKEN_BYTES_MAX)
            total += tokens[id].length;
    vocabulary->bytes = malloc(total + 1);
    if (!vocabulary->bytes)
        return false;
    uint32_t used = 0;
    for (uint32_t id = 0; id < vocabulary->tokens; id++) {
        vocabulary->offset[id] = used;
        if (!tokens[id].bytes || tokens[id].length > VOCABULARY_TOKEN_BYTES_MAX)
            continue;
        memcpy(vocabulary->bytes + used, tokens[id].bytes, tokens[id].length);
        used += (uint32_t)tokens[id].length;
    }
    vocabulary->offset[vocabulary->tokens] = used;
    return true;
}

int vocabulary_new(const struct vocabulary_token *tokens, uint32_t count, const int32_t *ends,
                   uint32_t ends_count, struct vocabulary **ret_vocabulary, struct error *error)
{
    if (count == 0 || count > VOCABULARY_TOKENS_MAX || ends_count > VOCABULARY_ENDS_MAX)
        return error_set(error, ERR_TOO_LARGE, "a vocabulary of %u tokens with %u ends", count,
                         ends_count);
    struct vocabulary *vocabulary = calloc(1, sizeof(*vocabulary));
    if (!vocabulary)
        return error_set(error, ERR_NO_MEMORY, "no memory for the vocabulary");
    vocabulary->tokens = count;
    vocabulary->words = (count + 31) / 32;
    for (uint32_t i = 0; i < ends_count; i++)
        if (ends[i] >= 0 && (uint32_t)ends[i] < count)
            vocabulary->ends[vocabulary->ends_count++] = ends[i];
    vocabulary->offset = malloc((count + (size_t)1) * sizeof(uint32_t));
    vocabulary->plain_mask =
        calloc((size_t)(VOCABULARY_PLAIN_MAX + 1) * vocabulary->words, sizeof(uint32_t));
    struct sorted *room = malloc((size_t)count * 2 * sizeof(*room));
    struct beginning *begins = malloc(count * sizeof(*begins));
    bool made = room && begins && vocabulary->offset && vocabulary->plain_mask &&
                copy_tokens(vocabulary, tokens) && make_tries(vocabulary, begins, room);
    free(begins);
    free(room);
    if (!made) {
        vocabulary_free(vocabulary);
        return error_set(error, ERR_NO_MEMORY, "no memory for the vocabulary");
    }
    *ret_vocabulary = vocabulary;
    return 0;
}

static void trie_free(struct vocabulary_trie *trie)
{
    free(trie->nodes);
    free(trie->order);
}

void vocabulary_free(struct vocabulary *vocabulary)
{
    if (!vocabulary)
        return;
    trie_free(&vocabulary->plain);
    trie_free(&vocabulary->rest);
    trie_free(&vocabulary->longer);
    trie_free(&vocabulary->all_tails);
    for (uint32_t plain = 0; plain <= VOCABULARY_PLAIN_MAX; plain++)
        trie_free(&vocabulary->tails[plain]);
    free(vocabulary->plain_mask);
    free(vocabulary->offset);
    free(vocabulary->bytes);
    free(vocabulary);
}
