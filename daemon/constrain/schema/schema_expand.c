#include <stdlib.h>
#include <string.h>

#include "daemon/constrain/schema/schema_expand.h"

/* Lists only grow at their ends, and a choice's branch is undone by going back to the counts from
 * before it. */
static bool room(struct expansion *at, void **list, size_t size, uint32_t used, uint32_t *room_now)
{
    if (used < *room_now)
        return true;
    uint32_t more = *room_now ? *room_now * 2 : 32;
    void *moved = realloc(*list, more * size);
    if (!moved) {
        grammar_fail(at->reader->grammar, ERR_NO_MEMORY, "no memory for a constraint");
        return false;
    }
    *list = moved;
    *room_now = more;
    return true;
}

void expand_later(struct expansion *at, struct part part)
{
    if (schema_step(at->reader) &&
        room(at, (void **)&at->todo, sizeof(*at->todo), at->counts.todo, &at->todo_room))
        at->todo[at->counts.todo++] = (struct todo){part, at->up};
}

void expand_choose(struct expansion *at, enum choice_kind kind, const json *subject,
                   const json *first)
{
    if (room(at, (void **)&at->choices, sizeof(*at->choices), at->counts.choices,
             &at->choices_room))
        at->choices[at->counts.choices++] = (struct choice){kind, subject, first, at->up};
}

void expand_keep(struct expansion *at, struct part part)
{
    schema_spend(at->reader, at->counts.done / 8);
    for (uint32_t i = 0; i < at->counts.done; i++) {
        const struct part *known = &at->done[i];
        if (part.kind == PART_NAME && known->kind == PART_NAME && part.denied != known->denied &&
            schema_step(at->reader) && !strcmp(part.name, known->name))
            at->counts.types &= ~(unsigned)TYPE_OBJECT;
        if (!memcmp(&part, known, sizeof(part)))
            return;
    }
    if (schema_step(at->reader) &&
        room(at, (void **)&at->done, sizeof(*at->done), at->counts.done, &at->done_room))
        at->done[at->counts.done++] = part;
}

void expand_types(struct expansion *at, unsigned types)
{
    at->counts.types &= types;
}

/* A schema within itself, with nothing read between, would never come to an end. */
static bool is_within_itself(struct expansion *at, const json *schema, bool denied)
{
    for (uint32_t up = at->up; up > 0; up = at->seen[up - 1].up)
        if (!schema_step(at->reader) ||
            (at->seen[up - 1].schema == schema && at->seen[up - 1].denied == denied))
            return true;
    return false;
}

static void take_schema(struct expansion *at, const json *schema, bool denied)
{
    if (json_is_bool(schema)) {
        if (json_bool(schema) == denied)
            at->counts.types = 0;
        return;
    }
    if (!json_is_object(schema)) {
        schema_refuse(at->reader, at->path, "schema", "is no object and no boolean");
        return;
    }
    if (is_within_itself(at, schema, denied)) {
        schema_refuse(at->reader, at->path, "$ref", "leads to itself before anything is read");
        return;
    }
    if (!room(at, (void **)&at->seen, sizeof(*at->seen), at->counts.seen, &at->seen_room))
        return;
    at->seen[at->counts.seen++] = (struct seen){schema, denied, at->up};
    at->up = at->counts.seen;
    if (denied) {
        expand_denied(at, schema);
        return;
    }
    for (const json *member = json_child(schema); member && !at->reader->grammar->code;
         member = json_next(member)) {
        const struct keyword *keyword = schema_step(at->reader) ? schema_keyword(member) : NULL;
        if (keyword)
            expand_keyword(at, schema, member, keyword);
    }
}

/* At once, so that members stand in the order in which the schemas are written. */
static void take_within(struct expansion *at, const json *schema)
{
    uint32_t up = at->up;
    if (++at->within > EXPAND_DEPTH_MAX)
        grammar_fail(at->reader->grammar, ERR_TOO_LARGE, "schema: references nested too deep");
    else if (schema_step(at->reader))
        take_schema(at, schema, false);
    at->within--;
    at->up = up;
}

static void take_each(struct expansion *at, const json *list, const char *keyword)
{
    if (!json_is_array(list) || !json_child(list))
        schema_refuse(at->reader, at->path, keyword, "must be a list of schemas");
    for (const json *one = json_child(list); one && !at->reader->grammar->code;
         one = json_next(one))
        take_within(at, one);
}

static void depend(struct expansion *at, const json *keyword)
{
    if (!json_is_object(keyword))
        schema_refuse(at->reader, at->path, json_key(keyword), "must be an object");
    for (const json *one = json_child(keyword); one && schema_step(at->reader);
         one = json_next(one))
        expand_choose(at, CHOICE_DEPENDENT, one, NULL);
}

static void require(struct expansion *at, const json *names)
{
    if (!json_is_array(names))
        schema_refuse(at->reader, at->path, "required", "must be a list of names");
    for (const json *one = json_child(names); one; one = json_next(one)) {
        if (!json_is_string(one))
            schema_refuse(at->reader, at->path, "required", "must be a list of names");
        expand_keep(at, (struct part){.kind = PART_NAME, .name = json_string(one)});
    }
}

void expand_keyword(struct expansion *at, const json *schema, const json *member,
                    const struct keyword *keyword)
{
    switch (keyword->reader) {
    case READ_NOT:
        schema_refuse(at->reader, at->path, keyword->name, "is not supported");
        break;
    case READ_ALL_OF:
        take_each(at, member, keyword->name);
        break;
    case READ_ANY_OF:
    case READ_ONE_OF:
        if (!json_is_array(member) || !json_child(member))
            schema_refuse(at->reader, at->path, keyword->name, "must be a list of schemas");
        expand_choose(at, keyword->reader == READ_ANY_OF ? CHOICE_ANY : CHOICE_ONE, member,
                      json_child(member));
        break;
    case READ_DENIAL:
        expand_later(at, part_schema(member, true));
        break;
    case READ_DEPENDENT:
        depend(at, member);
        break;
    case READ_IF:
        if (schema_said(at->reader, schema, "then") || schema_said(at->reader, schema, "else"))
            expand_choose(at, CHOICE_IF, schema, NULL);
        break;
    case READ_REF:
        if (!schema_target(at->reader, schema))
            schema_refuse(at->reader, at->path, "$ref", "leads to nothing in this document");
        else
            take_within(at, schema_target(at->reader, schema));
        break;
    case READ_REQUIRED:
        require(at, member);
        break;
    case READ_TYPE:
        expand_types(at, schema_types(at->reader, member, at->path));
        break;
    case READ_PROPERTIES:
    case READ_SCALAR:
    case READ_CONTAINS:
    case READ_ITEMS:
        expand_keep(at, (struct part){.kind = PART_KEYWORD, .schema = schema, .keyword = member});
    }
}

static void take(struct expansion *at, const struct todo *todo)
{
    at->up = todo->up;
    switch (todo->part.kind) {
    case PART_SCHEMA:
        take_schema(at, todo->part.schema, todo->part.denied);
        break;
    case PART_TYPES:
        expand_types(at, todo->part.types);
        break;
    case PART_KEYWORD:
        if (todo->part.denied)
            expand_denied_keyword(at, todo->part.schema, todo->part.keyword);
        else
            expand_keep(at, todo->part);
        break;
    default:
        expand_keep(at, todo->part);
    }
}

/* No constant that the member may be meets all that is said of it. */
static bool member_is_empty(struct expansion *at, const char *name)
{
    const json *said[16], *values = NULL;
    uint32_t denied[16], count = 0;
    for (uint32_t i = 0; i < at->counts.done && count < 16 && schema_step(at->reader); i++) {
        const struct part *part = &at->done[i];
        const json *properties = part_says(part, "properties"), *schema = NULL;
        if (properties)
            schema = schema_get(at->reader, properties, name);
        else if (part->kind == PART_MEMBER && !strcmp(part->name, name))
            schema = part->schema;
        if (!schema)
            continue;
        const json *only = schema_said(at->reader, schema, "const");
        const json *listed = schema_said(at->reader, schema, "enum");
        if (!part->denied && only)
            values = only;
        else if (!part->denied && !values && json_is_array(listed))
            values = listed;
        said[count] = schema;
        denied[count++] = part->denied;
    }
    if (!values)
        return false;
    bool one = !strcmp(json_key(values), "const");
    for (const json *value = one ? values : json_child(values); value;
         value = one ? NULL : json_next(value)) {
        uint32_t i = 0;
        struct part part;
        while (i < count && (part = part_schema(said[i], denied[i]),
                             schema_admits(at->reader, &part, value) != 0))
            i++;
        if (i == count)
            return false;
    }
    return true;
}

/* Since it was last seen whether the member can be met, nothing more is said of it. */
static bool is_as_it_was(struct expansion *at, uint32_t required)
{
    const char *name = at->done[required].name;
    if (required >= at->counts.pruned)
        return false;
    for (uint32_t i = at->counts.pruned; i < at->counts.done && schema_step(at->reader); i++) {
        const struct part *part = &at->done[i];
        const json *properties = part_says(part, "properties");
        if ((properties && schema_get(at->reader, properties, name)) ||
            (part->kind == PART_MEMBER && !strcmp(part->name, name)))
            return false;
    }
    return true;
}

static void prune(struct expansion *at)
{
    for (uint32_t i = 0; i < at->counts.done && at->counts.types & TYPE_OBJECT; i++)
        if (at->done[i].kind == PART_NAME && !at->done[i].denied && !is_as_it_was(at, i) &&
            member_is_empty(at, at->done[i].name))
            at->counts.types &= ~(unsigned)TYPE_OBJECT;
    at->counts.pruned = at->counts.done;
}

static void expand(struct expansion *at);

/* A branch that is all there is says what the value is by itself, and shares rules with others. */
static void branch(struct expansion *at, uint32_t from, bool alone)
{
    if (!alone) {
        expand(at);
        return;
    }
    struct parts parts = {0};
    for (uint32_t i = from; i < at->counts.todo; i++)
        parts_add(at->reader, &parts, at->todo[i].part);
    if (!at->reader->grammar->code)
        at->ways->value(at->ways->context, parts.list, parts.count);
    free(parts.list);
}

static void choose(struct expansion *at)
{
    struct choice choice = at->choices[at->counts.choice++];
    bool alone = at->counts.done == 0 && at->counts.types == TYPE_ALL &&
                 at->counts.choice == at->counts.choices;
    struct counts before = at->counts;
    const json *one = choice.first;
    for (uint32_t i = 0; (one || i < 2) && !at->reader->grammar->code; i++) {
        at->up = choice.up;
        expand_branch(at, &choice, one, i);
        branch(at, before.todo, alone);
        at->counts = before;
        if (one && !(one = json_next(one)))
            break;
    }
}

static void expand(struct expansion *at)
{
    const struct grammar *grammar = at->reader->grammar;
    if (++at->depth > EXPAND_DEPTH_MAX)
        grammar_fail(at->reader->grammar, ERR_TOO_LARGE, "schema: too many choices in one value");
    while (at->counts.next < at->counts.todo && at->counts.types && !grammar->code) {
        struct todo todo = at->todo[at->counts.next++];
        take(at, &todo);
    }
    if (at->counts.choice > 0)
        prune(at);
    if (!at->counts.types || grammar->code) {
        /* nothing meets them all */
    } else if (at->counts.choice < at->counts.choices) {
        choose(at);
    } else if (++at->ways_made > EXPAND_WAYS_MAX) {
        schema_refuse(at->reader, at->path, "schema",
                      "has more than 1024 ways to be met in one value");
    } else {
        at->ways->way(at->ways->context, at->done, at->counts.done, at->counts.types);
    }
    at->depth--;
}

void schema_expand(struct schema_reader *reader, const struct part *parts, uint32_t count,
                   const struct schema_ways *ways, const struct schema_path *path)
{
    struct expansion at = {
        .reader = reader, .ways = ways, .path = path, .counts = {.types = TYPE_ALL}};
    for (uint32_t i = 0; i < count; i++)
        expand_later(&at, parts[i]);
    if (!reader->grammar->code)
        expand(&at);
    free(at.todo);
    free(at.done);
    free(at.seen);
    free(at.choices);
}
