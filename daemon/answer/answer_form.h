/* How a model writes what is no plain text in its answers: calls of tools, and what it thinks. Its
 * chat template says so, by the marks that stand in it.
 *
 * A mark is a text, or a special token where the tokenizer has it as one. A special token stands in
 * a text as the byte 255 and its name, which no text can hold: so a mark that somebody merely
 * spells out is no mark.
 *
 * Found once, with the model; not changed afterwards: any thread reads it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ANSWER_MARK_MAX 32u
#define ANSWER_SHOWN_MAX 8u
#define ANSWER_SPECIAL '\xff'

/* Marks of calls, and of what is thought. */
enum answer_mark_kind {
    ANSWER_MARK_CALL, /* begins calls */
    ANSWER_MARK_SECOND,
    ANSWER_MARK_THIRD,
    ANSWER_MARK_FOURTH,
    ANSWER_MARK_FIFTH,
    ANSWER_MARK_SIXTH,
    ANSWER_MARK_THINK,
    ANSWER_MARK_THINK_END,
    ANSWER_MARKS
};

struct call_format;
struct reasoning_format;
struct tokenizer;

struct answer_mark {
    char text[ANSWER_MARK_MAX + 1]; /* as it stands in a text; not terminated */
    uint8_t length;                 /* 0: there is none */
};

struct answer_form {
    const struct call_format *calls;          /* NULL: none that is known */
    const struct reasoning_format *reasoning; /* likewise */
    struct answer_mark marks[ANSWER_MARKS];
    int32_t shown[ANSWER_SHOWN_MAX]; /* special tokens that are marks */
    uint32_t shown_count;
};

/* tokenizer: NULL: all marks are texts. */
void answer_form_find(struct answer_form *form, const char *chat_template,
                      const struct tokenizer *tokenizer);
/* How a prompt ends, white space aside: with the mark that begins what the model is to think, or
 * with the one that ends it. */
bool answer_form_thinks(const struct answer_form *form, const char *prompt, size_t length);
bool answer_form_thought(const struct answer_form *form, const char *prompt, size_t length);
