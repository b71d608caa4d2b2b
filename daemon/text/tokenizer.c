#include "daemon/text/tokenizer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/text/detokenizer.h"
#include "daemon/text/tokenizer_parts.h"
#include "protocol/base/utf8.h"

struct encoder {
    struct piece_sink sink; /* first: pieces come back through it */
    const struct tokenizer *tokenizer;
    struct tokenizer_scratch *scratch;
    struct bpe_ids ids;
    struct error *error;
};

uint32_t tokenizer_bound(const struct tokenizer *tokenizer)
{
    return tokenizer->vocab.bound;
}

const char *tokenizer_token_bytes(const struct tokenizer *tokenizer, int32_t id, size_t *ret_length)
{
    if (id < 0 || !vocab_has(&tokenizer->vocab, (uint32_t)id))
        return NULL;
    *ret_length = tokenizer->decoder.spans[id].length;
    return tokenizer->decoder.bytes.data + tokenizer->decoder.spans[id].at;
}

const char *tokenizer_token_text(const struct tokenizer *tokenizer, int32_t id, size_t *ret_length)
{
    return id < 0 ? NULL : vocab_text(&tokenizer->vocab, (uint32_t)id, ret_length);
}

bool tokenizer_pairs(const struct tokenizer *tokenizer)
{
    return !tokenizer->affix.parts_pairs;
}

bool tokenizer_token_is_special(const struct tokenizer *tokenizer, int32_t id)
{
    return id >= 0 && (uint32_t)id < tokenizer->decoder.bound &&
           (tokenizer->decoder.flags[id] & DECODER_SPECIAL);
}

int32_t tokenizer_token_id(const struct tokenizer *tokenizer, const char *text)
{
    uint32_t id = vocab_find(&tokenizer->vocab, text, strlen(text));
    return id == IDMAP_NONE ? -1 : (int32_t)id;
}

struct tokenizer_scratch *tokenizer_scratch_new(void)
{
    struct tokenizer_scratch *scratch = calloc(1, sizeof(*scratch));
    if (!scratch)
        return NULL;
    if (!bpe_scratch_init(&scratch->bpe) || !pretokenizer_scratch_init(&scratch->pretokenizer)) {
        tokenizer_scratch_free(scratch);
        return NULL;
    }
    return scratch;
}

void tokenizer_scratch_free(struct tokenizer_scratch *scratch)
{
    if (!scratch)
        return;
    bpe_scratch_free(&scratch->bpe);
    pretokenizer_scratch_free(&scratch->pretokenizer);
    normalizer_scratch_free(&scratch->normalizer);
    free(scratch);
}

void tokenizer_scratch_halt(struct tokenizer_scratch *scratch, const struct halt *halt)
{
    scratch->halt = halt;
    scratch->bpe.halt = halt;
    scratch->normalizer.halt = halt;
    scratch->normalizer.nfc.halt = halt;
    scratch->pretokenizer.halt = halt;
}

static int too_many(struct encoder *encoding)
{
    return error_limit(encoding->error, ERR_TOO_LARGE, encoding->ids.max, encoding->ids.max + 1,
                       "the text has more than %zu tokens", encoding->ids.max);
}

static int put_id(struct encoder *encoding, uint32_t id)
{
    if (encoding->ids.count == encoding->ids.max)
        return too_many(encoding);
    encoding->ids.ids[encoding->ids.count++] = (int32_t)id;
    return 0;
}

static int put_ids(struct encoder *encoding, const int32_t *ids, size_t count)
{
    int code = 0;
    for (size_t i = 0; i < count && !code; i++)
        code = put_id(encoding, (uint32_t)ids[i]);
    return code;
}

static int take_piece(struct piece_sink *sink, const char *piece, size_t length,
                      struct error *error)
{
    struct encoder *encoding = (struct encoder *)sink;
    int code = halt_error(encoding->scratch->halt, error);
    if (code)
        return code;
    switch (bpe_encode(&encoding->tokenizer->bpe, &encoding->scratch->bpe, piece, length,
                       &encoding->ids)) {
    case BPE_DONE:
        return 0;
    case BPE_FULL:
        return too_many(encoding);
    case BPE_HALTED:
        return halt_error(encoding->scratch->halt, error);
    case BPE_ENDLESS:
        return error_limit(error, ERR_TOO_LARGE, BPE_WINDOW_MAX, length,
                           "the text has more than %u symbols in a row without a place where it "
                           "could be cut",
                           BPE_WINDOW_MAX);
    case BPE_NO_MEMORY:
        break;
    }
    return error_set(error, ERR_NO_MEMORY, "no memory to tokenize a piece of %zu bytes", length);
}

/* Text between added tokens that are found as they are: normalised, searched for the others, cut
 * and merged. `first`: it begins where the user's text begins. */
static int encode_between(struct encoder *encoding, const char *raw, size_t raw_length, bool first)
{
    const struct tokenizer *tokenizer = encoding->tokenizer;
    struct tokenizer_scratch *scratch = encoding->scratch;
    struct added_cursor cursor = {.halt = scratch->halt};
    const char *text;
    size_t length, done = 0, start, end;
    uint32_t id;
    int code = normalizer_run(&tokenizer->normalizer, &scratch->normalizer, raw, raw_length, &text,
                              &length, encoding->error);
    while (!code &&
           added_next(&tokenizer->added_normalized, &cursor, text, length, &start, &end, &id)) {
        if (done < start)
            code = pretokenizer_run(&tokenizer->pretokenizer, &scratch->pretokenizer, text + done,
                                    start - done, first && done == 0, &encoding->sink,
                                    encoding->error);
        if (!code)
            code = put_id(encoding, id);
        done = end;
    }
    if (!code)
        code = halt_error(scratch->halt, encoding->error);
    if (!code && done < length)
        code =
            pretokenizer_run(&tokenizer->pretokenizer, &scratch->pretokenizer, text + done,
                             length - done, first && done == 0, &encoding->sink, encoding->error);
    return code;
}

static int encode_text(struct encoder *encoding, const char *text, size_t length)
{
    struct added_cursor cursor = {.halt = encoding->scratch->halt};
    size_t done = 0, start, end;
    uint32_t id;
    int code = 0;
    while (!code &&
           added_next(&encoding->tokenizer->added_raw, &cursor, text, length, &start, &end, &id)) {
        if (done < start)
            code = encode_between(encoding, text + done, start - done, done == 0);
        if (!code)
            code = put_id(encoding, id);
        done = end;
    }
    if (!code)
        code = halt_error(encoding->scratch->halt, encoding->error);
    return code || done >= length ? code
                                  : encode_between(encoding, text + done, length - done, done == 0);
}

static int check_text(const char *text, size_t length, const struct halt *halt, struct error *error)
{
    if (length > TOKENIZER_TEXT_MAX)
        return error_limit(error, ERR_TOO_LARGE, TOKENIZER_TEXT_MAX, length,
                           "the text has %zu bytes, %zu is the limit", length, TOKENIZER_TEXT_MAX);
    for (size_t at = 0, step; at < length; at += step)
        if ((step = utf8_length((const unsigned char *)text + at, length - at)) == 0)
            return error_set(error, ERR_BAD_VALUE, "the text is no UTF-8 at byte %zu", at);
        else if (halt_between(halt, at, at + step))
            return halt_error(halt, error);
    return 0;
}

int tokenizer_encode(const struct tokenizer *tokenizer, struct tokenizer_scratch *scratch,
                     const char *text, size_t length, bool add_special, int32_t *ids,
                     size_t ids_max, size_t *ret_count, struct error *error)
{
    struct encoder encoding = {.sink.take = take_piece,
                               .tokenizer = tokenizer,
                               .scratch = scratch,
                               .ids = {.ids = ids, .max = ids_max},
                               .error = error};
    assert(!scratch->tokenizer || scratch->tokenizer == tokenizer);
    scratch->tokenizer = tokenizer;
    int code = check_text(text, length, scratch->halt, error);
    if (!code && add_special)
        code = put_ids(&encoding, tokenizer->affix.prefix, tokenizer->affix.prefix_count);
    if (!code)
        code = encode_text(&encoding, text, length);
    if (!code && add_special)
        code = put_ids(&encoding, tokenizer->affix.suffix, tokenizer->affix.suffix_count);
    bpe_scratch_trim(&scratch->bpe);
    if (!code)
        *ret_count = encoding.ids.count;
    return code;
}

int tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *ids, size_t count,
                     bool skip_special, char *text, size_t text_max, size_t *ret_length,
                     struct error *error)
{
    struct detokenizer detokenizer;
    size_t room = detokenizer_room(tokenizer), used = 0;
    char *piece = malloc(room);
    if (!piece)
        return error_set(error, ERR_NO_MEMORY, "no memory to decode");
    detokenizer_init(&detokenizer, tokenizer, skip_special);
    for (size_t i = 0; i <= count; i++) {
        size_t length = i < count ? detokenizer_push(&detokenizer, ids[i], piece)
                                  : detokenizer_finish(&detokenizer, piece);
        if (length > text_max - used) {
            free(piece);
            return error_limit(error, ERR_TOO_LARGE, text_max, used + length,
                               "the tokens have more than %zu bytes of text", text_max);
        }
        if (length > 0)
            memcpy(text + used, piece, length);
        used += length;
    }
    free(piece);
    *ret_length = used;
    return 0;
}
