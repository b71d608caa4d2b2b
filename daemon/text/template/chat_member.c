/* Members, elements and slices of values. */
#include <string.h>

#include "daemon/text/codepoint.h"
#include "daemon/text/template/chat_text.h"
#include "daemon/text/template/chat_value.h"

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
