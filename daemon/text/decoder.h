/* What each token is as text: the file's "decoder" applied to every token once, at load.
 *
 * Filled by the loader, then read by any thread. Known: ByteLevel, Metaspace, and a Sequence of
 * Replace, ByteFallback, Fuse and Strip in that order; what depends on a token's neighbours is left
 * to the detokenizer.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/text/field.h"
#include "daemon/text/vocab.h"
#include "protocol/base/error.h"

#define DECODER_REPLACES_MAX 4
#define DECODER_TEXT_MAX 64

enum decoder_kind {
    DECODER_PLAIN,  /* each token is text by itself */
    DECODER_SPACED, /* the same, with a space between tokens: a file without a decoder */
    DECODER_BYTES   /* tokens are bytes, a character may reach over several */
};

#define DECODER_WHOLE 1    /* valid UTF-8 by itself */
#define DECODER_FALLBACK 2 /* a token <0xHH>: one byte */
#define DECODER_SPECIAL 4  /* left out where special tokens are skipped */

struct decoder {
    enum decoder_kind kind;
    bool first_differs; /* metaspace: the first token loses its replacement characters */
    char strip[DECODER_TEXT_MAX];
    size_t strip_length;  /* 0: nothing is stripped */
    uint32_t strip_count; /* at most so many at the start of the text */
    uint32_t bound;
    struct span *spans, *first_spans; /* by id */
    uint8_t *flags;
    struct buffer bytes;
    size_t longest; /* bytes of the longest token */
};

/* `vocab` has all tokens by now, added ones included. */
int decoder_load(struct decoder *decoder, const struct field *field, const struct vocab *vocab,
                 struct error *error);
void decoder_free(struct decoder *decoder);
