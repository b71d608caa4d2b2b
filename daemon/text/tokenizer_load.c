#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/text/codepoint.h"
#include "daemon/text/tokenizer_parts.h"

#define DEPTH_MAX 16

struct loader {
    struct tokenizer *tokenizer;
    struct field root, model, added;
    struct buffer work;
    struct error *error;
};

static int out_of_memory(struct loader *loader)
{
    return error_set(loader->error, ERR_NO_MEMORY, "no memory for the tokenizer");
}

static int read_id(struct loader *loader, const json *value, const char *path, uint32_t *ret_id)
{
    int64_t id;
    if (json_integer(value, path, 0, VOCAB_ID_MAX, &id, loader->error))
        return error_set(loader->error, ERR_BAD_MODEL,
                         "tokenizer.json: %s: an id from 0 to %d expected", path, VOCAB_ID_MAX);
    *ret_id = (uint32_t)id;
    return 0;
}

/* The largest id plus one, of the model's tokens and the added ones. */
static int find_bound(struct loader *loader, const json *vocab, uint32_t *ret_bound)
{
    uint32_t bound = 0, id = 0;
    int code;
    for (const json *member = json_child(vocab); member; member = json_next(member)) {
        if ((code = read_id(loader, member, "model.vocab", &id)))
            return code;
        bound = id >= bound ? id + 1 : bound;
    }
    for (const json *token = json_child(loader->added.value); token; token = json_next(token)) {
        if ((code = read_id(loader, json_get(token, "id"), "added_tokens.id", &id)))
            return code;
        bound = id >= bound ? id + 1 : bound;
    }
    *ret_bound = bound;
    return 0;
}

static int add_token(struct loader *loader, struct vocab *vocab, uint32_t id, const char *text,
                     size_t length, const char *path)
{
    if (length == 0 || length > VOCAB_TOKEN_BYTES_MAX)
        return error_limit(loader->error, ERR_BAD_MODEL, VOCAB_TOKEN_BYTES_MAX, length,
                           "tokenizer.json: %s: token %u has %zu bytes, 1 to %d are expected", path,
                           id, length, VOCAB_TOKEN_BYTES_MAX);
    switch (vocab_add(vocab, id, text, length)) {
    case VOCAB_ADDED:
        return 0;
    case VOCAB_ID_TAKEN:
        return error_set(loader->error, ERR_BAD_MODEL, "tokenizer.json: %s: two tokens have id %u",
                         path, id);
    case VOCAB_TEXT_TAKEN:
        return error_set(loader->error, ERR_BAD_MODEL,
                         "tokenizer.json: %s: token %u has the text of another", path, id);
    case VOCAB_CROWDED:
        return error_set(loader->error, ERR_BAD_MODEL,
                         "tokenizer.json: %s: texts made to collide, at token %u", path, id);
    case VOCAB_NO_MEMORY:
        break;
    }
    return out_of_memory(loader);
}

/* What text is looked up in: the token's bytes, or its characters. */
static int add_word(struct loader *loader, uint32_t id, const char *text, size_t length)
{
    struct bpe *bpe = &loader->tokenizer->bpe;
    if (!bpe->flags.byte_level)
        return add_token(loader, &bpe->words, id, text, length, "model.vocab");
    loader->work.length = 0;
    if (!buffer_reserve(&loader->work, length, VOCAB_TOKEN_BYTES_MAX))
        return out_of_memory(loader);
    size_t count;
    if (!vocab_byte_text(text, length, loader->work.data, &count))
        return 0; /* no text can become this token, but for an added one */
    if (count == 1)
        bpe->byte_ids[(unsigned char)loader->work.data[0]] = id;
    return add_token(loader, &bpe->words, id, loader->work.data, count, "model.vocab");
}

static int load_vocab(struct loader *loader)
{
    struct tokenizer *tokenizer = loader->tokenizer;
    struct field vocab = field_of(&loader->model, "vocab");
    uint32_t bound = 0, id = 0;
    if (!json_is_object(vocab.value))
        return field_wrong(&vocab, "", "an object expected", loader->error);
    int code = find_bound(loader, vocab.value, &bound);
    if (code)
        return code;
    if (!vocab_init(&tokenizer->vocab, bound) || !vocab_init(&tokenizer->bpe.words, bound))
        return out_of_memory(loader);
    for (const json *member = json_child(vocab.value); member; member = json_next(member)) {
        const char *text = json_key(member);
        size_t length = strlen(text);
        if ((code = read_id(loader, member, vocab.path, &id)) ||
            (code = add_token(loader, &tokenizer->vocab, id, text, length, vocab.path)) ||
            (code = add_word(loader, id, text, length)))
            return code;
    }
    return 0;
}

static void find_fallback_ids(struct tokenizer *tokenizer)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[8];
        int length = snprintf(text, sizeof(text), "<0x%02X>", byte);
        tokenizer->bpe.byte_ids[byte] = vocab_find(&tokenizer->vocab, text, (size_t)length);
    }
}

/* Where each byte has a token byte fallback has nothing to do, as with all that are published. A
 * byte without one would be spelled by the tokens <0xHH> of its character in the alphabet. */
static int check_spelled(struct loader *loader)
{
    struct bpe *bpe = &loader->tokenizer->bpe;
    for (unsigned byte = 0; byte < 256; byte++) {
        uint32_t c = vocab_byte_char((unsigned char)byte);
        char first[8], last[8];
        if (bpe->byte_ids[byte] != IDMAP_NONE)
            continue;
        int length = snprintf(first, sizeof(first), "<0x%02X>", c < 0x80 ? c : 0xc0 | c >> 6);
        snprintf(last, sizeof(last), "<0x%02X>", c < 0x80 ? c : 0x80 | (c & 0x3f));
        if (vocab_find(&loader->tokenizer->vocab, first, (size_t)length) != IDMAP_NONE &&
            vocab_find(&loader->tokenizer->vocab, last, (size_t)length) != IDMAP_NONE)
            return field_wrong(&loader->model, "byte_fallback",
                               "with ByteLevel and a byte that has no token is not supported",
                               loader->error);
    }
    bpe->flags.byte_fallback = false;
    return 0;
}

/* The two texts of a merge: "a b", or ["a", "b"]. */
static bool merge_parts(const json *merge, const char *parts[2], size_t lengths[2])
{
    if (json_is_string(merge)) {
        const char *text = json_string(merge), *space = strchr(text, ' ');
        if (!space || strchr(space + 1, ' '))
            return false;
        parts[0] = text;
        lengths[0] = (size_t)(space - text);
        parts[1] = space + 1;
        lengths[1] = strlen(space + 1);
        return true;
    }
    const json *first = json_child(merge), *second = first ? json_next(first) : NULL;
    if (!json_is_array(merge) || !second || json_next(second) || !json_is_string(first) ||
        !json_is_string(second))
        return false;
    parts[0] = json_string(first);
    parts[1] = json_string(second);
    lengths[0] = strlen(parts[0]);
    lengths[1] = strlen(parts[1]);
    return true;
}

static int load_merge(struct loader *loader, const json *value, uint32_t rank)
{
    struct tokenizer *tokenizer = loader->tokenizer;
    const char *parts[2];
    size_t lengths[2];
    if (!merge_parts(value, parts, lengths))
        return error_set(loader->error, ERR_BAD_MODEL,
                         "tokenizer.json: model.merges[%u]: two texts expected", rank);
    loader->work.length = 0;
    if (!buffer_append(&loader->work, parts[0], lengths[0], 2 * VOCAB_TOKEN_BYTES_MAX) ||
        !buffer_append(&loader->work, parts[1], lengths[1], 2 * VOCAB_TOKEN_BYTES_MAX))
        return error_set(loader->error, ERR_BAD_MODEL, "tokenizer.json: model.merges[%u]: too long",
                         rank);
    struct bpe_merge merge = {
        .left = vocab_find(&tokenizer->vocab, parts[0], lengths[0]),
        .right = vocab_find(&tokenizer->vocab, parts[1], lengths[1]),
        .rank = rank,
        .id = vocab_find(&tokenizer->vocab, loader->work.data, loader->work.length),
    };
    if (merge.left == IDMAP_NONE || merge.right == IDMAP_NONE || merge.id == IDMAP_NONE)
        return error_set(loader->error, ERR_BAD_MODEL,
                         "tokenizer.json: model.merges[%u]: %s is no token", rank,
                         merge.left == IDMAP_NONE    ? "the first text"
                         : merge.right == IDMAP_NONE ? "the second text"
                                                     : "what it makes");
    /* With bytes, a token outside of the alphabet is never there to be merged. */
    if (!vocab_has(&tokenizer->bpe.words, merge.left) ||
        !vocab_has(&tokenizer->bpe.words, merge.right))
        return 0;
    if (!bpe_add_merge(&tokenizer->bpe, &merge))
        return error_set(loader->error, ERR_BAD_MODEL,
                         "tokenizer.json: model.merges[%u]: made to collide", rank);
    return 0;
}

static int load_merges(struct loader *loader)
{
    struct field merges = field_of(&loader->model, "merges");
    if (!json_is_array(merges.value))
        return field_wrong(&merges, "", "an array expected", loader->error);
    size_t count = json_count(merges.value);
    if (count > BPE_MERGES_MAX)
        return error_limit(loader->error, ERR_BAD_MODEL, BPE_MERGES_MAX, count,
                           "tokenizer.json: model.merges: %zu merges, %d is the limit", count,
                           BPE_MERGES_MAX);
    if (!bpe_init(&loader->tokenizer->bpe, count))
        return out_of_memory(loader);
    uint32_t rank = 0;
    int code = 0;
    for (const json *merge = json_child(merges.value); merge && !code; merge = json_next(merge))
        code = load_merge(loader, merge, rank++);
    return code;
}

/* An absent or empty text; anything else changes what a symbol is. */
static int must_be_empty(struct loader *loader, const char *key)
{
    const char *text = "";
    int code = field_text(&loader->model, key, &text, loader->error);
    return code      ? code
           : text[0] ? field_wrong(&loader->model, key, "is not supported", loader->error)
                     : 0;
}

static int load_model(struct loader *loader)
{
    struct bpe *bpe = &loader->tokenizer->bpe;
    const struct field *model = &loader->model;
    const char *type = "BPE", *unk = NULL;
    int code = field_text(model, "type", &type, loader->error);
    if (!code && strcmp(type, "BPE") != 0)
        code = field_unknown(model, "model", type, loader->error);
    if (code ||
        (code = field_only(model,
                           "type vocab merges unk_token dropout continuing_subword_prefix "
                           "end_of_word_suffix fuse_unk byte_fallback ignore_merges",
                           loader->error)) ||
        (code = field_text(model, "unk_token", &unk, loader->error)) ||
        (code = field_bool(model, "fuse_unk", &bpe->flags.fuse_unk, loader->error)) ||
        (code = field_bool(model, "byte_fallback", &bpe->flags.byte_fallback, loader->error)) ||
        (code = field_bool(model, "ignore_merges", &bpe->flags.ignore_merges, loader->error)) ||
        (code = must_be_empty(loader, "continuing_subword_prefix")) ||
        (code = must_be_empty(loader, "end_of_word_suffix")))
        return code;
    const json *dropout = json_get(model->value, "dropout");
    if (dropout && !json_is_null(dropout) && json_number(dropout) != 0)
        return field_wrong(model, "dropout", "is not supported", loader->error);
    for (size_t i = 0; i < 256; i++)
        bpe->byte_ids[i] = IDMAP_NONE;
    bpe->unk = IDMAP_NONE;
    if ((code = load_vocab(loader)) || (code = load_merges(loader)))
        return code;
    if (bpe->flags.byte_fallback && bpe->flags.byte_level)
        code = check_spelled(loader);
    else if (bpe->flags.byte_fallback)
        find_fallback_ids(loader->tokenizer);
    if (code)
        return code;
    bpe_ready(bpe);
    if (!unk)
        return 0;
    bpe->unk = vocab_find(&loader->tokenizer->vocab, unk, strlen(unk));
    return bpe->unk == IDMAP_NONE ? field_wrong(model, "unk_token", "is no token", loader->error)
                                  : 0;
}

struct added_flags {
    bool special, normalized;
    struct added_token token;
};

static int read_added(struct loader *loader, const struct field *field, const char **ret_text,
                      struct added_flags *ret_flags)
{
    struct added_flags flags = {.normalized = true};
    const char *text = "";
    struct field id = field_of(field, "id");
    int code =
        field_only(field, "id content single_word lstrip rstrip normalized special", loader->error);
    if (code || (code = read_id(loader, id.value, id.path, &flags.token.id)) ||
        (code = field_text(field, "content", &text, loader->error)) ||
        (code = field_bool(field, "single_word", &flags.token.single_word, loader->error)) ||
        (code = field_bool(field, "lstrip", &flags.token.lstrip, loader->error)) ||
        (code = field_bool(field, "rstrip", &flags.token.rstrip, loader->error)) ||
        (code = field_bool(field, "normalized", &flags.normalized, loader->error)) ||
        (code = field_bool(field, "special", &flags.special, loader->error)))
        return code;
    size_t length = strlen(text);
    if (length == 0 || length > ADDED_TEXT_MAX)
        return field_wrong(field, "content", "1 to 256 bytes expected", loader->error);
    *ret_text = text;
    *ret_flags = flags;
    return 0;
}

static int load_added(struct loader *loader, const struct field *field, const char **ret_text,
                      struct added_flags *ret_flags)
{
    struct tokenizer *tokenizer = loader->tokenizer;
    struct normalizer_scratch scratch = {0};
    const char *text, *matched;
    size_t length;
    *ret_text = "";
    int code = read_added(loader, field, ret_text, ret_flags);
    if (code)
        return code;
    text = matched = *ret_text;
    length = strlen(text);
    uint32_t id = ret_flags->token.id, known = vocab_find(&tokenizer->vocab, text, length);
    if (known == IDMAP_NONE)
        code = add_token(loader, &tokenizer->vocab, id, text, length, field->path);
    else if (known != id)
        code = error_set(loader->error, ERR_BAD_MODEL,
                         "tokenizer.json: %s.id: %u, but the text is token %u", field->path, id,
                         known);
    struct added_set *set = &tokenizer->added_raw;
    if (!code && ret_flags->normalized) {
        set = &tokenizer->added_normalized;
        code = normalizer_run(&tokenizer->normalizer, &scratch, text, length, &matched, &length,
                              loader->error);
    }
    if (!code && !added_insert(set, matched, length, &ret_flags->token))
        code = out_of_memory(loader);
    normalizer_scratch_free(&scratch);
    return code;
}

static int load_all_added(struct loader *loader)
{
    struct decoder *decoder = &loader->tokenizer->decoder;
    struct field decoding = field_of(&loader->root, "decoder");
    size_t index = 0, count = json_count(loader->added.value);
    const char *text = "";
    struct added_flags flags;
    int code;
    if (count > ADDED_TOKENS_MAX)
        return field_wrong(&loader->added, "", "more than 65536 tokens", loader->error);
    for (const json *child = json_child(loader->added.value); child; child = json_next(child)) {
        struct field field = field_at(&loader->added, child, index++);
        if ((code = load_added(loader, &field, &text, &flags)))
            return code;
    }
    if ((code = decoder_load(decoder, &decoding, &loader->tokenizer->vocab, loader->error)))
        return code;
    for (const json *child = json_child(loader->added.value); child; child = json_next(child)) {
        uint32_t id = 0;
        if ((code = read_id(loader, json_get(child, "id"), "added_tokens.id", &id)))
            return code;
        if (json_bool(json_get(child, "special")))
            decoder->flags[id] |= DECODER_SPECIAL;
    }
    return 0;
}

static int load(struct loader *loader)
{
    struct tokenizer *tokenizer = loader->tokenizer;
    struct field normalizer = field_of(&loader->root, "normalizer");
    struct field pretokenizer = field_of(&loader->root, "pre_tokenizer");
    struct field post = field_of(&loader->root, "post_processor");
    int code = field_only(&loader->root,
                          "version truncation padding added_tokens normalizer pre_tokenizer "
                          "post_processor decoder model",
                          loader->error);
    if (code)
        return code;
    loader->model = field_of(&loader->root, "model");
    loader->added = field_of(&loader->root, "added_tokens");
    if (!json_is_object(loader->model.value))
        return field_wrong(&loader->model, "", "an object expected", loader->error);
    if ((code = normalizer_load(&tokenizer->normalizer, &normalizer, loader->error)) ||
        (code = pretokenizer_load(&tokenizer->pretokenizer, &pretokenizer, loader->error)))
        return code;
    tokenizer->bpe.flags.byte_level = tokenizer->pretokenizer.byte_level;
    if ((code = load_model(loader)) || (code = load_all_added(loader)))
        return code;
    return affix_load(&tokenizer->affix, &post, &tokenizer->vocab, loader->error);
}

int tokenizer_load(const char *json_text, size_t length, struct tokenizer **ret_tokenizer,
                   struct error *error)
{
    const struct json_bounds bounds = {.bytes_max = TOKENIZER_FILE_MAX, .depth_max = DEPTH_MAX};
    struct loader loader = {.error = error};
    json *document;
    int code = json_parse(json_text, length, bounds, &document, error);
    if (code)
        return code;
    loader.root.value = document;
    loader.tokenizer = calloc(1, sizeof(*loader.tokenizer));
    code = loader.tokenizer ? load(&loader) : out_of_memory(&loader);
    json_free(document);
    buffer_free(&loader.work);
    if (code)
        tokenizer_free(loader.tokenizer);
    else
        *ret_tokenizer = loader.tokenizer;
    return code;
}

void tokenizer_free(struct tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    vocab_free(&tokenizer->vocab);
    added_free(&tokenizer->added_raw);
    added_free(&tokenizer->added_normalized);
    pretokenizer_free(&tokenizer->pretokenizer);
    bpe_free(&tokenizer->bpe);
    decoder_free(&tokenizer->decoder);
    free(tokenizer);
}
