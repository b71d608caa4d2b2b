/* Values as text: str(), repr() and json.dumps(), to the byte. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "daemon/text/template/chat_value.h"
#include "daemon/text/codepoint.h"

#define DIGITS_BYTES 512 /* of going through text, is what writing a number and reading it takes   \
                          */

bool chat_put(struct chat_render *render, struct buffer *out, const char *text, size_t length)
{
    size_t max = render->limits.output_max;
    if (!chat_step(render, length))
        return false;
    /* Of all that are being written, for captures nest. */
    if (length <= max - render->written && buffer_append(out, text, length, max)) {
        render->written += length;
        return true;
    }
    chat_fail(render, ERR_TOO_LARGE, "a text of more than %zu bytes", render->limits.output_max);
    return false;
}

static void put(struct chat_render *render, struct buffer *out, const char *text)
{
    chat_put(render, out, text, strlen(text));
}

struct chat_value chat_take(struct chat_render *render, struct buffer *buffer)
{
    struct chat_value text = chat_copy(render, buffer->data, buffer->length);
    render->written -= buffer->length;
    buffer_free(buffer);
    return text;
}

/* The shortest digits that read back as the same number; exponents from 1e16 and below 1e-4. */
static void put_float(struct chat_render *render, struct buffer *out, double number, bool as_json)
{
    char text[64] = "", digits[40];
    if (isnan(number)) {
        put(render, out, as_json ? "NaN" : "nan");
        return;
    }
    if (isinf(number)) {
        put(render, out, number < 0 ? "-" : "");
        put(render, out, as_json ? "Infinity" : "inf");
        return;
    }
    int precision = 0;
    do {
        if (!chat_step(render, DIGITS_BYTES))
            return;
        snprintf(digits, sizeof(digits), "%.*e", precision, number);
    } while (precision++ < 17 && strtod(digits, NULL) != number);
    int exponent = atoi(strchr(digits, 'e') + 1), places = precision - 1;
    if (exponent >= -4 && exponent < 16) {
        int decimals = places - exponent > 1 ? places - exponent : 1;
        snprintf(text, sizeof(text), "%.*f", decimals, number);
    } else {
        *strchr(digits, 'e') = 0;
        snprintf(text, sizeof(text), "%se%c%02d", digits, exponent < 0 ? '-' : '+', abs(exponent));
    }
    put(render, out, text);
}

static void put_number(struct chat_render *render, struct buffer *out, struct chat_value value,
                       bool as_json)
{
    char text[32];
    if (value.kind == CHAT_FLOAT) {
        put_float(render, out, value.number, as_json);
        return;
    }
    snprintf(text, sizeof(text), "%lld", (long long)value.integer);
    put(render, out, text);
}

static bool prints(uint32_t code)
{
    switch (utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return false;
    case UTF8PROC_CATEGORY_ZS:
        return code == ' ';
    default:
        return true;
    }
}

static void put_repr_text(struct chat_render *render, struct buffer *out, struct chat_value value)
{
    bool doubles = memchr(value.text, '\'', value.length) && !memchr(value.text, '"', value.length);
    char quote = doubles ? '"' : '\'', text[16];
    chat_put(render, out, &quote, 1);
    for (size_t at = 0; at < value.length && !render->code;) {
        size_t start = at;
        uint32_t code = codepoint_next(value.text, &at);
        if (code == '\n' || code == '\r' || code == '\t')
            put(render, out, code == '\n' ? "\\n" : code == '\r' ? "\\r" : "\\t");
        else if (code == (unsigned char)quote || code == '\\')
            snprintf(text, sizeof(text), "\\%c", (char)code), put(render, out, text);
        else if (prints(code))
            chat_put(render, out, value.text + start, at - start);
        else
            snprintf(text, sizeof(text),
                     code < 0x100     ? "\\x%02x"
                     : code < 0x10000 ? "\\u%04x"
                                      : "\\U%08x",
                     code),
                put(render, out, text);
    }
    chat_put(render, out, &quote, 1);
}

static void put_repr(struct chat_render *render, struct buffer *out, struct chat_value value);

static void put_repr_list(struct chat_render *render, struct buffer *out, struct chat_value value)
{
    bool list = value.kind == CHAT_LIST;
    put(render, out, list ? "[" : "(");
    for (uint32_t i = 0; i < value.length && !render->code; i++) {
        if (i > 0)
            put(render, out, ", ");
        put_repr(render, out, value.items[i]);
    }
    if (!list && value.length == 1)
        put(render, out, ",");
    put(render, out, list ? "]" : ")");
}

static void put_repr_dict(struct chat_render *render, struct buffer *out, struct chat_value value)
{
    put(render, out, "{");
    for (size_t i = 0; i < value.dict->count && !render->code; i++) {
        if (i > 0)
            put(render, out, ", ");
        put_repr(render, out, value.dict->pairs[i].key);
        put(render, out, ": ");
        put_repr(render, out, value.dict->pairs[i].value);
    }
    put(render, out, "}");
}

static void put_repr(struct chat_render *render, struct buffer *out, struct chat_value value)
{
    if (!chat_enter(render)) {
        chat_leave(render);
        return;
    }
    switch (value.kind) {
    case CHAT_UNDEFINED:
        put(render, out, "Undefined");
        break;
    case CHAT_NONE:
        put(render, out, "None");
        break;
    case CHAT_BOOL:
        put(render, out, value.truth ? "True" : "False");
        break;
    case CHAT_INT:
    case CHAT_FLOAT:
        put_number(render, out, value, false);
        break;
    case CHAT_STRING:
        put_repr_text(render, out, value);
        break;
    case CHAT_LIST:
    case CHAT_TUPLE:
        put_repr_list(render, out, value);
        break;
    case CHAT_DICT:
        put_repr_dict(render, out, value);
        break;
    default:
        chat_fail(render, ERR_BAD_VALUE, "a %s cannot be shown", chat_kind_name(value));
        break;
    }
    chat_leave(render);
}

void chat_put_text(struct chat_render *render, struct buffer *out, struct chat_value value)
{
    if (value.kind == CHAT_STRING)
        chat_put(render, out, value.text, value.length);
    else if (value.kind != CHAT_UNDEFINED)
        put_repr(render, out, value);
}

struct chat_value chat_string(struct chat_render *render, struct chat_value value)
{
    struct buffer buffer = {0};
    if (value.kind == CHAT_STRING)
        return value;
    chat_put_text(render, &buffer, value);
    return chat_take(render, &buffer);
}

static void put_json_text(struct chat_render *render, struct buffer *out, struct chat_value value,
                          bool ascii)
{
    static const char names[] = "\"\\\b\f\n\r\t", codes[] = "\"\\bfnrt";
    char text[16];
    put(render, out, "\"");
    for (size_t at = 0; at < value.length && !render->code;) {
        size_t start = at;
        uint32_t code = codepoint_next(value.text, &at);
        const char *known = code < 0x80 && code > 0 ? strchr(names, (int)code) : NULL;
        if (known) {
            snprintf(text, sizeof(text), "\\%c", codes[known - names]);
            put(render, out, text);
        } else if (code < 0x20 || (ascii && code >= 0x7f && code < 0x10000 && code != 0x7f)) {
            snprintf(text, sizeof(text), "\\u%04x", code);
            put(render, out, text);
        } else if (ascii && code >= 0x10000) {
            snprintf(text, sizeof(text), "\\u%04x\\u%04x", 0xd7c0 + (code >> 10),
                     0xdc00 + (code & 0x3ff));
            put(render, out, text);
        } else {
            chat_put(render, out, value.text + start, at - start);
        }
    }
    put(render, out, "\"");
}

struct json_writing {
    struct chat_render *render;
    struct buffer *out;
    const struct chat_json_style *style;
    int level;
};

static void new_line(struct json_writing *w)
{
    struct chat_value indent = w->style->indent;
    if (indent.kind == CHAT_NONE)
        return;
    put(w->render, w->out, "\n");
    for (int i = 0; i < w->level && chat_bytes(w->render, 2); i++) {
        if (indent.kind == CHAT_STRING)
            chat_put(w->render, w->out, indent.text, indent.length);
        for (int64_t n = 0; indent.kind != CHAT_STRING && n < chat_as_int(indent); n++)
            if (!chat_put(w->render, w->out, " ", 1))
                return;
    }
}

static void put_item_separator(struct json_writing *w)
{
    put(w->render, w->out,
        w->style->item                       ? w->style->item
        : w->style->indent.kind == CHAT_NONE ? ", "
                                             : ",");
}

static void put_json(struct json_writing *w, struct chat_value value);

static void put_json_list(struct json_writing *w, struct chat_value value)
{
    put(w->render, w->out, "[");
    w->level++;
    for (uint32_t i = 0; i < value.length && !w->render->code; i++) {
        if (i > 0)
            put_item_separator(w);
        new_line(w);
        put_json(w, value.items[i]);
    }
    w->level--;
    if (value.length > 0)
        new_line(w);
    put(w->render, w->out, "]");
}

static void put_json_key(struct json_writing *w, struct chat_value key)
{
    struct chat_value text = key;
    if (key.kind != CHAT_STRING) {
        struct buffer buffer = {0};
        struct json_writing plain = {w->render, &buffer, w->style, 0};
        if (!chat_is_number(key) && key.kind != CHAT_NONE)
            chat_fail(w->render, ERR_BAD_VALUE, "a %s is no key in JSON", chat_kind_name(key));
        else
            put_json(&plain, key);
        text = chat_take(w->render, &buffer);
    }
    if (!w->render->code)
        put_json_text(w->render, w->out, text, w->style->ascii);
}

/* The place of the next key in order after `last`; the count when there is none. */
static size_t next_sorted(struct json_writing *w, const struct chat_dict *dict, size_t last)
{
    size_t next = dict->count;
    for (size_t i = 0; i < dict->count && chat_step(w->render, 0); i++) {
        struct chat_value key = dict->pairs[i].key;
        if (last < dict->count && chat_order(w->render, key, dict->pairs[last].key) <= 0)
            continue;
        if (next == dict->count || chat_order(w->render, key, dict->pairs[next].key) < 0)
            next = i;
    }
    return next;
}

static void put_json_dict(struct json_writing *w, const struct chat_dict *dict)
{
    size_t at = dict->count;
    put(w->render, w->out, "{");
    w->level++;
    for (size_t i = 0; i < dict->count && !w->render->code; i++) {
        at = w->style->sorted ? next_sorted(w, dict, at) : i;
        if (w->render->code)
            break;
        if (i > 0)
            put_item_separator(w);
        new_line(w);
        put_json_key(w, dict->pairs[at].key);
        put(w->render, w->out, w->style->key ? w->style->key : ": ");
        put_json(w, dict->pairs[at].value);
    }
    w->level--;
    if (dict->count > 0)
        new_line(w);
    put(w->render, w->out, "}");
}

static void put_json(struct json_writing *w, struct chat_value value)
{
    if (!chat_enter(w->render)) {
        chat_leave(w->render);
        return;
    }
    switch (value.kind) {
    case CHAT_NONE:
        put(w->render, w->out, "null");
        break;
    case CHAT_BOOL:
        put(w->render, w->out, value.truth ? "true" : "false");
        break;
    case CHAT_INT:
    case CHAT_FLOAT:
        put_number(w->render, w->out, value, true);
        break;
    case CHAT_STRING:
        put_json_text(w->render, w->out, value, w->style->ascii);
        break;
    case CHAT_LIST:
    case CHAT_TUPLE:
        put_json_list(w, value);
        break;
    case CHAT_DICT:
        put_json_dict(w, value.dict);
        break;
    default:
        chat_fail(w->render, ERR_BAD_VALUE, "%s cannot be written as JSON", chat_kind_name(value));
        break;
    }
    chat_leave(w->render);
}

void chat_put_json(struct chat_render *render, struct buffer *out, struct chat_value value,
                   const struct chat_json_style *style)
{
    struct json_writing writing = {render, out, style, 0};
    put_json(&writing, value);
}
