#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/constrain/schema/schema_inner.h"

#define KEY_MAX 256u

/* ---- strings -----------------------------------------------------------------------------------
 */

/* JSON of the types that a text may be taken for, with white space around it. */
static void write_others(unsigned types, char *pattern, size_t size)
{
    static const struct {
        unsigned types;
        const char *pattern;
    } others[] = {{TYPE_NULL, "null"},
                  {TYPE_BOOLEAN, "true|false"},
                  {TYPE_NUMERIC, "-?(?:0|[1-9][0-9]*)(?:\\.[0-9]+)?(?:[eE][+\\-]?[0-9]+)?"},
                  {TYPE_ARRAY, "\\[[\\s\\S]*"},
                  {TYPE_OBJECT, "\\{[\\s\\S]*"}};
    size_t used = (size_t)snprintf(pattern, size, "[ \\t\\n\\r]*(?:");
    const char *bar = "";
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (types & others[i].types) {
            used += (size_t)snprintf(pattern + used, size - used, "%s%s", bar, others[i].pattern);
            bar = "|";
        }
    snprintf(pattern + used, size - used, ")[ \\t\\n\\r]*");
}

bool schema_text_tagged(struct schema_reader *reader, struct language *language, const char *path)
{
    const struct schema_tagged_value *tagged = reader->tagged;
    char pattern[256];
    size_t used = 0;
    for (const char *at = tagged->except; *at && used + 3 < sizeof(pattern); at++) {
        if (strchr("^$\\.*+?()[]{}|/", *at))
            pattern[used++] = '\\';
        pattern[used++] = *at;
    }
    pattern[used] = '\0';
    if (used > 0 &&
        !schema_text_pattern(reader, language, pattern, true, true, CHARACTER_BARE, path))
        return false;
    if (tagged->types == TYPE_STRING)
        return true;
    write_others(tagged->types, pattern, sizeof(pattern));
    return schema_text_pattern(reader, language, pattern, false, true, CHARACTER_BARE, path);
}

bool schema_tagged_takes(struct schema_reader *reader, const char *text,
                         const struct schema_path *path)
{
    const struct schema_tagged_value *tagged = reader->tagged;
    char pattern[256] = "^(?:";
    if (tagged->except[0] && strstr(text, tagged->except))
        return false;
    if (tagged->types == TYPE_STRING)
        return true;
    write_others(tagged->types, pattern + strlen(pattern), sizeof(pattern) - 8);
    strcat(pattern, ")$");
    return !schema_matches(reader, pattern, text, path);
}

/* ---- members -----------------------------------------------------------------------------------
 */

static const json *property(struct schema_reader *reader, const char *name)
{
    return schema_get(reader, schema_said(reader, reader->root, "properties"), name);
}

/* Of what speaks of the whole object: what is known here. */
static void check_object(struct schema_reader *reader, const struct schema_path *path)
{
    static const char *const known[] = {"type", "properties", "required", "additionalProperties"};
    for (const json *one = json_child(reader->root); one && schema_step(reader);
         one = json_next(one)) {
        bool taken = !schema_keyword(one);
        for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
            taken |= strcmp(json_key(one), known[i]) == 0;
        if (!taken)
            schema_refuse(reader, path, json_key(one),
                          "is not supported of arguments that are written between marks");
    }
    const json *type = schema_said(reader, reader->root, "type");
    const json *required = schema_said(reader, reader->root, "required");
    if (type && !(schema_types(reader, type, path) & TYPE_OBJECT))
        schema_refuse(reader, path, "type", "must be an object");
    for (const json *name = json_child(required); name && schema_step(reader);
         name = json_next(name))
        if (!property(reader, json_string(name)))
            schema_refuse(reader, path, "required", "names what is not among properties");
}

static bool is_key(const char *name)
{
    size_t length = strlen(name);
    for (const char *at = name; *at; at++)
        if ((unsigned char)*at < ' ' || strchr("<>", *at))
            return false;
    return length > 0 && length <= KEY_MAX;
}

static uint32_t put_member(struct schema_reader *reader, uint32_t from, const json *member,
                           const json *types, const struct schema_tags *tags,
                           const struct schema_path *path)
{
    struct schema_tagged_value tagged = {.except = tags->except};
    struct schema_path inner = {path, json_key(member)};
    struct part part = part_schema(member, false);
    if (!is_key(json_key(member)))
        schema_refuse(reader, path, "properties", "has a name that cannot stand between marks");
    tagged.types = types ? schema_types(reader, types, &inner) : TYPE_STRING;
    uint32_t at = tags->put(tags->context, from, SCHEMA_TAG_KEY);
    at = grammar_word(reader->grammar, at, json_key(member));
    at = tags->put(tags->context, at, SCHEMA_TAG_VALUE);
    reader->tagged = &tagged;
    at = schema_value_tagged(reader, at, &part, 1, &inner);
    reader->tagged = NULL;
    return tags->put(tags->context, at, SCHEMA_TAG_END);
}

static uint32_t put_members(struct schema_reader *reader, uint32_t from,
                            const struct schema_tags *tags)
{
    struct grammar *grammar = reader->grammar;
    struct schema_path top = {NULL, "#"}, path = {&top, "properties"};
    const json *required = schema_said(reader, reader->root, "required");
    const json *properties = schema_said(reader, reader->root, "properties");
    const json *types = json_child(tags->types);
    check_object(reader, &top);
    for (const json *one = json_is_object(properties) ? json_child(properties) : NULL;
         one && !grammar->code; one = json_next(one), types = types ? json_next(types) : NULL) {
        uint32_t start = grammar_nothing(grammar, from, GRAMMAR_NONE);
        uint32_t end = put_member(reader, start, one, types, tags, &path);
        uint32_t join = grammar_nothing(grammar, end, GRAMMAR_NONE);
        if (!schema_lists(reader, required, json_key(one)))
            grammar_nothing(grammar, from, join);
        from = join;
    }
    return from;
}

uint32_t schema_tagged(struct grammar *grammar, uint32_t from, const char *text, size_t length,
                       const struct schema_tags *tags)
{
    json *document = schema_parse(grammar, text, length);
    uint32_t to = from;
    if (!document)
        return from;
    struct schema_reader reader = {.grammar = grammar, .root = document};
    if (schema_places(&reader)) {
        to = put_members(&reader, from, tags);
        schema_rules(&reader);
    }
    schema_reader_free(&reader);
    json_free(document);
    return to;
}
