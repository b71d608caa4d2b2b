#include "daemon/constrain/schema/schema_members.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const json *additional_of(const struct part *part)
{
    return part_says(part, "additionalProperties");
}

static struct member *member_of(struct members *members, const char *name)
{
    for (uint32_t i = 0; i < members->count && schema_step(members->reader); i++)
        if (!strcmp(members->list[i].name, name))
            return &members->list[i];
    if (members->count == members->room) {
        uint32_t room = members->room ? members->room * 2 : 16;
        struct member *moved = realloc(members->list, room * sizeof(*moved));
        if (!moved) {
            grammar_fail(members->reader->grammar, ERR_NO_MEMORY, "no memory for a constraint");
            return NULL;
        }
        members->list = moved;
        members->room = room;
    }
    struct member *made = &members->list[members->count++];
    *made = (struct member){.name = name};
    return made;
}

/* Properties in the order of the schemas, required names that have none behind them. */
static void gather_names(struct members *members)
{
    const struct way *way = members->way;
    for (uint32_t i = 0; i < way->count; i++) {
        const json *properties = part_says(&way->parts[i], "properties");
        if (properties && !json_is_object(properties))
            schema_refuse(members->reader, way->path, "properties", "must be an object");
        for (const json *one = json_child(properties); one && !members->reader->grammar->code;
             one = json_next(one))
            member_of(members, json_key(one));
    }
    for (uint32_t i = 0; i < way->count && !members->reader->grammar->code; i++)
        if (way->parts[i].kind == PART_NAME || way->parts[i].kind == PART_MEMBER) {
            struct member *member = member_of(members, way->parts[i].name);
            if (member && way->parts[i].kind == PART_NAME && way->parts[i].denied)
                member->forbidden = true;
            else if (member && way->parts[i].kind == PART_NAME)
                member->required = true;
        }
}

static bool add_pattern(struct members *members, const char *text)
{
    for (uint32_t i = 0; i < members->patterns_count; i++)
        if (!strcmp(members->patterns[i].text, text))
            return true;
    if (members->patterns_count == KEY_PATTERNS_MAX) {
        schema_refuse(members->reader, members->way->path, "patternProperties",
                      "of more than 4 patterns is not supported");
        return false;
    }
    struct language *language = calloc(1, sizeof(*language));
    if (!language) {
        grammar_fail(members->reader->grammar, ERR_NO_MEMORY, "no memory for a constraint");
        return false;
    }
    members->patterns[members->patterns_count++] = (struct key_pattern){text, language};
    struct schema_path here = {members->way->path, "patternProperties"};
    char path[256];
    schema_path_write(&here, path, sizeof(path));
    bool right =
        schema_text_pattern(members->reader, language, text, true, false, CHARACTER_BARE, path);
    schema_work(members->reader, language);
    return right;
}

static bool gather_patterns(struct members *members)
{
    for (uint32_t i = 0; i < members->way->count; i++) {
        const json *patterns = part_says(&members->way->parts[i], "patternProperties");
        if (patterns && !json_is_object(patterns))
            schema_refuse(members->reader, members->way->path, "patternProperties",
                          "must be an object");
        for (const json *one = json_child(patterns); one; one = json_next(one))
            if (!add_pattern(members, json_key(one)))
                return false;
    }
    return members->reader->grammar->code == 0;
}

/* Bit n: the name has a part of pattern n. */
static uint32_t patterns_of(struct members *members, const char *name)
{
    uint32_t set = 0;
    for (uint32_t i = 0; i < members->patterns_count && !members->reader->grammar->code; i++)
        if (schema_has(members->reader, members->patterns[i].language, name, strlen(name)))
            set |= 1u << i;
    return set;
}

/* What the patterns of one schema say of names that are in `set`; false: nothing. */
static bool from_patterns(struct members *members, const json *patterns, uint32_t set,
                          struct parts *ret_parts)
{
    bool any = false;
    for (const json *one = json_child(patterns); one && schema_step(members->reader);
         one = json_next(one))
        for (uint32_t i = 0; i < members->patterns_count; i++)
            if (set >> i & 1 && !strcmp(members->patterns[i].text, json_key(one))) {
                any = true;
                if (ret_parts)
                    parts_add(members->reader, ret_parts, part_schema(one, false));
            }
    return any;
}

/* All that is said of the value of a name, or of any that is not listed; false: it may not be. */
static bool gather_value(struct members *members, const char *name, uint32_t set,
                         struct parts *ret_parts)
{
    const struct way *way = members->way;
    struct schema_reader *reader = members->reader;
    schema_spend(reader, way->count / 8);
    for (uint32_t i = 0; i < way->count && !reader->grammar->code; i++) {
        const struct part *part = &way->parts[i];
        const json *said = name ? schema_get(reader, part_says(part, "properties"), name) : NULL;
        if (said)
            parts_add(reader, ret_parts, part_schema(said, false));
        if (part_says(part, "patternProperties"))
            from_patterns(members, part->keyword, set, ret_parts);
        if (name && part->kind == PART_MEMBER && !strcmp(part->name, name))
            parts_add(reader, ret_parts, part_schema(part->schema, part->denied != 0));
        if (additional_of(part) &&
            !(name && schema_get(reader, schema_said(reader, part->schema, "properties"), name)) &&
            !from_patterns(members, schema_said(reader, part->schema, "patternProperties"), set,
                           NULL))
            parts_add(reader, ret_parts, part_schema(additional_of(part), false));
    }
    for (uint32_t i = 0; i < ret_parts->count; i++)
        if (json_is_bool(ret_parts->list[i].schema) &&
            json_bool(ret_parts->list[i].schema) == (ret_parts->list[i].denied != 0))
            return false;
    return true;
}

/* A condition of the language: what propertyNames says, of texts. */
static bool add_names(struct members *members, struct language *language)
{
    struct part parts[8] = {{.kind = PART_TYPES, .types = TYPE_STRING}};
    struct schema_reader *reader = members->reader;
    struct schema_path here = {members->way->path, "propertyNames"};
    uint32_t at = 0, count = 1;
    const json *names;
    while ((names = way_next(members->way, "propertyNames", &at)) && count < 8)
        parts[count++] = part_schema(names, false);
    if (count == 1)
        return true;
    members->names_said = true;
    if (names || !language) {
        if (names)
            schema_refuse(reader, members->way->path, "propertyNames", "stands too often");
        return !names;
    }
    struct grammar *grammar = language_part(language, false);
    struct schema_reader own = {.grammar = grammar,
                                .root = reader->root,
                                .places = reader->places,
                                .places_used = reader->places_used,
                                .steps = reader->steps};
    uint32_t end = grammar ? schema_value(&own, 0, parts, count, &here) : 0;
    if (grammar)
        schema_rules(&own);
    reader->steps = own.steps;
    own.places = NULL;
    schema_reader_free(&own);
    if (!grammar || language_end(language, end))
        grammar_fail(reader->grammar, language->error.code ? language->error.code : ERR_UNSUPPORTED,
                     "%s", grammar ? language->error.text : "too many conditions of names");
    return reader->grammar->code == 0;
}

/* As it stands in JSON. */
static bool is_let_in(struct members *members, struct language *language, const char *name)
{
    size_t room = 6 * strlen(name) + 3;
    char *text = malloc(room);
    struct json_writer writer;
    if (!text) {
        grammar_fail(members->reader->grammar, ERR_NO_MEMORY, "no memory for a constraint");
        return false;
    }
    json_writer_init(&writer, text, room);
    json_put_text(&writer, NULL, name);
    bool has = schema_has(members->reader, language, text, writer.used);
    free(text);
    return has;
}

/* Names that propertyNames does not let in are forbidden. */
static bool check_names(struct members *members)
{
    struct language *language = calloc(1, sizeof(*language));
    if (!language) {
        grammar_fail(members->reader->grammar, ERR_NO_MEMORY, "no memory for a constraint");
        return false;
    }
    bool right = add_names(members, language);
    schema_work(members->reader, language);
    for (uint32_t i = 0; right && i < members->count && members->names_said; i++) {
        members->list[i].forbidden |= !is_let_in(members, language, members->list[i].name);
        right = members->reader->grammar->code == 0;
    }
    language_free(language);
    free(language);
    return right;
}

bool members_gather(struct members *members)
{
    gather_names(members);
    if (members->reader->grammar->code || !gather_patterns(members) || !check_names(members))
        return false;
    for (uint32_t i = 0; i < members->count && !members->reader->grammar->code; i++) {
        struct parts parts = {0};
        if (!gather_value(members, members->list[i].name,
                          patterns_of(members, members->list[i].name), &parts))
            members->list[i].forbidden = true;
        parts_free(&parts);
    }
    members->closed = true;
    for (uint32_t set = 0; set < 1u << members->patterns_count; set++) {
        struct parts parts = {0};
        if (gather_value(members, NULL, set, &parts))
            members->closed = false;
        parts_free(&parts);
    }
    return members->reader->grammar->code == 0;
}

void members_free(struct members *members)
{
    for (uint32_t i = 0; i < members->patterns_count; i++) {
        language_free(members->patterns[i].language);
        free(members->patterns[i].language);
    }
    free(members->list);
}

uint32_t members_value(struct members *members, uint32_t from, const struct member *member)
{
    struct schema_path in = {members->way->path, "properties"}, here = {&in, member->name};
    struct parts parts = {0};
    gather_value(members, member->name, patterns_of(members, member->name), &parts);
    if (!members->reader->grammar->code)
        from = schema_value(members->reader, from, parts.list, parts.count, &here);
    parts_free(&parts);
    return from;
}

/* What the rule of a class's names is known by; false: too long. */
static bool class_key(const struct members *members, uint32_t set, const char *const *names,
                      uint32_t count, char *key, size_t size)
{
    size_t used = (size_t)snprintf(key, size, "names %u", set);
    uint32_t at = 0;
    for (uint32_t i = 0; i < members->patterns_count && used < size; i++)
        used += (size_t)snprintf(key + used, size - used, ",%zu:%s",
                                 strlen(members->patterns[i].text), members->patterns[i].text);
    for (uint32_t i = 0; i < count && used < size; i++)
        used += (size_t)snprintf(key + used, size - used, ",!%zu:%s", strlen(names[i]), names[i]);
    for (const json *said; used < size && (said = way_next(members->way, "propertyNames", &at));)
        used += (size_t)snprintf(key + used, size - used, ",%p", (const void *)said);
    return used < size;
}

static uint32_t put_class(struct members *members, uint32_t from, uint32_t set,
                          const char *const *names, uint32_t count)
{
    struct schema_reader *reader = members->reader;
    struct schema_path here = {members->way->path, "patternProperties"};
    struct language *language = calloc(1, sizeof(*language));
    char path[256], what[300];
    schema_path_write(&here, path, sizeof(path));
    snprintf(what, sizeof(what), "schema: %s: of these patterns", path);
    if (!language) {
        grammar_fail(reader->grammar, ERR_NO_MEMORY, "no memory for a constraint");
        return from;
    }
    bool right = true;
    for (uint32_t i = 0; right && i < members->patterns_count; i++)
        right = schema_text_pattern(reader, language, members->patterns[i].text, true,
                                    !(set >> i & 1), CHARACTER_IN_JSON, path);
    right = right &&
            schema_text_length(reader, language, 0, GRAMMAR_UNBOUNDED, CHARACTER_IN_JSON) &&
            schema_text_except(reader, language, names, count, CHARACTER_IN_JSON) &&
            add_names(members, language);
    if (right)
        from = language_put(language, reader->grammar, from, json_canonical_rule(reader->grammar),
                            what);
    if (right)
        schema_work(reader, language);
    language_free(language);
    free(language);
    return from;
}

/* Names that are none of the list, and have parts of exactly these patterns. */
static uint32_t class_keys(struct members *members, uint32_t from, uint32_t set)
{
    struct grammar *grammar = members->reader->grammar;
    const char **names = malloc((members->count + 1) * sizeof(*names));
    char key[4096];
    uint32_t count = 0;
    bool made;
    if (!names) {
        grammar_fail(grammar, ERR_NO_MEMORY, "no memory for a constraint");
        return from;
    }
    for (uint32_t i = 0; i < members->count; i++)
        if (patterns_of(members, members->list[i].name) == set)
            names[count++] = members->list[i].name;
    if (class_key(members, set, names, count, key, sizeof(key))) {
        uint32_t rule = schema_known(members->reader, key, &made);
        if (made)
            grammar_final(grammar, put_class(members, rule, set, names, count));
        from = grammar_call(grammar, from, GRAMMAR_NONE, rule, 1, 1);
    } else {
        from = put_class(members, from, set, names, count);
    }
    free(names);
    return from;
}

uint32_t members_others(struct members *members)
{
    struct grammar *grammar = members->reader->grammar;
    struct schema_path here = {members->way->path, "additionalProperties"};
    uint32_t rule = grammar_node(grammar), end = grammar_node(grammar);
    bool plain = members->patterns_count == 0 && !members->names_said;
    for (uint32_t set = 0; set < 1u << members->patterns_count && !grammar->code; set++) {
        struct parts parts = {0};
        uint32_t at = grammar_node(grammar);
        if (gather_value(members, NULL, set, &parts)) {
            grammar_nothing(grammar, rule, at);
            at = plain ? members_other_keys(members, at) : class_keys(members, at, set);
            at = schema_value(members->reader, json_colon(grammar, at), parts.list, parts.count,
                              &here);
            grammar_nothing(grammar, at, end);
        }
        parts_free(&parts);
    }
    grammar_final(grammar, end);
    return rule;
}
