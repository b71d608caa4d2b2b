/* Calls as GLM-4.5 and later write them: between two marks a name, and each argument's name and
 * value between marks of their own. */
#include "daemon/answer/answer_reader.h"
#include "daemon/answer/argument_types.h"
#include "daemon/answer/call_format.h"
#include "daemon/answer/call_tags.h"

enum { NAME, MEMBERS, KEY, BETWEEN, VALUE };

static void begin(struct answer_reader *reader)
{
    reader->call_state = NAME;
    reader->named = false;
    reader->object.name_length = 0;
}

static void byte(struct answer_reader *reader, char byte)
{
    switch (reader->call_state) {
    case NAME:
        if (!json_scan_space(byte)) {
            call_tags_name(reader, byte);
            return;
        }
        answer_reader_hold(reader, byte);
        if (reader->object.name_length > 0 && call_tags_named(reader, false))
            reader->call_state = MEMBERS;
        return;
    case KEY:
        call_tags_key(reader, byte);
        return;
    case VALUE:
        call_value_byte(reader, byte);
        return;
    default:
        if (!json_scan_space(byte))
            answer_reader_broken(reader, byte);
    }
}

static void member_mark(struct answer_reader *reader, enum answer_mark_kind mark)
{
    if (mark == ANSWER_MARK_THIRD) {
        reader->call_state = KEY;
        reader->value.key_length = 0;
    } else if (mark == ANSWER_MARK_SECOND) {
        call_value_close(reader);
        answer_reader_behind(reader);
    } else {
        call_tags_stray(reader, mark);
    }
}

static void mark(struct answer_reader *reader, enum answer_mark_kind mark)
{
    if (reader->call_state == NAME && (mark == ANSWER_MARK_SECOND || mark == ANSWER_MARK_THIRD)) {
        if (call_tags_named(reader, false))
            member_mark(reader, mark);
    } else if (reader->call_state == MEMBERS) {
        member_mark(reader, mark);
    } else if (reader->call_state == KEY && mark == ANSWER_MARK_FOURTH) {
        reader->call_state = BETWEEN;
    } else if (reader->call_state == BETWEEN && mark == ANSWER_MARK_FIFTH) {
        call_value_begin(reader);
        reader->call_state = VALUE;
    } else if (reader->call_state == VALUE) {
        if (call_tags_value(reader, mark))
            reader->call_state = MEMBERS;
    } else {
        call_tags_stray(reader, mark);
    }
}

const struct call_format call_format_glm45 = {
    .name = "glm4.5",
    .needs = {"<tool_call>", "<arg_key>"},
    .marks = {"<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>",
              "</arg_value>"},
    .closes = ANSWER_MARK_SECOND,
    .marked = true,
    .untyped = ARGUMENT_ANY,
    .shape = {.open = "",
              .name = "\1",
              .between = "\n",
              .close = "\2",
              .next = "\n",
              .end = "",
              .key = "\3",
              .value = "\4\n\5",
              .last = "",
              .after = "\n"},
    .begin = begin,
    .byte = byte,
    .mark = mark,
};
