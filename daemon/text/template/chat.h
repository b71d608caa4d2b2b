/* Chat templates: the part of the Jinja language that published models write theirs in, rendered as
 * transformers' apply_chat_template does (trim_blocks, lstrip_blocks, loop controls, its own
 * tojson).
 *
 * A template is parsed once, and what the evaluator does not know is refused there, by name and
 * line. Parsed, it does not change and is shared by any number of threads; a rendering owns all it
 * uses.
 *
 * A template comes with a model and its variables with a request: neither is trusted. Steps, depth,
 * memory and output of a rendering have limits.
 *
 * Differences that are known: a number of a request that is whole is an integer, even if it was
 * written 1.0; upper, lower and the like map character by character.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "daemon/base/halt.h"
#include "protocol/base/error.h"
#include "protocol/base/json.h"

#define CHAT_SOURCE_MAX ((size_t)256 << 10)

struct chat_template;

int chat_template_load(const char *source, size_t length, struct chat_template **ret_template,
                       struct error *error);
void chat_template_free(struct chat_template *template); /* NULL is allowed */
/* As it was given; valid as long as the template. */
const char *chat_template_source(const struct chat_template *template);

struct chat_limits {
    uint64_t steps_max;      /* expressions, statements, elements; bytes gone through, by 16 */
    size_t memory_max;       /* bytes of values */
    size_t output_max;       /* bytes of text */
    const struct halt *halt; /* looked at every so many steps; NULL: nothing stops the rendering */
};

#define CHAT_LIMITS                                                                                \
    ((struct chat_limits){                                                                         \
        .steps_max = 50000000, .memory_max = (size_t)128 << 20, .output_max = (size_t)8 << 20})

struct chat_input {
    const json *messages;  /* an array */
    const json *tools;     /* an array, or NULL: none */
    const json *extra;     /* an object of further variables, or NULL */
    const char *bos_token; /* NULL: not defined */
    const char *eos_token;
    const char *reasoning_effort;
    bool add_generation_prompt;
    time_t now; /* what strftime_now shows, in local time */
};

/* *ret_text is terminated by a 0 that *ret_length does not count; the caller frees it. A template
 * that refuses a conversation (raise_exception) gives ERR_BAD_VALUE with its message, one that is
 * halted the code of its halt. */
int chat_template_render(const struct chat_template *template, const struct chat_input *input,
                         const struct chat_limits *limits, char **ret_text, size_t *ret_length,
                         struct error *error);
