#include "daemon/constrain/schema/schema_inner.h"

/* The first elements have schemas of their own; they may end early, but leave none out. */
struct list {
    uint32_t min, max, count; /* count: of elements so far */
    uint32_t at, end;
};

static uint32_t element(struct schema_reader *reader, struct list *list, const json *schema,
                        const struct schema_path *path)
{
    uint32_t start = list->count ? json_comma(reader->grammar, list->at) : list->at;
    list->at =
        schema ? schema_value(reader, start, schema, path) : json_any(reader->grammar, start);
    if (++list->count >= list->min)
        grammar_bytes(reader->grammar, list->at, list->end, ']', ']');
    return list->at;
}

/* All that follow are alike. The first has no comma before it where none came before. */
static void others(struct schema_reader *reader, struct list *list, const json *schema,
                   const struct schema_path *path)
{
    struct grammar *grammar = reader->grammar;
    if (list->count >= list->max)
        return;
    if (list->count == 0)
        element(reader, list, schema, path);
    uint32_t rule = grammar_node(grammar), start = json_comma(grammar, rule);
    grammar_final(grammar,
                  schema ? schema_value(reader, start, schema, path) : json_any(grammar, start));
    uint32_t min = list->min > list->count ? list->min - list->count : 0;
    uint32_t max = list->max == GRAMMAR_UNBOUNDED ? list->max : list->max - list->count;
    uint32_t after = grammar_call(grammar, list->at, GRAMMAR_NONE, rule, min, max);
    grammar_bytes(grammar, after, list->end, ']', ']');
}

uint32_t schema_array(struct schema_reader *reader, uint32_t from, const json *schema,
                      const struct schema_path *path)
{
    struct grammar *grammar = reader->grammar;
    const json *prefix = json_get(schema, "prefixItems"), *items = json_get(schema, "items");
    struct schema_path in_prefix = {path, "prefixItems"}, in_items = {path, "items"};
    struct list list = {.min = schema_count(reader, schema, "minItems", 0, path),
                        .max = schema_count(reader, schema, "maxItems", GRAMMAR_UNBOUNDED, path),
                        .at = grammar_word(grammar, from, "["),
                        .end = grammar_node(grammar)};
    if (prefix && !json_is_array(prefix))
        schema_refuse(reader, path, "prefixItems", "must be a list of schemas");
    if (json_is_array(items))
        schema_refuse(reader, path, "items", "as a list is of an older draft: use prefixItems");
    if (list.min == 0)
        grammar_bytes(grammar, list.at, list.end, ']', ']');
    for (const json *one = json_child(prefix); one && list.count < list.max && !grammar->code;
         one = json_next(one))
        element(reader, &list, one, &in_prefix);
    if (!grammar->code)
        others(reader, &list, items, &in_items);
    return list.end;
}
