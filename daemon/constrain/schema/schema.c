#include "daemon/constrain/schema/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/constrain/schema/schema_inner.h"

static const struct {
    const char *name;
    bool kept;
} keywords[] = {
#define KEPT(name) {name, true},
#define REFUSED(name) {name, false},
#include "daemon/constrain/schema/schema_keywords.def"
#undef KEPT
#undef REFUSED
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

uint32_t schema_count(struct schema_reader *reader, const json *schema, const char *keyword,
                      uint32_t otherwise, const struct schema_path *path)
{
    const json *value = json_get(schema, keyword);
    int64_t count;
    if (!value)
        return otherwise;
    if (json_integer(value, keyword, 0, GRAMMAR_COUNT_MAX, &count, NULL)) {
        schema_refuse(reader, path, keyword, "must be a whole number up to 2^20");
        return otherwise;
    }
    return (uint32_t)count;
}

bool schema_step(struct schema_reader *reader)
{
    if (++reader->steps > SCHEMA_STEPS_MAX)
        grammar_fail(reader->grammar, ERR_TOO_LARGE, "schema: takes more than %u steps to read",
                     SCHEMA_STEPS_MAX);
    return reader->grammar->code == 0;
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

static bool is_named(const char *name, const char *const *names)
{
    for (; *names; names++)
        if (!strcmp(name, *names))
            return true;
    return false;
}

/* Says nothing: a refused keyword with the value that all values meet. */
static bool says_nothing(const json *member)
{
    const char *name = json_key(member);
    if (!strcmp(name, "uniqueItems"))
        return json_is_bool(member) && !json_bool(member);
    if (!strncmp(name, "unevaluated", 11))
        return json_is_bool(member) && json_bool(member);
    return !strcmp(name, "minProperties") && json_is_number(member) && json_number(member) == 0;
}

bool schema_alone(struct schema_reader *reader, const json *schema, const char *const *beside,
                  const char *keyword, const struct schema_path *path)
{
    for (const json *member = json_child(schema); member; member = json_next(member)) {
        const char *name = json_key(member);
        for (size_t i = 0; i < sizeof(keywords) / sizeof(keywords[0]); i++) {
            if (strcmp(name, keywords[i].name) || says_nothing(member))
                continue;
            if (!keywords[i].kept)
                schema_refuse(reader, path, keywords[i].name, "is not supported");
            else if (keyword && strcmp(name, keyword) && !is_named(name, beside)) {
                char text[80];
                snprintf(text, sizeof(text), "is not supported beside %s", keyword);
                schema_refuse(reader, path, keywords[i].name, text);
            }
        }
    }
    return reader->grammar->code == 0;
}

unsigned schema_type_of(const json *value)
{
    double number = json_number(value);
    if (json_is_number(value)) /* 1.0 is an integer to JSON Schema */
        return number < 1e18 && number > -1e18 && (double)(int64_t)number != number
                   ? TYPE_NUMBER
                   : TYPE_NUMBER | TYPE_INTEGER;
    return json_is_null(value)     ? TYPE_NULL
           : json_is_bool(value)   ? TYPE_BOOLEAN
           : json_is_string(value) ? TYPE_STRING
           : json_is_array(value)  ? TYPE_ARRAY
                                   : TYPE_OBJECT;
}

static unsigned type_named(struct schema_reader *reader, const json *name,
                           const struct schema_path *path)
{
    static const char *const names[] = {"null",   "boolean", "integer", "number",
                                        "string", "array",   "object"};
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (json_is_string(name) && !strcmp(json_string(name), names[i]))
            return 1u << i;
    schema_refuse(reader, path, "type", "is no type, and no list of types");
    return 0;
}

unsigned schema_types(struct schema_reader *reader, const json *schema,
                      const struct schema_path *path)
{
    const json *type = json_get(schema, "type");
    unsigned types = 0;
    if (!type)
        return TYPE_ALL;
    if (!json_is_array(type))
        return type_named(reader, type, path);
    for (const json *name = json_child(type); name; name = json_next(name))
        types |= type_named(reader, name, path);
    return types;
}

/* Within the document: "#", or "#/" and a JSON pointer. NULL: not there. */
const json *schema_find(struct schema_reader *reader, const char *ref)
{
    const json *at = reader->root;
    if (*ref++ != '#')
        return NULL;
    while (at && *ref == '/') {
        char key[256];
        size_t used = 0;
        for (ref++; *ref && *ref != '/' && used + 1 < sizeof(key); ref++) {
            unsigned code;
            char byte = *ref;
            if (byte == '~' && (ref[1] == '0' || ref[1] == '1'))
                byte = *++ref == '0' ? '~' : '/';
            else if (byte == '%' && sscanf(ref + 1, "%2x", &code) == 1 && code && ref[2])
                byte = (char)code, ref += 2;
            key[used++] = byte;
        }
        key[used] = 0;
        if (json_is_object(at)) {
            at = schema_get(reader, at, key);
            continue;
        }
        char *end;
        unsigned long index = strtoul(key, &end, 10);
        if (!json_is_array(at) || *end || end == key)
            return NULL;
        for (at = json_child(at); at && index > 0 && schema_step(reader); index--)
            at = json_next(at);
    }
    return *ref ? NULL : at;
}

static uint32_t rule_of(struct schema_reader *reader, const json *schema, const char *ref)
{
    for (uint32_t i = 0; i < reader->rules_used && schema_step(reader); i++)
        if (reader->rules[i].schema == schema)
            return reader->rules[i].rule;
    if (reader->rules_used == reader->rules_room) {
        uint32_t room = reader->rules_room ? reader->rules_room * 2 : 16;
        void *moved = realloc(reader->rules, room * sizeof(*reader->rules));
        if (!moved) {
            grammar_fail(reader->grammar, ERR_NO_MEMORY, "no memory for a constraint");
            return 0;
        }
        reader->rules = moved;
        reader->rules_room = room;
    }
    uint32_t rule = grammar_node(reader->grammar);
    reader->rules[reader->rules_used++] = (struct schema_rule){schema, ref, rule};
    return rule;
}

static uint32_t reference(struct schema_reader *reader, uint32_t from, const json *ref,
                          const struct schema_path *path)
{
    const json *schema = json_is_string(ref) ? schema_find(reader, json_string(ref)) : NULL;
    if (!schema) {
        schema_refuse(reader, path, "$ref", "leads to nothing in this document");
        return from;
    }
    uint32_t rule = rule_of(reader, schema, json_string(ref));
    return grammar_call(reader->grammar, from, GRAMMAR_NONE, rule, 1, 1);
}

static uint32_t constants(struct schema_reader *reader, uint32_t from, const json *schema,
                          const struct schema_path *path)
{
    const json *one = json_get(schema, "const"), *list = json_get(schema, "enum");
    unsigned types = schema_types(reader, schema, path);
    /* Arrays and objects share no beginnings, and would be in the way of those that do. */
    uint32_t start = grammar_node(reader->grammar), deep = grammar_node(reader->grammar);
    uint32_t join = grammar_node(reader->grammar);
    grammar_nothing(reader->grammar, from, start);
    grammar_nothing(reader->grammar, from, deep);
    if (!one && !json_is_array(list))
        schema_refuse(reader, path, "enum", "must be a list");
    for (const json *value = one ? one : json_child(list); value && !reader->grammar->code;
         value = one ? NULL : json_next(value))
        if (schema_type_of(value) & types)
            grammar_nothing(
                reader->grammar,
                json_constant(reader->grammar,
                              json_is_object(value) || json_is_array(value) ? deep : start, value),
                join);
    return join;
}

static uint32_t of_types(struct schema_reader *reader, uint32_t from, const json *schema,
                         const struct schema_path *path)
{
    struct grammar *grammar = reader->grammar;
    unsigned types = schema_types(reader, schema, path);
    uint32_t join = grammar_node(grammar);
    if (types & TYPE_NULL)
        grammar_nothing(grammar, grammar_word(grammar, from, "null"), join);
    if (types & TYPE_BOOLEAN) {
        grammar_nothing(grammar, grammar_word(grammar, from, "true"), join);
        grammar_nothing(grammar, grammar_word(grammar, from, "false"), join);
    }
    if (types & (TYPE_INTEGER | TYPE_NUMBER))
        grammar_nothing(grammar, schema_number(reader, from, schema, !(types & TYPE_NUMBER), path),
                        join);
    if (types & TYPE_STRING)
        grammar_nothing(grammar, schema_string(reader, from, schema, path), join);
    if (types & TYPE_ARRAY)
        grammar_nothing(grammar, schema_array(reader, from, schema, path), join);
    if (types & TYPE_OBJECT)
        grammar_nothing(grammar, schema_object(reader, from, schema, path), join);
    return join;
}

static bool says_anything(const json *schema)
{
    for (const json *member = json_child(schema); member; member = json_next(member))
        for (size_t i = 0; i < sizeof(keywords) / sizeof(keywords[0]); i++)
            if (!strcmp(json_key(member), keywords[i].name) && !says_nothing(member))
                return true;
    return false;
}

uint32_t schema_value(struct schema_reader *reader, uint32_t from, const json *schema,
                      const struct schema_path *path)
{
    static const char *const none[] = {NULL}, *const with_const[] = {"type", NULL};
    static const char *const combined[] = {"$ref", "anyOf", "oneOf", "allOf"};
    if (json_is_bool(schema) && !json_bool(schema))
        return grammar_node(reader->grammar);
    if (!json_is_bool(schema) && !json_is_object(schema)) {
        schema_refuse(reader, path, "schema", "is no object and no boolean");
        return from;
    }
    if (!says_anything(schema))
        return json_any(reader->grammar, from);
    for (unsigned i = 0; i < 4; i++) {
        const json *value = json_get(schema, combined[i]);
        if (!value)
            continue;
        if (!schema_alone(reader, schema, none, combined[i], path))
            return from;
        return i == 0 ? reference(reader, from, value, path)
                      : schema_branches(reader, from, schema, combined[i], path);
    }
    if (json_get(schema, "const") || json_get(schema, "enum")) {
        const char *keyword = json_get(schema, "const") ? "const" : "enum";
        return schema_alone(reader, schema, with_const, keyword, path)
                   ? constants(reader, from, schema, path)
                   : from;
    }
    return schema_alone(reader, schema, none, NULL, path) ? of_types(reader, from, schema, path)
                                                          : from;
}

static json *parse(struct grammar *grammar, const char *text, size_t length)
{
    struct json_bounds bounds = {length, SCHEMA_DEPTH_MAX, SCHEMA_VALUES_MAX};
    json *document = NULL;
    struct error error;
    int code = json_parse(text, length, bounds, &document, &error);
    if (code)
        grammar_fail(grammar, -code, "schema: %s", error.text);
    return document;
}

uint32_t schema_build(struct grammar *grammar, uint32_t from, const char *text, size_t length)
{
    json *document = parse(grammar, text, length);
    if (!document)
        return from;
    struct schema_reader reader = {.grammar = grammar, .root = document};
    struct schema_path top = {NULL, "#"};
    uint32_t to = schema_value(&reader, from, document, &top);
    for (uint32_t i = 0; i < reader.rules_used && !grammar->code; i++) {
        struct schema_rule rule = reader.rules[i];
        struct schema_path path = {NULL, rule.ref};
        grammar_final(grammar, schema_value(&reader, rule.rule, rule.schema, &path));
    }
    free(reader.rules);
    json_free(document);
    return to;
}

uint32_t schema_choices(struct grammar *grammar, uint32_t from, const char *text, size_t length)
{
    json *document = parse(grammar, text, length);
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
