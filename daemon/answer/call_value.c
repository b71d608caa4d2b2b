#include "daemon/answer/call_value.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "daemon/answer/answer_reader.h"
#include "daemon/answer/argument_types.h"
#include "daemon/answer/call_format.h"

static void tell(struct answer_reader *reader, const char *text)
{
    answer_reader_arguments(reader, text, strlen(text));
}

/* A byte of a string, as JSON has it. */
static void tell_byte(struct answer_reader *reader, char byte)
{
    static const char plain[] = "\"\\\b\f\n\r\t", escapes[] = "\"\\bfnrt";
    const char *found = byte ? strchr(plain, byte) : NULL;
    char escape[8] = {'\\'};
    if (found) {
        escape[1] = escapes[found - plain];
        answer_reader_arguments(reader, escape, 2);
    } else if ((unsigned char)byte < ' ') {
        snprintf(escape, sizeof(escape), "\\u%04x", (unsigned)byte);
        answer_reader_arguments(reader, escape, 6);
    } else {
        answer_reader_arguments(reader, &byte, 1);
    }
}

static void tell_string(struct answer_reader *reader, const char *text, size_t length)
{
    tell(reader, "\"");
    for (size_t i = 0; i < length; i++)
        tell_byte(reader, text[i]);
    tell(reader, "\"");
}

void call_value_open(struct answer_reader *reader, bool lines)
{
    reader->value.members = 0;
    reader->value.lines = lines;
    tell(reader, "{");
}

void call_value_begin(struct answer_reader *reader)
{
    struct call_value *value = &reader->value;
    const struct call_object *object = &reader->object;
    unsigned types = argument_types_find(reader->types, object->name, object->name_length,
                                         value->key, value->key_length);
    value->types = (uint8_t)(types ? types : reader->form->calls->untyped);
    value->begun = value->newline = value->scans = false;
    value->text.length = 0;
    value->blank = true;
    if (value->members++ > 0)
        tell(reader, ", ");
    tell_string(reader, value->key, value->key_length);
    tell(reader, value->types == ARGUMENT_STRING ? ": \"" : ": ");
}

static void scan(struct call_value *value, char byte)
{
    unsigned type = byte == '[' ? ARGUMENT_ARRAY : byte == '{' ? ARGUMENT_OBJECT : 0;
    if (!value->scans && value->types & type && value->blank) {
        value->scan = (struct json_scan){0};
        value->scans = true;
    }
    value->blank &= json_scan_space(byte);
    if (value->scans)
        value->scans = json_scan_byte(&value->scan, byte) == JSON_SCAN_MORE;
}

bool call_value_quoted(const struct answer_reader *reader)
{
    return reader->value.scans && json_scan_quoted(&reader->value.scan);
}

static void take(struct answer_reader *reader, char byte)
{
    struct call_value *value = &reader->value;
    scan(value, byte);
    if (value->types == ARGUMENT_STRING)
        tell_byte(reader, byte);
    else
        reader->failed |= !buffer_append(&value->text, &byte, 1, SIZE_MAX);
}

void call_value_byte(struct answer_reader *reader, char byte)
{
    struct call_value *value = &reader->value;
    bool first = !value->begun;
    value->begun = true;
    if (value->lines && first && byte == '\n')
        return;
    if (value->newline)
        take(reader, '\n');
    value->newline = value->lines && byte == '\n';
    if (!value->newline)
        take(reader, byte);
}

/* ---- what is no string -------------------------------------------------------------------------
 */

/* The text without white space around it. */
static const char *trimmed(const struct buffer *text, size_t *ret_length)
{
    size_t from = 0, to = text->length;
    while (from < to && json_scan_space(text->data[from]))
        from++;
    while (to > from && json_scan_space(text->data[to - 1]))
        to--;
    *ret_length = to - from;
    return to > from ? text->data + from : "";
}

/* Whether it is JSON of one of these types. */
static bool is_json(const char *text, size_t length, unsigned types)
{
    unsigned type = text[0] == '{'                      ? ARGUMENT_OBJECT
                    : text[0] == '['                    ? ARGUMENT_ARRAY
                    : text[0] == 'n'                    ? ARGUMENT_NULL
                    : text[0] == 't' || text[0] == 'f'  ? ARGUMENT_BOOLEAN
                    : text[0] != '"' && text[0] != '\0' ? ARGUMENT_NUMBER
                                                        : 0;
    return types & type && json_scan_text(text, length);
}

/* Python's words for what JSON has, which templates write and models learned from them. */
static const char *literal(const char *text, size_t length, unsigned types)
{
    static const struct {
        const char *word, *json;
        unsigned type;
    } words[] = {{"true", "true", ARGUMENT_BOOLEAN},
                 {"false", "false", ARGUMENT_BOOLEAN},
                 {"null", "null", ARGUMENT_NULL},
                 {"none", "null", ARGUMENT_NULL}};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (types & words[i].type && length == strlen(words[i].word) &&
            strncasecmp(text, words[i].word, length) == 0)
            return words[i].json;
    return NULL;
}

void call_value_end(struct answer_reader *reader)
{
    struct call_value *value = &reader->value;
    size_t length;
    if (value->types == ARGUMENT_STRING) {
        tell(reader, "\"");
        return;
    }
    const char *text = trimmed(&value->text, &length);
    /* A text that may be a string is one unless it is written as JSON writes the others. */
    const char *word = value->types & ARGUMENT_STRING ? NULL : literal(text, length, value->types);
    if (word)
        tell(reader, word);
    else if (is_json(text, length, value->types))
        answer_reader_arguments(reader, text, length);
    else
        tell_string(reader, value->text.length > 0 ? value->text.data : "", value->text.length);
}

void call_value_close(struct answer_reader *reader)
{
    tell(reader, "}");
}
