/* Calls as Llama 3.1 and later write them: objects that are the answer, with ; between them. A mark
 * before them is no must. An object is a call if its name is a tool's: else it may be any JSON. */
#include "daemon/answer/answer_reader.h"
#include "daemon/answer/call_format.h"

enum { BEFORE, OBJECT, BEHIND, BETWEEN };

static void begin(struct answer_reader *reader)
{
    reader->call_state = BEFORE;
    reader->named = false;
}

static void open(struct answer_reader *reader, char byte)
{
    reader->call_state = OBJECT;
    answer_reader_open(reader);
    answer_reader_object(reader, byte);
}

static void byte(struct answer_reader *reader, char byte)
{
    if (reader->call_state == OBJECT) {
        if (answer_reader_object(reader, byte))
            reader->call_state = BEHIND;
        return;
    }
    if (byte == '{' && reader->call_state != BEHIND) {
        open(reader, byte);
        return;
    }
    answer_reader_hold(reader, byte);
    if (json_scan_space(byte))
        return;
    if (reader->call_state == BEHIND && byte == ';')
        reader->call_state = BETWEEN;
    else if (reader->call_state == BEFORE)
        answer_reader_no_call(reader);
    else
        answer_reader_behind(reader);
}

static void mark(struct answer_reader *reader, enum answer_mark_kind mark)
{
    if (mark != ANSWER_MARK_CALL || (reader->call_state == OBJECT && reader->named))
        return;
    if (reader->named)
        answer_reader_behind(reader);
    else
        answer_reader_no_call(reader);
    answer_reader_again(reader);
}

const struct call_format call_format_llama3 = {
    .name = "llama3",
    .needs = {"<|start_header_id|>", "\"parameters\": "},
    .marks = {"<|python_tag|>"},
    .bare = true,
    .shape = {.open = "",
              .name = "{\"name\": \"",
              .between = "\", \"parameters\": ",
              .close = "}",
              .next = "; ",
              .end = ""},
    .begin = begin,
    .byte = byte,
    .mark = mark,
};
