#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/constrain/schema/schema_inner.h"

#define MULTIPLE_MAX 4096u /* of which a number's digits are counted */
#define EXACT_DIGITS 15u   /* of a double */
#define PLACES_MAX 6u      /* behind the point of what it is a multiple of */

/* A bound that is open shuts out its number; a denied one is the other bound, open for closed. */
static void narrow(struct schema_reader *reader, const struct way *way, const struct part *part,
                   struct number_bounds *bounds)
{
    const char *name = json_key(part->keyword);
    bool lower = !strcmp(name, "minimum") || !strcmp(name, "exclusiveMinimum");
    bool open = !strncmp(name, "exclusive", 9);
    double value = json_number(part->keyword);
    if (!lower && strcmp(name, "maximum") && strcmp(name, "exclusiveMaximum"))
        return;
    if (!json_is_number(part->keyword))
        schema_refuse(reader, way->path, name, "must be a number");
    const json *older =
        schema_said(reader, part->schema, lower ? "exclusiveMinimum" : "exclusiveMaximum");
    open |= json_is_bool(older) && json_bool(older);
    if (part->denied) {
        lower = !lower;
        open = !open;
    }
    if (lower && (!bounds->has_low || value > bounds->low || (value == bounds->low && open))) {
        bounds->low = value;
        bounds->has_low = true;
        bounds->open_low = open;
    }
    if (!lower && (!bounds->has_high || value < bounds->high || (value == bounds->high && open))) {
        bounds->high = value;
        bounds->has_high = true;
        bounds->open_high = open;
    }
}

static struct number_bounds bounds_of(struct schema_reader *reader, const struct way *way)
{
    struct number_bounds bounds = {0};
    for (uint32_t i = 0; i < way->count; i++)
        if (way->parts[i].kind == PART_KEYWORD)
            narrow(reader, way, &way->parts[i], &bounds);
    return bounds;
}

/* A node's digits lead to those of the next place, from the first of which on they stand. */
static void digits(struct grammar *grammar, uint32_t node, uint32_t first, uint32_t rest,
                   uint32_t of)
{
    for (uint32_t digit = 0; digit < 10; digit++)
        grammar_bytes(grammar, node, first + (rest * 10 + digit) % of, (uint8_t)('0' + digit),
                      (uint8_t)('0' + digit));
}

/* Numbers that, with `places` digits behind the point, are a multiple when that is left out: a node
 * for each remainder at each place. From node 0 of its grammar. */
static uint32_t multiples(struct grammar *grammar, uint32_t of, unsigned places)
{
    uint32_t end = grammar_node(grammar), zeros = grammar_node(grammar), scale = 1;
    uint32_t first = grammar->nodes_used;
    for (uint32_t i = 0; i < of * (places + 1) && !grammar->code; i++)
        grammar_node(grammar);
    grammar_bytes(grammar, zeros, zeros, '0', '0');
    grammar_nothing(grammar, zeros, end);
    for (uint32_t place = places + 1; place-- > 0; scale = scale * 10 % of)
        for (uint32_t rest = 0; rest < of && !grammar->code; rest++) {
            uint32_t node = first + place * of + rest, point = node;
            if ((uint64_t)rest * scale % of == 0)
                grammar_nothing(grammar, node, end);
            if (place == places && rest == 0) {
                point = places == 0 ? grammar_word(grammar, node, ".") : node;
                grammar_bytes(grammar, point, zeros, '0', '0');
            }
            if (place == 0)
                digits(grammar, node, first, rest, of);
            if (place < places)
                digits(grammar, place == 0 ? grammar_word(grammar, node, ".") : node,
                       first + (place + 1) * of, rest, of);
        }
    grammar_bytes(grammar, 0, first, '-', '-');
    grammar_nothing(grammar, 0, first);
    return end;
}

static uint32_t plain_number(struct schema_reader *reader, struct grammar *grammar, uint32_t from,
                             const struct way *way, bool whole)
{
    struct number_bounds bounds = bounds_of(reader, way);
    char text[256];
    if (!bounds.has_low && !bounds.has_high)
        return json_number_any(grammar, from, whole);
    schema_path_write(way->path, text, sizeof(text));
    return json_number_between(grammar, from, whole, bounds, text);
}

/* 10^places times the number, where that is whole. */
static bool decimal(double value, bool whole, uint32_t *ret_of, unsigned *ret_places)
{
    for (unsigned places = 0; places <= PLACES_MAX; places++) {
        double scaled = value * pow(10, places), near = round(scaled);
        if (near < 1 || near > MULTIPLE_MAX || fabs(scaled - near) > 1e-9 * near)
            continue;
        uint32_t of = (uint32_t)near;
        for (; whole && places > 0; places--) /* whole numbers among them */
            of = of % 10 == 0 ? of / 10 : of % 5 == 0 ? of / 5 : of % 2 == 0 ? of / 2 : of;
        *ret_of = of;
        *ret_places = places;
        return true;
    }
    return false;
}

static bool add_multiple(struct schema_reader *reader, struct language *language,
                         const struct way *way, const json *multiple, bool whole)
{
    uint32_t of;
    unsigned places;
    if (!json_is_number(multiple) || !(json_number(multiple) > 0) ||
        !decimal(json_number(multiple), whole, &of, &places)) {
        schema_refuse(reader, way->path, "multipleOf",
                      "of this size, or of so many places, is not supported");
        return false;
    }
    if (of == 1 && whole)
        return true;
    /* A state for each remainder at each place, and ten ways on from it. */
    if (!schema_spend(reader, (uint64_t)of * (places + 1) * 6))
        return false;
    struct grammar *grammar = language_part(language, false);
    int code = grammar ? language_end(language, multiples(grammar, of, places)) : -1;
    /* With a fraction, a number is often read as a double: one that is exact there. */
    grammar = whole || code ? NULL : language_part(language, false);
    if (grammar)
        code = language_end(language, json_number_of_digits(grammar, 0, EXACT_DIGITS - places));
    if (code) {
        schema_refuse(reader, way->path, "multipleOf", "takes too many states");
        return false;
    }
    return true;
}

/* A denied constant, where it is a number: all but that. */
static bool leave_out(struct schema_reader *reader, struct language *language,
                      const struct way *way, const json *value, bool whole)
{
    if (!json_is_number(value) || (schema_type_of(value) == TYPE_FRACTION && whole))
        return true;
    struct grammar *grammar = whole ? language_part(language, true) : NULL;
    if (!grammar || language_end(language, json_constant(grammar, 0, value))) {
        schema_refuse(reader, way->path, "not",
                      "of so many numbers, or of one that may have a "
                      "fraction, is not supported");
        return false;
    }
    return true;
}

static bool conditions(struct schema_reader *reader, struct language *language,
                       const struct way *way, bool whole)
{
    for (uint32_t i = 0; i < way->count; i++) {
        const struct part *part = &way->parts[i];
        const char *name = part->kind == PART_KEYWORD ? json_key(part->keyword) : "";
        if (!strcmp(name, "multipleOf") &&
            !add_multiple(reader, language, way, part->keyword, whole))
            return false;
        if (part->denied && !strcmp(name, "const") &&
            !leave_out(reader, language, way, part->keyword, whole))
            return false;
        if (part->denied && !strcmp(name, "enum"))
            for (const json *one = json_child(part->keyword); one; one = json_next(one))
                if (!leave_out(reader, language, way, one, whole))
                    return false;
    }
    return true;
}

/* What the product's rule is known by; false: that is too long, or there is none. */
static bool key_of(struct schema_reader *reader, const struct way *way, bool whole, char *key,
                   size_t size)
{
    struct number_bounds bounds = bounds_of(reader, way);
    size_t used = (size_t)snprintf(key, size, "number %d,%d%d%d%d,%a,%a", whole, bounds.has_low,
                                   bounds.open_low, bounds.has_high, bounds.open_high, bounds.low,
                                   bounds.high);
    bool product = false;
    for (uint32_t i = 0; i < way->count && used < size; i++) {
        const struct part *part = &way->parts[i];
        const char *name = part->kind == PART_KEYWORD ? json_key(part->keyword) : "";
        bool list = part->denied && !strcmp(name, "enum");
        if (!list && strcmp(name, "multipleOf") && (!part->denied || strcmp(name, "const") != 0))
            continue;
        product = true;
        for (const json *one = list ? json_child(part->keyword) : part->keyword;
             one && used < size && schema_step(reader); one = list ? json_next(one) : NULL)
            if (json_is_number(one))
                used += (size_t)snprintf(key + used, size - used, ",%s%a", part->denied ? "!" : "",
                                         json_number(one));
    }
    return product && used < size;
}

static uint32_t product(struct schema_reader *reader, struct language *language, uint32_t from,
                        const struct way *way, bool whole)
{
    struct grammar *own = language_part(language, false);
    int code = own ? language_end(language, plain_number(reader, own, 0, way, whole)) : -1;
    if (code)
        schema_refuse(reader, way->path, "multipleOf", "is not supported beside these bounds");
    from = language_put(language, reader->grammar, from, GRAMMAR_NONE, "schema: multipleOf");
    schema_work(reader, language);
    return from;
}

static uint32_t put_number(struct schema_reader *reader, uint32_t from, const struct way *way,
                           bool whole)
{
    struct language language = {.count = 0};
    uint32_t to = from;
    if (conditions(reader, &language, way, whole))
        to = language.count == 0 ? plain_number(reader, reader->grammar, from, way, whole)
                                 : product(reader, &language, from, way, whole);
    language_free(&language);
    return to;
}

uint32_t schema_number(struct schema_reader *reader, uint32_t from, const struct way *way)
{
    bool whole = !(way->types & TYPE_FRACTION), made;
    char key[1024];
    if (!(way->types & TYPE_INTEGER)) {
        schema_refuse(reader, way->path, "type",
                      "of numbers that are no integers is not supported");
        return from;
    }
    if (!key_of(reader, way, whole, key, sizeof(key)))
        return put_number(reader, from, way, whole);
    uint32_t rule = schema_known(reader, key, &made);
    if (made)
        grammar_final(reader->grammar, put_number(reader, rule, way, whole));
    return grammar_call(reader->grammar, from, GRAMMAR_NONE, rule, 1, 1);
}
