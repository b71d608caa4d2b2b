/* Calls as Mistral's models write them: behind one mark a list of objects, or, of later ones, each
 * behind a mark with its name, a second mark, and its arguments. */
#include <string.h>

#include "daemon/answer/answer_reader.h"
#include "daemon/answer/call_format.h"
#include "daemon/answer/call_list.h"
#include "daemon/answer/call_tags.h"

enum { BEFORE = CALL_LIST_STATES, NAME, NUMBER, SPACE, ARGUMENTS };

static void begin(struct answer_reader *reader)
{
    reader->call_state = BEFORE;
    reader->named = false;
    reader->object.name_length = 0;
    reader->object.key_length = 0;
}

static void give_up(struct answer_reader *reader, char byte)
{
    answer_reader_hold(reader, byte);
    answer_reader_no_call(reader);
}

/* ---- a name and its arguments ------------------------------------------------------------------
 */

static void begin_arguments(struct answer_reader *reader, char byte)
{
    if (call_tags_arguments(reader, byte))
        reader->call_state = ARGUMENTS;
}

static void argument_byte(struct answer_reader *reader, char byte)
{
    if (call_tags_argument(reader, byte) == JSON_SCAN_END)
        answer_reader_behind(reader);
}

/* The name, or the call's number, ends with a mark that is no special token. */
static void cut_mark(struct answer_reader *reader, enum answer_mark_kind kind, uint8_t state)
{
    struct call_object *object = &reader->object;
    const struct answer_mark *mark = &reader->form->marks[kind];
    uint16_t length = reader->call_state == NAME ? object->name_length : object->key_length;
    const char *text = reader->call_state == NAME ? object->name : object->key;
    if (length < mark->length ||
        memcmp(text + length - mark->length, mark->text, mark->length) != 0)
        return;
    if (reader->call_state == NAME)
        object->name_length -= mark->length;
    object->key_length = 0;
    reader->call_state = state;
}

static void name_byte(struct answer_reader *reader, char byte)
{
    struct call_object *object = &reader->object;
    if (byte == '{' && object->name_length > 0) {
        begin_arguments(reader, byte);
        return;
    }
    if (!call_name_takes(byte) || object->name_length == CALL_NAME_MAX) {
        give_up(reader, byte);
        return;
    }
    answer_reader_hold(reader, byte);
    object->name[object->name_length++] = byte;
    object->key_length = 0;
    cut_mark(reader, ANSWER_MARK_SECOND, SPACE);
    if (reader->call_state == NAME)
        cut_mark(reader, ANSWER_MARK_THIRD, NUMBER);
}

/* The model's number for the call is not told: ids are ours. */
static void number_byte(struct answer_reader *reader, char byte)
{
    struct call_object *object = &reader->object;
    if (!call_name_takes(byte) || object->key_length == sizeof(object->key)) {
        give_up(reader, byte);
        return;
    }
    answer_reader_hold(reader, byte);
    object->key[object->key_length++] = byte;
    cut_mark(reader, ANSWER_MARK_SECOND, SPACE);
}

/* ---- both --------------------------------------------------------------------------------------
 */

static void byte(struct answer_reader *reader, char byte)
{
    switch (reader->call_state) {
    case BEFORE:
        if (json_scan_space(byte)) {
            answer_reader_hold(reader, byte);
            return;
        }
        reader->call_state = NAME;
        if (byte == '[')
            call_list_begin(reader, byte);
        else
            name_byte(reader, byte);
        return;
    case NAME:
        name_byte(reader, byte);
        return;
    case NUMBER:
        number_byte(reader, byte);
        return;
    case SPACE: /* behind the second mark */
        if (json_scan_space(byte))
            answer_reader_hold(reader, byte);
        else if (byte == '{' && reader->object.name_length > 0)
            begin_arguments(reader, byte);
        else
            give_up(reader, byte);
        return;
    case ARGUMENTS:
        argument_byte(reader, byte);
        return;
    default:
        call_list_byte(reader, byte);
    }
}

static void mark(struct answer_reader *reader, enum answer_mark_kind mark)
{
    if (mark == ANSWER_MARK_SECOND && (reader->call_state == NAME || reader->call_state == NUMBER))
        reader->call_state = SPACE;
    else if (mark == ANSWER_MARK_THIRD && reader->call_state == NAME)
        reader->call_state = NUMBER;
    else if (mark == ANSWER_MARK_CALL)
        answer_reader_again(reader);
}

const struct call_format call_format_mistral = {
    .name = "mistral",
    .needs = {"[TOOL_CALLS]"},
    .lacks = {"[ARGS]"},
    .marks = {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"},
    .short_ids = true,
    .shape = CALL_LIST_SHAPE,
    .begin = begin,
    .byte = byte,
    .mark = mark,
};

const struct call_format call_format_mistral_named = {
    .name = "mistral, named",
    .needs = {"[TOOL_CALLS]", "[ARGS]"},
    .marks = {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"},
    .short_ids = true,
    .shape = {.open = "", .name = "\1", .between = "\2", .close = "", .next = "", .end = ""},
    .begin = begin,
    .byte = byte,
    .mark = mark,
};
