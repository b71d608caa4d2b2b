#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/constrain/schema/schema_inner.h"

#define TAGGED_DEPTH_MAX 8u /* of choices within choices, of a text between marks */

/* A value while its ways are found. */
struct value {
    struct schema_reader *reader;
    const struct schema_path *path;
    uint32_t from, join;
    unsigned free_done; /* types of which a way had any value */
};

const json *way_next(const struct way *way, const char *name, uint32_t *at)
{
    while (*at < way->count) {
        const json *said = part_says(&way->parts[(*at)++], name);
        if (said)
            return said;
    }
    return NULL;
}

static void lower(uint32_t *least, uint32_t value)
{
    if (value < *least)
        *least = value;
}

static void raise_to(uint32_t *most, uint32_t value)
{
    if (value > *most)
        *most = value;
}

void way_counts(struct schema_reader *reader, const struct way *way, const char *min,
                const char *max, uint32_t *ret_min, uint32_t *ret_max)
{
    *ret_min = 0;
    *ret_max = GRAMMAR_UNBOUNDED;
    for (uint32_t i = 0; i < way->count; i++) {
        const struct part *part = &way->parts[i];
        const char *name = part->kind == PART_KEYWORD ? json_key(part->keyword) : "";
        bool is_min = !strcmp(name, min);
        if (!is_min && strcmp(name, max))
            continue;
        uint32_t count = schema_whole(reader, part->keyword, way->path);
        if (!part->denied)
            is_min ? raise_to(ret_min, count) : lower(ret_max, count);
        else if (!is_min)
            raise_to(ret_min, count + 1);
        else if (count > 0)
            lower(ret_max, count - 1);
        else
            raise_to(ret_min, GRAMMAR_COUNT_MAX), *ret_max = 0; /* fewer than none */
    }
}

/* The types of which something is said. */
static unsigned spoken_of(struct schema_reader *reader, const struct way *way)
{
    unsigned types = 0;
    for (uint32_t i = 0; i < way->count; i++) {
        const struct part *part = &way->parts[i];
        const struct keyword *keyword =
            part->kind == PART_KEYWORD ? schema_keyword(part->keyword) : NULL;
        if (part->kind != PART_KEYWORD)
            types |= TYPE_OBJECT;
        else if (keyword && keyword->types != TYPE_ALL)
            types |= keyword->types;
        else if (!strcmp(json_key(part->keyword), "const"))
            types |= schema_type_of(part->keyword);
        else
            for (const json *one = json_child(part->keyword); one && schema_step(reader);
                 one = json_next(one))
                types |= schema_type_of(one);
    }
    return types;
}

/* Whether a null or boolean is not left out by a constant. */
static bool allows(struct schema_reader *reader, const struct way *way, const json *literal)
{
    for (uint32_t i = 0; i < way->count; i++)
        if (way->parts[i].kind == PART_KEYWORD && way->parts[i].denied &&
            schema_keyword(way->parts[i].keyword)->types == TYPE_ALL &&
            schema_admits(reader, &way->parts[i], literal) == 0)
            return false;
    return true;
}

static void literals(struct value *value, const struct way *way, uint32_t from)
{
    static const char *const words[] = {"null", "false", "true"};
    for (unsigned i = 0; i < 3; i++) {
        json *literal = NULL;
        if (!(way->types & (i == 0 ? TYPE_NULL : TYPE_BOOLEAN)) ||
            json_parse(words[i], strlen(words[i]), (struct json_bounds){16, 2, 2}, &literal, NULL))
            continue;
        if (allows(value->reader, way, literal))
            grammar_nothing(value->reader->grammar,
                            grammar_word(value->reader->grammar, from, words[i]), value->join);
        json_free(literal);
    }
}

/* A denied array or object would have to be left out of all texts of it: only where it could not be
 * one in any case is nothing to do. */
static void check_left_out(struct value *value, const struct way *way, const json *out,
                           const struct part *denied)
{
    if (!(schema_type_of(out) & way->types & (TYPE_ARRAY | TYPE_OBJECT)))
        return;
    for (uint32_t i = 0; i < way->count; i++)
        if (&way->parts[i] != denied && schema_admits(value->reader, &way->parts[i], out) == 0)
            return;
    schema_refuse(value->reader, way->path, "not", "of an array or object is not supported");
}

static void check_denied(struct value *value, const struct way *way)
{
    for (uint32_t i = 0; i < way->count && !value->reader->grammar->code; i++) {
        const struct part *part = &way->parts[i];
        const char *name =
            part->kind == PART_KEYWORD && part->denied ? json_key(part->keyword) : "";
        if (!strcmp(name, "const"))
            check_left_out(value, way, part->keyword, part);
        if (!strcmp(name, "enum"))
            for (const json *one = json_child(part->keyword); one && schema_step(value->reader);
                 one = json_next(one))
                check_left_out(value, way, one, part);
    }
}

static void of_types(struct value *value, const struct way *way)
{
    static const struct {
        unsigned types;
        uint32_t (*build)(struct schema_reader *, uint32_t, const struct way *);
    } builders[] = {{TYPE_NUMERIC, schema_number},
                    {TYPE_STRING, schema_string},
                    {TYPE_ARRAY, schema_array},
                    {TYPE_OBJECT, schema_object}};
    struct grammar *grammar = value->reader->grammar;
    unsigned free_types = way->types & ~spoken_of(value->reader, way);
    struct way left = *way;
    struct schema_tagged_value *tagged = value->reader->tagged;
    uint32_t from = grammar_node(grammar);
    left.types &= ~value->free_done;
    schema_spend(value->reader, way->count);
    grammar_nothing(grammar, value->from, from);
    check_denied(value, way);
    literals(value, &left, from);
    for (unsigned i = 0; i < sizeof(builders) / sizeof(builders[0]) && !grammar->code; i++) {
        value->reader->tagged = builders[i].types == TYPE_STRING ? tagged : NULL;
        if (left.types & builders[i].types)
            grammar_nothing(grammar, builders[i].build(value->reader, from, &left), value->join);
    }
    value->reader->tagged = tagged;
    value->free_done |=
        free_types & (TYPE_NULL | TYPE_BOOLEAN | TYPE_STRING | TYPE_ARRAY | TYPE_OBJECT);
    if ((free_types & TYPE_NUMERIC) == TYPE_NUMERIC)
        value->free_done |= TYPE_NUMERIC;
}

static void one_way(void *context, const struct part *parts, uint32_t count, unsigned types)
{
    struct value *value = context;
    const struct schema_tagged_value *tagged = value->reader->tagged;
    struct way way = {parts, count, tagged ? types & tagged->types : types, value->path};
    const json *values = NULL;
    if (tagged && way.types == 0)
        return;
    for (uint32_t i = 0; i < count && !values; i++)
        if (part_says(&parts[i], "const") || part_says(&parts[i], "enum"))
            values = parts[i].keyword;
    if (values)
        grammar_nothing(value->reader->grammar,
                        schema_constants(value->reader, value->from, &way, values), value->join);
    else if (count == 0 && types == TYPE_ALL && !tagged)
        grammar_nothing(value->reader->grammar, json_any(value->reader->grammar, value->from),
                        value->join);
    else
        of_types(value, &way);
}

static void branch(void *context, const struct part *parts, uint32_t count)
{
    struct value *value = context;
    struct grammar *grammar = value->reader->grammar;
    uint32_t start = grammar_node(grammar);
    grammar_nothing(grammar, value->from, start);
    uint32_t (*build)(struct schema_reader *, uint32_t, const struct part *, uint32_t,
                      const struct schema_path *) =
        value->reader->tagged ? schema_value_tagged : schema_value;
    grammar_nothing(grammar, build(value->reader, start, parts, count, value->path), value->join);
}

static uint32_t in_place(struct schema_reader *reader, uint32_t from, const struct part *parts,
                         uint32_t count, const struct schema_path *path)
{
    struct value value = {
        .reader = reader, .path = path, .from = from, .join = grammar_node(reader->grammar)};
    struct schema_ways ways = {one_way, branch, &value};
    schema_expand(reader, parts, count, &ways, path);
    return value.join;
}

uint32_t schema_value_tagged(struct schema_reader *reader, uint32_t from, const struct part *parts,
                             uint32_t count, const struct schema_path *path)
{
    uint32_t to = from;
    if (reader->tagged->depth == TAGGED_DEPTH_MAX) {
        schema_refuse(reader, path, "anyOf", "of choices so deep is not supported");
        return from;
    }
    reader->tagged->depth++;
    to = in_place(reader, from, parts, count, path);
    reader->tagged->depth--;
    return to;
}

/* Whether a part's schema takes others in, so that it may come back to itself. */
static bool takes_others(struct schema_reader *reader, const struct part *part)
{
    static const char *const names[] = {
        "$ref", "allOf", "anyOf", "oneOf", "if", "not", "dependentSchemas", "dependencies"};
    if (part->denied)
        return true;
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (schema_said(reader, part->schema, names[i]))
            return true;
    return false;
}

static bool same_parts(const struct schema_rule *rule, const struct part *parts, uint32_t count)
{
    return rule->count == count && !memcmp(rule->parts, parts, count * sizeof(*parts));
}

/* The rule of a value that meets these: made where there is none. */
static uint32_t rule_of(struct schema_reader *reader, const struct part *parts, uint32_t count,
                        const struct schema_path *path)
{
    for (struct schema_rule *rule = reader->rules; rule && schema_step(reader); rule = rule->next)
        if (same_parts(rule, parts, count))
            return rule->rule;
    struct schema_rule *made = calloc(1, sizeof(*made) + count * sizeof(*parts));
    if (!made || reader->grammar->code) {
        free(made);
        grammar_fail(reader->grammar, ERR_NO_MEMORY, "no memory for a constraint");
        return 0;
    }
    made->rule = grammar_node(reader->grammar);
    made->count = count;
    memcpy(made->parts, parts, count * sizeof(*parts));
    const json *ref = count == 1 ? schema_said(reader, parts[0].schema, "$ref") : NULL;
    if (json_is_string(ref))
        snprintf(made->path, sizeof(made->path), "%s", json_string(ref));
    else
        schema_path_write(path, made->path, sizeof(made->path));
    if (reader->last)
        reader->last->next = made;
    else
        reader->rules = made;
    reader->last = made;
    return made->rule;
}

uint32_t schema_value(struct schema_reader *reader, uint32_t from, const struct part *parts,
                      uint32_t count, const struct schema_path *path)
{
    bool by_rule = false;
    struct parts own = {0};
    for (uint32_t i = 0; i < count && !reader->grammar->code; i++) {
        bool nothing = parts[i].kind == PART_SCHEMA && !parts[i].denied &&
                       json_is_bool(parts[i].schema) && json_bool(parts[i].schema);
        if (!nothing)
            parts_add(reader, &own, parts[i]);
        by_rule |= parts[i].schema && takes_others(reader, &parts[i]);
    }
    if (reader->grammar->code) {
        free(own.list);
        return from;
    }
    if (own.count == 0) {
        from = json_any(reader->grammar, from);
    } else if (by_rule) {
        uint32_t rule = rule_of(reader, own.list, own.count, path);
        from = grammar_call(reader->grammar, from, GRAMMAR_NONE, rule, 1, 1);
    } else {
        from = in_place(reader, from, own.list, own.count, path);
    }
    free(own.list);
    return from;
}

void schema_rules(struct schema_reader *reader)
{
    for (struct schema_rule *rule = reader->rules; rule && !reader->grammar->code;
         rule = rule->next) {
        struct schema_path path = {NULL, rule->path};
        grammar_final(reader->grammar,
                      in_place(reader, rule->rule, rule->parts, rule->count, &path));
    }
}
