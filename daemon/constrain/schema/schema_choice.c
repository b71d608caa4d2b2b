#include <string.h>

#include "daemon/constrain/schema/schema_expand.h"

#define APART_MAX 128u /* of a oneOf: each is held against each */

void expand_denied(struct expansion *at, const json *schema)
{
    const json *only = NULL;
    uint32_t count = 0;
    for (const json *member = json_child(schema); member; member = json_next(member))
        if (schema_step(at->reader) && schema_keyword(member)) {
            count++;
            only = member;
        }
    if (count == 0)
        expand_types(at, 0);
    else if (count == 1)
        expand_denied_keyword(at, schema, only);
    else
        expand_choose(at, CHOICE_DENIED_SCHEMA, schema, json_child(schema));
}

static bool is_one_of(const char *name, const char *const *names)
{
    while (*names && strcmp(name, *names))
        names++;
    return *names;
}

/* Of what speaks of one type only, the opposite is of that type as well. */
static void deny_scalar(struct expansion *at, const json *schema, const json *member,
                        const struct keyword *keyword)
{
    static const char *const known[] = {
        "const",    "enum",      "exclusiveMaximum", "exclusiveMinimum",
        "maxItems", "maxLength", "maximum",          "maxProperties",
        "minItems", "minLength", "minimum",          "minProperties",
        "pattern",  NULL};
    if (!is_one_of(keyword->name, known) || json_is_bool(member)) {
        schema_refuse(at->reader, at->path, keyword->name, "is not supported where it is denied");
        return;
    }
    expand_types(at, keyword->types);
    expand_keep(at, (struct part){
                        .kind = PART_KEYWORD, .schema = schema, .keyword = member, .denied = true});
}

void expand_denied_keyword(struct expansion *at, const json *schema, const json *member)
{
    const struct keyword *keyword = schema_keyword(member);
    switch (keyword->reader) {
    case READ_TYPE:
        expand_types(at, TYPE_ALL & ~schema_types(at->reader, member, at->path));
        break;
    case READ_DENIAL:
        expand_later(at, part_schema(member, false));
        break;
    case READ_REF:
        if (!schema_target(at->reader, schema))
            schema_refuse(at->reader, at->path, "$ref", "leads to nothing in this document");
        else
            expand_later(at, part_schema(schema_target(at->reader, schema), true));
        break;
    case READ_ANY_OF:
        for (const json *one = json_child(member); one; one = json_next(one))
            expand_later(at, part_schema(one, true));
        break;
    case READ_ALL_OF:
        expand_choose(at, CHOICE_NONE, member, json_child(member));
        break;
    case READ_REQUIRED:
        expand_types(at, json_child(member) ? TYPE_OBJECT : 0);
        expand_choose(at, CHOICE_DENIED_REQUIRED, member, json_child(member));
        break;
    case READ_PROPERTIES:
        expand_types(at, json_child(member) ? TYPE_OBJECT : 0);
        expand_choose(at, CHOICE_DENIED_PROPERTIES, member, json_child(member));
        break;
    case READ_SCALAR:
        deny_scalar(at, schema, member, keyword);
        break;
    default:
        schema_refuse(at->reader, at->path, keyword->name, "is not supported where it is denied");
    }
}

/* Exactly one may hold: of the others those are denied that could hold as well. */
static void one_alone(struct expansion *at, const json *list, const json *chosen)
{
    expand_later(at, part_schema(chosen, false));
    if (json_count(list) > APART_MAX)
        schema_refuse(at->reader, at->path, "oneOf", "of more than 128 is not supported");
    for (const json *one = json_child(list); one && !at->reader->grammar->code;
         one = json_next(one))
        if (one != chosen && !schema_apart(at->reader, chosen, one))
            expand_later(at, part_schema(one, true));
}

static void named(struct expansion *at, const char *name, bool denied)
{
    expand_later(at, (struct part){.kind = PART_NAME, .name = name, .denied = denied});
}

static void objects_only(struct expansion *at)
{
    expand_later(at, (struct part){.kind = PART_TYPES, .types = TYPE_OBJECT});
}

static void dependent(struct expansion *at, const json *subject, uint32_t i)
{
    named(at, json_key(subject), i == 0);
    if (i == 0)
        return;
    objects_only(at);
    if (!json_is_array(subject) && !json_is_string(subject)) {
        expand_later(at, part_schema(subject, false));
        return;
    }
    if (json_is_string(subject))
        named(at, json_string(subject), false);
    for (const json *name = json_child(subject); name; name = json_next(name))
        named(at, json_string(name), false);
}

static void conditional(struct expansion *at, const json *schema, uint32_t i)
{
    const json *then = schema_said(at->reader, schema, i == 0 ? "then" : "else");
    expand_later(at, part_schema(schema_said(at->reader, schema, "if"), i == 1));
    if (then)
        expand_later(at, part_schema(then, false));
}

void expand_branch(struct expansion *at, const struct choice *choice, const json *one, uint32_t i)
{
    switch (choice->kind) {
    case CHOICE_ANY:
        expand_later(at, part_schema(one, false));
        break;
    case CHOICE_ONE:
        one_alone(at, choice->subject, one);
        break;
    case CHOICE_IF:
        conditional(at, choice->subject, i);
        break;
    case CHOICE_DEPENDENT:
        dependent(at, choice->subject, i);
        break;
    case CHOICE_NONE:
        expand_later(at, part_schema(one, true));
        break;
    case CHOICE_DENIED_SCHEMA:
        if (schema_keyword(one))
            expand_later(at, (struct part){.kind = PART_KEYWORD,
                                           .schema = choice->subject,
                                           .keyword = one,
                                           .denied = true});
        else
            expand_later(at, (struct part){.kind = PART_TYPES});
        break;
    case CHOICE_DENIED_REQUIRED:
        objects_only(at);
        named(at, json_string(one), true);
        break;
    case CHOICE_DENIED_PROPERTIES:
        objects_only(at);
        named(at, json_key(one), false);
        expand_later(
            at, (struct part){
                    .kind = PART_MEMBER, .name = json_key(one), .schema = one, .denied = true});
    }
}
