#include "daemon/text/detokenizer.h"

#include <string.h>

#include "daemon/text/codepoint.h"
#include "daemon/text/tokenizer_parts.h"
#include "protocol/base/utf8.h"

#define REPLACEMENT_BYTES (sizeof(UTF8_REPLACEMENT) - 1)

/* What a byte does to the start of a character that is held. */
enum step { STEP_MORE, STEP_COMPLETE, STEP_WRONG };

void detokenizer_init(struct detokenizer *detokenizer, const struct tokenizer *tokenizer,
                      bool skip_special)
{
    *detokenizer = (struct detokenizer){.tokenizer = tokenizer, .skip_special = skip_special};
}

size_t detokenizer_room(const struct tokenizer *tokenizer)
{
    const struct decoder *decoder = &tokenizer->decoder;
    size_t bytes = REPLACEMENT_BYTES * (decoder->longest + DETOKENIZER_RUN_MAX + 4) + 1;
    return decode_room(decoder->steps + decoder->run_first,
                       decoder->step_count - decoder->run_first, bytes);
}

static struct decode_run run_of(struct detokenizer *d, char *out)
{
    const struct decoder *decoder = &d->tokenizer->decoder;
    return (struct decode_run){.steps = decoder->steps,
                               .states = d->states,
                               .text_first = decoder->text_first,
                               .end = decoder->step_count,
                               .first_token = d->first_run,
                               .out = out};
}

/* Text that went through all steps on tokens. */
static size_t put(struct detokenizer *d, char *out, const char *text, size_t length)
{
    struct decode_run run = run_of(d, out);
    decode_push(&run, d->tokenizer->decoder.text_first, text, length);
    return run.used;
}

/* Of what byte tokens make. Where it ends, steps between ByteFallback and Fuse see a token's end. */
static size_t put_made(struct detokenizer *d, char *out, const char *text, size_t length, bool ends)
{
    const struct decoder *decoder = &d->tokenizer->decoder;
    struct decode_run run = run_of(d, out);
    decode_push(&run, decoder->run_first, text, length);
    if (ends)
        decode_end(&run, decoder->run_first, decoder->text_first);
    d->first_run = d->first_run && !ends;
    return run.used;
}

static size_t put_replacements(struct detokenizer *d, char *out, size_t count)
{
    size_t used = 0;
    for (size_t i = 0; i < count; i++)
        used += put_made(d, out + used, UTF8_REPLACEMENT, REPLACEMENT_BYTES, true);
    return used;
}

/* `bytes` is the start of a character and one byte more. */
static enum step classify(const unsigned char *bytes, size_t count)
{
    static const unsigned char fill[CODEPOINT_BYTES_MAX] = {0x80, 0x80, 0x80, 0x80};
    unsigned char whole[CODEPOINT_BYTES_MAX];
    if (utf8_length(bytes, count) == count)
        return STEP_COMPLETE;
    if (count >= CODEPOINT_BYTES_MAX)
        return STEP_WRONG;
    /* Right so far if some continuation makes it a character: the lowest one, or the highest where
     * the first byte asks for more than 0x80. */
    memcpy(whole, fill, sizeof(whole));
    memcpy(whole, bytes, count);
    size_t need = codepoint_bytes(bytes[0]);
    if (count < need && utf8_length(whole, need) == need)
        return STEP_MORE;
    if (count == 1) {
        whole[1] = bytes[0] == 0xe0 ? 0xa0 : 0x90;
        if (need > 1 && utf8_length(whole, need) == need)
            return STEP_MORE;
    }
    return STEP_WRONG;
}

/* One byte of a stream of bytes; an invalid stretch becomes one U+FFFD, as lossy decoding has it.
 */
static size_t put_byte(struct detokenizer *d, unsigned char byte, char *out)
{
    size_t used = 0;
    for (;;) {
        d->run[d->held] = byte;
        switch (classify(d->run, d->held + 1u)) {
        case STEP_COMPLETE:
            used += put(d, out + used, (const char *)d->run, d->held + 1u);
            d->held = 0;
            return used;
        case STEP_MORE:
            d->held++;
            return used;
        case STEP_WRONG:
            used += put_replacements(d, out + used, 1);
            if (d->held == 0)
                return used;
            d->held = 0; /* the byte may begin a character of its own */
            break;
        }
    }
}

/* Bytes of complete characters in the run; *ret_wrong when what follows them can be none. */
static size_t complete_bytes(const struct detokenizer *d, bool *ret_wrong)
{
    size_t at = 0, step;
    while (at < d->held && (step = utf8_length(d->run + at, d->held - at)) > 0)
        at += step;
    *ret_wrong = false;
    for (size_t count = 1; at + count <= d->held; count++)
        *ret_wrong = *ret_wrong || classify(d->run + at, count) != STEP_MORE;
    return at;
}

static size_t put_fallback(struct detokenizer *d, unsigned char byte, char *out)
{
    bool wrong;
    if (d->broken)
        return put_replacements(d, out, 1);
    d->run[d->held++] = byte;
    size_t complete = complete_bytes(d, &wrong), used = 0;
    if (wrong) {
        used = put_replacements(d, out, d->held);
        d->broken = true;
        d->held = 0;
    } else if (d->held > DETOKENIZER_RUN_MAX) {
        used = put_made(d, out, (const char *)d->run, complete, false);
        d->held = (uint16_t)(d->held - complete);
        memmove(d->run, d->run + complete, d->held);
    }
    return used;
}

/* The end of a run of byte tokens, or of all. */
static size_t end_run(struct detokenizer *d, char *out)
{
    bool wrong;
    size_t used = 0;
    if (d->tokenizer->decoder.kind == DECODER_BYTES) {
        used = d->held > 0 ? put_replacements(d, out, 1) : 0;
    } else if (d->held > 0) {
        used = complete_bytes(d, &wrong) == d->held
                   ? put_made(d, out, (const char *)d->run, d->held, true)
                   : put_replacements(d, out, d->held);
    }
    if (d->held == 0)
        used += put_made(d, out + used, "", 0, true); /* of a run that was let go */
    d->held = 0;
    d->broken = false;
    return used;
}

size_t detokenizer_push(struct detokenizer *d, int32_t id, char *out)
{
    const struct decoder *decoder = &d->tokenizer->decoder;
    size_t used = 0;
    if (id < 0 || (uint32_t)id >= decoder->bound || !vocab_has(&d->tokenizer->vocab, (uint32_t)id))
        return 0;
    uint8_t flags = decoder->flags[id];
    if (d->skip_special && (flags & DECODER_SPECIAL))
        return 0;
    bool first = !d->started;
    d->started = true;
    struct span span =
        first && decoder->first_differs ? decoder->first_spans[id] : decoder->spans[id];
    const char *text = decoder->bytes.data + span.at;
    if (flags & DECODER_FALLBACK) {
        d->first_run = d->held == 0 && !d->broken ? first : d->first_run;
        return put_fallback(d, (unsigned char)text[0], out);
    }
    if (decoder->kind != DECODER_BYTES) {
        used = end_run(d, out);
        if (decoder->kind == DECODER_SPACED && !first)
            used += put(d, out + used, " ", 1);
        return used + put(d, out + used, text, span.length);
    }
    if (d->held == 0 && (flags & DECODER_WHOLE))
        return put(d, out, text, span.length);
    for (size_t i = 0; i < span.length; i++)
        used += put_byte(d, (unsigned char)text[i], out + used);
    return used;
}

size_t detokenizer_finish(struct detokenizer *d, char *out)
{
    const struct decoder *decoder = &d->tokenizer->decoder;
    size_t used = end_run(d, out);
    struct decode_run run = run_of(d, out + used);
    decode_end(&run, decoder->text_first, decoder->step_count);
    used += run.used;
    detokenizer_init(d, d->tokenizer, d->skip_special);
    return used;
}
