#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/base/json.h"
#include "protocol/base/utf8.h"

#define WHOLE_MAX 9007199254740992.0 /* whole numbers that strict JSON carries */

void json_writer_init(struct json_writer *writer, char *buffer, size_t size)
{
    *writer = (struct json_writer){.buffer = buffer, .size = size};
}

static void append(struct json_writer *writer, const char *text, size_t length)
{
    if (writer->used < writer->size) {
        size_t room = writer->size - writer->used;
        memcpy(writer->buffer + writer->used, text, length < room ? length : room);
    }
    writer->used += length;
}

static void append_byte(struct json_writer *writer, char byte)
{
    if (writer->used < writer->size)
        writer->buffer[writer->used] = byte;
    writer->used++;
}

static void append_escaped(struct json_writer *writer, unsigned char c)
{
    static const char short_forms[0x20] = {
        ['\b'] = 'b', ['\f'] = 'f', ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't'};
    static const char hex[] = "0123456789abcdef";
    if (c == '"' || c == '\\') {
        append(writer, (const char[]){'\\', (char)c}, 2);
    } else if (c == 0) {
        append(writer, UTF8_REPLACEMENT, 3);
    } else if (short_forms[c]) {
        append(writer, (const char[]){'\\', short_forms[c]}, 2);
    } else {
        append(writer, "\\u00", 4);
        append_byte(writer, hex[c >> 4]);
        append_byte(writer, hex[c & 15]);
    }
}

/* Runs of bytes that stand for themselves are copied whole. */
static void append_string(struct json_writer *writer, const char *value, size_t length)
{
    const unsigned char *text = (const unsigned char *)value;
    size_t run = 0, at = 0;
    append_byte(writer, '"');
    while (at < length) {
        unsigned char c = text[at];
        size_t step = 1;
        if (c >= 0x80)
            step = utf8_length(text + at, length - at);
        bool plain = step > 0 && c >= 0x20 && c != '"' && c != '\\';
        if (plain) {
            at += step;
            continue;
        }
        append(writer, value + run, at - run);
        if (step == 0)
            append(writer, UTF8_REPLACEMENT, 3);
        else
            append_escaped(writer, c);
        run = ++at;
    }
    append(writer, value + run, length - run);
    append_byte(writer, '"');
}

static void begin(struct json_writer *writer, const char *key)
{
    if (writer->comma)
        append_byte(writer, ',');
    writer->comma = true;
    if (key) {
        append_string(writer, key, strlen(key));
        append_byte(writer, ':');
    }
}

void json_open(struct json_writer *writer, const char *key, char bracket)
{
    begin(writer, key);
    append_byte(writer, bracket);
    writer->comma = false;
}

void json_close(struct json_writer *writer, char bracket)
{
    append_byte(writer, bracket);
    writer->comma = true;
}

void json_put_string(struct json_writer *writer, const char *key, const char *value, size_t length)
{
    begin(writer, key);
    append_string(writer, value, length);
}

void json_put_text(struct json_writer *writer, const char *key, const char *value)
{
    json_put_string(writer, key, value, strlen(value));
}

/* By hand: printf takes most of the time of a DONE head, which is nearly all numbers. */
static void append_uint(struct json_writer *writer, uint64_t value)
{
    char digits[20];
    size_t first = sizeof(digits);
    do {
        digits[--first] = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    append(writer, digits + first, sizeof(digits) - first);
}

void json_put_uint(struct json_writer *writer, const char *key, uint64_t value)
{
    begin(writer, key);
    append_uint(writer, value);
}

void json_put_int(struct json_writer *writer, const char *key, int64_t value)
{
    begin(writer, key);
    if (value < 0)
        append_byte(writer, '-');
    append_uint(writer, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

static void put_double(struct json_writer *writer, const char *key, const char *format,
                       double value)
{
    char text[32];
    if (!isfinite(value)) {
        json_put_null(writer, key);
        return;
    }
    begin(writer, key);
    int length = snprintf(text, sizeof(text), format, value);
    /* The program that links the client may have set a locale with another decimal point. */
    for (int i = 0; i < length; i++)
        if (!strchr("0123456789+-e", text[i]))
            text[i] = '.';
    append(writer, text, (size_t)length);
}

void json_put_double(struct json_writer *writer, const char *key, double value)
{
    put_double(writer, key, "%.9g", value);
}

void json_put_exact(struct json_writer *writer, const char *key, double value)
{
    /* Always with an exponent: a whole number beyond 2^53 would read as an integer else. */
    put_double(writer, key, "%.16e", value);
}

void json_put_bool(struct json_writer *writer, const char *key, bool value)
{
    begin(writer, key);
    append(writer, value ? "true" : "false", value ? 4 : 5);
}

void json_put_null(struct json_writer *writer, const char *key)
{
    begin(writer, key);
    append(writer, "null", 4);
}

static void put_number(struct json_writer *writer, const char *key, double number)
{
    if (fabs(number) <= WHOLE_MAX && number == (double)(int64_t)number)
        json_put_int(writer, key, (int64_t)number);
    else
        json_put_exact(writer, key, number);
}

void json_put_value(struct json_writer *writer, const char *key, const json *value)
{
    bool object = json_is_object(value);
    if (object || json_is_array(value)) {
        json_open(writer, key, object ? '{' : '[');
        for (const json *item = json_child(value); item; item = json_next(item))
            json_put_value(writer, object ? json_key(item) : NULL, item);
        json_close(writer, object ? '}' : ']');
    } else if (json_is_string(value)) {
        json_put_text(writer, key, json_string(value));
    } else if (json_is_bool(value)) {
        json_put_bool(writer, key, json_bool(value));
    } else if (json_is_null(value)) {
        json_put_null(writer, key);
    } else {
        put_number(writer, key, json_number(value));
    }
}

char *json_written(json_write write, const void *context, size_t *ret_length)
{
    struct json_writer writer;
    json_writer_init(&writer, NULL, 0);
    write(&writer, context);
    size_t length = writer.used;
    char *text = malloc(length + 1);
    if (!text)
        return NULL;
    json_writer_init(&writer, text, length);
    write(&writer, context);
    text[length] = '\0';
    *ret_length = length;
    return text;
}
