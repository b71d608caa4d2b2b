/* How pairs of texts are scored: a template asks the model whether a document answers a query, and
 * the probability of the token that says yes, against that of the one that says no, is the score.
 * Which tokens, and which template, stands in the checkpoint, or somebody says it. A model with a
 * head of one class (gpu/models/class_head.h) scores by that, and needs no template: its prompt is
 * then the two texts, as the tokenizer makes one of a pair.
 *
 * Made once, with what the daemon knows of the model's language (model_text.h), and not changed
 * afterwards: any thread reads it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/base/error.h"

struct chat_template;
struct halt;
struct model_text;
struct tokenizer;

enum { PAIR_NO, PAIR_YES, PAIR_TOKENS };

struct pair_form {
    bool known; /* the tokens are */
    int32_t tokens[PAIR_TOKENS];
    struct chat_template *given; /* owned; NULL: the model's chat template asks */
    char *instruction;    /* owned; what the template is told where a request says nothing; NULL */
    struct error refusal; /* code 0: pairs are scored */
};

/* What the directory's files say: sentence-transformers' LogitScore, or classifier_from_token of
 * config.json as vLLM reads it; and whether the model's chat template has messages of a query and a
 * document. `model_text` has its tokenizer and template. Negative only for want of memory or
 * descriptors; what is missing is the refusal. */
int pair_form_load(struct model_text *model_text, const char *directory, struct error *error);
/* Somebody's word before the checkpoint's. words: "NO,YES", each one token; path: a file with a
 * template; "": as it is. ERR_BAD_CONFIG where pairs cannot be scored then. */
int pair_form_give(struct model_text *model_text, const char *words, const char *path,
                   struct error *error);
/* The model's chat template is another now. */
void pair_form_settle(struct model_text *model_text);
/* Whether a template makes the prompt. */
bool pair_form_asks(const struct model_text *model_text);
/* By a head of one class: of a row of the prompt's last token; its own value, or what it becomes.
 */
double pair_form_head_score(const struct model_text *model_text, const float *row, bool own);
void pair_form_free(struct pair_form *form); /* zeroed memory is allowed */

/* ERR_UNSUPPORTED with the reason, or 0. */
int pair_form_check(const struct model_text *model_text, struct error *error);

struct pair {
    const char *instruction; /* NULL: the checkpoint's, if it has one */
    const char *query, *document;
};
/* What the model is asked; the text is the caller's. `halt`, which may be NULL, ends it early. */
int pair_form_render(const struct model_text *model_text, const struct pair *pair,
                     const struct halt *halt, char **ret_text, size_t *ret_length,
                     struct error *error);
