/* Calls as DeepSeek's models write them: between two marks a list, each call between two marks of
 * its own. V3 and R1 write "function", a third mark, the name and the arguments in a fence; V3.1
 * the name, that mark, and the arguments. Either is read of both. */
#include <string.h>

#include "daemon/answer/answer_reader.h"
#include "daemon/answer/call_format.h"
#include "daemon/answer/call_tags.h"

enum { BEFORE, HEAD, AFTER, NAME, FENCE, ARGUMENTS, BEHIND };

static void begin(struct answer_reader *reader)
{
    reader->call_state = BEFORE;
    reader->named = false;
}

static void give_up(struct answer_reader *reader, char byte)
{
    answer_reader_hold(reader, byte);
    answer_reader_no_call(reader);
}

static void begin_arguments(struct answer_reader *reader, char byte)
{
    if (call_tags_arguments(reader, byte))
        reader->call_state = ARGUMENTS;
}

static void argument_byte(struct answer_reader *reader, char byte)
{
    if (reader->call_state != ARGUMENTS) /* they broke amid a mark's text */
        answer_reader_broken(reader, byte);
    else if (call_tags_argument(reader, byte) != JSON_SCAN_MORE)
        reader->call_state = BEHIND;
}

/* Behind the third mark: the arguments, or the name. */
static void after_byte(struct answer_reader *reader, char byte)
{
    if (byte == '{') {
        begin_arguments(reader, byte);
    } else if (json_scan_space(byte)) {
        answer_reader_hold(reader, byte);
    } else {
        reader->object.name_length = 0;
        reader->call_state = NAME;
        call_tags_name(reader, byte);
    }
}

static void byte(struct answer_reader *reader, char byte)
{
    bool fence = byte == '`' || json_scan_space(byte);
    switch (reader->call_state) {
    case HEAD:
        call_tags_name(reader, byte);
        return;
    case AFTER:
        after_byte(reader, byte);
        return;
    case NAME:
        if (!json_scan_space(byte)) {
            call_tags_name(reader, byte);
            return;
        }
        answer_reader_hold(reader, byte);
        reader->call_state = FENCE;
        return;
    case FENCE:
        if (byte == '{')
            begin_arguments(reader, byte);
        else if (fence || (byte && strchr("json", byte)))
            answer_reader_hold(reader, byte);
        else
            give_up(reader, byte);
        return;
    case ARGUMENTS:
        argument_byte(reader, byte);
        return;
    case BEHIND:
        if (fence)
            return;
        answer_reader_hold(reader, byte);
        answer_reader_behind(reader);
        return;
    default:
        answer_reader_hold(reader, byte);
        if (!json_scan_space(byte))
            answer_reader_no_call(reader);
    }
}

static void mark(struct answer_reader *reader, enum answer_mark_kind mark)
{
    uint8_t state = reader->call_state;
    if (mark == ANSWER_MARK_SECOND && (state == BEFORE || state == BEHIND)) {
        if (reader->named) /* the text of an earlier call's mark was not held */
            answer_reader_unmark(reader, mark, answer_reader_hold);
        reader->named = false;
        reader->object.name_length = 0;
        reader->call_state = HEAD;
    } else if (mark == ANSWER_MARK_THIRD && state == HEAD) {
        reader->call_state = AFTER;
    } else if (state == ARGUMENTS && !call_tags_special(reader, mark)) {
        answer_reader_unmark(reader, mark, argument_byte);
    } else if (mark != ANSWER_MARK_FOURTH || state != BEHIND) {
        call_tags_stray(reader, mark);
    }
}

#define CALLS_BEGIN "<｜tool▁calls▁begin｜>"
#define MARKS                                                                                      \
    {                                                                                              \
        CALLS_BEGIN, "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>",             \
            "<｜tool▁calls▁end｜>"                                                           \
    }

const struct call_format call_format_deepseek = {
    .name = "deepseek",
    .needs = {CALLS_BEGIN, "tools"}, /* those that tell models of their tools */
    .marks = MARKS,
    .closes = ANSWER_MARK_FIFTH,
    .marked = true,
    .shape = {.open = "\1",
              .name = "\2function\3",
              .between = "\n```json\n",
              .close = "\n```\4",
              .next = "\n",
              .end = "\5"},
    .begin = begin,
    .byte = byte,
    .mark = mark,
};

const struct call_format call_format_deepseek31 = {
    .name = "deepseek, 3.1",
    .needs = {CALLS_BEGIN, "tools"},
    .lacks = {"```json"},
    .marks = MARKS,
    .closes = ANSWER_MARK_FIFTH,
    .marked = true,
    .shape = {.open = "\1", .name = "\2", .between = "\3", .close = "\4", .next = "", .end = "\5"},
    .begin = begin,
    .byte = byte,
    .mark = mark,
};
