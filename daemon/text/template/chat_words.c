#include "daemon/text/template/chat_words.h"

#include <string.h>
#include <utf8proc.h>

#include "daemon/text/codepoint.h"
#include "daemon/text/template/chat_text.h"

static bool is_cased(uint32_t code)
{
    return utf8proc_tolower((utf8proc_int32_t)code) != (utf8proc_int32_t)code ||
           utf8proc_toupper((utf8proc_int32_t)code) != (utf8proc_int32_t)code;
}

static bool splits_titles(uint32_t code)
{
    return chat_is_space(code) || (code < 0x80 && code > 0 && strchr("-({[<", (int)code));
}

struct chat_value chat_to_case(struct chat_render *render, struct chat_value text,
                               enum chat_case to)
{
    struct buffer out = {0};
    bool start = true;
    for (size_t at = 0; at < text.length && !render->code;) {
        char bytes[CODEPOINT_BYTES_MAX];
        uint32_t code = codepoint_next(text.text, &at);
        bool up = to == CASE_UPPER || (to != CASE_LOWER && start);
        if (to == CASE_CAPITAL)
            start = false;
        else if (to == CASE_TITLE_FILTER)
            start = splits_titles(code);
        else
            start = !is_cased(code);
        code = (uint32_t)(up ? utf8proc_toupper((utf8proc_int32_t)code)
                             : utf8proc_tolower((utf8proc_int32_t)code));
        chat_put(render, &out, bytes, codepoint_put(code, bytes));
    }
    return chat_take(render, &out);
}

static bool strips(struct chat_render *render, struct chat_value chars, uint32_t code)
{
    if (chars.kind != CHAT_STRING)
        return chat_bytes(render, 4) && chat_is_space(code);
    for (size_t at = 0; at < chars.length && chat_bytes(render, 2);)
        if (codepoint_next(chars.text, &at) == code)
            return true;
    return false;
}

struct chat_value chat_strip(struct chat_render *render, struct chat_value text,
                             struct chat_value chars, bool left, bool right)
{
    size_t start = 0, end = text.length;
    for (size_t next = 0; left && next < end; start = next)
        if (!strips(render, chars, codepoint_next(text.text, &next)))
            break;
    for (size_t before; right && end > start; end = before)
        if (!strips(render, chars, codepoint_before(text.text, end, &before)))
            break;
    return chat_text(text.text + start, end - start);
}

/* A list that grows while its length is not yet known. */
struct growing {
    struct chat_value *items;
    size_t count, room;
};

static void add(struct chat_render *render, struct growing *list, const char *text, size_t length)
{
    if (list->count == list->room) {
        size_t room = list->room ? 2 * list->room : 8;
        struct chat_value *items = chat_items(render, room);
        if (!items)
            return;
        if (list->count > 0)
            memcpy(items, list->items, list->count * sizeof(*items));
        list->items = items;
        list->room = room;
    }
    list->items[list->count++] = chat_text(text, length);
    chat_step(render, length);
}

static void split_left(struct chat_render *render, struct growing *list, struct chat_value text,
                       struct chat_value separator, int64_t max)
{
    const char *at = text.text, *end = at + text.length, *found;
    bool words = separator.kind != CHAT_STRING;
    while (!render->code) {
        if (words)
            at += chat_space_before(at, (size_t)(end - at));
        if (words && at == end)
            return;
        if (max-- == 0)
            break;
        size_t length = 0, skip = separator.length;
        if (words) {
            for (size_t next = 0; at + length < end; length = next)
                if (chat_is_space(codepoint_next(at, &next)))
                    break;
            skip = 0;
            found = at + length < end ? at + length : NULL;
        } else {
            found = memmem(at, (size_t)(end - at), separator.text, separator.length);
        }
        if (!found)
            break;
        add(render, list, at, (size_t)(found - at));
        at = found + skip;
    }
    if (words) /* the rest keeps its inner white space only when parts were limited */
        end -= max < 0 ? 0 : chat_space_behind(at, (size_t)(end - at));
    add(render, list, at, (size_t)(end - at));
}

static const char *find_last(struct chat_render *render, const char *text, size_t length,
                             struct chat_value part)
{
    if (part.length == 0)
        return text + length;
    for (size_t at = part.length <= length ? length - part.length + 1 : 0; at-- > 0;) {
        bool begins = text[at] == part.text[0];
        if (!chat_bytes(render, 2 + (begins ? part.length : 0)))
            return NULL;
        if (begins && memcmp(text + at, part.text, part.length) == 0)
            return text + at;
    }
    return NULL;
}

static void split_right(struct chat_render *render, struct growing *list, struct chat_value text,
                        struct chat_value separator, int64_t max)
{
    size_t length = text.length;
    const char *found;
    while (!render->code && max-- != 0 &&
           (found = find_last(render, text.text, length, separator))) {
        add(render, list, found + separator.length,
            (size_t)(text.text + length - found) - separator.length);
        length = (size_t)(found - text.text);
    }
    add(render, list, text.text, length);
    for (size_t i = 0; i < list->count / 2; i++) {
        struct chat_value other = list->items[i];
        list->items[i] = list->items[list->count - 1 - i];
        list->items[list->count - 1 - i] = other;
    }
}

struct chat_value chat_split(struct chat_render *render, struct chat_value text,
                             struct chat_value separator, int64_t max, bool from_right)
{
    struct growing list = {0};
    if (separator.kind == CHAT_STRING && separator.length == 0)
        return chat_fail(render, ERR_BAD_VALUE, "an empty separator");
    if (from_right && max >= 0 && separator.kind != CHAT_STRING)
        return chat_fail(render, ERR_UNSUPPORTED, "rsplit at white space is not supported");
    if (from_right && max >= 0)
        split_right(render, &list, text, separator, max);
    else
        split_left(render, &list, text, separator, max);
    return chat_list(list.items, list.count);
}

struct chat_value chat_split_lines(struct chat_render *render, struct chat_value text)
{
    struct growing list = {0};
    size_t start = 0;
    chat_step(render, text.length);
    for (size_t at = 0; at < text.length && !render->code;) {
        size_t here = at;
        uint32_t code = codepoint_next(text.text, &at);
        bool ends = (code >= '\n' && code <= '\r') || (code >= 0x1c && code <= 0x1e) ||
                    code == 0x85 || code == 0x2028 || code == 0x2029;
        if (!ends)
            continue;
        if (code == '\r' && at < text.length && text.text[at] == '\n')
            at++;
        add(render, &list, text.text + start, here - start);
        start = at;
    }
    if (start < text.length)
        add(render, &list, text.text + start, text.length - start);
    return chat_list(list.items, list.count);
}

struct chat_value chat_replace(struct chat_render *render, struct chat_value text,
                               struct chat_value old, struct chat_value new, int64_t max)
{
    struct buffer out = {0};
    const char *at = text.text, *end = at + text.length, *found;
    if (old.kind != CHAT_STRING || new.kind != CHAT_STRING || old.length == 0)
        return chat_fail(render, ERR_UNSUPPORTED, "replace needs two texts, the first not empty");
    chat_step(render, (size_t)text.length + old.length);
    while (max-- != 0 && !render->code &&
           (found = memmem(at, (size_t)(end - at), old.text, old.length))) {
        chat_put(render, &out, at, (size_t)(found - at));
        chat_put(render, &out, new.text, new.length);
        at = found + old.length;
    }
    chat_put(render, &out, at, (size_t)(end - at));
    return chat_take(render, &out);
}

struct chat_value chat_join(struct chat_render *render, struct chat_value separator,
                            struct chat_value items, bool strings_only)
{
    struct buffer out = {0};
    items = chat_elements(render, items);
    for (uint32_t i = 0; i < items.length && chat_step(render, 0); i++) {
        if (i > 0)
            chat_put_text(render, &out, separator);
        if (strings_only && items.items[i].kind != CHAT_STRING)
            chat_fail(render, ERR_BAD_VALUE, "join needs texts, not %s",
                      chat_kind_name(items.items[i]));
        chat_put_text(render, &out, items.items[i]);
    }
    return chat_take(render, &out);
}

int64_t chat_find(struct chat_render *render, struct chat_value text, struct chat_value part,
                  bool last)
{
    if (part.kind != CHAT_STRING || text.kind != CHAT_STRING) {
        chat_fail(render, ERR_BAD_VALUE, "a text is needed, not %s", chat_kind_name(part));
        return -1;
    }
    if (!chat_step(render, (size_t)text.length + part.length))
        return -1;
    const char *found = last ? find_last(render, text.text, text.length, part)
                             : memmem(text.text, text.length, part.text, part.length);
    return found ? (int64_t)chat_count(text.text, (size_t)(found - text.text)) : -1;
}
