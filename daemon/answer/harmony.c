/* Answers as gpt-oss writes them (harmony): messages, each with a header and a body. A header says
 * a channel (analysis is thought, final and commentary are content) and whom the message is for: to
 * "functions.NAME" it is a call. The prompt ends inside the first header, or inside a body. */
#include <string.h>

#include "daemon/answer/answer_reader.h"
#include "daemon/answer/call_format.h"
#include "daemon/answer/reasoning.h"

#define HEADER_MAX 512u /* of what a header says; the rest of a longer one is nobody's */
#define TO "to="
#define FUNCTIONS "functions."

enum { START, HEADER, THOUGHT, CONTENT, ARGUMENTS };

static const struct reasoning_format thought = {"harmony", "<|channel|>analysis<|message|>",
                                                "<|end|>"};

static void begin(struct answer_reader *reader)
{
    reader->call_state = reader->thought ? THOUGHT : START;
}

/* ---- headers -----------------------------------------------------------------------------------
 */

/* A word of the header, up to a space or its end. */
struct word {
    const char *at;
    size_t length;
};

static struct word word_at(const struct buffer *header, size_t at)
{
    size_t end = at;
    while (end < header->length && !json_scan_space(header->data[end]))
        end++;
    return (struct word){header->data + at, end - at};
}

static bool begins(struct word word, const char *with)
{
    return word.length >= strlen(with) && memcmp(word.at, with, strlen(with)) == 0;
}

/* Whom the message is for; of no length: for everybody. */
static struct word recipient_of(const struct buffer *header)
{
    for (size_t at = 0; at < header->length;) {
        struct word word = word_at(header, at);
        if (begins(word, TO))
            return (struct word){word.at + strlen(TO), word.length - strlen(TO)};
        at += word.length + 1;
    }
    return (struct word){NULL, 0};
}

/* The word behind the mark of channels, which stands in the header as the end of a line. */
static struct word channel_of(const struct buffer *header)
{
    const char *mark = header->length > 0 ? memrchr(header->data, '\n', header->length) : NULL;
    return mark ? word_at(header, (size_t)(mark + 1 - header->data)) : (struct word){NULL, 0};
}

/* The name of a tool that the request has. */
static bool calls(const struct answer_reader *reader, struct word recipient, struct word *ret_name)
{
    size_t skip = strlen(FUNCTIONS);
    if (!reader->tools || !begins(recipient, FUNCTIONS) || recipient.length == skip ||
        recipient.length - skip > CALL_NAME_MAX)
        return false;
    *ret_name = (struct word){recipient.at + skip, recipient.length - skip};
    for (size_t i = 0; i < ret_name->length; i++)
        if (!call_name_takes(ret_name->at[i]))
            return false;
    return answer_reader_knows(reader, ret_name->at, ret_name->length);
}

static void body_begin(struct answer_reader *reader)
{
    struct word recipient = recipient_of(&reader->header), name;
    if (calls(reader, recipient, &name)) {
        answer_reader_call(reader, name.at, name.length);
        reader->call_state = ARGUMENTS;
    } else {
        struct word channel = channel_of(&reader->header);
        bool thinks = channel.length == strlen("analysis") && begins(channel, "analysis");
        reader->call_state = thinks ? THOUGHT : CONTENT;
    }
    reader->header.length = 0;
}

/* ---- in ----------------------------------------------------------------------------------------
 */

static void header_byte(struct answer_reader *reader, char byte)
{
    if (reader->header.length < HEADER_MAX)
        reader->failed |= !buffer_append(&reader->header, &byte, 1, SIZE_MAX);
}

/* What the prompt's header may go on with is whom the message is for; else the answer has none. */
static void start_byte(struct answer_reader *reader, char byte)
{
    struct buffer *header = &reader->header;
    size_t spaces = 0;
    header_byte(reader, byte);
    while (spaces < header->length && json_scan_space(header->data[spaces]))
        spaces++;
    size_t length = header->length - spaces;
    if (length == 0 || memcmp(header->data + spaces, TO, length) != 0) {
        if (length == 0)
            return;
        reader->call_state = CONTENT;
        answer_reader_tell(reader, ANSWER_CONTENT, header->data, header->length);
        header->length = 0;
    } else if (length == strlen(TO)) {
        reader->call_state = HEADER;
    }
}

static void byte(struct answer_reader *reader, char byte)
{
    switch (reader->call_state) {
    case START:
        start_byte(reader, byte);
        return;
    case HEADER:
        header_byte(reader, byte);
        return;
    default:
        answer_reader_tell(reader,
                           reader->call_state == THOUGHT   ? ANSWER_REASONING
                           : reader->call_state == CONTENT ? ANSWER_CONTENT
                                                           : ANSWER_ARGUMENTS,
                           &byte, 1);
    }
}

/* A body ends with a mark of any kind but that of bodies. */
static void mark(struct answer_reader *reader, enum answer_mark_kind mark)
{
    bool inside = reader->call_state == START || reader->call_state == HEADER;
    if (mark == ANSWER_MARK_SECOND) {
        if (inside)
            body_begin(reader);
        return;
    }
    if (mark == ANSWER_MARK_THINK)
        reader->header.length = 0;
    reader->call_state = HEADER;
    header_byte(reader, mark == ANSWER_MARK_CALL ? '\n' : ' ');
}

const struct call_format call_format_harmony = {
    .name = "harmony",
    .needs = {"<|channel|>", "<|message|>"},
    .marks = {[ANSWER_MARK_CALL] = "<|channel|>",
              [ANSWER_MARK_SECOND] = "<|message|>",
              [ANSWER_MARK_THIRD] = "<|constrain|>",
              [ANSWER_MARK_THINK] = "<|start|>",
              [ANSWER_MARK_THINK_END] = "<|end|>"},
    .whole = true,
    .reasoning = &thought,
    .shape = {.open = "",
              .name = "\1commentary to=functions.",
              .between = " \3json\2",
              .close = "",
              .next = "",
              .end = "",
              .content = "\1final\2",
              .thought = "\1analysis\2",
              .behind = "\7assistant"},
    .begin = begin,
    .byte = byte,
    .mark = mark,
};
