#include "daemon/answer/call_tags.h"

#include "daemon/answer/call_format.h"

bool call_tags_special(const struct answer_reader *reader, enum answer_mark_kind mark)
{
    return reader->form->marks[mark].text[0] == ANSWER_SPECIAL;
}

void call_tags_name(struct answer_reader *reader, char byte)
{
    struct call_object *object = &reader->object;
    answer_reader_hold(reader, byte);
    if (!call_name_takes(byte) || object->name_length == CALL_NAME_MAX)
        answer_reader_no_call(reader);
    else
        object->name[object->name_length++] = byte;
}

static bool call(struct answer_reader *reader)
{
    const struct call_object *object = &reader->object;
    if (object->name_length == 0 ||
        !answer_reader_knows(reader, object->name, object->name_length)) {
        answer_reader_no_call(reader);
        return false;
    }
    answer_reader_call(reader, object->name, object->name_length);
    return true;
}

bool call_tags_named(struct answer_reader *reader, bool lines)
{
    if (!call(reader))
        return false;
    call_value_open(reader, lines);
    return true;
}

bool call_tags_arguments(struct answer_reader *reader, char byte)
{
    answer_reader_hold(reader, byte);
    if (!call(reader))
        return false;
    reader->object.scan = (struct json_scan){0};
    json_scan_byte(&reader->object.scan, byte);
    answer_reader_arguments(reader, &byte, 1);
    return true;
}

enum json_scan_result call_tags_argument(struct answer_reader *reader, char byte)
{
    enum json_scan_result result = json_scan_byte(&reader->object.scan, byte);
    if (result == JSON_SCAN_BAD)
        answer_reader_broken(reader, byte);
    else
        answer_reader_arguments(reader, &byte, 1);
    return result;
}

void call_tags_key(struct answer_reader *reader, char byte)
{
    struct call_value *value = &reader->value;
    if (value->key_length == CALL_KEY_MAX)
        answer_reader_broken(reader, byte);
    else
        value->key[value->key_length++] = byte;
}

bool call_tags_value(struct answer_reader *reader, enum answer_mark_kind mark)
{
    bool special = call_tags_special(reader, mark);
    if (mark == ANSWER_MARK_SIXTH && (special || !call_value_quoted(reader))) {
        call_value_end(reader);
        return true;
    }
    if (special)
        call_tags_stray(reader, mark);
    else
        answer_reader_unmark(reader, mark, call_value_byte);
    return false;
}

void call_tags_behind(struct answer_reader *reader, char byte)
{
    if (json_scan_space(byte))
        return;
    answer_reader_hold(reader, byte);
    answer_reader_behind(reader);
}

/* Before the name there is no call. Behind it, what closes calls or begins one ends this one; else
 * the arguments cease to be what they are. */
void call_tags_stray(struct answer_reader *reader, enum answer_mark_kind mark)
{
    bool ends = mark == ANSWER_MARK_CALL || mark == reader->form->calls->closes;
    if (!reader->named && mark != ANSWER_MARK_CALL) {
        answer_reader_no_call(reader);
        return;
    }
    if (!ends) {
        answer_reader_unmark(reader, mark, answer_reader_broken);
        return;
    }
    if (reader->named)
        answer_reader_behind(reader);
    else if (!call_tags_special(reader, mark)) /* its text is the next call's */
        reader->held.length -= reader->form->marks[mark].length;
    if (mark != ANSWER_MARK_CALL)
        return;
    answer_reader_again(reader);
    answer_reader_unmark(reader, mark, answer_reader_hold);
}
