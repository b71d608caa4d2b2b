/* Conversation: messages, and what else goes into a chat template, as HTTP bodies and the native
 * protocol have them. One set of rules for both.
 *
 * The fields borrow from a document, which is the conversation's own when conversation_parse() made
 * it. Any thread; one at a time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "protocol/base/error.h"
#include "protocol/base/json.h"

struct halt;
struct language;

#define CONVERSATION_DEPTH_MAX 32
#define CONVERSATION_VALUES_MAX (1u << 20)

struct conversation {
    json *document;                       /* owned; NULL: the fields are of somebody else's */
    const json *messages, *tools, *extra; /* tools and extra: NULL where there are none */
    json *rewritten; /* owned; the messages, where templates expect them in another form */
    bool add_generation_prompt;
};

/* Nothing yet: what fields are put into. */
void conversation_init(struct conversation *conversation);
/* Reads one field, of a value that is not null: messages, tools, chat_template_kwargs,
 * add_generation_prompt. *ret_known: whether it is one of them. */
int conversation_field(struct conversation *conversation, const json *member, bool *ret_known,
                       struct error *error);
/* Checks the messages, and makes `rewritten` where it is needed: lists of text parts become one
 * text, and the arguments of tool calls, which the API writes as a string, the object that the
 * string holds; one that nests deeper than half of CONVERSATION_DEPTH_MAX, or has more than
 * CONVERSATION_VALUES_MAX values, stays a string. With them all messages have at most so many. On
 * failure, too, conversation_free() it. */
int conversation_check(struct conversation *conversation, struct error *error);
/* All of that with a text of its own: an object of these fields. On failure there is nothing to
 * free. */
int conversation_parse(struct conversation *conversation, const char *text, size_t length,
                       struct error *error);
/* By the model's own template; the text is the caller's. The language has one. `halt`, which may be
 * NULL, ends it early. */
int conversation_render(const struct conversation *conversation, const struct language *language,
                        const struct halt *halt, char **ret_text, size_t *ret_length,
                        struct error *error);
void conversation_free(struct conversation *conversation); /* zeroed memory is allowed */
