#include <stdio.h>
#include <string.h>

#include "daemon/constrain/grammar/pattern.h"
#include "daemon/constrain/schema/schema_inner.h"

static const struct {
    const char *name, *pattern;
} formats[] = {
#define FORMAT(name, pattern) {name, pattern},
#include "daemon/constrain/schema/formats.def"
#undef FORMAT
};

static uint32_t patterned(struct schema_reader *reader, uint32_t from, const char *pattern,
                          enum pattern_place place, const char *keyword,
                          const struct schema_path *path)
{
    char text[256];
    struct schema_path here = {path, keyword};
    schema_path_write(&here, text, sizeof(text));
    from = grammar_word(reader->grammar, from, "\"");
    uint32_t to = pattern_build(reader->grammar, from, pattern, strlen(pattern), place,
                                CHARACTER_IN_JSON, text);
    return grammar_word(reader->grammar, to, "\"");
}

static uint32_t formatted(struct schema_reader *reader, uint32_t from, const json *format,
                          const struct schema_path *path)
{
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
        if (!strcmp(json_string(format), formats[i].name))
            return patterned(reader, from, formats[i].pattern, PATTERN_WHOLE, "format", path);
    char what[96];
    snprintf(what, sizeof(what), "\"%.40s\" is not supported", json_string(format));
    schema_refuse(reader, path, "format", what);
    return from;
}

uint32_t schema_string(struct schema_reader *reader, uint32_t from, const json *schema,
                       const struct schema_path *path)
{
    uint32_t min = schema_count(reader, schema, "minLength", 0, path);
    uint32_t max = schema_count(reader, schema, "maxLength", GRAMMAR_UNBOUNDED, path);
    const json *pattern = json_get(schema, "pattern"), *format = json_get(schema, "format");
    bool bounded = min > 0 || max != GRAMMAR_UNBOUNDED;
    if (!pattern && !format)
        return json_text(reader->grammar, from, min, max);
    if (bounded || (pattern && format)) {
        schema_refuse(reader, path, pattern ? "pattern" : "format",
                      bounded ? "is not supported beside minLength or maxLength"
                              : "is not supported beside format");
        return from;
    }
    if (format)
        return formatted(reader, from, format, path);
    if (!json_is_string(pattern))
        schema_refuse(reader, path, "pattern", "must be a text");
    return patterned(reader, from, json_string(pattern), PATTERN_FOUND, "pattern", path);
}

static bool bound(struct schema_reader *reader, const json *schema, const char *keyword,
                  double *ret_bound, const struct schema_path *path)
{
    const json *value = json_get(schema, keyword);
    if (!value)
        return false;
    if (!json_is_number(value))
        schema_refuse(reader, path, keyword, "must be a number");
    *ret_bound = json_number(value);
    return true;
}

uint32_t schema_number(struct schema_reader *reader, uint32_t from, const json *schema, bool whole,
                       const struct schema_path *path)
{
    struct number_bounds bounds = {0};
    double open;
    char text[256];
    bounds.has_low = bound(reader, schema, "minimum", &bounds.low, path);
    bounds.has_high = bound(reader, schema, "maximum", &bounds.high, path);
    if (bound(reader, schema, "exclusiveMinimum", &open, path) &&
        (!bounds.has_low || open >= bounds.low)) {
        bounds.low = open;
        bounds.has_low = bounds.open_low = true;
    }
    if (bound(reader, schema, "exclusiveMaximum", &open, path) &&
        (!bounds.has_high || open <= bounds.high)) {
        bounds.high = open;
        bounds.has_high = bounds.open_high = true;
    }
    if (!bounds.has_low && !bounds.has_high)
        return json_number_any(reader->grammar, from, whole);
    schema_path_write(path, text, sizeof(text));
    return json_number_between(reader->grammar, from, whole, bounds, text);
}
