/* Filters and tests, as Jinja's documentation has them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/text/codepoint.h"
#include "daemon/text/template/chat_text.h"
#include "daemon/text/template/chat_words.h"

#define PATH_PARTS_MAX 8

static struct chat_value as_text(struct chat_render *render, struct chat_value value)
{
    return chat_string(render, value);
}

static bool flag(const struct chat_arguments *arguments, size_t place, const char *name)
{
    return chat_truth(chat_argument(arguments, place, name));
}

/* `a.b.0` of a value, as filters name attributes. */
static struct chat_value follow(struct chat_render *render, struct chat_value value,
                                struct chat_value path)
{
    if (path.kind == CHAT_INT)
        return chat_item(render, value, path);
    if (path.kind != CHAT_STRING)
        return chat_fail(render, ERR_BAD_VALUE, "an attribute is named by a text");
    size_t at = 0;
    for (int part = 0; part < PATH_PARTS_MAX && at <= path.length; part++) {
        if (!chat_step(render, path.length - at))
            return chat_undefined(NULL);
        const char *dot = memchr(path.text + at, '.', path.length - at);
        size_t length = dot ? (size_t)(dot - path.text) - at : path.length - at;
        struct chat_value key = chat_text(path.text + at, length);
        char *end, number[24] = "";
        if (length > 0 && length < sizeof(number))
            memcpy(number, key.text, length);
        long index = strtol(number, &end, 10);
        bool digits = number[0] >= '0' && number[0] <= '9' && *end == 0;
        value = chat_item(render, value, digits ? chat_int(index) : key);
        at += length + 1;
    }
    return value;
}

/* The arguments from a place on, for a filter or test that is named by an argument. */
static struct chat_arguments rest(const struct chat_arguments *arguments, size_t from)
{
    struct chat_arguments result = *arguments;
    result.count = arguments->count > from ? arguments->count - from : 0;
    for (size_t i = 0; i < result.count; i++)
        result.values[i] = arguments->values[i + from];
    return result;
}

static struct chat_value map(struct chat_render *render, struct chat_value value,
                             const struct chat_arguments *arguments)
{
    struct chat_value path = chat_argument(arguments, SIZE_MAX, "attribute");
    struct chat_value other = chat_argument(arguments, SIZE_MAX, "default");
    struct chat_value name = chat_argument(arguments, 0, NULL);
    struct chat_arguments inner = rest(arguments, 1);
    int filter = -1;
    if (path.kind == CHAT_UNDEFINED) {
        filter = name.kind == CHAT_STRING ? chat_find_filter(name.text, name.length) : -1;
        if (filter < 0)
            return chat_fail(render, ERR_UNSUPPORTED, "map: this filter is not supported");
    }
    value = chat_elements(render, value);
    struct chat_value *items = chat_items(render, value.length);
    for (uint32_t i = 0; items && i < value.length && chat_step(render, 0); i++) {
        items[i] = filter >= 0
                       ? chat_call_filter(render, (enum chat_filter)filter, value.items[i], &inner)
                       : follow(render, value.items[i], path);
        if (filter < 0 && items[i].kind == CHAT_UNDEFINED && other.kind != CHAT_UNDEFINED)
            items[i] = other;
    }
    return chat_list(items, items ? value.length : 0);
}

/* select, reject, selectattr and rejectattr. */
static struct chat_value choose(struct chat_render *render, struct chat_value value,
                                const struct chat_arguments *arguments, bool wanted, bool attribute)
{
    struct chat_value path = chat_argument(arguments, 0, NULL);
    struct chat_value name = chat_argument(arguments, attribute ? 1 : 0, NULL);
    struct chat_arguments inner = rest(arguments, attribute ? 2 : 1);
    int test = -1;
    if (name.kind == CHAT_STRING)
        test = chat_is(name, "==") || chat_is(name, "equalto") ? CHAT_TEST_eq
               : chat_is(name, "!=")                           ? CHAT_TEST_ne
                                     : chat_find_test(name.text, name.length);
    if (test < 0 && name.kind != CHAT_UNDEFINED)
        return chat_fail(render, ERR_UNSUPPORTED, "this test is not supported");
    value = chat_elements(render, value);
    struct chat_value *items = chat_items(render, value.length);
    size_t count = 0;
    for (uint32_t i = 0; items && i < value.length && chat_step(render, 0); i++) {
        struct chat_value item = value.items[i];
        struct chat_value tested = attribute ? follow(render, item, path) : item;
        bool holds = test >= 0 ? chat_call_test(render, (enum chat_test)test, tested, &inner)
                               : chat_truth(tested);
        if (holds == wanted)
            items[count++] = item;
    }
    return chat_list(items, count);
}

static struct chat_value folded(struct chat_render *render, struct chat_value value, bool fold)
{
    return fold && value.kind == CHAT_STRING ? chat_to_case(render, value, CASE_LOWER) : value;
}

/* Stable, by what `path` names or, without one, by the item; keys[] follows. Steps bound its time.
 */
static struct chat_value sort(struct chat_render *render, struct chat_value value,
                              struct chat_value path, bool fold, bool reverse)
{
    value = chat_elements(render, value);
    struct chat_value *items = chat_items(render, value.length);
    struct chat_value *keys = chat_items(render, value.length);
    if (!items || !keys)
        return chat_undefined(NULL);
    for (uint32_t i = 0; i < value.length && chat_step(render, 0); i++) {
        struct chat_value item = value.items[i];
        struct chat_value key = folded(render,
                                       path.kind == CHAT_UNDEFINED || path.kind == CHAT_NONE
                                           ? item
                                           : follow(render, item, path),
                                       fold);
        uint32_t at = i;
        for (; at > 0 && chat_step(render, 0); at--) {
            int order = chat_order(render, keys[at - 1], key);
            if (reverse ? order >= 0 : order <= 0)
                break;
            keys[at] = keys[at - 1];
            items[at] = items[at - 1];
        }
        keys[at] = key;
        items[at] = item;
    }
    return chat_list(items, value.length);
}

static struct chat_value unique(struct chat_render *render, struct chat_value value, bool fold)
{
    value = chat_elements(render, value);
    struct chat_value *items = chat_items(render, value.length);
    struct chat_value *keys = chat_items(render, value.length);
    size_t count = 0;
    for (uint32_t i = 0; items && keys && i < value.length; i++) {
        struct chat_value key = folded(render, value.items[i], fold);
        bool known = false;
        for (size_t j = 0; j < count && !known && chat_step(render, 0); j++)
            known = chat_equal(render, keys[j], key);
        if (known)
            continue;
        keys[count] = key;
        items[count++] = value.items[i];
    }
    return chat_list(items, count);
}

static struct chat_value extreme(struct chat_render *render, struct chat_value value, int sign)
{
    value = chat_elements(render, value);
    if (value.length == 0)
        return chat_undefined("the least or greatest of nothing");
    struct chat_value best = value.items[0];
    for (uint32_t i = 1; i < value.length && chat_step(render, 0); i++)
        if (chat_order(render, folded(render, value.items[i], true), folded(render, best, true)) *
                sign >
            0)
            best = value.items[i];
    return best;
}

static struct chat_value sum(struct chat_render *render, struct chat_value value,
                             const struct chat_arguments *arguments)
{
    struct chat_value path = chat_argument(arguments, 0, "attribute");
    struct chat_value total = chat_argument(arguments, 1, "start");
    if (total.kind == CHAT_UNDEFINED)
        total = chat_int(0);
    value = chat_elements(render, value);
    for (uint32_t i = 0; i < value.length && chat_step(render, 0); i++)
        total = chat_binary(render, '+', total,
                            path.kind == CHAT_UNDEFINED ? value.items[i]
                                                        : follow(render, value.items[i], path));
    return total;
}

static struct chat_value indent(struct chat_render *render, struct chat_value value,
                                const struct chat_arguments *arguments)
{
    struct chat_value width = chat_argument(arguments, 0, "width");
    bool first = flag(arguments, 1, "first"), blank = flag(arguments, 2, "blank");
    struct chat_value text = as_text(render, value), margin = width;
    struct buffer out = {0};
    if (width.kind == CHAT_UNDEFINED)
        margin = chat_text("    ", 4);
    else if (width.kind != CHAT_STRING)
        margin = chat_binary(render, '*', chat_text(" ", 1), width);
    struct chat_value lines =
        chat_split_lines(render, chat_concat(render, text, chat_text("\n", 1)));
    for (uint32_t i = 0; i < lines.length && !render->code; i++) {
        if (i > 0)
            chat_put(render, &out, "\n", 1);
        if (i == 0 ? first : blank || lines.items[i].length > 0)
            chat_put(render, &out, margin.text, margin.length);
        chat_put(render, &out, lines.items[i].text, lines.items[i].length);
    }
    return chat_take(render, &out);
}

static struct chat_value to_json(struct chat_render *render, struct chat_value value,
                                 const struct chat_arguments *arguments)
{
    struct chat_value separators = chat_argument(arguments, 2, "separators");
    struct chat_json_style style = {.indent = chat_argument(arguments, 1, "indent"),
                                    .ascii = flag(arguments, 0, "ensure_ascii"),
                                    .sorted = flag(arguments, 3, "sort_keys")};
    char marks[2][16] = {"", ""};
    struct buffer out = {0};
    if (style.indent.kind != CHAT_INT && style.indent.kind != CHAT_STRING)
        style.indent = chat_none();
    if (chat_is_listed(separators) && separators.length == 2) {
        for (int i = 0; i < 2; i++) {
            struct chat_value mark = separators.items[i];
            if (mark.kind != CHAT_STRING || mark.length >= sizeof(marks[i]))
                return chat_fail(render, ERR_UNSUPPORTED, "these separators are not supported");
            memcpy(marks[i], mark.text, mark.length);
        }
        style.item = marks[0];
        style.key = marks[1];
    }
    chat_put_json(render, &out, value, &style);
    return chat_take(render, &out);
}

static struct chat_value to_number(struct chat_render *render, struct chat_value value,
                                   struct chat_value otherwise, bool whole)
{
    char text[64], *end;
    if (otherwise.kind == CHAT_UNDEFINED)
        otherwise = whole ? chat_int(0) : chat_float(0);
    if (chat_is_number(value)) {
        double number = chat_as_float(value);
        if (!whole)
            return chat_float(number);
        if (value.kind != CHAT_FLOAT)
            return chat_int(chat_as_int(value));
        return fabs(number) < 9e18 ? chat_int((int64_t)number) : otherwise;
    }
    if (value.kind != CHAT_STRING)
        return otherwise;
    struct chat_value bare = chat_strip(render, value, chat_none(), true, true);
    if (bare.length == 0 || bare.length >= sizeof(text))
        return otherwise;
    memcpy(text, bare.text, bare.length);
    text[bare.length] = 0;
    if (strspn(text, "+-.0123456789eE") != bare.length)
        return otherwise;
    long long integer = strtoll(text, &end, 10);
    if (*end == 0 && whole)
        return chat_int(integer);
    double number = strtod(text, &end);
    if (*end != 0)
        return otherwise;
    return to_number(render, chat_float(number), otherwise, whole);
}

static struct chat_value absolute(struct chat_render *render, struct chat_value value)
{
    if (value.kind == CHAT_FLOAT)
        return chat_float(fabs(value.number));
    if (value.kind != CHAT_INT || value.integer == INT64_MIN)
        return chat_fail(render, ERR_BAD_VALUE, "abs does not go with %s", chat_kind_name(value));
    return chat_int(llabs(value.integer));
}

static struct chat_value reversed(struct chat_render *render, struct chat_value value)
{
    const struct chat_value bounds[3] = {chat_none(), chat_none(), chat_int(-1)};
    return chat_slice(render, value.kind == CHAT_STRING ? value : chat_elements(render, value),
                      bounds);
}

static struct chat_value edge(struct chat_render *render, struct chat_value value, bool first)
{
    struct chat_value items = chat_elements(render, value);
    return items.length > 0 && !render->code ? items.items[first ? 0 : items.length - 1]
                                             : chat_undefined("the first or last of nothing");
}

static struct chat_value dict_items(struct chat_render *render, struct chat_value value)
{
    const struct chat_arguments none = {0};
    if (value.kind == CHAT_UNDEFINED)
        return chat_list(NULL, 0);
    if (value.kind != CHAT_DICT)
        return chat_fail(render, ERR_BAD_VALUE, "items does not go with %s", chat_kind_name(value));
    return chat_call_method(render, CHAT_METHOD_items, value, &none);
}

static struct chat_value to_default(struct chat_value value, const struct chat_arguments *arguments)
{
    bool missing =
        value.kind == CHAT_UNDEFINED || (flag(arguments, 1, "boolean") && !chat_truth(value));
    if (!missing)
        return value;
    struct chat_value other = chat_argument(arguments, 0, "default_value");
    bool given = arguments->count > 0 || arguments->named > 0;
    return given ? other : chat_text("", 0);
}

/* Filters of text; `value` is one by now. */
static struct chat_value of_text(struct chat_render *render, enum chat_filter filter,
                                 struct chat_value value, const struct chat_arguments *arguments)
{
    struct chat_value limit;
    switch (filter) {
    case CHAT_FILTER_trim:
        return chat_strip(render, value, chat_argument(arguments, 0, "chars"), true, true);
    case CHAT_FILTER_upper:
        return chat_to_case(render, value, CASE_UPPER);
    case CHAT_FILTER_lower:
        return chat_to_case(render, value, CASE_LOWER);
    case CHAT_FILTER_title:
        return chat_to_case(render, value, CASE_TITLE_FILTER);
    case CHAT_FILTER_capitalize:
        return chat_to_case(render, value, CASE_CAPITAL);
    case CHAT_FILTER_replace:
        limit = chat_argument(arguments, 2, "count");
        return chat_replace(render, value, as_text(render, chat_argument(arguments, 0, "old")),
                            as_text(render, chat_argument(arguments, 1, "new")),
                            limit.kind == CHAT_INT ? limit.integer : -1);
    default:
        return value;
    }
}

struct chat_value chat_call_filter(struct chat_render *render, enum chat_filter filter,
                                   struct chat_value value, const struct chat_arguments *arguments)
{
    struct chat_value first = chat_argument(arguments, 0, NULL);
    if (!chat_step(render, 0))
        return chat_undefined(NULL);
    switch (filter) {
    case CHAT_FILTER_abs:
        return absolute(render, value);
    case CHAT_FILTER_attr:
        return first.kind == CHAT_STRING ? chat_attribute(render, value, first.text, first.length)
                                         : chat_fail(render, ERR_BAD_VALUE, "attr needs a name");
    case CHAT_FILTER_length:
    case CHAT_FILTER_count:
        return chat_int((int64_t)chat_length(render, value));
    case CHAT_FILTER_default:
    case CHAT_FILTER_d:
        return to_default(value, arguments);
    case CHAT_FILTER_dictsort:
        return sort(render, dict_items(render, value),
                    chat_int(chat_is(chat_argument(arguments, 1, "by"), "value")),
                    !flag(arguments, 0, "case_sensitive"), flag(arguments, 2, "reverse"));
    case CHAT_FILTER_first:
    case CHAT_FILTER_last:
        return edge(render, value, filter == CHAT_FILTER_first);
    case CHAT_FILTER_float:
    case CHAT_FILTER_int:
        return to_number(render, value, chat_argument(arguments, 0, "default"),
                         filter == CHAT_FILTER_int);
    case CHAT_FILTER_indent:
        return indent(render, value, arguments);
    case CHAT_FILTER_items:
        return dict_items(render, value);
    case CHAT_FILTER_join:
        if (chat_argument(arguments, 1, "attribute").kind != CHAT_UNDEFINED)
            return chat_fail(render, ERR_UNSUPPORTED, "join by attribute is not supported");
        return chat_join(render, chat_argument(arguments, 0, "d"), value, false);
    case CHAT_FILTER_list:
        value = chat_elements(render, value);
        value.kind = CHAT_LIST;
        return value;
    case CHAT_FILTER_map:
        return map(render, value, arguments);
    case CHAT_FILTER_max:
    case CHAT_FILTER_min:
        return extreme(render, value, filter == CHAT_FILTER_max ? 1 : -1);
    case CHAT_FILTER_select:
    case CHAT_FILTER_reject:
        return choose(render, value, arguments, filter == CHAT_FILTER_select, false);
    case CHAT_FILTER_selectattr:
    case CHAT_FILTER_rejectattr:
        return choose(render, value, arguments, filter == CHAT_FILTER_selectattr, true);
    case CHAT_FILTER_reverse:
        return reversed(render, value);
    case CHAT_FILTER_sort:
        return sort(render, value, chat_argument(arguments, 2, "attribute"),
                    !flag(arguments, 1, "case_sensitive"), flag(arguments, 0, "reverse"));
    case CHAT_FILTER_sum:
        return sum(render, value, arguments);
    case CHAT_FILTER_tojson:
        return to_json(render, value, arguments);
    case CHAT_FILTER_unique:
        return unique(render, value, !flag(arguments, 0, "case_sensitive"));
    default: {
        value = as_text(render, value);
        return render->code ? value : of_text(render, filter, value, arguments);
    }
    }
}
