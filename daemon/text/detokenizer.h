/* Tokens to text, one at a time, for streams: the pieces put together are what decoding all tokens
 * at once gives, to the byte. Each character comes as soon as nothing can change it, and never a
 * part of one.
 *
 * State of one sequence: fixed size, holds no memory, may be copied. One thread at a time; the
 * tokenizer must outlive it.
 *
 * With byte fallback the reference decides on a whole run of byte tokens at once: text if all of it
 * is valid UTF-8, else one U+FFFD per byte. So a run is held back until it ends or cannot become
 * valid any more. Past DETOKENIZER_RUN_MAX bytes its valid characters are let go: from there on,
 * and only where such a run turns out invalid later, the text differs from the reference's.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/text/decode_step.h"

#define DETOKENIZER_RUN_MAX 256

struct tokenizer;

struct detokenizer {
    const struct tokenizer *tokenizer;
    bool skip_special;
    bool started;    /* a token has been taken, even if it had no text */
    bool broken;     /* the run of byte tokens is known to be invalid */
    bool first_run;  /* it is the first token */
    struct decode_state states[DECODE_STEPS_MAX];
    uint16_t held; /* bytes in `run` */
    unsigned char run[DETOKENIZER_RUN_MAX + 4];
};

void detokenizer_init(struct detokenizer *detokenizer, const struct tokenizer *tokenizer,
                      bool skip_special);

/* Bytes that one call can write at most. */
size_t detokenizer_room(const struct tokenizer *tokenizer);

/* Takes a token and writes the text that has become certain; `out` has detokenizer_room() bytes. An
 * id that no token has gives no text. Returns the bytes written. */
size_t detokenizer_push(struct detokenizer *detokenizer, int32_t id, char *out);

/* The end of the sequence: what was held back. Afterwards it is as after detokenizer_init. */
size_t detokenizer_finish(struct detokenizer *detokenizer, char *out);
