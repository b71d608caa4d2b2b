/* How models write calls of tools: a table (call_formats.def), one file for each line. A format is
 * a reader of what follows the mark that begins calls, and a shape, by which calls are constrained.
 */
#pragma once

#include <stdbool.h>

#include "daemon/answer/answer_form.h"

struct answer_reader;
struct reasoning_format;

/* Texts around the parts of calls; \1 and on stand for the format's marks. */
struct call_shape {
    const char *open;    /* before the first call */
    const char *name;    /* before a name */
    const char *between; /* before the arguments */
    const char *close;   /* behind them */
    const char *next;    /* between calls */
    const char *end;     /* behind the last */
    /* Where arguments are texts between marks, of which the sixth ends one: before an argument's
     * name, before its value, and around the sixth. NULL: arguments are JSON. */
    const char *key, *value, *last, *after;
    /* Of a format that is whole: before content, before what is thought, and behind that. */
    const char *content, *thought, *behind;
};

struct call_format {
    const char *name;
    const char *needs[2], *lacks[2]; /* parts of a chat template; NULL: no more */
    const char *marks[ANSWER_MARKS]; /* the first begins calls; of thought only if it is whole */
    enum answer_mark_kind closes; /* the mark that ends a call; ANSWER_MARK_CALL: there is none */
    bool whole;                   /* it reads all of an answer; one call is all there may be */
    const struct reasoning_format *reasoning; /* that it has; NULL: what the template says */
    unsigned untyped; /* what such a text may be where its tool's schema says nothing of it */
    bool marked;      /* amid calls all of its marks come as such, those that are texts, too */
    bool bare;        /* a call may stand at an answer's beginning without its mark */
    bool short_ids;   /* the template takes ids of nine letters and digits, no others */
    struct call_shape shape;
    /* Calls begin: behind the mark, or, bare, before a bracket. What is held is the mark. Whole:
     * the answer begins. */
    void (*begin)(struct answer_reader *reader);
    /* Bytes and marks are the format's until it gives them back (answer_reader_no_call and
     * answer_reader_behind). Marked: the text of a mark is held until the call has its name. */
    void (*byte)(struct answer_reader *reader, char byte);
    void (*mark)(struct answer_reader *reader, enum answer_mark_kind mark);
};

#define FORMAT(format) extern const struct call_format format;
#include "daemon/answer/call_formats.def"
#undef FORMAT

/* NULL: none of the table fits the template. */
const struct call_format *call_format_find(const char *chat_template);
