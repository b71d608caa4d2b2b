#include "daemon/text/decoder.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/text/codepoint.h"
#include "daemon/text/search.h"
#include "protocol/base/utf8.h"

#define BYTES_MAX ((size_t)256 << 20)

/* In the order that the steps of a sequence must have. */
enum stage { STAGE_REPLACE, STAGE_FALLBACK, STAGE_FUSE, STAGE_STRIP };

struct replace {
    const char *pattern, *content; /* borrowed from the document */
};

struct plan {
    struct replace replaces[DECODER_REPLACES_MAX];
    size_t count;
    enum stage stage;
    bool byte_level, fallback, fused;
    const char *metaspace; /* the replacement; NULL: no Metaspace */
};

static int plan_replace(struct plan *plan, const struct field *field, struct error *error)
{
    const char *content = "", *pattern = "";
    struct field inner = field_of(field, "pattern");
    int code = field_only(field, "type pattern content", error);
    if (code || (code = field_only(&inner, "String", error)) ||
        (code = field_text(&inner, "String", &pattern, error)) ||
        (code = field_text(field, "content", &content, error)))
        return code;
    if (!pattern[0] || strlen(pattern) > DECODER_TEXT_MAX || strlen(content) > DECODER_TEXT_MAX)
        return field_wrong(field, "", "a pattern of 1 to 64 bytes expected", error);
    if (plan->count == DECODER_REPLACES_MAX)
        return field_wrong(field, "", "more than 4 replacements", error);
    plan->replaces[plan->count++] = (struct replace){pattern, content};
    return 0;
}

static int plan_strip(struct decoder *decoder, const struct plan *plan, const struct field *field,
                      struct error *error)
{
    const char *content = "";
    int64_t start = 0, stop = 0;
    int code = field_only(field, "type content start stop", error);
    if (code || (code = field_text(field, "content", &content, error)))
        return code;
    if (json_integer(json_get(field->value, "start"), "start", 0, UINT16_MAX, &start, error) ||
        json_integer(json_get(field->value, "stop"), "stop", 0, UINT16_MAX, &stop, error))
        return field_wrong(field, "start", "start and stop from 0 to 65535 expected", error);
    size_t length = strlen(content);
    if (length == 0 || length != codepoint_bytes((unsigned char)content[0]))
        return field_wrong(field, "content", "one character expected", error);
    if (stop > 0 || !plan->fused || decoder->strip_length > 0)
        return field_wrong(field, "", "only stripping once, after Fuse, at the start is supported",
                           error);
    memcpy(decoder->strip, content, length);
    decoder->strip_length = start > 0 ? length : 0;
    decoder->strip_count = (uint32_t)start;
    return 0;
}

static int plan_step(struct decoder *decoder, struct plan *plan, const struct field *field,
                     const char *type, struct error *error)
{
    static const struct {
        const char *type;
        enum stage stage;
    } stages[] = {{"Replace", STAGE_REPLACE},
                  {"ByteFallback", STAGE_FALLBACK},
                  {"Fuse", STAGE_FUSE},
                  {"Strip", STAGE_STRIP}};
    size_t kind = 0;
    while (kind < sizeof(stages) / sizeof(stages[0]) && strcmp(type, stages[kind].type) != 0)
        kind++;
    if (kind == sizeof(stages) / sizeof(stages[0]))
        return field_unknown(field, "decoder", type, error);
    if (stages[kind].stage < plan->stage)
        return field_wrong(
            field, "", "the order Replace, ByteFallback, Fuse, Strip is the one supported", error);
    plan->stage = stages[kind].stage;
    switch (plan->stage) {
    case STAGE_REPLACE:
        return plan_replace(plan, field, error);
    case STAGE_FALLBACK:
        plan->fallback = true;
        return field_only(field, "type", error);
    case STAGE_FUSE:
        plan->fused = true;
        return field_only(field, "type", error);
    case STAGE_STRIP:
        return plan_strip(decoder, plan, field, error);
    }
    return 0;
}

static int plan_metaspace(struct decoder *decoder, struct plan *plan, const struct field *field,
                          struct error *error)
{
    const char *scheme = NULL;
    bool prefix_space = true;
    plan->metaspace = "\xe2\x96\x81";
    int code = field_only(field, "type replacement add_prefix_space prepend_scheme split", error);
    if (code || (code = field_text(field, "replacement", &plan->metaspace, error)) ||
        (code = field_text(field, "prepend_scheme", &scheme, error)) ||
        (code = field_bool(field, "add_prefix_space", &prefix_space, error)))
        return code;
    size_t length = strlen(plan->metaspace);
    if (length == 0 || length != codepoint_bytes((unsigned char)plan->metaspace[0]))
        return field_wrong(field, "replacement", "one character expected", error);
    decoder->first_differs = scheme ? strcmp(scheme, "never") != 0 : prefix_space;
    plan->replaces[plan->count++] = (struct replace){plan->metaspace, " "};
    return 0;
}

static int plan_decoder(struct decoder *decoder, struct plan *plan, const struct field *field,
                        struct error *error)
{
    const char *type;
    if (!field->value || json_is_null(field->value)) {
        decoder->kind = DECODER_SPACED;
        return 0;
    }
    int code = field_type(field, &type, error);
    if (code)
        return code;
    if (strcmp(type, "ByteLevel") == 0) {
        decoder->kind = DECODER_BYTES;
        plan->byte_level = true;
        return field_only(field, "type add_prefix_space trim_offsets use_regex", error);
    }
    if (strcmp(type, "Metaspace") == 0)
        return plan_metaspace(decoder, plan, field, error);
    if (strcmp(type, "Sequence") != 0)
        return plan_step(decoder, plan, field, type, error);
    if ((code = field_only(field, "type decoders", error)))
        return code;
    struct field list = field_of(field, "decoders");
    if (!json_is_array(list.value))
        return field_wrong(field, "decoders", "an array expected", error);
    const json *only = json_child(list.value);
    size_t index = 0;
    if (json_count(list.value) == 1 &&
        strcmp(json_string(json_get(only, "type")), "ByteLevel") == 0) {
        struct field inner = field_at(&list, only, 0);
        return plan_decoder(decoder, plan, &inner, error);
    }
    for (const json *child = json_child(list.value); child; child = json_next(child)) {
        struct field step = field_at(&list, child, index++);
        if ((code = field_type(&step, &type, error)) ||
            (code = plan_step(decoder, plan, &step, type, error)))
            return code;
    }
    return 0;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The byte of a token <0xHH>; -1 for any other. */
static int fallback_byte(const char *text, size_t length)
{
    if (length != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return -1;
    /* The reference reads the digits as a number, which may have a sign. */
    int high = text[3] == '+' ? 0 : hex_digit(text[3]), low = hex_digit(text[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

static bool replaced(const struct replace *replace, const char *text, size_t length,
                     struct buffer *out)
{
    size_t pattern = strlen(replace->pattern), content = strlen(replace->content);
    const char *end = text + length, *found;
    out->length = 0;
    while ((found = search_text(text, (size_t)(end - text), replace->pattern, pattern))) {
        if (!buffer_append(out, text, (size_t)(found - text), BYTES_MAX) ||
            !buffer_append(out, replace->content, content, BYTES_MAX))
            return false;
        text = found + pattern;
    }
    return buffer_append(out, text, (size_t)(end - text), BYTES_MAX);
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

static bool decode_token(struct decoder *decoder, const struct plan *plan, uint32_t id,
                         const char *text, size_t length, struct buffer work[2])
{
    work[0].length = work[1].length = 0;
    if (plan->byte_level) {
        size_t count;
        if (!buffer_reserve(&work[0], length, BYTES_MAX))
            return false;
        if (vocab_byte_text(text, length, work[0].data, &count)) {
            text = work[0].data;
            length = count;
        }
    }
    if (decoder->first_differs) {
        const struct replace drop = {plan->metaspace, ""};
        if (!replaced(&drop, text, length, &work[1]) ||
            !keep(decoder, &decoder->first_spans[id], work[1].data, work[1].length))
            return false;
    }
    for (size_t i = 0; i < plan->count; i++) {
        struct buffer *out = &work[i % 2];
        if (!replaced(&plan->replaces[i], text, length, out))
            return false;
        text = out->data;
        length = out->length;
    }
    int byte = plan->fallback ? fallback_byte(text, length) : -1;
    char single = (char)byte;
    if (byte >= 0) {
        decoder->flags[id] |= DECODER_FALLBACK;
        return keep(decoder, &decoder->spans[id], &single, 1);
    }
    if (is_utf8(text, length))
        decoder->flags[id] |= DECODER_WHOLE;
    return keep(decoder, &decoder->spans[id], text, length);
}

int decoder_load(struct decoder *decoder, const struct field *field, const struct vocab *vocab,
                 struct error *error)
{
    struct plan plan = {0};
    struct buffer work[2] = {{0}};
    int code = plan_decoder(decoder, &plan, field, error);
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
        fits = !text || decode_token(decoder, &plan, id, text, length, work);
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
