/* Methods and functions, and what all calls share. */
#include <string.h>

#include "daemon/text/template/chat_text.h"
#include "daemon/text/template/chat_words.h"

#define RANGE_MAX 100000 /* the reference's */
#define TIME_TEXT_MAX 256
#define TIME_BYTES 256 /* of going through text, is what a part of a time takes */

static const char *const filters[] = {
#define FILTER(name) #name,
#include "daemon/text/template/chat_names.def"
};
static const char *const tests[] = {
#define TEST(name) #name,
#include "daemon/text/template/chat_names.def"
};
static const char *const methods[] = {
#define METHOD(name) #name,
#include "daemon/text/template/chat_names.def"
};
static const char *const functions[] = {
#define FUNCTION(name) #name,
#include "daemon/text/template/chat_names.def"
};

static int find(const char *const *names, int count, const char *name, size_t length)
{
    for (int i = 0; i < count; i++)
        if (strlen(names[i]) == length && memcmp(names[i], name, length) == 0)
            return i;
    return -1;
}

int chat_find_filter(const char *name, size_t length)
{
    return find(filters, CHAT_FILTERS, name, length);
}

int chat_find_test(const char *name, size_t length)
{
    return find(tests, CHAT_TESTS, name, length);
}

int chat_find_method(const char *name, size_t length)
{
    return find(methods, CHAT_METHODS, name, length);
}

bool chat_has_method(enum chat_kind kind, const char *name)
{
    static const char *const of_dicts[] = {"get", "items", "keys", "values"};
    if (kind == CHAT_STRING)
        return chat_find_method(name, strlen(name)) >= 0 && strcmp(name, "get") != 0 &&
               strcmp(name, "items") != 0 && strcmp(name, "keys") != 0 &&
               strcmp(name, "values") != 0 && strcmp(name, "cycle") != 0;
    if (chat_find_method(name, strlen(name)) < 0)
        return false;
    if (kind == CHAT_LIST || kind == CHAT_TUPLE)
        return strcmp(name, "count") == 0 || strcmp(name, "index") == 0;
    for (size_t i = 0; kind == CHAT_DICT && i < sizeof(of_dicts) / sizeof(of_dicts[0]); i++)
        if (strcmp(name, of_dicts[i]) == 0)
            return true;
    return kind == CHAT_LOOP && strcmp(name, "cycle") == 0;
}

int chat_find_function(const char *name, size_t length)
{
    return find(functions, CHAT_FUNCTIONS, name, length);
}

struct chat_value chat_argument(const struct chat_arguments *arguments, size_t place,
                                const char *name)
{
    if (place < arguments->count)
        return arguments->values[place];
    for (size_t i = 0; name && i < arguments->named; i++)
        if (arguments->names[i].length == strlen(name) &&
            memcmp(arguments->names[i].name, name, arguments->names[i].length) == 0)
            return arguments->names[i].value;
    return chat_undefined(NULL);
}

static struct chat_value pairs(struct chat_render *render, const struct chat_dict *dict,
                               enum chat_method what)
{
    struct chat_value *items = chat_items(render, dict->count);
    for (size_t i = 0; items && i < dict->count && chat_step(render, 0); i++) {
        struct chat_value *pair;
        switch (what) {
        case CHAT_METHOD_keys:
            items[i] = dict->pairs[i].key;
            break;
        case CHAT_METHOD_values:
            items[i] = dict->pairs[i].value;
            break;
        default:
            if (!(pair = chat_items(render, 2)))
                return chat_undefined(NULL);
            pair[0] = dict->pairs[i].key;
            pair[1] = dict->pairs[i].value;
            items[i] = chat_list(pair, 2);
            items[i].kind = CHAT_TUPLE;
        }
    }
    return chat_list(items, items ? dict->count : 0);
}

static struct chat_value of_dict(struct chat_render *render, enum chat_method method,
                                 struct chat_value value, const struct chat_arguments *arguments)
{
    if (method != CHAT_METHOD_get)
        return pairs(render, value.dict, method);
    const struct chat_value *member =
        chat_dict_get(render, value.dict, chat_argument(arguments, 0, "key"));
    if (member)
        return *member;
    return arguments->count > 1 ? arguments->values[1] : chat_none();
}

static struct chat_value of_list(struct chat_render *render, enum chat_method method,
                                 struct chat_value value, const struct chat_arguments *arguments)
{
    struct chat_value wanted = chat_argument(arguments, 0, NULL);
    int64_t count = 0;
    for (uint32_t i = 0; i < value.length && chat_step(render, 0); i++) {
        if (!chat_equal(render, value.items[i], wanted))
            continue;
        if (method == CHAT_METHOD_index)
            return chat_int(i);
        count++;
    }
    return method == CHAT_METHOD_count ? chat_int(count)
                                       : chat_fail(render, ERR_BAD_VALUE, "not in the list");
}

/* startswith and endswith: a text, or any of several. */
static bool has_end(struct chat_render *render, struct chat_value text, struct chat_value part,
                    bool start)
{
    if (part.kind == CHAT_TUPLE) {
        for (uint32_t i = 0; i < part.length && chat_bytes(render, 4); i++)
            if (part.items[i].kind == CHAT_STRING && has_end(render, text, part.items[i], start))
                return true;
        return false;
    }
    if (part.kind != CHAT_STRING) {
        chat_fail(render, ERR_BAD_VALUE, "a text is needed, not %s", chat_kind_name(part));
        return false;
    }
    size_t at = start ? 0 : text.length - part.length;
    return part.length <= text.length && chat_bytes(render, part.length) &&
           memcmp(text.text + at, part.text, part.length) == 0;
}

static struct chat_value count_in(struct chat_render *render, struct chat_value text,
                                  struct chat_value part)
{
    const char *at = text.text, *end = at + text.length;
    int64_t count = 0;
    if (part.kind != CHAT_STRING || part.length == 0 || !chat_step(render, text.length))
        return chat_fail(render, ERR_UNSUPPORTED, "count needs a text that is not empty");
    while ((at = memmem(at, (size_t)(end - at), part.text, part.length))) {
        at += part.length;
        count++;
    }
    return chat_int(count);
}

/* isdigit is told for ASCII only. */
static bool all(struct chat_value text, bool digits)
{
    for (size_t at = 0; at < text.length; at++)
        if (digits && (text.text[at] < '0' || text.text[at] > '9'))
            return false;
    return text.length > 0 && (digits || chat_space_before(text.text, text.length) == text.length);
}

static struct chat_value of_string(struct chat_render *render, enum chat_method method,
                                   struct chat_value text, const struct chat_arguments *arguments)
{
    struct chat_value first = chat_argument(arguments, 0, NULL);
    struct chat_value separator = chat_argument(arguments, 0, "sep");
    struct chat_value limit = chat_argument(arguments, 1, "maxsplit");
    int64_t max = limit.kind == CHAT_INT ? limit.integer : -1, found;
    if (!chat_step(render, text.length))
        return chat_undefined(NULL);
    switch (method) {
    case CHAT_METHOD_strip:
        return chat_strip(render, text, first, true, true);
    case CHAT_METHOD_lstrip:
        return chat_strip(render, text, first, true, false);
    case CHAT_METHOD_rstrip:
        return chat_strip(render, text, first, false, true);
    case CHAT_METHOD_split:
    case CHAT_METHOD_rsplit:
        return chat_split(render, text, separator, max, method == CHAT_METHOD_rsplit);
    case CHAT_METHOD_splitlines:
        return chat_split_lines(render, text);
    case CHAT_METHOD_startswith:
    case CHAT_METHOD_endswith:
        return chat_bool(has_end(render, text, first, method == CHAT_METHOD_startswith));
    case CHAT_METHOD_replace:
        limit = chat_argument(arguments, 2, "count");
        return chat_replace(render, text, chat_argument(arguments, 0, "old"),
                            chat_argument(arguments, 1, "new"),
                            limit.kind == CHAT_INT ? limit.integer : -1);
    case CHAT_METHOD_join:
        return chat_join(render, text, first, true);
    case CHAT_METHOD_count:
        return count_in(render, text, first);
    case CHAT_METHOD_find:
    case CHAT_METHOD_rfind:
    case CHAT_METHOD_index:
        found = chat_find(render, text, first, method == CHAT_METHOD_rfind);
        return found < 0 && method == CHAT_METHOD_index
                   ? chat_fail(render, ERR_BAD_VALUE, "the text is not found")
                   : chat_int(found);
    case CHAT_METHOD_upper:
        return chat_to_case(render, text, CASE_UPPER);
    case CHAT_METHOD_lower:
        return chat_to_case(render, text, CASE_LOWER);
    case CHAT_METHOD_title:
        return chat_to_case(render, text, CASE_TITLE);
    case CHAT_METHOD_capitalize:
        return chat_to_case(render, text, CASE_CAPITAL);
    case CHAT_METHOD_isdigit:
        return chat_bool(all(text, true));
    case CHAT_METHOD_isspace:
        return chat_bool(all(text, false));
    default:
        return chat_undefined(NULL);
    }
}

struct chat_value chat_call_method(struct chat_render *render, enum chat_method method,
                                   struct chat_value value, const struct chat_arguments *arguments)
{
    if (!chat_has_method(value.kind, methods[method]))
        return value.kind == CHAT_UNDEFINED
                   ? chat_fail(render, ERR_BAD_VALUE, "%s is undefined",
                               value.name ? value.name : "a value")
                   : chat_fail(render, ERR_BAD_VALUE, "%s has no method %s", chat_kind_name(value),
                               methods[method]);
    switch (value.kind) {
    case CHAT_STRING:
        return of_string(render, method, value, arguments);
    case CHAT_DICT:
        return of_dict(render, method, value, arguments);
    case CHAT_LOOP:
        return arguments->count > 0 ? arguments->values[value.loop->at % arguments->count]
                                    : chat_fail(render, ERR_BAD_VALUE, "cycle needs values");
    default:
        return of_list(render, method, value, arguments);
    }
}

static struct chat_value range(struct chat_render *render, const struct chat_arguments *arguments)
{
    int64_t bounds[3] = {0, 0, 1};
    for (size_t i = 0; i < arguments->count && i < 3; i++) {
        if (arguments->values[i].kind != CHAT_INT)
            return chat_fail(render, ERR_BAD_VALUE, "range needs integers");
        bounds[i] = arguments->values[i].integer;
    }
    if (arguments->count == 1) {
        bounds[1] = bounds[0];
        bounds[0] = 0;
    }
    int64_t first = bounds[0], last = bounds[1], step = bounds[2];
    if (arguments->count == 0 || arguments->count > 3 || step == 0 || first > INT32_MAX ||
        first < INT32_MIN || last > INT32_MAX || last < INT32_MIN || step > INT32_MAX ||
        step < INT32_MIN)
        return chat_fail(render, ERR_BAD_VALUE, "this range is not possible");
    int64_t count = step > 0 ? (last - first + step - 1) / step : (first - last - step - 1) / -step;
    if (count > RANGE_MAX)
        return chat_fail(render, ERR_TOO_LARGE, "a range of more than %d", RANGE_MAX);
    count = count > 0 ? count : 0;
    struct chat_value *items = chat_items(render, (size_t)count);
    for (int64_t i = 0; items && i < count && chat_step(render, 0); i++)
        items[i] = chat_int(first + i * step);
    return chat_list(items, items ? (size_t)count : 0);
}

static struct chat_value make_dict(struct chat_render *render, enum chat_kind kind,
                                   const struct chat_arguments *arguments)
{
    struct chat_value result = chat_new_dict(render, kind);
    struct chat_value from = chat_argument(arguments, 0, NULL);
    if (render->code)
        return result;
    if (arguments->count > 1 || (arguments->count == 1 && from.kind != CHAT_DICT))
        return chat_fail(render, ERR_UNSUPPORTED, "a dict from this is not supported");
    for (size_t i = 0; arguments->count == 1 && i < from.dict->count && !render->code; i++)
        chat_dict_set(render, result.dict, from.dict->pairs[i].key, from.dict->pairs[i].value);
    for (size_t i = 0; i < arguments->named; i++)
        chat_dict_set(render, result.dict,
                      chat_text(arguments->names[i].name, arguments->names[i].length),
                      arguments->names[i].value);
    return result;
}

static struct chat_value show_time(struct chat_render *render, struct chat_value format)
{
    char pattern[TIME_TEXT_MAX], text[TIME_TEXT_MAX];
    struct tm parts;
    if (!chat_step(render, TIME_BYTES * (1 + (size_t)format.length)))
        return chat_undefined(NULL);
    if (format.kind != CHAT_STRING || format.length >= sizeof(pattern) - 1 ||
        !localtime_r(&render->now, &parts))
        return chat_fail(render, ERR_BAD_VALUE, "strftime_now needs a short format");
    /* A mark at the end tells an empty result from one that does not fit. */
    memcpy(pattern, format.text, format.length);
    pattern[format.length] = '.';
    pattern[format.length + 1] = 0;
    size_t length = strftime(text, sizeof(text), pattern, &parts);
    return length > 0
               ? chat_copy(render, text, length - 1)
               : chat_fail(render, ERR_TOO_LARGE, "a time of more than %d bytes", TIME_TEXT_MAX);
}

struct chat_value chat_call_function(struct chat_render *render, enum chat_function function,
                                     const struct chat_arguments *arguments)
{
    struct chat_value first = chat_argument(arguments, 0, NULL);
    switch (function) {
    case CHAT_FUNCTION_range:
        return range(render, arguments);
    case CHAT_FUNCTION_dict:
        return make_dict(render, CHAT_DICT, arguments);
    case CHAT_FUNCTION_namespace:
        return make_dict(render, CHAT_NAMESPACE, arguments);
    case CHAT_FUNCTION_strftime_now:
        return show_time(render, chat_argument(arguments, 0, "format"));
    default:
        first = chat_string(render, chat_argument(arguments, 0, "message"));
        return chat_fail(render, ERR_BAD_VALUE, "%.*s", (int)first.length,
                         first.kind == CHAT_STRING ? first.text : "");
    }
}
