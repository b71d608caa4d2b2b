/* Conversation: messages, and what else goes into a chat template, as HTTP bodies and the native
 * protocol have them. One set of rules for both.
 *
 * The fields borrow from a document, which is the conversation's own when chat_prompt_parse() made
 * it. Any thread; one at a time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "protocol/base/error.h"
#include "protocol/base/json.h"

struct halt;
struct model_text;

#define CHAT_PROMPT_DEPTH_MAX 32
#define CHAT_PROMPT_VALUES_MAX (1u << 20)

struct chat_prompt {
    json *document;                       /* owned; NULL: the fields are of somebody else's */
    const json *messages, *tools, *extra; /* tools and extra: NULL where there are none */
    json *rewritten; /* owned; the messages, where templates expect them in another form */
    const char *reasoning_effort; /* NULL: not given */
    bool add_generation_prompt;
};

/* Nothing yet: what fields are put into. */
void chat_prompt_init(struct chat_prompt *conversation);
/* Reads one field, of a value that is not null: messages, tools, chat_template_kwargs,
 * add_generation_prompt, reasoning_effort. *ret_known: whether it is one of them. */
int chat_prompt_field(struct chat_prompt *conversation, const json *member, bool *ret_known,
                      struct error *error);
/* reasoning_effort by its value. */
int chat_prompt_effort(struct chat_prompt *conversation, const json *value, struct error *error);
/* Checks the messages, and makes `rewritten` where it is needed: lists of text parts become one
 * text, and the arguments of tool calls, which the API writes as a string, the object that the
 * string holds; one that nests deeper than half of CHAT_PROMPT_DEPTH_MAX, or has more than
 * CHAT_PROMPT_VALUES_MAX values, stays a string. With them all messages have at most so many. On
 * failure, too, chat_prompt_free() it. */
int chat_prompt_check(struct chat_prompt *conversation, struct error *error);
/* All of that with a text of its own: an object of these fields. On failure there is nothing to
 * free. */
int chat_prompt_parse(struct chat_prompt *conversation, const char *text, size_t length,
                      struct error *error);
/* By the model's own template; the text is the caller's. model_text has one. `halt`, which may be
 * NULL, ends it early. */
int chat_prompt_render(const struct chat_prompt *conversation, const struct model_text *model_text,
                       const struct halt *halt, char **ret_text, size_t *ret_length,
                       struct error *error);
void chat_prompt_free(struct chat_prompt *conversation); /* zeroed memory is allowed */
