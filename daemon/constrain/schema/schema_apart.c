#include <string.h>

#include "daemon/constrain/schema/schema_inner.h"

/* What a schema leads to when it is nothing but a reference. */
static const json *followed(struct schema_reader *reader, const json *schema)
{
    for (int hops = 0; hops < 16 && json_is_string(schema_said(reader, schema, "$ref")); hops++)
        schema = schema_target(reader, schema);
    return schema;
}

static unsigned types_within(struct schema_reader *reader, const json *schema)
{
    static const struct schema_path nowhere = {NULL, "oneOf"};
    unsigned types = 0;
    const json *said = schema_said(reader, schema, "const");
    if (said)
        return schema_type_of(said);
    said = schema_said(reader, schema, "enum");
    if (json_is_array(said)) {
        for (const json *one = json_child(said); one && schema_step(reader); one = json_next(one))
            types |= schema_type_of(one);
        return types;
    }
    said = schema_said(reader, schema, "type");
    return said ? schema_types(reader, said, &nowhere) : TYPE_ALL;
}

static const json *next_value(struct schema_reader *reader, const json *schema, const json *value)
{
    const json *only = schema_said(reader, schema, "const");
    if (only)
        return value ? NULL : only;
    return value ? json_next(value) : json_child(schema_said(reader, schema, "enum"));
}

static bool is_text_list(struct schema_reader *reader, const json *schema)
{
    const json *value = next_value(reader, schema, NULL);
    if (!value)
        return false;
    for (; value; value = next_value(reader, schema, value))
        if (!json_is_string(value) || !schema_step(reader))
            return false;
    return true;
}

/* Both are texts that are listed, and no text is in both. */
static bool lists_apart(struct schema_reader *reader, const json *left, const json *right)
{
    if (!is_text_list(reader, left) || !is_text_list(reader, right))
        return false;
    for (const json *one = next_value(reader, left, NULL); one; one = next_value(reader, left, one))
        for (const json *two = next_value(reader, right, NULL); two;
             two = next_value(reader, right, two))
            if (!schema_step(reader) || !strcmp(json_string(one), json_string(two)))
                return false;
    return true;
}

static bool requires(struct schema_reader *reader, const json *schema, const char *name)
{
    return schema_lists(reader, schema_said(reader, schema, "required"), name);
}

/* A member that both require tells them apart, or one that one requires and the other denies. */
static bool objects_apart(struct schema_reader *reader, const json *left, const json *right)
{
    const json *theirs = schema_said(reader, right, "properties");
    const json *one = json_child(schema_said(reader, left, "properties"));
    for (; one && schema_step(reader); one = json_next(one)) {
        const char *name = json_key(one);
        const json *two = schema_get(reader, theirs, name);
        if (!two || !requires(reader, left, name) || !requires(reader, right, name))
            continue;
        const json *first = followed(reader, one), *second = followed(reader, two);
        if (lists_apart(reader, first, second) ||
            (types_within(reader, first) & types_within(reader, second)) == 0)
            return true;
    }
    return false;
}

/* One requires a member that the other has no room for. */
static bool requires_other(struct schema_reader *reader, const json *left, const json *right)
{
    const json *extra = schema_said(reader, right, "additionalProperties");
    if (!json_is_bool(extra) || json_bool(extra) || schema_said(reader, right, "patternProperties"))
        return false;
    for (const json *name = json_child(schema_said(reader, left, "required"));
         name && schema_step(reader); name = json_next(name))
        if (json_is_string(name) &&
            !schema_get(reader, schema_said(reader, right, "properties"), json_string(name)))
            return true;
    return false;
}

bool schema_apart(struct schema_reader *reader, const json *left, const json *right)
{
    left = followed(reader, left);
    right = followed(reader, right);
    if (json_is_bool(left) || json_is_bool(right))
        return (json_is_bool(left) && !json_bool(left)) ||
               (json_is_bool(right) && !json_bool(right));
    unsigned common = types_within(reader, left) & types_within(reader, right);
    if (common == 0 || lists_apart(reader, left, right))
        return true;
    return common == TYPE_OBJECT &&
           (objects_apart(reader, left, right) || requires_other(reader, left, right) ||
            requires_other(reader, right, left));
}
