/* Calls as Hermes' models write them, and Qwen's 2.5 and 3: each an object between two marks. */
#include "daemon/answer/answer_reader.h"
#include "daemon/answer/call_format.h"

enum { BEFORE, OBJECT, BEHIND };

static void begin(struct answer_reader *reader)
{
    reader->call_state = BEFORE;
    reader->named = false;
}

static void byte(struct answer_reader *reader, char byte)
{
    switch (reader->call_state) {
    case BEFORE:
        if (byte == '{') {
            reader->call_state = OBJECT;
            answer_reader_open(reader);
            answer_reader_object(reader, byte);
            return;
        }
        answer_reader_hold(reader, byte);
        if (!json_scan_space(byte))
            answer_reader_no_call(reader);
        return;
    case OBJECT:
        if (answer_reader_object(reader, byte))
            reader->call_state = BEHIND;
        return;
    default:
        if (json_scan_space(byte) && reader->held.length == 0)
            return;
        int found = answer_reader_mark(reader, ANSWER_MARK_SECOND, 0, byte);
        if (found == 1)
            reader->held.length = 0;
        if (found != 0)
            answer_reader_behind(reader);
    }
}

static void mark(struct answer_reader *reader, enum answer_mark_kind mark)
{
    if (mark != ANSWER_MARK_SECOND && mark != ANSWER_MARK_CALL)
        return;
    if (!reader->named)
        answer_reader_no_call(reader);
    else
        answer_reader_behind(reader);
    if (mark == ANSWER_MARK_CALL)
        answer_reader_again(reader);
}

const struct call_format call_format_hermes = {
    .name = "hermes",
    .needs = {"<tool_call>"},
    .lacks = {"<function=", "<arg_key>"}, /* others' calls between the same marks */
    .marks = {"<tool_call>", "</tool_call>"},
    .closes = ANSWER_MARK_SECOND,
    .shape = {.open = "",
              .name = "\1\n{\"name\": \"",
              .between = "\", \"arguments\": ",
              .close = "}\n\2",
              .next = "\n",
              .end = ""},
    .begin = begin,
    .byte = byte,
    .mark = mark,
};
