#include <string.h>

#include "daemon/constrain/schema/schema_inner.h"

/* 1, 0 or -1: whether all that is said besides lets this value in. */
static int is_left(struct schema_reader *reader, const struct way *way, const json *values,
                   const json *value)
{
    int answer = (schema_type_of(value) & way->types) != 0;
    for (uint32_t i = 0; i < way->count && answer != 0; i++) {
        const struct part *part = &way->parts[i];
        if (part->kind == PART_KEYWORD && part->keyword == values)
            continue;
        int one = schema_admits(reader, part, value);
        answer = one == 1 ? answer : one;
        if (one == -1)
            schema_refuse(reader, way->path,
                          part->kind == PART_KEYWORD ? json_key(part->keyword) : "properties",
                          "is not supported beside listed values");
    }
    return answer;
}

/* A text between marks stands without quotes. */
static uint32_t put_tagged(struct schema_reader *reader, uint32_t from, const struct way *way,
                           const json *value)
{
    const char *text = json_string(value);
    if (!json_is_string(value))
        return json_constant(reader->grammar, from, value);
    if (!schema_tagged_takes(reader, text, way->path))
        schema_refuse(reader, way->path, "enum",
                      "of a text that is none where it stands without quotes");
    return grammar_word(reader->grammar, from, text);
}

uint32_t schema_constants(struct schema_reader *reader, uint32_t from, const struct way *way,
                          const json *values)
{
    struct grammar *grammar = reader->grammar;
    /* Arrays and objects share no beginnings, and would be in the way of those that do. */
    uint32_t start = grammar_node(grammar), deep = grammar_node(grammar);
    uint32_t join = grammar_node(grammar);
    bool one = !strcmp(json_key(values), "const");
    grammar_nothing(grammar, from, start);
    grammar_nothing(grammar, from, deep);
    if (!one && !json_is_array(values))
        schema_refuse(reader, way->path, "enum", "must be a list");
    for (const json *value = one ? values : json_child(values); value && !grammar->code;
         value = one ? NULL : json_next(value))
        if (is_left(reader, way, values, value) == 1) {
            bool whole = !json_is_object(value) && !json_is_array(value);
            uint32_t at = whole ? start : deep;
            grammar_nothing(grammar,
                            reader->tagged ? put_tagged(reader, at, way, value)
                                           : json_constant(grammar, at, value),
                            join);
        }
    return join;
}
