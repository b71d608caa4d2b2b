#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/constrain/grammar/pattern.h"
#include "daemon/constrain/schema/schema_inner.h"

#define KEY_MAX 65536u /* of what a string's rule is known by */

static const struct {
    const char *name, *pattern;
} formats[] = {
#define FORMAT(name, pattern) {name, pattern},
#include "daemon/constrain/schema/formats.def"
#undef FORMAT
};

const char *schema_format(const char *name)
{
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
        if (!strcmp(name, formats[i].name))
            return formats[i].pattern;
    return NULL;
}

/* What a string must be, gathered. */
struct text {
    struct schema_reader *reader;
    const struct way *way;
    uint32_t min, max;
    uint32_t conditions; /* patterns, formats and denials */
};

/* What the reader's store knows a part by, besides its text. */
#define KIND_LENGTH 8u
static uint32_t kind_of(enum character_form form, bool found)
{
    return (uint32_t)form * 2 + found;
}

bool schema_text_pattern(struct schema_reader *reader, struct language *language, const char *text,
                         bool found, bool denied, enum character_form form, const char *path)
{
    bool known = false;
    struct grammar *grammar =
        language_part_kept(language, denied, &reader->sets, text, kind_of(form, found), &known);
    if (!grammar) {
        grammar_fail(reader->grammar, ERR_UNSUPPORTED, "%s: too many conditions of one text", path);
        return false;
    }
    if (known)
        return reader->grammar->code == 0;
    bool quoted = form == CHARACTER_IN_JSON;
    uint32_t end = quoted ? grammar_word(grammar, 0, "\"") : 0;
    end = pattern_build(grammar, end, text, strlen(text), found ? PATTERN_FOUND : PATTERN_WHOLE,
                        form, path);
    if (language_end(language, quoted ? grammar_word(grammar, end, "\"") : end))
        grammar_fail(reader->grammar, language->error.code, "%s", language->error.text);
    return reader->grammar->code == 0;
}

bool schema_matches(struct schema_reader *reader, const char *pattern, const char *text,
                    const struct schema_path *path)
{
    struct language language = {.count = 0};
    char place[256];
    schema_path_write(path, place, sizeof(place));
    bool matches =
        schema_text_pattern(reader, &language, pattern, true, false, CHARACTER_BARE, place) &&
        schema_has(reader, &language, text, strlen(text));
    schema_work(reader, &language);
    language_free(&language);
    return matches && schema_step(reader);
}

/* The pattern of a format or pattern, and whether that may be found anywhere; NULL: neither. */
static const char *pattern_of(struct text *text, const struct part *part, bool *ret_found)
{
    const char *name = part->kind == PART_KEYWORD ? json_key(part->keyword) : "";
    *ret_found = !strcmp(name, "pattern");
    if (!*ret_found && strcmp(name, "format"))
        return NULL;
    if (!json_is_string(part->keyword)) {
        schema_refuse(text->reader, text->way->path, name, "must be a text");
        return NULL;
    }
    if (*ret_found)
        return json_string(part->keyword);
    const char *pattern = schema_format(json_string(part->keyword));
    char what[96];
    snprintf(what, sizeof(what), "\"%.40s\" is not supported", json_string(part->keyword));
    if (!pattern)
        schema_refuse(text->reader, text->way->path, "format", what);
    return pattern;
}

/* The next text that a denied constant leaves out, from *value on within the part. */
static const json *left_out(struct schema_reader *reader, const struct part *part,
                            const json *value)
{
    const char *name = part->kind == PART_KEYWORD && part->denied ? json_key(part->keyword) : "";
    if (!strcmp(name, "const"))
        return !value && json_is_string(part->keyword) ? part->keyword : NULL;
    if (strcmp(name, "enum"))
        return NULL;
    for (value = value ? json_next(value) : json_child(part->keyword); value && schema_step(reader);
         value = json_next(value))
        if (json_is_string(value))
            return value;
    return NULL;
}

/* What the rule is known by; false: too long. */
static bool key_of(struct text *text, char *key)
{
    unsigned tagged = text->reader->tagged ? text->reader->tagged->types : 0;
    int used = snprintf(key, KEY_MAX, "text %u,%u,%u", text->min, text->max, tagged);
    for (uint32_t i = 0; i < text->way->count && used < (int)KEY_MAX; i++) {
        const struct part *part = &text->way->parts[i];
        bool found;
        const char *pattern = pattern_of(text, part, &found);
        if (pattern) {
            used += snprintf(key + used, KEY_MAX - (size_t)used, ",%c%zu:%s",
                             'a' + found + 2 * (part->denied != 0), strlen(pattern), pattern);
            text->conditions++;
        }
        for (const json *out = left_out(text->reader, part, NULL); out && used < (int)KEY_MAX;
             out = left_out(text->reader, part, out)) {
            used += snprintf(key + used, KEY_MAX - (size_t)used, ",!%zu:%s",
                             strlen(json_string(out)), json_string(out));
            text->conditions++;
        }
    }
    return used < (int)KEY_MAX && !text->reader->grammar->code;
}

bool schema_text_except(struct schema_reader *reader, struct language *language,
                        const char *const *texts, uint32_t count, enum character_form form)
{
    struct grammar *grammar = count ? language_part(language, true) : NULL;
    if (count == 0)
        return true;
    if (!grammar) {
        grammar_fail(reader->grammar, ERR_UNSUPPORTED, "too many conditions of one text");
        return false;
    }
    uint32_t end = grammar_node(grammar);
    for (uint32_t i = 0; i < count && schema_step(reader); i++)
        grammar_nothing(grammar,
                        form == CHARACTER_BARE ? grammar_word(grammar, 0, texts[i])
                                               : json_quoted(grammar, 0, texts[i]),
                        end);
    if (language_end(language, end))
        grammar_fail(reader->grammar, language->error.code, "%s", language->error.text);
    return reader->grammar->code == 0;
}

bool schema_text_length(struct schema_reader *reader, struct language *language, uint32_t min,
                        uint32_t max, enum character_form form)
{
    char counted[64];
    if (form == CHARACTER_BARE) {
        int used = snprintf(counted, sizeof(counted), "[\\s\\S]{%u,", min);
        if (max != GRAMMAR_UNBOUNDED)
            used += snprintf(counted + used, sizeof(counted) - (size_t)used, "%u", max);
        snprintf(counted + used, sizeof(counted) - (size_t)used, "}");
        return schema_text_pattern(reader, language, counted, false, false, form, "maxLength");
    }
    bool known = false;
    snprintf(counted, sizeof(counted), "%u,%u", min, max);
    struct grammar *grammar =
        language_part_kept(language, false, &reader->sets, counted, KIND_LENGTH, &known);
    if (!grammar) {
        grammar_fail(reader->grammar, ERR_UNSUPPORTED, "too many conditions of one text");
        return false;
    }
    if (known)
        return reader->grammar->code == 0;
    uint32_t open = grammar_word(grammar, 0, "\"");
    uint32_t to = grammar_call(grammar, open, GRAMMAR_NONE, json_canonical_rule(grammar), min, max);
    if (language_end(language, grammar_word(grammar, to, "\"")))
        grammar_fail(reader->grammar, language->error.code, "%s", language->error.text);
    return reader->grammar->code == 0;
}

static enum character_form form_of(const struct text *text)
{
    return text->reader->tagged ? CHARACTER_BARE : CHARACTER_IN_JSON;
}

static bool gather(struct text *text, struct language *language, const char *path)
{
    enum character_form form = form_of(text);
    const char *outs[1024];
    uint32_t count = 0;
    for (uint32_t i = 0; i < text->way->count; i++) {
        const struct part *part = &text->way->parts[i];
        bool found;
        const char *pattern = pattern_of(text, part, &found);
        if (pattern && !schema_text_pattern(text->reader, language, pattern, found,
                                            part->denied != 0, form, path))
            return false;
        for (const json *out = left_out(text->reader, part, NULL); out;
             out = left_out(text->reader, part, out)) {
            if (count == sizeof(outs) / sizeof(outs[0])) {
                schema_refuse(text->reader, text->way->path, "not",
                              "of more than 1024 texts is not supported");
                return false;
            }
            outs[count++] = json_string(out);
        }
    }
    return schema_text_length(text->reader, language, text->min, text->max, form) &&
           schema_text_except(text->reader, language, outs, count, form) &&
           (form != CHARACTER_BARE || schema_text_tagged(text->reader, language, path));
}

/* One pattern by itself needs no product. */
static uint32_t single(struct text *text, uint32_t from, const char *path)
{
    struct grammar *grammar = text->reader->grammar;
    bool found = false;
    for (uint32_t i = 0; i < text->way->count; i++) {
        const struct part *part = &text->way->parts[i];
        const char *pattern = part->denied ? NULL : pattern_of(text, part, &found);
        if (!pattern)
            continue;
        from = grammar_word(grammar, from, "\"");
        from = pattern_build(grammar, from, pattern, strlen(pattern),
                             found ? PATTERN_FOUND : PATTERN_WHOLE, CHARACTER_IN_JSON, path);
        return grammar_word(grammar, from, "\"");
    }
    return GRAMMAR_NONE;
}

static uint32_t build(struct text *text, uint32_t from)
{
    struct language language = {.count = 0};
    char place[224], what[256];
    uint32_t to = GRAMMAR_NONE;
    schema_path_write(text->way->path, place, sizeof(place));
    snprintf(what, sizeof(what), "schema: %s/pattern", place);
    if (text->conditions == 1 && text->min == 0 && text->max == GRAMMAR_UNBOUNDED &&
        !text->reader->tagged)
        to = single(text, from, what + strlen("schema: "));
    if (to != GRAMMAR_NONE)
        return to;
    to = from;
    if (gather(text, &language, what + strlen("schema: "))) {
        snprintf(what, sizeof(what), "schema: %.150s: pattern: beside a length or another pattern",
                 place);
        to = language_put(
            &language, text->reader->grammar, from,
            text->reader->tagged ? GRAMMAR_NONE : json_canonical_rule(text->reader->grammar), what);
        schema_work(text->reader, &language);
    }
    language_free(&language);
    return to;
}

static uint32_t shared(struct text *text, uint32_t from, const char *key)
{
    struct grammar *grammar = text->reader->grammar;
    bool made;
    uint32_t rule = schema_known(text->reader, key, &made);
    if (made)
        grammar_final(grammar, build(text, rule));
    return grammar_call(grammar, from, GRAMMAR_NONE, rule, 1, 1);
}

uint32_t schema_string(struct schema_reader *reader, uint32_t from, const struct way *way)
{
    struct text text = {.reader = reader, .way = way};
    char *key = malloc(KEY_MAX);
    if (!key) {
        grammar_fail(reader->grammar, ERR_NO_MEMORY, "no memory for a constraint");
        return from;
    }
    way_counts(reader, way, "minLength", "maxLength", &text.min, &text.max);
    if (!key_of(&text, key))
        schema_refuse(reader, way->path, "pattern", "of more than 64 KiB is not supported");
    else if (text.conditions == 0 && !reader->tagged)
        from = json_text(reader->grammar, from, text.min, text.max);
    else
        from = shared(&text, from, key);
    free(key);
    return from;
}
