#include <string.h>

#include "daemon/constrain/schema/schema_inner.h"

#define UNIQUE_MAX 8u /* values of which no two may be the same: each set of them is a node */

/* The first elements have schemas of their own; they may end early, but leave none out. */
struct list {
    struct schema_reader *reader;
    const struct way *way;
    uint32_t min, max, count; /* count: of elements so far */
    uint32_t prefix;          /* elements that have schemas of their own */
    uint32_t at, end;
};

static const json *prefix_of(struct schema_reader *reader, const json *schema)
{
    const json *items = schema_said(reader, schema, "items");
    return json_is_array(items) ? items : schema_said(reader, schema, "prefixItems");
}

static const json *rest_of(struct schema_reader *reader, const json *schema)
{
    const json *items = schema_said(reader, schema, "items");
    return json_is_array(items) ? schema_said(reader, schema, "additionalItems") : items;
}

/* Whether the schema's say on items was not met yet: it has several keywords of it. */
static bool is_first(const struct way *way, uint32_t at)
{
    for (uint32_t i = 0; i < at; i++)
        if (way->parts[i].kind == PART_KEYWORD && way->parts[i].schema == way->parts[at].schema &&
            schema_keyword(way->parts[i].keyword)->reader == READ_ITEMS)
            return false;
    return true;
}

/* What the element of that number must meet. */
static void parts_of(struct list *list, uint32_t index, struct parts *ret_parts)
{
    const struct way *way = list->way;
    schema_spend(list->reader, way->count / 8);
    for (uint32_t i = 0; i < way->count; i++) {
        if (way->parts[i].kind != PART_KEYWORD || way->parts[i].denied ||
            schema_keyword(way->parts[i].keyword)->reader != READ_ITEMS || !is_first(way, i))
            continue;
        const json *one = json_child(prefix_of(list->reader, way->parts[i].schema));
        for (uint32_t skip = index; one && skip > 0 && schema_step(list->reader); skip--)
            one = json_next(one);
        if (!one)
            one = rest_of(list->reader, way->parts[i].schema);
        if (one)
            parts_add(list->reader, ret_parts, part_schema(one, false));
    }
}

static uint32_t value_of(struct list *list, uint32_t from, uint32_t index,
                         const struct part *besides)
{
    bool own = index < list->prefix;
    struct schema_path here = {list->way->path, own ? "prefixItems" : "items"};
    struct parts parts = {0};
    parts_of(list, index, &parts);
    if (besides)
        parts_add(list->reader, &parts, *besides);
    if (!list->reader->grammar->code)
        from = schema_value(list->reader, from, parts.list, parts.count, &here);
    parts_free(&parts);
    return from;
}

static void element(struct list *list)
{
    struct grammar *grammar = list->reader->grammar;
    uint32_t start = list->count ? json_comma(grammar, list->at) : list->at;
    list->at = value_of(list, start, list->count, NULL);
    if (++list->count >= list->min)
        grammar_bytes(grammar, list->at, list->end, ']', ']');
}

/* All that follow are alike. The first has no comma before it where none came before. */
static void others(struct list *list)
{
    struct grammar *grammar = list->reader->grammar;
    if (list->count >= list->max)
        return;
    if (list->count == 0)
        element(list);
    uint32_t rule = grammar_node(grammar);
    grammar_final(grammar, value_of(list, json_comma(grammar, rule), list->count, NULL));
    uint32_t min = list->min > list->count ? list->min - list->count : 0;
    uint32_t max = list->max == GRAMMAR_UNBOUNDED ? list->max : list->max - list->count;
    uint32_t after = grammar_call(grammar, list->at, GRAMMAR_NONE, rule, min, max);
    grammar_bytes(grammar, after, list->end, ']', ']');
}

/* The listed values that every element must be one of, where there are few, and scalars. */
static const json *few_values(struct list *list)
{
    struct parts parts = {0};
    const json *values = NULL;
    parts_of(list, 0, &parts);
    if (list->prefix == 0 && parts.count == 1)
        values = schema_said(list->reader, parts.list[0].schema, "enum");
    parts_free(&parts);
    if (!json_is_array(values) || json_count(values) > UNIQUE_MAX)
        return NULL;
    for (const json *one = json_child(values); one; one = json_next(one))
        if (json_is_array(one) || json_is_object(one))
            return NULL;
    return values;
}

/* A node for each set of values that have come; a value stands once in the list, so that equal
 * ones are one. */
static void unique(struct list *list, const json *values)
{
    struct schema_reader *reader = list->reader;
    struct grammar *grammar = reader->grammar;
    uint32_t count = (uint32_t)json_count(values), nodes[1u << UNIQUE_MAX];
    struct parts parts = {0};
    parts_of(list, 0, &parts);
    for (uint32_t set = 0; set < 1u << count && !grammar->code; set++)
        nodes[set] = set ? grammar_node(grammar) : list->at;
    for (uint32_t set = 0; set < 1u << count && !grammar->code; set++) {
        uint32_t size = (uint32_t)__builtin_popcount(set), i = 0;
        if (size >= list->min && size <= list->max)
            grammar_bytes(grammar, nodes[set], list->end, ']', ']');
        uint32_t start = set ? json_comma(grammar, nodes[set]) : nodes[set];
        for (const json *one = json_child(values); one; one = json_next(one), i++) {
            bool met = !(set >> i & 1) && schema_admits(reader, &parts.list[0], one) == 1;
            for (const json *before = json_child(values); before != one && met;
                 before = json_next(before))
                met = !schema_equal(reader, before, one);
            if (met)
                grammar_nothing(grammar, json_constant(grammar, start, one), nodes[set | 1u << i]);
        }
    }
    parts_free(&parts);
}

static uint32_t comma_and(struct list *list, bool denied, const struct part *wanted)
{
    struct grammar *grammar = list->reader->grammar;
    uint32_t rule = grammar_node(grammar);
    struct part part = *wanted;
    part.denied = denied;
    grammar_final(grammar, value_of(list, json_comma(grammar, rule), 0, &part));
    return rule;
}

/* At least `least` that meet one schema, and others anywhere between; at most `most`, for which the
 * others must not meet it. */
static void containing(struct list *list, const struct part *wanted, uint32_t least, uint32_t most)
{
    struct grammar *grammar = list->reader->grammar;
    bool bounded = most != GRAMMAR_UNBOUNDED;
    struct part denied = *wanted;
    denied.denied = true;
    uint32_t right = comma_and(list, false, wanted), other, first[2];
    if (bounded) {
        other = comma_and(list, true, wanted);
    } else {
        other = grammar_node(grammar);
        grammar_final(grammar, value_of(list, json_comma(grammar, other), 0, NULL));
    }
    first[0] = value_of(list, list->at, 0, bounded ? &denied : NULL);
    first[1] = value_of(list, list->at, 0, wanted);
    /* A group is one that meets it and what comes behind it. */
    uint32_t group = grammar_node(grammar), from = grammar_node(grammar);
    uint32_t to = grammar_call(grammar, group, GRAMMAR_NONE, right, 1, 1);
    grammar_final(grammar, grammar_call(grammar, to, GRAMMAR_NONE, other, 0, GRAMMAR_UNBOUNDED));
    to = grammar_call(grammar, first[0], GRAMMAR_NONE, other, 0, GRAMMAR_UNBOUNDED);
    to = grammar_call(grammar, to, from, group, least, most);
    if (most > 0) {
        uint32_t min = least ? least - 1 : 0, max = bounded ? most - 1 : most;
        to = grammar_call(grammar, first[1], GRAMMAR_NONE, other, 0, GRAMMAR_UNBOUNDED);
        grammar_call(grammar, to, from, group, min, max);
    }
    if (least == 0 && list->min == 0)
        grammar_nothing(grammar, list->at, from);
    grammar_bytes(grammar, from, list->end, ']', ']');
}

static bool contains(struct list *list)
{
    const struct way *way = list->way;
    const json *found = NULL, *another;
    struct part wanted = {0};
    uint32_t at = 0;
    found = way_next(way, "contains", &at);
    if (!found)
        return false;
    wanted = part_schema(found, false);
    const json *schema = way->parts[at - 1].schema;
    const json *min = schema_said(list->reader, schema, "minContains");
    const json *max = schema_said(list->reader, schema, "maxContains");
    uint32_t least = min ? schema_whole(list->reader, min, way->path) : 1;
    uint32_t most = max ? schema_whole(list->reader, max, way->path) : GRAMMAR_UNBOUNDED;
    another = way_next(way, "contains", &at);
    if (another || list->prefix > 0)
        schema_refuse(list->reader, way->path, "contains",
                      "is not supported beside another or prefixItems");
    else if (list->max != GRAMMAR_UNBOUNDED || list->min > (least > 1 ? least : 1))
        schema_refuse(list->reader, way->path, "contains",
                      "is not supported beside minItems or maxItems");
    else
        containing(list, &wanted, least, most);
    return true;
}

static void prefix_length(struct list *list)
{
    for (uint32_t i = 0; i < list->way->count; i++) {
        const struct part *part = &list->way->parts[i];
        if (part->kind != PART_KEYWORD || schema_keyword(part->keyword)->reader != READ_ITEMS)
            continue;
        const json *prefix = prefix_of(list->reader, part->schema);
        if (prefix && !json_is_array(prefix))
            schema_refuse(list->reader, list->way->path, "prefixItems",
                          "must be a list of schemas");
        uint32_t count = (uint32_t)json_count(prefix);
        schema_spend(list->reader, count / 8);
        if (count > list->prefix)
            list->prefix = count;
    }
}

uint32_t schema_array(struct schema_reader *reader, uint32_t from, const struct way *way)
{
    struct grammar *grammar = reader->grammar;
    struct list list = {.reader = reader,
                        .way = way,
                        .at = grammar_word(grammar, from, "["),
                        .end = grammar_node(grammar)};
    uint32_t at = 0;
    way_counts(reader, way, "minItems", "maxItems", &list.min, &list.max);
    prefix_length(&list);
    bool once = way_next(way, "uniqueItems", &at) && list.max > 1;
    const json *values = once ? few_values(&list) : NULL;
    if (once && (!values || (at = 0, way_next(way, "contains", &at)))) {
        schema_refuse(reader, way->path, "uniqueItems",
                      "is supported of up to 8 listed values alone");
        return list.end;
    }
    if (values) {
        unique(&list, values);
        return list.end;
    }
    if (contains(&list))
        return list.end;
    if (list.min == 0)
        grammar_bytes(grammar, list.at, list.end, ']', ']');
    while (list.count < list.prefix && list.count < list.max && !grammar->code)
        element(&list);
    if (!grammar->code)
        others(&list);
    return list.end;
}
