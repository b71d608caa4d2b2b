#include <stdlib.h>
#include <string.h>

#include "daemon/constrain/grammar/character.h"
#include "daemon/constrain/schema/schema_inner.h"

/* Members in order. `first`: none has come yet; `later`: one has, so that the next has a comma
 * before it. Either may be GRAMMAR_NONE where no way leads there. */
struct members {
    uint32_t first, later;
};

/* Whether no earlier one has the same name: required twice is required once. */
static bool is_first(struct schema_reader *reader, const json *required, const json *name)
{
    for (const json *one = json_child(required); one != name; one = json_next(one))
        if (!schema_step(reader) || !strcmp(json_string(one), json_string(name)))
            return false;
    return true;
}

static uint32_t begin(struct grammar *grammar, const struct members *members)
{
    uint32_t start = grammar_node(grammar);
    if (members->first != GRAMMAR_NONE)
        grammar_nothing(grammar, members->first, start);
    if (members->later != GRAMMAR_NONE)
        grammar_nothing(grammar, json_comma(grammar, members->later), start);
    return start;
}

static void member(struct schema_reader *reader, struct members *members, const char *name,
                   const json *schema, bool required, const struct schema_path *path)
{
    struct grammar *grammar = reader->grammar;
    struct schema_path here = {path, name};
    uint32_t at = json_colon(grammar, json_quoted(grammar, begin(grammar, members), name));
    at = schema ? schema_value(reader, at, schema, &here) : json_any(grammar, at);
    uint32_t later = grammar_node(grammar);
    grammar_nothing(grammar, at, later);
    if (!required && members->later != GRAMMAR_NONE)
        grammar_nothing(grammar, members->later, later);
    members->later = later;
    if (required)
        members->first = GRAMMAR_NONE;
}

struct name {
    const char *text;
    size_t length;
};

static int by_text(const void *left, const void *right)
{
    return strcmp(((const struct name *)left)->text, ((const struct name *)right)->text);
}

/* A key that is none of the names, sorted, which agree up to `at`: goes on to `rest` at the first
 * character that none of them has. In the one form that a key has here, so no escape gets round. */
static void other_key(struct grammar *grammar, uint32_t node, uint32_t rest, uint32_t end,
                      const struct name *names, size_t count, size_t at, unsigned depth)
{
    struct character_set taken = {0};
    size_t i = 0;
    if (depth > 128) {
        grammar_fail(grammar, ERR_TOO_LARGE, "schema: a property's name of over 128 characters");
        return;
    }
    if (count > 0 && names[0].length == at)
        i = 1; /* it is this name: may not end here */
    else
        grammar_bytes(grammar, node, end, '"', '"');
    while (i < count && !grammar->code) {
        uint32_t character = 0, other = 0;
        size_t next = at, begin_at = i;
        character_next(names[i].text, names[i].length, &next, &character);
        for (i++; i < count; i++) {
            size_t same = at;
            if (!character_next(names[i].text, names[i].length, &same, &other) ||
                other != character)
                break;
        }
        struct character_set one = {.ranges = {{character, character}}, .count = 1};
        uint32_t to = character_edges(grammar, node, GRAMMAR_NONE, &one, CHARACTER_IN_JSON);
        other_key(grammar, to, rest, end, names + begin_at, i - begin_at, next, depth + 1);
        character_add(&taken, character, character);
    }
    character_invert(&taken);
    character_edges(grammar, node, rest, &taken, CHARACTER_IN_JSON);
}

static size_t collect(const json *object, const json *required, struct name *names)
{
    size_t count = 0, used = 0;
    for (const json *one = json_child(object); one; one = json_next(one))
        names[count++].text = json_key(one);
    for (const json *one = json_child(required); one; one = json_next(one))
        names[count++].text = json_string(one);
    qsort(names, count, sizeof(*names), by_text);
    for (size_t i = 0; i < count; i++) {
        names[i].length = strlen(names[i].text);
        if (used == 0 || strcmp(names[used - 1].text, names[i].text))
            names[used++] = names[i];
    }
    return used;
}

static uint32_t other_keys(struct schema_reader *reader, uint32_t from, const json *properties,
                           const json *required)
{
    struct grammar *grammar = reader->grammar;
    size_t room = json_count(properties) + json_count(required) + 1;
    struct name *names = malloc(room * sizeof(*names));
    if (!names) {
        grammar_fail(grammar, ERR_NO_MEMORY, "no memory for a constraint");
        return from;
    }
    size_t count = collect(properties, required, names);
    uint32_t open = grammar_word(grammar, from, "\""), rest = grammar_node(grammar);
    uint32_t end = grammar_node(grammar);
    uint32_t more = grammar_call(grammar, rest, GRAMMAR_NONE, json_canonical_rule(grammar), 0,
                                 GRAMMAR_UNBOUNDED);
    grammar_bytes(grammar, more, end, '"', '"');
    other_key(grammar, open, rest, end, names, count, 0, 0);
    free(names);
    return end;
}

static void additional(struct schema_reader *reader, struct members *members,
                       const json *properties, const json *required, const json *extra,
                       const struct schema_path *path)
{
    struct grammar *grammar = reader->grammar;
    struct schema_path here = {path, "additionalProperties"};
    uint32_t start = begin(grammar, members), later = grammar_node(grammar);
    uint32_t at = json_colon(grammar, other_keys(reader, start, properties, required));
    at = extra ? schema_value(reader, at, extra, &here) : json_any(grammar, at);
    grammar_nothing(grammar, at, later);
    grammar_nothing(grammar, json_comma(grammar, at), start);
    if (members->later != GRAMMAR_NONE)
        grammar_nothing(grammar, members->later, later);
    members->later = later;
}

uint32_t schema_object(struct schema_reader *reader, uint32_t from, const json *schema,
                       const struct schema_path *path)
{
    struct grammar *grammar = reader->grammar;
    const json *properties = json_get(schema, "properties"),
               *required = json_get(schema, "required");
    const json *extra = json_get(schema, "additionalProperties");
    struct schema_path here = {path, "properties"};
    struct members members = {grammar_word(grammar, from, "{"), GRAMMAR_NONE};
    uint32_t end = grammar_node(grammar);
    if (properties && !json_is_object(properties))
        schema_refuse(reader, path, "properties", "must be an object");
    if (required && !json_is_array(required))
        schema_refuse(reader, path, "required", "must be a list of names");
    for (const json *one = json_child(required); one; one = json_next(one))
        if (!json_is_string(one))
            schema_refuse(reader, path, "required", "must be a list of names");
    for (const json *one = json_child(properties); one && !grammar->code; one = json_next(one))
        member(reader, &members, json_key(one), one, schema_lists(reader, required, json_key(one)),
               &here);
    for (const json *one = json_child(required); one && !grammar->code; one = json_next(one))
        if (!schema_get(reader, properties, json_string(one)) && is_first(reader, required, one))
            member(reader, &members, json_string(one), extra, true, path);
    if (!grammar->code && !(json_is_bool(extra) && !json_bool(extra)))
        additional(reader, &members, properties, required, extra, path);
    if (members.first != GRAMMAR_NONE)
        grammar_bytes(grammar, members.first, end, '}', '}');
    if (members.later != GRAMMAR_NONE)
        grammar_bytes(grammar, members.later, end, '}', '}');
    return end;
}
