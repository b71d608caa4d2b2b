/* Calls as a list of objects behind a mark: Granite's 3 write <|tool_call|> before it, and
 * Phi-4-mini the word functools. */
#include "daemon/answer/call_format.h"
#include "daemon/answer/call_list.h"

enum { BEFORE = CALL_LIST_STATES };

static void begin(struct answer_reader *reader)
{
    reader->call_state = BEFORE;
    reader->named = false;
}

static void byte(struct answer_reader *reader, char byte)
{
    if (reader->call_state != BEFORE) {
        call_list_byte(reader, byte);
    } else if (byte == '[') {
        call_list_begin(reader, byte);
    } else {
        answer_reader_hold(reader, byte);
        if (!json_scan_space(byte))
            answer_reader_no_call(reader);
    }
}

static void mark(struct answer_reader *reader, enum answer_mark_kind mark)
{
    if (mark == ANSWER_MARK_CALL)
        answer_reader_again(reader);
}

const struct call_format call_format_granite = {
    .name = "granite",
    .needs = {"<|tool_call|>"},
    .marks = {"<|tool_call|>"},
    .shape = CALL_LIST_SHAPE,
    .begin = begin,
    .byte = byte,
    .mark = mark,
};

const struct call_format call_format_phi4_mini = {
    .name = "phi4-mini",
    .needs = {"functools["},
    .marks = {"functools"},
    .shape = CALL_LIST_SHAPE,
    .begin = begin,
    .byte = byte,
    .mark = mark,
};
