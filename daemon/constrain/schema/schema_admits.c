#include <math.h>
#include <string.h>

#include "daemon/constrain/schema/schema_inner.h"

#define ADMITS_DEPTH_MAX 64

/* Three answers: it meets it, it does not, or that is not known here. */
enum answer { ANSWER_UNKNOWN = -1, ANSWER_NO, ANSWER_YES };

struct question {
    struct schema_reader *reader;
    unsigned depth;
};

static enum answer meets_schema(struct question *question, const json *schema, const json *value);

static enum answer both(enum answer left, enum answer right)
{
    if (left == ANSWER_NO || right == ANSWER_NO)
        return ANSWER_NO;
    return left == ANSWER_YES && right == ANSWER_YES ? ANSWER_YES : ANSWER_UNKNOWN;
}

static enum answer opposite(enum answer answer)
{
    return answer == ANSWER_UNKNOWN ? ANSWER_UNKNOWN : answer == ANSWER_NO ? ANSWER_YES : ANSWER_NO;
}

static enum answer known(bool holds)
{
    return holds ? ANSWER_YES : ANSWER_NO;
}

bool schema_equal(struct schema_reader *reader, const json *left, const json *right)
{
    if (!schema_step(reader))
        return false;
    if (json_is_number(left) && json_is_number(right))
        return json_number(left) == json_number(right);
    if (schema_type_of(left) != schema_type_of(right))
        return false;
    if (json_is_bool(left))
        return json_bool(left) == json_bool(right);
    if (json_is_string(left))
        return !strcmp(json_string(left), json_string(right));
    size_t count = json_count(left), other_count = json_count(right);
    if (!schema_spend(reader, (count + other_count) / 8) || count != other_count)
        return false;
    const json *two = json_child(right);
    for (const json *one = json_child(left); one; one = json_next(one)) {
        const json *other = json_is_object(left) ? schema_get(reader, right, json_key(one)) : two;
        if (!other || !schema_equal(reader, one, other))
            return false;
        two = two ? json_next(two) : NULL;
    }
    return true;
}

static bool is_listed(struct schema_reader *reader, const json *list, const json *value)
{
    for (const json *one = json_child(list); one; one = json_next(one))
        if (schema_equal(reader, one, value))
            return true;
    return false;
}

/* How many of a list's schemas it meets; counts those that are not known apart. */
static enum answer count_of(struct question *question, const json *list, const json *value,
                            bool exactly_one)
{
    unsigned yes = 0, unknown = 0;
    for (const json *one = json_child(list); one; one = json_next(one)) {
        enum answer answer = meets_schema(question, one, value);
        yes += answer == ANSWER_YES;
        unknown += answer == ANSWER_UNKNOWN;
    }
    if (exactly_one && yes > 1)
        return ANSWER_NO;
    if (yes > 0)
        return exactly_one && unknown ? ANSWER_UNKNOWN : ANSWER_YES;
    return unknown ? ANSWER_UNKNOWN : ANSWER_NO;
}

static enum answer all_of(struct question *question, const json *list, const json *value)
{
    enum answer answer = ANSWER_YES;
    for (const json *one = json_child(list); one; one = json_next(one))
        answer = both(answer, meets_schema(question, one, value));
    return answer;
}

static size_t characters(const char *text)
{
    size_t count = 0;
    for (; *text; text++)
        count += (*text & 0xc0) != 0x80;
    return count;
}

static enum answer meets_bound(struct question *question, const char *name, double bound,
                               const json *value)
{
    size_t count = json_is_string(value) ? characters(json_string(value)) : json_count(value);
    double size = json_is_number(value) ? json_number(value) : (double)count;
    if (!schema_spend(question->reader, count / 8))
        return ANSWER_UNKNOWN;
    if (!strncmp(name, "exclusiveMin", 12))
        return known(size > bound);
    if (!strncmp(name, "exclusiveMax", 12))
        return known(size < bound);
    return known(!strncmp(name, "min", 3) ? size >= bound : size <= bound);
}

static enum answer meets_members(struct question *question, const json *schema, const json *value)
{
    struct schema_reader *reader = question->reader;
    const json *properties = schema_said(reader, schema, "properties");
    const json *extra = schema_said(reader, schema, "additionalProperties");
    bool patterns = schema_said(reader, schema, "patternProperties") != NULL;
    enum answer answer = patterns ? ANSWER_UNKNOWN : ANSWER_YES;
    for (const json *one = json_child(value); one; one = json_next(one)) {
        const json *said = schema_get(reader, properties, json_key(one));
        if (said)
            answer = both(answer, meets_schema(question, said, one));
        else if (extra && answer == ANSWER_YES)
            answer = both(answer, meets_schema(question, extra, one));
    }
    return answer;
}

static enum answer meets_items(struct question *question, const json *schema, const json *value)
{
    struct schema_reader *reader = question->reader;
    const json *items = schema_said(reader, schema, "items");
    const json *prefix = schema_said(reader, schema, "prefixItems");
    enum answer answer = ANSWER_YES;
    if (json_is_array(items)) {
        prefix = items;
        items = schema_said(reader, schema, "additionalItems");
    }
    const json *said = json_child(prefix);
    for (const json *one = json_child(value); one; one = json_next(one)) {
        const json *its = said ? said : items;
        if (its)
            answer = both(answer, meets_schema(question, its, one));
        said = said ? json_next(said) : NULL;
    }
    return answer;
}

static enum answer meets_required(struct question *question, const json *names, const json *value)
{
    for (const json *one = json_child(names); one; one = json_next(one))
        if (!schema_get(question->reader, value, json_string(one)))
            return ANSWER_NO;
    return ANSWER_YES;
}

static enum answer meets_if(struct question *question, const json *schema, const json *value)
{
    struct schema_reader *reader = question->reader;
    enum answer condition = meets_schema(question, schema_said(reader, schema, "if"), value);
    const json *then = schema_said(reader, schema, condition == ANSWER_YES ? "then" : "else");
    if (condition == ANSWER_UNKNOWN)
        return ANSWER_UNKNOWN;
    return then ? meets_schema(question, then, value) : ANSWER_YES;
}

/* Of a keyword that speaks of the value's type and stands by itself. */
static enum answer meets_scalar(struct question *question, const json *schema, const json *member,
                                const json *value)
{
    static const struct schema_path nowhere = {NULL, "pattern"};
    const char *name = json_key(member);
    if (!strcmp(name, "const"))
        return known(schema_equal(question->reader, member, value));
    if (!strcmp(name, "enum"))
        return known(is_listed(question->reader, member, value));
    if (!strcmp(name, "additionalProperties"))
        return meets_members(question, schema, value);
    if (json_is_number(member) && strcmp(name, "multipleOf"))
        return meets_bound(question, name, json_number(member), value);
    if (!strcmp(name, "multipleOf") && json_number(member) >= 1)
        return known(fmod(json_number(value), json_number(member)) == 0);
    if (!strcmp(name, "pattern") && json_is_string(member))
        return known(
            schema_matches(question->reader, json_string(member), json_string(value), &nowhere));
    return ANSWER_UNKNOWN;
}

static enum answer meets_keyword(struct question *question, const json *schema, const json *member,
                                 const json *value)
{
    static const struct schema_path nowhere = {NULL, "type"};
    const struct keyword *keyword = schema_keyword(member);
    if (!keyword || !(keyword->types & schema_type_of(value)))
        return ANSWER_YES;
    switch (keyword->reader) {
    case READ_TYPE:
        return known(schema_types(question->reader, member, &nowhere) & schema_type_of(value));
    case READ_ALL_OF:
        return all_of(question, member, value);
    case READ_ANY_OF:
    case READ_ONE_OF:
        return count_of(question, member, value, keyword->reader == READ_ONE_OF);
    case READ_DENIAL:
        return opposite(meets_schema(question, member, value));
    case READ_IF:
        return meets_if(question, schema, value);
    case READ_REF:
        return schema_target(question->reader, schema)
                   ? meets_schema(question, schema_target(question->reader, schema), value)
                   : ANSWER_UNKNOWN;
    case READ_REQUIRED:
        return meets_required(question, member, value);
    case READ_PROPERTIES:
        return meets_members(question, schema, value);
    case READ_ITEMS:
        return meets_items(question, schema, value);
    case READ_SCALAR:
        return meets_scalar(question, schema, member, value);
    default:
        return ANSWER_UNKNOWN;
    }
}

static enum answer meets_schema(struct question *question, const json *schema, const json *value)
{
    enum answer answer = ANSWER_YES;
    if (json_is_bool(schema))
        return known(json_bool(schema));
    if (++question->depth > ADMITS_DEPTH_MAX || !schema_step(question->reader))
        answer = ANSWER_UNKNOWN;
    for (const json *member = json_child(schema); member && answer == ANSWER_YES;
         member = json_next(member))
        answer = schema_step(question->reader)
                     ? both(answer, meets_keyword(question, schema, member, value))
                     : ANSWER_UNKNOWN;
    question->depth--;
    return answer;
}

int schema_admits(struct schema_reader *reader, const struct part *part, const json *value)
{
    struct question question = {.reader = reader};
    enum answer answer = ANSWER_YES;
    unsigned type = schema_type_of(value);
    switch (part->kind) {
    case PART_SCHEMA:
        answer = meets_schema(&question, part->schema, value);
        break;
    case PART_KEYWORD:
        answer = meets_keyword(&question, part->schema, part->keyword, value);
        break;
    case PART_TYPES:
        return (part->types & type) != 0;
    case PART_NAME:
        answer =
            type != TYPE_OBJECT
                ? ANSWER_YES
                : known((schema_get(reader, value, part->name) != NULL) != (part->denied != 0));
        return answer;
    case PART_MEMBER:
        if (type != TYPE_OBJECT || !schema_get(reader, value, part->name))
            return ANSWER_YES;
        answer = meets_schema(&question, part->schema, schema_get(reader, value, part->name));
    }
    return part->denied ? opposite(answer) : answer;
}
