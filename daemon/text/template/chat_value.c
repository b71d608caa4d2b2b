#include "daemon/text/template/chat_value.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "daemon/text/codepoint.h"
#include "daemon/text/template/chat_text.h"

#define BYTES_PER_STEP 16
#define STEPS_PER_LOOK 1024 /* some 10 us */

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

static void look(struct chat_render *render)
{
    int code = halt_code(render->limits.halt);
    render->look_at = render->steps + STEPS_PER_LOOK;
    if (code)
        chat_fail(render, code, "stopped: %s", error_text(code));
}

bool chat_step(struct chat_render *render, size_t bytes)
{
    render->steps += 1 + bytes / BYTES_PER_STEP;
    if (render->steps >= render->look_at)
        look(render);
    if (!render->code && render->steps > render->limits.steps_max)
        chat_fail(render, ERR_TOO_LARGE, "more than %llu steps",
                  (unsigned long long)render->limits.steps_max);
    return !render->code;
}

bool chat_bytes(struct chat_render *render, size_t bytes)
{
    render->bytes += bytes;
    if (render->bytes < BYTES_PER_STEP)
        return !render->code;
    bytes = render->bytes - BYTES_PER_STEP;
    render->bytes %= BYTES_PER_STEP;
    return chat_step(render, bytes);
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

void *chat_allocate(struct chat_render *render, size_t bytes)
{
    void *memory = chat_bytes(render, bytes) ? chat_arena_take(&render->arena, bytes) : NULL;
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
    return chat_allocate(render, (count > 0 ? count : 1) * sizeof(struct chat_value));
}

struct chat_value chat_list(const struct chat_value *items, size_t count)
{
    return (struct chat_value){.kind = CHAT_LIST, .length = (uint32_t)count, .items = items};
}

struct chat_value chat_copy(struct chat_render *render, const char *text, size_t length)
{
    char *copy = chat_bytes(render, length) ? chat_arena_text(&render->arena, length) : NULL;
    if (!copy)
        return chat_fail(render, ERR_TOO_LARGE, "more than %zu bytes of memory",
                         render->limits.memory_max);
    if (length > 0)
        memcpy(copy, text, length);
    return chat_text(copy, length);
}

struct chat_value chat_new_dict(struct chat_render *render, enum chat_kind kind)
{
    struct chat_dict *dict = chat_allocate(render, sizeof(*dict));
    return dict ? (struct chat_value){.kind = kind, .dict = dict} : chat_undefined(NULL);
}

static bool equal_texts(struct chat_render *render, struct chat_value a, struct chat_value b)
{
    return a.length == b.length && chat_bytes(render, a.length) &&
           memcmp(a.text, b.text, a.length) == 0;
}

/* The member of an equal key; its place, or the count. */
static size_t find(struct chat_render *render, const struct chat_dict *dict, struct chat_value key)
{
    for (size_t at = 0; at < dict->count && chat_bytes(render, 2); at++) {
        struct chat_value other = dict->pairs[at].key;
        if (key.kind == CHAT_STRING && other.kind == CHAT_STRING ? equal_texts(render, key, other)
                                                                 : chat_equal(render, key, other))
            return at;
    }
    return dict->count;
}

void chat_dict_set(struct chat_render *render, struct chat_dict *dict, struct chat_value key,
                   struct chat_value value)
{
    size_t at = find(render, dict, key);
    if (render->code)
        return;
    if (at == dict->count && dict->count == dict->room) {
        size_t room = dict->room > 0 ? 2 * dict->room : 8;
        struct chat_pair *pairs = chat_allocate(render, room * sizeof(*pairs));
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
    result.dict->pairs = chat_allocate(render, count * sizeof(*result.dict->pairs));
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
    if (!chat_bytes(render, 4))
        return false;
    if (chat_is_number(a) && chat_is_number(b))
        return a.kind == CHAT_FLOAT || b.kind == CHAT_FLOAT ? chat_as_float(a) == chat_as_float(b)
                                                            : chat_as_int(a) == chat_as_int(b);
    if (a.kind != b.kind)
        return false;
    if (!chat_enter(render) || !chat_step(render, 0)) {
        chat_leave(render);
        return false;
    }
    switch (a.kind) {
    case CHAT_UNDEFINED:
    case CHAT_NONE:
        equal = true;
        break;
    case CHAT_STRING:
        equal = equal_texts(render, a, b);
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
    if (!chat_step(render, 0))
        return 0;
    if (chat_is_number(a) && chat_is_number(b)) {
        double left = chat_as_float(a), right = chat_as_float(b);
        if (a.kind != CHAT_FLOAT && b.kind != CHAT_FLOAT)
            return (chat_as_int(a) > chat_as_int(b)) - (chat_as_int(a) < chat_as_int(b));
        return (left > right) - (left < right);
    }
    if (a.kind == CHAT_STRING && b.kind == CHAT_STRING) {
        size_t shorter = a.length < b.length ? a.length : b.length;
        if (!chat_bytes(render, shorter))
            return 0;
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
