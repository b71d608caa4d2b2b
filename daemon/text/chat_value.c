#include "daemon/text/chat_value.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "daemon/text/chat_text.h"
#include "daemon/text/codepoint.h"

#define BYTES_PER_STEP 16

struct chat_value chat_fail(struct chat_render *render, int code, const char *format, ...)
{
    char text[200];
    va_list arguments;
    if (render->code)
        return chat_undefined(NULL);
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    for (char *c = text; *c; c++)
        if (iscntrl((unsigned char)*c))
            *c = ' ';
    render->code = error_set(render->error, code, "chat template, line %u: %s", render->line, text);
    return chat_undefined(NULL);
}

bool chat_step(struct chat_render *render, size_t bytes)
{
    render->steps += 1 + bytes / BYTES_PER_STEP;
    if (!render->code && render->steps > render->limits.steps_max)
        chat_fail(render, ERR_TOO_LARGE, "more than %llu steps",
                  (unsigned long long)render->limits.steps_max);
    return !render->code;
}

bool chat_enter(struct chat_render *render)
{
    if (++render->depth > CHAT_DEPTH_MAX)
        chat_fail(render, ERR_TOO_LARGE, "nested deeper than %d", CHAT_DEPTH_MAX);
    return !render->code;
}

void chat_leave(struct chat_render *render)
{
    render->depth--;
}

static void *take(struct chat_render *render, size_t bytes)
{
    void *memory = render->code ? NULL : chat_arena_take(&render->arena, bytes);
    if (!memory)
        chat_fail(render, ERR_TOO_LARGE, "more than %zu bytes of memory",
                  render->limits.memory_max);
    return memory;
}

bool chat_is(struct chat_value value, const char *text)
{
    return value.kind == CHAT_STRING && value.length == strlen(text) &&
           memcmp(value.text, text, value.length) == 0;
}

const char *chat_kind_name(struct chat_value value)
{
    static const char *const names[] = {
        [CHAT_UNDEFINED] = "Undefined", [CHAT_NONE] = "NoneType",
        [CHAT_BOOL] = "bool",           [CHAT_INT] = "int",
        [CHAT_FLOAT] = "float",         [CHAT_STRING] = "str",
        [CHAT_LIST] = "list",           [CHAT_TUPLE] = "tuple",
        [CHAT_DICT] = "dict",           [CHAT_NAMESPACE] = "namespace",
        [CHAT_LOOP] = "loop",           [CHAT_MACRO] = "macro",
        [CHAT_METHOD] = "method"};
    return names[value.kind];
}

struct chat_value *chat_items(struct chat_render *render, size_t count)
{
    if (count > UINT32_MAX / sizeof(struct chat_value)) {
        chat_fail(render, ERR_TOO_LARGE, "a list too long");
        return NULL;
    }
    return take(render, (count > 0 ? count : 1) * sizeof(struct chat_value));
}

struct chat_value chat_list(const struct chat_value *items, size_t count)
{
    return (struct chat_value){.kind = CHAT_LIST, .length = (uint32_t)count, .items = items};
}

struct chat_value chat_copy(struct chat_render *render, const char *text, size_t length)
{
    char *copy = render->code ? NULL : chat_arena_text(&render->arena, length);
    if (!copy)
        return chat_fail(render, ERR_TOO_LARGE, "more than %zu bytes of memory",
                         render->limits.memory_max);
    if (length > 0)
        memcpy(copy, text, length);
    return chat_text(copy, length);
}

struct chat_value chat_new_dict(struct chat_render *render, enum chat_kind kind)
{
    struct chat_dict *dict = take(render, sizeof(*dict));
    return dict ? (struct chat_value){.kind = kind, .dict = dict} : chat_undefined(NULL);
}

/* The member of an equal key; its place, or the count. */
static size_t find(struct chat_render *render, const struct chat_dict *dict, struct chat_value key)
{
    size_t at = 0;
    for (; at < dict->count; at++) {
        struct chat_value other = dict->pairs[at].key;
        if (key.kind == CHAT_STRING && other.kind == CHAT_STRING
                ? key.length == other.length && memcmp(key.text, other.text, key.length) == 0
                : chat_equal(render, key, other))
            break;
    }
    chat_step(render, at);
    return at;
}

void chat_dict_set(struct chat_render *render, struct chat_dict *dict, struct chat_value key,
                   struct chat_value value)
{
    size_t at = find(render, dict, key);
    if (render->code)
        return;
    if (at == dict->count && dict->count == dict->room) {
        size_t room = dict->room > 0 ? 2 * dict->room : 8;
        struct chat_pair *pairs = take(render, room * sizeof(*pairs));
        if (!pairs)
            return;
        if (dict->count > 0)
            memcpy(pairs, dict->pairs, dict->count * sizeof(*pairs));
        dict->pairs = pairs;
        dict->room = room;
    }
    if (at == dict->count) {
        dict->count++;
        dict->pairs[at].key = key;
    }
    dict->pairs[at].value = value;
}

const struct chat_value *chat_dict_get(struct chat_render *render, const struct chat_dict *dict,
                                       struct chat_value key)
{
    size_t at = find(render, dict, key);
    return at < dict->count ? &dict->pairs[at].value : NULL;
}

static struct chat_value list_from_json(struct chat_render *render, const json *value)
{
    size_t count = json_count(value), i = 0;
    struct chat_value *items = chat_items(render, count);
    for (const json *child = json_child(value); child && items && !render->code;
         child = json_next(child))
        items[i++] = chat_from_json(render, child);
    return chat_list(items, items ? count : 0);
}

/* Keys of a document differ, so members are appended without a look at the others. */
static struct chat_value dict_from_json(struct chat_render *render, const json *value)
{
    struct chat_value result = chat_new_dict(render, CHAT_DICT);
    size_t count = json_count(value);
    if (render->code || count == 0)
        return result;
    result.dict->pairs = take(render, count * sizeof(*result.dict->pairs));
    result.dict->room = count;
    for (const json *child = json_child(value); child && !render->code; child = json_next(child)) {
        struct chat_pair *pair = &result.dict->pairs[result.dict->count++];
        pair->key = chat_copy(render, json_key(child), strlen(json_key(child)));
        pair->value = chat_from_json(render, child);
    }
    return result;
}

struct chat_value chat_from_json(struct chat_render *render, const json *value)
{
    struct chat_value result = chat_none();
    if (!chat_enter(render) || !chat_step(render, 0)) {
        chat_leave(render);
        return chat_undefined(NULL);
    }
    if (json_is_bool(value)) {
        result = chat_bool(json_bool(value));
    } else if (json_is_string(value)) {
        result = chat_copy(render, json_string(value), strlen(json_string(value)));
    } else if (json_is_number(value)) {
        double number = json_number(value);
        bool whole = number >= -9007199254740992.0 && number <= 9007199254740992.0 &&
                     (double)(int64_t)number == number;
        result = whole ? chat_int((int64_t)number) : chat_float(number);
    } else if (json_is_array(value)) {
        result = list_from_json(render, value);
    } else if (json_is_object(value)) {
        result = dict_from_json(render, value);
    }
    chat_leave(render);
    return result;
}

bool chat_truth(struct chat_value value)
{
    switch (value.kind) {
    case CHAT_UNDEFINED:
    case CHAT_NONE:
        return false;
    case CHAT_BOOL:
        return value.truth;
    case CHAT_INT:
        return value.integer != 0;
    case CHAT_FLOAT:
        return value.number != 0;
    case CHAT_STRING:
    case CHAT_LIST:
    case CHAT_TUPLE:
        return value.length > 0;
    case CHAT_DICT:
        return value.dict->count > 0;
    default:
        return true;
    }
}

static bool equal_lists(struct chat_render *render, struct chat_value a, struct chat_value b)
{
    bool equal = a.length == b.length;
    for (uint32_t i = 0; equal && i < a.length; i++)
        equal = chat_equal(render, a.items[i], b.items[i]);
    return equal;
}

static bool equal_dicts(struct chat_render *render, struct chat_value a, struct chat_value b)
{
    bool equal = a.dict->count == b.dict->count;
    for (size_t i = 0; equal && i < a.dict->count; i++) {
        const struct chat_value *other = chat_dict_get(render, b.dict, a.dict->pairs[i].key);
        equal = other && chat_equal(render, a.dict->pairs[i].value, *other);
    }
    return equal;
}

bool chat_equal(struct chat_render *render, struct chat_value a, struct chat_value b)
{
    bool equal = false;
    if (chat_is_number(a) && chat_is_number(b))
        return a.kind == CHAT_FLOAT || b.kind == CHAT_FLOAT ? chat_as_float(a) == chat_as_float(b)
                                                            : chat_as_int(a) == chat_as_int(b);
    if (a.kind != b.kind)
        return false;
    if (!chat_enter(render) || !chat_step(render, a.kind == CHAT_STRING ? a.length : 0)) {
        chat_leave(render);
        return false;
    }
    switch (a.kind) {
    case CHAT_UNDEFINED:
    case CHAT_NONE:
        equal = true;
        break;
    case CHAT_STRING:
        equal = a.length == b.length && memcmp(a.text, b.text, a.length) == 0;
        break;
    case CHAT_LIST:
    case CHAT_TUPLE:
        equal = equal_lists(render, a, b);
        break;
    case CHAT_DICT:
        equal = equal_dicts(render, a, b);
        break;
    default:
        equal = a.dict == b.dict;
        break;
    }
    chat_leave(render);
    return equal;
}

int chat_order(struct chat_render *render, struct chat_value a, struct chat_value b)
{
    int order = 0;
    if (chat_is_number(a) && chat_is_number(b)) {
        double left = chat_as_float(a), right = chat_as_float(b);
        if (a.kind != CHAT_FLOAT && b.kind != CHAT_FLOAT)
            return (chat_as_int(a) > chat_as_int(b)) - (chat_as_int(a) < chat_as_int(b));
        return (left > right) - (left < right);
    }
    if (a.kind == CHAT_STRING && b.kind == CHAT_STRING) {
        size_t shorter = a.length < b.length ? a.length : b.length;
        chat_step(render, shorter);
        order = memcmp(a.text, b.text, shorter); /* of UTF-8 as of code points */
        return order ? order : (a.length > b.length) - (a.length < b.length);
    }
    if (!chat_is_listed(a) || a.kind != b.kind) {
        chat_fail(render, ERR_BAD_VALUE, "no order between %s and %s", chat_kind_name(a),
                  chat_kind_name(b));
        return 0;
    }
    if (chat_enter(render))
        for (uint32_t i = 0; !order && !render->code && i < a.length && i < b.length; i++)
            order = chat_order(render, a.items[i], b.items[i]);
    chat_leave(render);
    return order ? order : (a.length > b.length) - (a.length < b.length);
}

bool chat_contains(struct chat_render *render, struct chat_value container,
                   struct chat_value element)
{
    switch (container.kind) {
    case CHAT_STRING:
        if (element.kind != CHAT_STRING) {
            chat_fail(render, ERR_BAD_VALUE, "'in' a string needs a string, not %s",
                      chat_kind_name(element));
            return false;
        }
        return chat_step(render, container.length) &&
               memmem(container.text, container.length, element.text, element.length);
    case CHAT_LIST:
    case CHAT_TUPLE:
        for (uint32_t i = 0; i < container.length && chat_step(render, 0); i++)
            if (chat_equal(render, container.items[i], element))
                return true;
        return false;
    case CHAT_DICT:
        return chat_dict_get(render, container.dict, element) != NULL;
    case CHAT_UNDEFINED:
        return false;
    default:
        chat_fail(render, ERR_BAD_VALUE, "'in' does not go with %s", chat_kind_name(container));
        return false;
    }
}

size_t chat_length(struct chat_render *render, struct chat_value value)
{
    switch (value.kind) {
    case CHAT_STRING:
        chat_step(render, value.length);
        return chat_count(value.text, value.length);
    case CHAT_LIST:
    case CHAT_TUPLE:
        return value.length;
    case CHAT_DICT:
        return value.dict->count;
    case CHAT_LOOP:
        return value.loop->count;
    case CHAT_UNDEFINED:
        return 0;
    default:
        chat_fail(render, ERR_BAD_VALUE, "%s has no length", chat_kind_name(value));
        return 0;
    }
}

struct chat_value chat_elements(struct chat_render *render, struct chat_value value)
{
    if (chat_is_listed(value))
        return value;
    if (value.kind == CHAT_UNDEFINED)
        return chat_list(NULL, 0);
    if (value.kind != CHAT_DICT && value.kind != CHAT_STRING)
        return chat_fail(render, ERR_BAD_VALUE, "%s cannot be gone through", chat_kind_name(value));
    size_t count = chat_length(render, value), at = 0;
    struct chat_value *items = chat_items(render, count);
    for (size_t i = 0; items && i < count; i++) {
        if (value.kind == CHAT_DICT) {
            items[i] = value.dict->pairs[i].key;
        } else {
            size_t bytes = codepoint_bytes((unsigned char)value.text[at]);
            items[i] = chat_text(value.text + at, bytes);
            at += bytes;
        }
    }
    return chat_list(items, items ? count : 0);
}

static struct chat_value loop_attribute(const struct chat_loop *loop, const char *name)
{
    int64_t at = (int64_t)loop->at, count = (int64_t)loop->count;
    if (strcmp(name, "index") == 0)
        return chat_int(at + 1);
    if (strcmp(name, "index0") == 0)
        return chat_int(at);
    if (strcmp(name, "revindex") == 0)
        return chat_int(count - at);
    if (strcmp(name, "revindex0") == 0)
        return chat_int(count - at - 1);
    if (strcmp(name, "first") == 0)
        return chat_bool(at == 0);
    if (strcmp(name, "last") == 0)
        return chat_bool(at == count - 1);
    if (strcmp(name, "length") == 0)
        return chat_int(count);
    if (strcmp(name, "previtem") == 0 && at > 0)
        return loop->items[at - 1];
    if (strcmp(name, "nextitem") == 0 && at + 1 < count)
        return loop->items[at + 1];
    return chat_undefined("loop attribute");
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

/* As Jinja: what Python has under the name, and then the member. */
struct chat_value chat_attribute(struct chat_render *render, struct chat_value value,
                                 const char *name, size_t length)
{
    char copy[64];
    if (value.kind == CHAT_UNDEFINED)
        return chat_fail(render, ERR_BAD_VALUE, "%s is undefined and has no attributes",
                         value.name ? value.name : "a value");
    if (length < sizeof(copy)) {
        memcpy(copy, name, length);
        copy[length] = 0;
        if (chat_has_method(value.kind, copy))
            return (struct chat_value){.kind = CHAT_METHOD};
        if (value.kind == CHAT_LOOP)
            return loop_attribute(value.loop, copy);
    }
    if (value.kind == CHAT_DICT || value.kind == CHAT_NAMESPACE) {
        const struct chat_value *member =
            chat_dict_get(render, value.dict, chat_text(name, length));
        if (member)
            return *member;
    }
    return chat_undefined("an attribute");
}

struct chat_value chat_item(struct chat_render *render, struct chat_value value,
                            struct chat_value key)
{
    if (value.kind == CHAT_UNDEFINED)
        return chat_fail(render, ERR_BAD_VALUE, "%s is undefined and has no elements",
                         value.name ? value.name : "a value");
    if (value.kind == CHAT_DICT) {
        const struct chat_value *member = chat_dict_get(render, value.dict, key);
        if (member)
            return *member;
    }
    if (key.kind == CHAT_STRING)
        return value.kind == CHAT_DICT || value.kind == CHAT_NAMESPACE || value.kind == CHAT_LOOP ||
                       value.kind == CHAT_STRING
                   ? chat_attribute(render, value, key.text, key.length)
                   : chat_undefined("an element");
    if ((key.kind != CHAT_INT && key.kind != CHAT_BOOL) ||
        (!chat_is_listed(value) && value.kind != CHAT_STRING))
        return chat_undefined("an element");
    int64_t count = (int64_t)chat_length(render, value), at = chat_as_int(key);
    at += at < 0 ? count : 0;
    if (at < 0 || at >= count)
        return chat_undefined("an element");
    if (chat_is_listed(value))
        return value.items[at];
    size_t offset = chat_offset(value.text, value.length, (size_t)at);
    return chat_text(value.text + offset, codepoint_bytes((unsigned char)value.text[offset]));
}

/* A bound of a slice, within the sequence; `none` where it was left out. */
static int64_t slice_bound(struct chat_render *render, struct chat_value bound, int64_t count,
                           int64_t low, int64_t high, int64_t none)
{
    if (bound.kind == CHAT_NONE)
        return none;
    if (bound.kind != CHAT_INT && bound.kind != CHAT_BOOL) {
        chat_fail(render, ERR_BAD_VALUE, "a slice needs integers, not %s", chat_kind_name(bound));
        return 0;
    }
    int64_t at = chat_as_int(bound);
    if (at < 0)
        at = at < -count ? low : at + count;
    return at < low ? low : at > high ? high : at;
}

struct chat_value chat_slice(struct chat_render *render, struct chat_value value,
                             const struct chat_value bounds[3])
{
    if (value.kind == CHAT_UNDEFINED || (value.kind != CHAT_STRING && !chat_is_listed(value)))
        return chat_fail(render, ERR_BAD_VALUE, "%s cannot be sliced", chat_kind_name(value));
    int64_t count = (int64_t)chat_length(render, value);
    int64_t step = bounds[2].kind == CHAT_NONE ? 1 : chat_as_int(bounds[2]);
    if ((bounds[2].kind != CHAT_NONE && bounds[2].kind != CHAT_INT) || step == 0 ||
        step > INT32_MAX || step < INT32_MIN)
        return chat_fail(render, ERR_BAD_VALUE, "this step of a slice is not possible");
    int64_t low = step > 0 ? 0 : -1, high = step > 0 ? count : count - 1;
    int64_t first = slice_bound(render, bounds[0], count, low, high, step > 0 ? low : high);
    int64_t last = slice_bound(render, bounds[1], count, low, high, step > 0 ? high : low);
    int64_t wanted =
        step > 0 ? (last - first + step - 1) / step : (first - last - step - 1) / -step;
    wanted = wanted > 0 ? wanted : 0;
    if (value.kind == CHAT_STRING && step == 1) {
        size_t start = chat_offset(value.text, value.length, (size_t)first);
        size_t length = chat_offset(value.text + start, value.length - start, (size_t)wanted);
        return chat_text(value.text + start, length);
    }
    bool text = value.kind == CHAT_STRING;
    struct chat_value all = chat_elements(render, value);
    struct chat_value *items = chat_items(render, (size_t)wanted);
    struct buffer joined = {0};
    for (int64_t i = 0; i < wanted && items && !render->code; i++) {
        items[i] = all.items[first + i * step];
        if (text)
            chat_put(render, &joined, items[i].text, items[i].length);
    }
    if (text)
        return chat_take(render, &joined);
    struct chat_value result = chat_list(items, items ? (size_t)wanted : 0);
    result.kind = value.kind;
    return result;
}
