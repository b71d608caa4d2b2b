#include "daemon/text/decoder.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/text/codepoint.h"
#include "protocol/base/utf8.h"

#define BYTES_MAX ((size_t)256 << 20)

/* Where the steps stand that are read next: before bytes are put together, between that and Fuse,
 * and behind Fuse, where the text is one token. */
enum phase { PHASE_TOKENS, PHASE_RUNS, PHASE_TEXT };

struct plan {
    struct decoder *decoder;
    enum phase phase;
    size_t growth; /* of a text, by all steps so far */
};

static bool is_character(const char *text)
{
    size_t length = strlen(text);
    return length > 0 && length == codepoint_bytes((unsigned char)text[0]);
}

static int add_step(struct plan *plan, struct decode_step *step, const char *pattern,
                    const char *content, const struct field *field, struct error *error)
{
    struct decoder *decoder = plan->decoder;
    size_t length = strlen(pattern), becomes = strlen(content);
    if (length == 0 || length > DECODE_TEXT_MAX || becomes > DECODE_TEXT_MAX)
        return field_wrong(field, "", "a pattern of 1 to 64 bytes expected", error);
    if (decoder->step_count == DECODE_STEPS_MAX)
        return field_wrong(field, "", "more than 8 steps", error);
    memcpy(step->pattern, pattern, length);
    memcpy(step->content, content, becomes);
    step->pattern_length = (uint8_t)length;
    step->content_length = (uint8_t)becomes;
    decode_step_ready(step);
    plan->growth *= decode_growth(step);
    if (plan->growth > DECODE_GROWTH_MAX)
        return field_wrong(field, "", "a text may become 64 times as long, and no longer", error);
    decoder->steps[decoder->step_count++] = *step;
    if (plan->phase == PHASE_TOKENS)
        decoder->run_first = decoder->step_count;
    if (plan->phase != PHASE_TEXT)
        decoder->text_first = decoder->step_count;
    return 0;
}

static int plan_replace(struct plan *plan, const struct field *field, struct error *error)
{
    struct decode_step step = {.kind = DECODE_REPLACE};
    const char *content = "", *pattern = "";
    struct field inner = field_of(field, "pattern");
    int code = field_only(field, "type pattern content", error);
    if (code || (code = field_only(&inner, "String", error)) ||
        (code = field_text(&inner, "String", &pattern, error)) ||
        (code = field_text(field, "content", &content, error)))
        return code;
    return add_step(plan, &step, pattern, content, field, error);
}

static int plan_strip(struct plan *plan, const struct field *field, struct error *error)
{
    const char *content = "";
    int64_t start = 0, stop = 0;
    int code = field_only(field, "type content start stop", error);
    if (code || (code = field_text(field, "content", &content, error)))
        return code;
    if (json_integer(json_get(field->value, "start"), "start", 0, UINT16_MAX, &start, error))
        return field_wrong(field, "start", "0 to 65535 expected", error);
    if (json_integer(json_get(field->value, "stop"), "stop", 0, DECODE_STRIP_MAX, &stop, error))
        return field_wrong(field, "stop", "0 to 256 expected", error);
    if (!is_character(content))
        return field_wrong(field, "content", "one character expected", error);
    struct decode_step first = {.kind = DECODE_STRIP_START, .count = (uint32_t)start};
    struct decode_step last = {.kind = DECODE_STRIP_END, .count = (uint32_t)stop};
    if (start > 0)
        code = add_step(plan, &first, content, "", field, error);
    if (!code && stop > 0)
        code = add_step(plan, &last, content, "", field, error);
    return code;
}

static int plan_metaspace(struct plan *plan, const struct field *field, struct error *error)
{
    const char *scheme = NULL, *replacement = "\xe2\x96\x81";
    bool prefix_space = true;
    int code = field_only(field, "type replacement add_prefix_space prepend_scheme split", error);
    if (code || (code = field_text(field, "replacement", &replacement, error)) ||
        (code = field_text(field, "prepend_scheme", &scheme, error)) ||
        (code = field_bool(field, "add_prefix_space", &prefix_space, error)))
        return code;
    if (!is_character(replacement))
        return field_wrong(field, "replacement", "one character expected", error);
    struct decode_step step = {.kind = DECODE_REPLACE,
                               .drops_first =
                                   scheme ? strcmp(scheme, "never") != 0 : prefix_space};
    if (plan->phase != PHASE_TEXT && step.drops_first)
        plan->decoder->first_differs = true;
    return add_step(plan, &step, replacement, " ", field, error);
}

/* Byte tokens are put together; where all of the text is one token, that may be one. */
static int plan_fallback(struct plan *plan, const struct field *field, struct error *error)
{
    struct decode_step step = {.kind = DECODE_BYTE};
    int code = field_only(field, "type", error);
    if (code)
        return code;
    if (plan->phase == PHASE_TEXT)
        return add_step(plan, &step, "<", "", field, error);
    if (plan->phase == PHASE_RUNS)
        return field_wrong(field, "", "ByteFallback twice before Fuse is not supported", error);
    plan->decoder->fallback = true;
    plan->phase = PHASE_RUNS;
    return 0;
}

static int plan_bytes(struct plan *plan, const struct field *field, struct error *error)
{
    if (plan->phase != PHASE_TOKENS)
        return field_wrong(field, "", "ByteLevel behind ByteFallback or Fuse is not supported",
                           error);
    plan->decoder->kind = DECODER_BYTES;
    plan->phase = PHASE_TEXT;
    return field_only(field, "type add_prefix_space trim_offsets use_regex", error);
}

static int plan_fuse(struct plan *plan, const struct field *field, struct error *error)
{
    plan->phase = PHASE_TEXT;
    return field_only(field, "type", error);
}

static int plan_step(void *context, const struct field *field, const char *type,
                     struct error *error)
{
    static const struct {
        const char *type;
        int (*plan)(struct plan *, const struct field *, struct error *);
    } parts[] = {{"Replace", plan_replace},       {"Strip", plan_strip},
                 {"Metaspace", plan_metaspace},   {"Fuse", plan_fuse},
                 {"ByteFallback", plan_fallback}, {"ByteLevel", plan_bytes}};
    if (strcmp(type, "Sequence") == 0) /* within another; how deep is the document's bound */
        return field_steps(field, "decoders", plan_step, context, error);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (strcmp(type, parts[i].type) == 0)
            return parts[i].plan(context, field, error);
    return field_unknown(field, "decoder", type, error);
}

static int plan_decoder(struct decoder *decoder, const struct field *field, struct error *error)
{
    struct plan plan = {.decoder = decoder, .growth = 1};
    if (!field->value || json_is_null(field->value)) {
        decoder->kind = DECODER_SPACED;
        return 0;
    }
    return field_steps(field, "decoders", plan_step, &plan, error);
}

static bool is_utf8(const char *text, size_t length)
{
    for (size_t at = 0, step; at < length; at += step)
        if ((step = utf8_length((const unsigned char *)text + at, length - at)) == 0)
            return false;
    return true;
}

static bool keep(struct decoder *decoder, struct span *span, const char *text, size_t length)
{
    *span = (struct span){(uint32_t)decoder->bytes.length, (uint32_t)length};
    if (length > decoder->longest)
        decoder->longest = length;
    return buffer_append(&decoder->bytes, text, length, BYTES_MAX);
}

/* A token's text through the steps [from, to), which see its end. */
static bool apply(const struct decoder *decoder, size_t from, size_t to, bool first,
                  const char *text, size_t length, struct buffer *out)
{
    struct decode_state states[DECODE_STEPS_MAX] = {{0}};
    struct decode_run run = {.steps = decoder->steps,
                             .states = states,
                             .text_first = to,
                             .end = to,
                             .first_token = first};
    out->length = 0;
    if (!buffer_reserve(out, decode_room(decoder->steps + from, to - from, length), BYTES_MAX))
        return false;
    run.out = out->data;
    decode_push(&run, from, text, length);
    decode_end(&run, from, to);
    out->length = run.used;
    return true;
}

/* The token as text, or as bytes; *ret_fallback: it is a byte. */
static bool decode_token(struct decoder *decoder, bool first, const char *text, size_t length,
                         struct buffer work[2], bool *ret_fallback)
{
    if (!apply(decoder, 0, decoder->run_first, first, text, length, &work[0]))
        return false;
    int byte = decoder->fallback ? decode_byte(work[0].data, work[0].length) : -1;
    *ret_fallback = byte >= 0;
    if (byte >= 0) {
        work[1].length = 0;
        char single = (char)byte;
        return buffer_append(&work[1], &single, 1, BYTES_MAX);
    }
    if (decoder->kind != DECODER_BYTES)
        return apply(decoder, decoder->run_first, decoder->text_first, first, work[0].data,
                     work[0].length, &work[1]);
    work[1].length = 0;
    if (!buffer_reserve(&work[1], work[0].length, BYTES_MAX))
        return false;
    if (vocab_byte_text(work[0].data, work[0].length, work[1].data, &work[1].length))
        return true;
    work[1].length = 0;
    return buffer_append(&work[1], work[0].data, work[0].length, BYTES_MAX);
}

static bool decode_id(struct decoder *decoder, uint32_t id, const char *text, size_t length,
                      struct buffer work[2])
{
    bool fallback;
    if (decoder->first_differs &&
        (!decode_token(decoder, true, text, length, work, &fallback) ||
         !keep(decoder, &decoder->first_spans[id], work[1].data, work[1].length)))
        return false;
    if (!decode_token(decoder, false, text, length, work, &fallback))
        return false;
    if (fallback)
        decoder->flags[id] |= DECODER_FALLBACK;
    else if (is_utf8(work[1].data, work[1].length))
        decoder->flags[id] |= DECODER_WHOLE;
    return keep(decoder, &decoder->spans[id], work[1].data, work[1].length);
}

int decoder_load(struct decoder *decoder, const struct field *field, const struct vocab *vocab,
                 struct error *error)
{
    struct buffer work[2] = {{0}};
    int code = plan_decoder(decoder, field, error);
    if (code)
        return code;
    size_t bound = vocab->bound > 0 ? vocab->bound : 1;
    decoder->bound = vocab->bound;
    decoder->spans = calloc(bound, sizeof(*decoder->spans));
    decoder->flags = calloc(bound, sizeof(*decoder->flags));
    if (decoder->first_differs)
        decoder->first_spans = calloc(bound, sizeof(*decoder->first_spans));
    bool fits =
        decoder->spans && decoder->flags && (decoder->first_spans || !decoder->first_differs);
    for (uint32_t id = 0; fits && id < vocab->bound; id++) {
        size_t length;
        const char *text = vocab_text(vocab, id, &length);
        fits = !text || decode_id(decoder, id, text, length, work);
    }
    buffer_free(&work[0]);
    buffer_free(&work[1]);
    return fits ? 0 : error_set(error, ERR_NO_MEMORY, "no memory for the texts of the tokens");
}

void decoder_free(struct decoder *decoder)
{
    free(decoder->spans);
    free(decoder->first_spans);
    free(decoder->flags);
    buffer_free(&decoder->bytes);
    *decoder = (struct decoder){0};
}
