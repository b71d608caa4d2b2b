/* Reads an answer's text as it comes, and says what its parts are: what the model thought, what it
 * says, and its calls of tools.
 *
 * Events come in the order of the text; those of one part in a row are one text in pieces, and how
 * the text was cut says nothing but where pieces end. What may still become a mark is held back.
 * Nothing is repaired: arguments come as they were written, and where the text ends they end. What
 * begins like a call and is none is content. White space that stands around marks alone is
 * nobody's.
 *
 * Pure: text in, events out. One thread; the form must outlive it.
 */
#pragma once

#include "daemon/answer/answer_form.h"
#include "daemon/answer/call_object.h"
#include "daemon/answer/call_value.h"
#include "daemon/base/buffer.h"

enum answer_part { ANSWER_REASONING, ANSWER_CONTENT, ANSWER_CALL, ANSWER_ARGUMENTS };

struct answer_event {
    enum answer_part part;
    uint32_t call;    /* CALL, ARGUMENTS: which, from 0 */
    const char *text; /* CALL: the name; borrowed until the sink returns */
    size_t length;
};

typedef void (*answer_sink)(void *context, const struct answer_event *event);

struct answer_reader {
    const struct answer_form *form;
    answer_sink sink;
    void *context;
    bool tools;        /* calls are looked for */
    const char *names; /* of the tools, each with a 0 behind it, and a 0; NULL: any name */
    const char *types; /* of their parameters (argument_types.h); NULL: not known */
    uint8_t state;
    uint8_t call_state;    /* the format's */
    bool thought;          /* it has thought, or may not any more */
    bool fresh;            /* behind a mark: white space there is nobody's */
    bool called;           /* behind a call: what ends here has no white space */
    bool named;            /* the call that is read has its name */
    bool failed;           /* out of memory: events are missing */
    uint32_t calls;        /* that have begun */
    struct buffer held;    /* what may be a mark, or a call */
    struct buffer spaces;  /* that may stand before one */
    struct buffer part;    /* of a mark that is a text, amid calls of a format that is marked */
    struct buffer special; /* a special token's name, on its way */
    struct buffer header;  /* of a message, where the format is whole */
    struct buffer pending; /* of one part, not told yet */
    enum answer_part pending_part;
    struct call_object object;
    struct call_value value;
};

/* thinks: the prompt ends amid what the model thinks. tools: whether it was given any. */
void answer_reader_init(struct answer_reader *reader, const struct answer_form *form, bool thinks,
                        bool tools, answer_sink sink, void *context);
void answer_reader_push(struct answer_reader *reader, const char *text, size_t length);
/* The text has ended. */
void answer_reader_finish(struct answer_reader *reader);
void answer_reader_free(struct answer_reader *reader); /* zeroed memory is allowed */

/* ---- for formats -------------------------------------------------------------------------------
 */

/* A byte that may yet turn out to be content. */
void answer_reader_hold(struct answer_reader *reader, char byte);
/* More of a part, where the format is whole. */
void answer_reader_tell(struct answer_reader *reader, enum answer_part part, const char *bytes,
                        size_t length);
/* The text of a mark that means nothing where it stands, byte by byte; a special token has none. */
void answer_reader_unmark(struct answer_reader *reader, enum answer_mark_kind mark,
                          void (*byte)(struct answer_reader *reader, char byte));
/* What is held belongs to a call: it is nobody's text from here on. */
void answer_reader_call(struct answer_reader *reader, const char *name, size_t length);
void answer_reader_arguments(struct answer_reader *reader, const char *bytes, size_t length);
/* What is held is no call. */
void answer_reader_no_call(struct answer_reader *reader);
/* Calls are over: content, or another mark. What is held is looked at again. */
void answer_reader_behind(struct answer_reader *reader);
/* Whether the request has a tool of this name. */
bool answer_reader_knows(const struct answer_reader *reader, const char *name, size_t length);
/* The next call's object begins with the byte. */
void answer_reader_open(struct answer_reader *reader);
/* The next byte of the object. True: it has ended well. Where it was no call, or ceased to be JSON,
 * the format's reading is over. */
bool answer_reader_object(struct answer_reader *reader, char byte);
/* The arguments ceased to be JSON with the byte: they go on as they are, to the mark that closes.
 */
void answer_reader_broken(struct answer_reader *reader, char byte);
/* The mark of calls was read amid the format's bytes: it begins once more. */
void answer_reader_again(struct answer_reader *reader);
/* A byte of what may be the mark, whose text is held from `from` on. 1: it is, 0: it may be, -1: it
 * is not. */
int answer_reader_mark(struct answer_reader *reader, enum answer_mark_kind mark, size_t from,
                       char byte);
