#include "daemon/constrain/schema/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/constrain/schema/schema_inner.h"

static const struct keyword keywords[] = {
#define KEYWORD(name, reader, types) {name, reader, types},
#include "daemon/constrain/schema/schema_keywords.def"
#undef KEYWORD
};

void schema_path_write(const struct schema_path *path, char *text, size_t size)
{
    const char *keys[SCHEMA_DEPTH_MAX * 2];
    size_t depth = 0, used = 0;
    for (; path && depth < SCHEMA_DEPTH_MAX * 2; path = path->up)
        keys[depth++] = path->key;
    text[0] = 0;
    while (depth-- > 0 && used + 1 < size)
        used += (size_t)snprintf(text + used, size - used, "%s%s", used ? "/" : "", keys[depth]);
    for (char *at = text; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            *at = '?';
}

void schema_refuse(struct schema_reader *reader, const struct schema_path *path,
                   const char *keyword, const char *what)
{
    char text[256];
    schema_path_write(path, text, sizeof(text));
    grammar_fail(reader->grammar, ERR_UNSUPPORTED, "schema: %s: %s: %s", text, keyword, what);
}

uint32_t schema_whole(struct schema_reader *reader, const json *member,
                      const struct schema_path *path)
{
    int64_t count;
    if (json_integer(member, json_key(member), 0, GRAMMAR_COUNT_MAX, &count, NULL)) {
        schema_refuse(reader, path, json_key(member), "must be a whole number up to 2^20");
        return 0;
    }
    return (uint32_t)count;
}

bool schema_spend(struct schema_reader *reader, uint64_t steps)
{
    reader->steps += steps;
    if (reader->steps > SCHEMA_STEPS_MAX)
        grammar_fail(reader->grammar, ERR_TOO_LARGE, "schema: takes more than %u steps to read",
                     SCHEMA_STEPS_MAX);
    return reader->grammar->code == 0;
}

bool schema_step(struct schema_reader *reader)
{
    return schema_spend(reader, 1);
}

void schema_work(struct schema_reader *reader, const struct language *language)
{
    uint64_t steps = language->steps / 4 + 1000 * language->count;
    for (uint32_t i = 0; i < language->count; i++)
        steps += language->parts[i].set->grammar.work / 8;
    schema_spend(reader, steps);
}

bool schema_has(struct schema_reader *reader, struct language *language, const char *text,
                size_t length)
{
    const uint64_t before = language->steps;
    bool failed, has = language_has(language, text, length, &failed);
    if (failed)
        grammar_fail(reader->grammar, ERR_TOO_LARGE,
                     "schema: whether a pattern has \"%.40s\" takes too many states", text);
    schema_spend(reader, (language->steps - before) / 4);
    language->steps = before; /* not counted once more with the language */
    return has && !failed;
}

const json *schema_said(struct schema_reader *reader, const json *schema, const char *name)
{
    uint64_t passed = 0;
    const json *one = json_is_object(schema) ? json_child(schema) : NULL;
    for (; one && strcmp(json_key(one), name); one = json_next(one))
        passed++;
    schema_spend(reader, passed / 8);
    return one;
}

const json *schema_get(struct schema_reader *reader, const json *object, const char *key)
{
    if (!json_is_object(object))
        return NULL;
    for (const json *one = json_child(object); one && schema_step(reader); one = json_next(one))
        if (!strcmp(json_key(one), key))
            return one;
    return NULL;
}

bool schema_lists(struct schema_reader *reader, const json *list, const char *text)
{
    for (const json *one = json_child(list); one && schema_step(reader); one = json_next(one))
        if (json_is_string(one) && !strcmp(json_string(one), text))
            return true;
    return false;
}

/* Says nothing: with the value that all values meet. */
static bool says_nothing(const json *member)
{
    const char *name = json_key(member);
    bool number = json_is_number(member);
    if (!json_is_bool(member) && !number)
        return false;
    if (!strcmp(name, "uniqueItems"))
        return json_is_bool(member) && !json_bool(member);
    if (!strncmp(name, "unevaluated", 11) || !strcmp(name, "items") ||
        !strcmp(name, "additionalProperties"))
        return json_is_bool(member) && json_bool(member);
    if (!strncmp(name, "exclusive", 9)) /* a draft's that is older: beside minimum and maximum */
        return json_is_bool(member);
    return !strncmp(name, "min", 3) && strcmp(name, "minimum") && number &&
           json_number(member) == 0;
}

const struct keyword *schema_keyword(const json *member)
{
    const char *name = json_key(member);
    for (size_t i = 0; i < sizeof(keywords) / sizeof(keywords[0]) && *keywords[i].name <= *name;
         i++)
        if (*name == *keywords[i].name && !strcmp(name, keywords[i].name))
            return says_nothing(member) ? NULL : &keywords[i];
    return NULL;
}

unsigned schema_type_of(const json *value)
{
    double number;
    if (json_is_string(value))
        return TYPE_STRING;
    number = json_number(value);
    if (json_is_number(value)) /* 1.0 is an integer to JSON Schema */
        return number < 1e18 && number > -1e18 && (double)(int64_t)number != number ? TYPE_FRACTION
                                                                                    : TYPE_INTEGER;
    return json_is_null(value)    ? TYPE_NULL
           : json_is_bool(value)  ? TYPE_BOOLEAN
           : json_is_array(value) ? TYPE_ARRAY
                                  : TYPE_OBJECT;
}

static unsigned type_named(struct schema_reader *reader, const json *name,
                           const struct schema_path *path)
{
    static const struct {
        const char *name;
        unsigned types;
    } names[] = {{"null", TYPE_NULL},      {"boolean", TYPE_BOOLEAN}, {"integer", TYPE_INTEGER},
                 {"number", TYPE_NUMERIC}, {"string", TYPE_STRING},   {"array", TYPE_ARRAY},
                 {"object", TYPE_OBJECT}};
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (json_is_string(name) && !strcmp(json_string(name), names[i].name))
            return names[i].types;
    schema_refuse(reader, path, "type", "is no type, and no list of types");
    return 0;
}

unsigned schema_types(struct schema_reader *reader, const json *type,
                      const struct schema_path *path)
{
    unsigned types = 0;
    if (!json_is_array(type))
        return type_named(reader, type, path);
    for (const json *name = json_child(type); name && schema_step(reader); name = json_next(name))
        types |= type_named(reader, name, path);
    return types;
}

struct part part_schema(const json *schema, bool denied)
{
    return (struct part){.kind = PART_SCHEMA, .schema = schema, .denied = denied};
}

const json *part_says(const struct part *part, const char *name)
{
    return part->kind == PART_KEYWORD && !part->denied && !strcmp(json_key(part->keyword), name)
               ? part->keyword
               : NULL;
}

void parts_add(struct schema_reader *reader, struct parts *parts, struct part part)
{
    for (uint32_t i = 0; i < parts->count && schema_step(reader); i++)
        if (!memcmp(&parts->list[i], &part, sizeof(part)))
            return;
    if (parts->count == parts->room) {
        uint32_t room = parts->room ? parts->room * 2 : 4;
        struct part *moved = realloc(parts->list, room * sizeof(part));
        if (!moved) {
            grammar_fail(reader->grammar, ERR_NO_MEMORY, "no memory for a constraint");
            return;
        }
        parts->list = moved;
        parts->room = room;
    }
    parts->list[parts->count++] = part;
}

void parts_free(struct parts *parts)
{
    free(parts->list);
    *parts = (struct parts){0};
}

uint32_t schema_known(struct schema_reader *reader, const char *key, bool *ret_made)
{
    struct known_rule *known = reader->known;
    uint64_t hash = language_hash(key);
    size_t size = strlen(key) + 1;
    while (known && schema_step(reader) && (known->hash != hash || strcmp(known->key, key) != 0))
        known = known->next;
    *ret_made = false;
    if (!schema_spend(reader, size / 16))
        return 0;
    if (known)
        return known->rule;
    known = malloc(sizeof(*known) + size);
    if (!known) {
        grammar_fail(reader->grammar, ERR_NO_MEMORY, "no memory for a constraint");
        return 0;
    }
    *known = (struct known_rule){reader->known, hash, grammar_node(reader->grammar)};
    memcpy(known->key, key, size);
    reader->known = known;
    *ret_made = true;
    return known->rule;
}

json *schema_parse(struct grammar *grammar, const char *text, size_t length)
{
    struct json_bounds bounds = {length, SCHEMA_DEPTH_MAX, SCHEMA_VALUES_MAX};
    json *document = NULL;
    struct error error;
    int code = json_parse(text, length, bounds, &document, &error);
    if (code)
        grammar_fail(grammar, -code, "schema: %s", error.text);
    return document;
}

void schema_reader_free(struct schema_reader *reader)
{
    while (reader->rules) {
        struct schema_rule *rule = reader->rules;
        reader->rules = rule->next;
        free(rule);
    }
    while (reader->known) {
        struct known_rule *rule = reader->known;
        reader->known = rule->next;
        free(rule);
    }
    language_store_free(&reader->sets);
    free(reader->places);
}

uint32_t schema_build(struct grammar *grammar, uint32_t from, const char *text, size_t length)
{
    json *document = schema_parse(grammar, text, length);
    if (!document)
        return from;
    struct schema_reader reader = {.grammar = grammar, .root = document};
    struct schema_path top = {NULL, "#"};
    struct part all = part_schema(document, false);
    uint32_t to = from;
    if (schema_places(&reader)) {
        to = schema_value(&reader, from, &all, 1, &top);
        schema_rules(&reader);
    }
    schema_reader_free(&reader);
    json_free(document);
    return to;
}

uint32_t schema_choices(struct grammar *grammar, uint32_t from, const char *text, size_t length)
{
    json *document = schema_parse(grammar, text, length);
    uint32_t join = grammar_node(grammar);
    if (!document)
        return join;
    if (!json_is_array(document) || !json_child(document))
        grammar_fail(grammar, ERR_BAD_VALUE, "choices must be a list of texts");
    for (const json *one = json_child(document); one; one = json_next(one)) {
        const char *choice = json_string(one);
        if (!json_is_string(one) || !*choice)
            grammar_fail(grammar, ERR_BAD_VALUE, "a choice must be a text, and not empty");
        grammar_nothing(grammar, json_shared(grammar, from, choice, strlen(choice)), join);
    }
    json_free(document);
    return join;
}
