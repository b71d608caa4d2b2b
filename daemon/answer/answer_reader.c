#include "daemon/answer/answer_reader.h"

#include <string.h>

#include "daemon/answer/call_format.h"

enum state {
    BEGINNING, /* of the answer, or behind what was thought */
    THINKING,
    CONTENT,
    CALLING,    /* the format reads */
    BROKEN_CALL /* arguments that ceased to be JSON: to the mark that closes, or the end */
};

static bool is_whole(const struct answer_reader *reader)
{
    return reader->form->calls && reader->form->calls->whole;
}

void answer_reader_init(struct answer_reader *reader, const struct answer_form *form, bool thinks,
                        bool tools, answer_sink sink, void *context)
{
    *reader = (struct answer_reader){.form = form,
                                     .tools = tools && form->calls,
                                     .state = thinks ? THINKING : BEGINNING,
                                     .thought = thinks,
                                     .fresh = thinks,
                                     .sink = sink,
                                     .context = context};
    if (!is_whole(reader))
        return;
    reader->state = CALLING;
    form->calls->begin(reader);
}

void answer_reader_free(struct answer_reader *reader)
{
    buffer_free(&reader->held);
    buffer_free(&reader->spaces);
    buffer_free(&reader->part);
    buffer_free(&reader->value.text);
    buffer_free(&reader->special);
    buffer_free(&reader->header);
    buffer_free(&reader->pending);
}

/* ---- out ---------------------------------------------------------------------------------------
 */

static void add(struct answer_reader *reader, struct buffer *buffer, const char *bytes,
                size_t length)
{
    reader->failed |= !buffer_append(buffer, bytes, length, SIZE_MAX);
}

static void send(struct answer_reader *reader, enum answer_part part, const char *text,
                 size_t length)
{
    const struct answer_event event = {.part = part,
                                       .call = reader->calls > 0 ? reader->calls - 1 : 0,
                                       .text = text,
                                       .length = length};
    reader->sink(reader->context, &event);
}

static void flush(struct answer_reader *reader)
{
    struct buffer *pending = &reader->pending;
    if (pending->length > 0)
        send(reader, reader->pending_part, pending->data, pending->length);
    pending->length = 0;
}

static void tell(struct answer_reader *reader, enum answer_part part, const char *bytes,
                 size_t length)
{
    if (length == 0)
        return;
    if (part != reader->pending_part)
        flush(reader);
    reader->pending_part = part;
    add(reader, &reader->pending, bytes, length);
}

static enum answer_part part_of(const struct answer_reader *reader)
{
    return reader->state == THINKING      ? ANSWER_REASONING
           : reader->state == BROKEN_CALL ? ANSWER_ARGUMENTS
                                          : ANSWER_CONTENT;
}

/* What is no mark, with the white space before it. */
static void say(struct answer_reader *reader, const char *bytes, size_t length)
{
    if (reader->state == BEGINNING)
        reader->state = CONTENT;
    if (!reader->fresh)
        tell(reader, part_of(reader), reader->spaces.data, reader->spaces.length);
    reader->spaces.length = 0;
    reader->fresh = false;
    reader->called = false;
    tell(reader, part_of(reader), bytes, length);
}

static void say_held(struct answer_reader *reader)
{
    say(reader, reader->held.data, reader->held.length);
    reader->held.length = 0;
}

/* ---- marks -------------------------------------------------------------------------------------
 */

/* 1: the bytes are the mark, 0: its beginning, -1: neither. */
static int match(const struct answer_mark *mark, const struct buffer *bytes, size_t from)
{
    size_t length = bytes->length - from;
    if (mark->length == 0 || length > mark->length ||
        memcmp(mark->text, bytes->data + from, length) != 0)
        return -1;
    return length == mark->length;
}

/* Marks that mean something now. */
static bool is_due(const struct answer_reader *reader, enum answer_mark_kind mark)
{
    switch ((enum state)reader->state) {
    case BEGINNING:
        return (mark == ANSWER_MARK_CALL && reader->tools) ||
               (mark == ANSWER_MARK_THINK && !reader->thought);
    case THINKING:
        return mark == ANSWER_MARK_THINK_END;
    case CONTENT:
        return mark == ANSWER_MARK_CALL && reader->tools;
    case BROKEN_CALL:
        return mark == ANSWER_MARK_CALL ? reader->form->marks[mark].text[0] == ANSWER_SPECIAL
                                        : mark == reader->form->calls->closes;
    case CALLING:
        return true;
    }
    return false;
}

/* A mark that means nothing where it stands has no text if it is a special token. */
static void take_mark(struct answer_reader *reader, enum answer_mark_kind mark)
{
    if (!is_due(reader, mark))
        return;
    if (reader->state == CALLING) {
        reader->form->calls->mark(reader, mark);
        return;
    }
    if (mark == ANSWER_MARK_CALL) { /* the white space before it may still be content's */
        reader->state = CALLING;
        reader->form->calls->begin(reader);
        return;
    }
    reader->held.length = 0;
    reader->spaces.length = 0;
    reader->fresh = reader->state != BROKEN_CALL;
    reader->thought = true;
    reader->state = mark == ANSWER_MARK_THINK       ? THINKING
                    : mark == ANSWER_MARK_THINK_END ? BEGINNING
                                                    : CONTENT;
}

/* Held bytes against the marks that are due. True: it waits, or a mark was taken. */
static bool look(struct answer_reader *reader)
{
    bool part = false;
    for (unsigned mark = 0; mark < ANSWER_MARKS; mark++) {
        int found = is_due(reader, (enum answer_mark_kind)mark)
                        ? match(&reader->form->marks[mark], &reader->held, 0)
                        : -1;
        if (found == 1) {
            take_mark(reader, (enum answer_mark_kind)mark);
            return true;
        }
        part |= found == 0;
    }
    return part;
}

static void drop_first(struct buffer *held)
{
    held->length--;
    memmove(held->data, held->data + 1, held->length);
}

static bool begins_bare(const struct answer_reader *reader, char byte)
{
    return reader->state == BEGINNING && reader->tools && reader->form->calls->bare && byte == '{';
}

/* What is held, as far as it can be told. */
static void settle(struct answer_reader *reader)
{
    struct buffer *held = &reader->held;
    while (held->length > 0 && !look(reader)) {
        if (json_scan_space(held->data[0]))
            add(reader, &reader->spaces, held->data, 1);
        else
            say(reader, held->data, 1);
        drop_first(held);
    }
}

static void text_byte(struct answer_reader *reader, char byte)
{
    if (reader->held.length == 0 && json_scan_space(byte)) {
        add(reader, &reader->spaces, &byte, 1);
        return;
    }
    if (reader->held.length == 0 && begins_bare(reader, byte)) {
        reader->state = CALLING;
        reader->form->calls->begin(reader);
        reader->form->calls->byte(reader, byte);
        return;
    }
    answer_reader_hold(reader, byte);
    settle(reader);
}

/* Of a format that is whole: what is held is marks, which mean something anywhere, or its bytes.
 * `ends`: no more comes that could make a mark of it. */
static void whole_settle(struct answer_reader *reader, bool ends)
{
    struct buffer *held = &reader->held;
    while (held->length > 0) {
        bool part = false;
        for (unsigned mark = 0; mark < ANSWER_MARKS; mark++) {
            int found = match(&reader->form->marks[mark], held, 0);
            if (found == 1) {
                held->length = 0;
                reader->form->calls->mark(reader, (enum answer_mark_kind)mark);
                return;
            }
            part |= found == 0;
        }
        if (part && !ends)
            return;
        char byte = held->data[0];
        drop_first(held);
        reader->form->calls->byte(reader, byte);
    }
}

/* Amid calls of a format that is marked: bytes and marks, told apart. What the format gave back
 * meanwhile is a text's. `ends`: as above. */
static void marked_settle(struct answer_reader *reader, bool ends)
{
    struct buffer *rest = &reader->part;
    while (rest->length > 0) {
        bool part = false;
        for (unsigned mark = 0; mark < ANSWER_MARKS && reader->state == CALLING; mark++) {
            int found = match(&reader->form->marks[mark], rest, 0);
            if (found == 1) {
                if (!reader->named)
                    add(reader, &reader->held, rest->data, rest->length);
                rest->length = 0;
                reader->form->calls->mark(reader, (enum answer_mark_kind)mark);
                return;
            }
            part |= found == 0;
        }
        if (part && !ends)
            return;
        char byte = rest->data[0];
        drop_first(rest);
        if (reader->state == CALLING)
            reader->form->calls->byte(reader, byte);
        else
            text_byte(reader, byte);
    }
}

static bool is_marked(const struct answer_reader *reader)
{
    return reader->state == CALLING && reader->form->calls->marked;
}

static void byte_of_special(struct answer_reader *reader, char byte)
{
    bool part = false;
    add(reader, &reader->special, &byte, 1);
    for (unsigned mark = 0; mark < ANSWER_MARKS; mark++) {
        int found = match(&reader->form->marks[mark], &reader->special, 0);
        if (found == 1) {
            reader->special.length = 0;
            if (is_whole(reader))
                whole_settle(reader, true);
            else
                marked_settle(reader, true);
            if (!is_whole(reader) && reader->state != CALLING && reader->held.length > 0)
                say_held(reader);
            take_mark(reader, (enum answer_mark_kind)mark);
            return;
        }
        part |= found == 0;
    }
    if (!part)
        reader->special.length = 0;
}

/* ---- for formats -------------------------------------------------------------------------------
 */

void answer_reader_hold(struct answer_reader *reader, char byte)
{
    add(reader, &reader->held, &byte, 1);
}

void answer_reader_tell(struct answer_reader *reader, enum answer_part part, const char *bytes,
                        size_t length)
{
    tell(reader, part, bytes, length);
}

void answer_reader_unmark(struct answer_reader *reader, enum answer_mark_kind mark,
                          void (*byte)(struct answer_reader *reader, char byte))
{
    const struct answer_mark *text = &reader->form->marks[mark];
    for (uint8_t i = 0; i < text->length && text->text[0] != ANSWER_SPECIAL; i++)
        byte(reader, text->text[i]);
}

void answer_reader_call(struct answer_reader *reader, const char *name, size_t length)
{
    flush(reader);
    reader->held.length = 0;
    reader->spaces.length = 0;
    reader->named = true;
    reader->calls++;
    send(reader, ANSWER_CALL, name, length);
}

void answer_reader_arguments(struct answer_reader *reader, const char *bytes, size_t length)
{
    tell(reader, ANSWER_ARGUMENTS, bytes, length);
}

void answer_reader_no_call(struct answer_reader *reader)
{
    reader->state = CONTENT;
    if (reader->held.length > 0)
        say_held(reader);
}

void answer_reader_behind(struct answer_reader *reader)
{
    reader->state = CONTENT;
    reader->fresh = false;
    reader->called = true;
    settle(reader);
}

bool answer_reader_knows(const struct answer_reader *reader, const char *name, size_t length)
{
    const char *at = reader->names;
    for (; at && *at; at += strlen(at) + 1)
        if (strlen(at) == length && memcmp(at, name, length) == 0)
            return true;
    return !reader->names;
}

void answer_reader_open(struct answer_reader *reader)
{
    reader->named = false;
    call_object_begin(&reader->object);
}

bool answer_reader_object(struct answer_reader *reader, char byte)
{
    struct call_object *object = &reader->object;
    enum call_object_result result = call_object_byte(object, byte);
    bool stranger = object->has_arguments && !reader->named &&
                    !answer_reader_knows(reader, object->name, object->name_length);
    if (result == CALL_OBJECT_ARGUMENTS && !stranger) {
        if (!reader->named)
            answer_reader_call(reader, object->name, object->name_length);
        answer_reader_arguments(reader, &byte, 1);
        return false;
    }
    if (result == CALL_OBJECT_BAD && reader->named) {
        answer_reader_broken(reader, byte);
        return false;
    }
    if (!reader->named)
        answer_reader_hold(reader, byte);
    if (stranger || result == CALL_OBJECT_BAD) {
        answer_reader_no_call(reader);
        return false;
    }
    if (result == CALL_OBJECT_CLOSED && !reader->named) {
        if (!answer_reader_knows(reader, object->name, object->name_length)) {
            answer_reader_no_call(reader);
            return false;
        }
        answer_reader_call(reader, object->name, object->name_length); /* it takes nothing */
        answer_reader_arguments(reader, "{}", 2);
    }
    return result == CALL_OBJECT_CLOSED;
}

void answer_reader_broken(struct answer_reader *reader, char byte)
{
    reader->state = BROKEN_CALL;
    reader->fresh = false;
    text_byte(reader, byte);
}

void answer_reader_again(struct answer_reader *reader)
{
    if (!reader->named)
        answer_reader_no_call(reader);
    reader->state = CALLING;
    reader->form->calls->begin(reader);
}

int answer_reader_mark(struct answer_reader *reader, enum answer_mark_kind mark, size_t from,
                       char byte)
{
    answer_reader_hold(reader, byte);
    return match(&reader->form->marks[mark], &reader->held, from);
}

/* ---- in ----------------------------------------------------------------------------------------
 */

void answer_reader_push(struct answer_reader *reader, const char *text, size_t length)
{
    for (size_t i = 0; i < length && !reader->failed; i++) {
        if (text[i] == ANSWER_SPECIAL || reader->special.length > 0) {
            byte_of_special(reader, text[i]);
        } else if (is_whole(reader)) {
            answer_reader_hold(reader, text[i]);
            whole_settle(reader, false);
        } else if (is_marked(reader)) {
            add(reader, &reader->part, &text[i], 1);
            marked_settle(reader, false);
        } else if (reader->state == CALLING) {
            reader->form->calls->byte(reader, text[i]);
        } else {
            text_byte(reader, text[i]);
        }
    }
    flush(reader);
}

void answer_reader_finish(struct answer_reader *reader)
{
    bool around = reader->fresh || reader->called;
    if (reader->failed)
        return;
    marked_settle(reader, true);
    if (is_whole(reader))
        whole_settle(reader, true);
    else if (reader->state == CALLING && !reader->named)
        answer_reader_no_call(reader);
    else if (reader->state == CALLING)
        reader->held.length = 0;
    else if (reader->held.length > 0)
        say_held(reader);
    else if (!around && reader->spaces.length > 0)
        say(reader, "", 0);
    flush(reader);
}
