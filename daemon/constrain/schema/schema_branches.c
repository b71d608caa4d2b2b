#include <string.h>

#include "daemon/constrain/schema/schema_inner.h"

#define BRANCHES_APART_MAX 128 /* of a oneOf: each is held against each */

static const json *followed(struct schema_reader *reader, const json *schema)
{
    for (int hops = 0; hops < 16 && json_is_string(json_get(schema, "$ref")); hops++)
        schema = schema_find(reader, json_string(json_get(schema, "$ref")));
    return schema;
}

static unsigned types_within(struct schema_reader *reader, const json *schema,
                             const struct schema_path *path)
{
    unsigned types = 0;
    schema = followed(reader, schema);
    if (json_get(schema, "const"))
        return schema_type_of(json_get(schema, "const"));
    if (json_is_array(json_get(schema, "enum"))) {
        for (const json *one = json_child(json_get(schema, "enum")); one; one = json_next(one))
            types |= schema_type_of(one);
        return types;
    }
    types = json_is_object(schema) ? schema_types(reader, schema, path) : TYPE_ALL;
    return types & TYPE_NUMBER ? types | TYPE_INTEGER : types;
}

static const json *next_value(const json *schema, const json *value)
{
    const json *only = json_get(schema, "const");
    if (only)
        return value ? NULL : only;
    return value ? json_next(value) : json_child(json_get(schema, "enum"));
}

static bool is_text_list(struct schema_reader *reader, const json *schema)
{
    const json *value = next_value(schema, NULL);
    if (!value)
        return false;
    for (; value; value = next_value(schema, value))
        if (!json_is_string(value) || !schema_step(reader))
            return false;
    return true;
}

/* Both are texts that are listed, and no text is in both. */
static bool lists_apart(struct schema_reader *reader, const json *left, const json *right)
{
    if (!is_text_list(reader, left) || !is_text_list(reader, right))
        return false;
    for (const json *one = next_value(left, NULL); one; one = next_value(left, one))
        for (const json *two = next_value(right, NULL); two; two = next_value(right, two))
            if (!schema_step(reader) || !strcmp(json_string(one), json_string(two)))
                return false;
    return true;
}

static bool requires(struct schema_reader *reader, const json *schema, const char *name)
{
    return schema_lists(reader, json_get(schema, "required"), name);
}

/* Both are objects, and a member that both require tells them apart. */
static bool objects_apart(struct schema_reader *reader, const json *left, const json *right)
{
    const json *theirs = json_get(right, "properties");
    const json *one = json_child(json_get(left, "properties"));
    for (; one && schema_step(reader); one = json_next(one)) {
        const char *name = json_key(one);
        const json *two = schema_get(reader, theirs, name);
        if (two && requires(reader, left, name) && requires(reader, right, name) &&
            lists_apart(reader, followed(reader, one), followed(reader, two)))
            return true;
    }
    return false;
}

static bool apart(struct schema_reader *reader, const json *left, const json *right,
                  const struct schema_path *path)
{
    unsigned common = types_within(reader, left, path) & types_within(reader, right, path);
    left = followed(reader, left);
    right = followed(reader, right);
    if (common == 0 || lists_apart(reader, left, right))
        return true;
    return common == TYPE_OBJECT && objects_apart(reader, left, right);
}

/* Of oneOf exactly one may hold, so that no two may hold of anything: then it is an anyOf. */
static void refuse_overlap(struct schema_reader *reader, const json *list,
                           const struct schema_path *path)
{
    if (json_count(list) > BRANCHES_APART_MAX)
        schema_refuse(reader, path, "oneOf", "of more than 128 is not supported");
    for (const json *one = json_child(list); one && !reader->grammar->code; one = json_next(one))
        for (const json *two = json_next(one); two; two = json_next(two))
            if (!apart(reader, one, two, path))
                schema_refuse(reader, path, "oneOf",
                              "whose branches do not differ in type, or in listed texts that "
                              "they are or require, is not supported");
}

uint32_t schema_branches(struct schema_reader *reader, uint32_t from, const json *schema,
                         const char *keyword, const struct schema_path *path)
{
    const json *list = json_get(schema, keyword);
    struct schema_path here = {path, keyword};
    uint32_t join = grammar_node(reader->grammar);
    if (!json_is_array(list) || !json_child(list))
        schema_refuse(reader, path, keyword, "must be a list of schemas");
    if (!strcmp(keyword, "allOf") && json_count(list) != 1)
        schema_refuse(reader, path, keyword, "of more than one is not supported");
    if (!strcmp(keyword, "oneOf"))
        refuse_overlap(reader, list, path);
    for (const json *one = json_child(list); one && !reader->grammar->code; one = json_next(one)) {
        uint32_t start = grammar_node(reader->grammar);
        grammar_nothing(reader->grammar, from, start);
        grammar_nothing(reader->grammar, schema_value(reader, start, one, &here), join);
    }
    return join;
}
