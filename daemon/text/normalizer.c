#include "daemon/text/normalizer.h"

#include <string.h>

#include "daemon/text/search.h"

static int copy_text(const struct field *field, const char *key, const json *value, char *text,
                     size_t *ret_length, struct error *error)
{
    if (!json_is_string(value))
        return field_wrong(field, key, "a string expected", error);
    size_t length = strlen(json_string(value));
    if (length > NORMALIZER_TEXT_MAX)
        return field_wrong(field, key, "longer than 64 bytes", error);
    memcpy(text, json_string(value), length);
    *ret_length = length;
    return 0;
}

static int load_replace(struct normalizer_step *step, const struct field *field,
                        struct error *error)
{
    int code = field_only(field, "type pattern content", error);
    if (code)
        return code;
    struct field pattern = field_of(field, "pattern");
    if ((code = field_only(&pattern, "String", error)))
        return code;
    code = copy_text(&pattern, "String", json_get(pattern.value, "String"), step->pattern,
                     &step->pattern_length, error);
    if (code)
        return code;
    if (step->pattern_length == 0)
        return field_wrong(&pattern, "String", "must not be empty", error);
    return copy_text(field, "content", json_get(field->value, "content"), step->content,
                     &step->content_length, error);
}

static int load_step(void *context, const struct field *field, const char *type,
                     struct error *error)
{
    struct normalizer *normalizer = context;
    if (normalizer->count == NORMALIZER_STEPS_MAX)
        return field_wrong(field, "", "more than 8 steps", error);
    struct normalizer_step *step = &normalizer->steps[normalizer->count++];
    *step = (struct normalizer_step){0};
    if (strcmp(type, "NFC") == 0)
        return field_only(field, "type", error);
    if (strcmp(type, "Prepend") == 0) {
        step->kind = NORMALIZER_PREPEND;
        int code = field_only(field, "type prepend", error);
        return code ? code
                    : copy_text(field, "prepend", json_get(field->value, "prepend"), step->content,
                                &step->content_length, error);
    }
    if (strcmp(type, "Replace") == 0) {
        step->kind = NORMALIZER_REPLACE;
        return load_replace(step, field, error);
    }
    return field_unknown(field, "normalizer", type, error);
}

int normalizer_load(struct normalizer *normalizer, const struct field *field, struct error *error)
{
    return field_steps(field, "normalizers", load_step, normalizer, error);
}

void normalizer_scratch_free(struct normalizer_scratch *scratch)
{
    buffer_free(&scratch->buffers[0]);
    buffer_free(&scratch->buffers[1]);
    nfc_scratch_free(&scratch->nfc);
}

/* False, too, once the halt is set. */
static bool replace(const struct normalizer_step *step, const struct halt *halt, const char *text,
                    size_t length, struct buffer *out)
{
    const char *end = text + length, *found;
    while ((found = search_until(halt, text, (size_t)(end - text), step->pattern,
                                 step->pattern_length))) {
        if (!buffer_append(out, text, (size_t)(found - text), NORMALIZER_OUTPUT_MAX) ||
            !buffer_append(out, step->content, step->content_length, NORMALIZER_OUTPUT_MAX))
            return false;
        text = found + step->pattern_length;
    }
    return !halt_code(halt) &&
           buffer_append(out, text, (size_t)(end - text), NORMALIZER_OUTPUT_MAX);
}

static bool run_step(const struct normalizer_step *step, struct nfc_scratch *nfc, const char *text,
                     size_t length, struct buffer *out)
{
    switch (step->kind) {
    case NORMALIZER_NFC:
        return nfc_append(nfc, text, length, out, NORMALIZER_OUTPUT_MAX);
    case NORMALIZER_PREPEND:
        return buffer_append(out, step->content, step->content_length, NORMALIZER_OUTPUT_MAX) &&
               buffer_append(out, text, length, NORMALIZER_OUTPUT_MAX);
    case NORMALIZER_REPLACE:
        return replace(step, nfc->halt, text, length, out);
    }
    return false;
}

int normalizer_run(const struct normalizer *normalizer, struct normalizer_scratch *scratch,
                   const char *text, size_t length, const char **ret_text, size_t *ret_length,
                   struct error *error)
{
    for (size_t i = 0; i < normalizer->count && length > 0; i++) {
        const struct normalizer_step *step = &normalizer->steps[i];
        struct buffer *out = &scratch->buffers[i % 2];
        int code = halt_error(scratch->halt, error);
        if (code)
            return code;
        if (step->kind == NORMALIZER_NFC && nfc_is_clean(text, length, scratch->halt))
            continue;
        out->length = 0;
        if (!run_step(step, &scratch->nfc, text, length, out)) {
            code = halt_error(scratch->halt, error);
            return code ? code
                        : error_limit(error, ERR_TOO_LARGE, NORMALIZER_OUTPUT_MAX, length,
                                      "the text does not fit once it is normalised");
        }
        text = out->data;
        length = out->length;
    }
    *ret_text = text;
    *ret_length = length;
    return 0;
}
