/* What each token is as text: the file's "decoder" applied to every token once, at load.
 *
 * Filled by the loader, then read by any thread. Known, alone and as a Sequence in any order that
 * means something: ByteLevel, Metaspace, Replace, ByteFallback, Fuse and Strip. Steps on tokens are
 * done here; what depends on a token's neighbours (bytes that make characters, and steps behind
 * Fuse or ByteLevel, which see the text as a whole) is left to the detokenizer.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/text/decode_step.h"
#include "daemon/text/field.h"
#include "daemon/text/vocab.h"
#include "protocol/base/error.h"

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
    bool fallback;      /* byte tokens are put together, as far as they follow each other */
    /* Up to run_first on every token, up to text_first on what byte tokens were put together to as
     * well, and the others on the text as it comes. */
    struct decode_step steps[DECODE_STEPS_MAX];
    size_t step_count, run_first, text_first;
    uint32_t bound;
    struct span *spans, *first_spans; /* by id; first: of the first token */
    uint8_t *flags;
    struct buffer bytes;
    size_t longest; /* bytes of the longest token */
};

/* `vocab` has all tokens by now, added ones included. */
int decoder_load(struct decoder *decoder, const struct field *field, const struct vocab *vocab,
                 struct error *error);
void decoder_free(struct decoder *decoder);
