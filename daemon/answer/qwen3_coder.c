/* Calls as Qwen3-Coder and Qwen 3.5 write them: between two marks a function by its name, and each
 * of its parameters as a text on lines of its own. */
#include "daemon/answer/answer_reader.h"
#include "daemon/answer/argument_types.h"
#include "daemon/answer/call_format.h"
#include "daemon/answer/call_tags.h"

enum { BEFORE, NAME, MEMBERS, KEY, VALUE, BEHIND };

static void begin(struct answer_reader *reader)
{
    reader->call_state = BEFORE;
    reader->named = false;
}

static void name_byte(struct answer_reader *reader, char byte)
{
    if (byte != '>') {
        call_tags_name(reader, byte);
        return;
    }
    answer_reader_hold(reader, byte);
    if (call_tags_named(reader, true))
        reader->call_state = MEMBERS;
}

static void byte(struct answer_reader *reader, char byte)
{
    switch (reader->call_state) {
    case BEFORE:
        answer_reader_hold(reader, byte);
        if (!json_scan_space(byte))
            answer_reader_no_call(reader);
        return;
    case NAME:
        name_byte(reader, byte);
        return;
    case MEMBERS:
        if (!json_scan_space(byte))
            answer_reader_broken(reader, byte);
        return;
    case KEY:
        if (byte == '>') {
            call_value_begin(reader);
            reader->call_state = VALUE;
        } else {
            call_tags_key(reader, byte);
        }
        return;
    case VALUE:
        call_value_byte(reader, byte);
        return;
    default:
        call_tags_behind(reader, byte);
    }
}

static void member_mark(struct answer_reader *reader, enum answer_mark_kind mark)
{
    if (mark == ANSWER_MARK_FIFTH) {
        reader->call_state = KEY;
        reader->value.key_length = 0;
    } else if (mark == ANSWER_MARK_FOURTH) {
        call_value_close(reader);
        reader->call_state = BEHIND;
    } else {
        call_tags_stray(reader, mark);
    }
}

static void mark(struct answer_reader *reader, enum answer_mark_kind mark)
{
    if (reader->call_state == BEFORE && mark == ANSWER_MARK_THIRD) {
        reader->call_state = NAME;
        reader->object.name_length = 0;
    } else if (reader->call_state == MEMBERS) {
        member_mark(reader, mark);
    } else if (reader->call_state == VALUE) {
        if (call_tags_value(reader, mark))
            reader->call_state = MEMBERS;
    } else {
        call_tags_stray(reader, mark);
    }
}

const struct call_format call_format_qwen3_coder = {
    .name = "qwen3-coder",
    .needs = {"<tool_call>", "<function="},
    .marks = {"<tool_call>", "</tool_call>", "<function=", "</function>",
              "<parameter=", "</parameter>"},
    .closes = ANSWER_MARK_SECOND,
    .marked = true,
    .untyped = ARGUMENT_STRING,
    .shape = {.open = "",
              .name = "\1\n\3",
              .between = ">\n",
              .close = "\4\n\2",
              .next = "\n",
              .end = "",
              .key = "\5",
              .value = ">\n",
              .last = "\n",
              .after = "\n"},
    .begin = begin,
    .byte = byte,
    .mark = mark,
};
