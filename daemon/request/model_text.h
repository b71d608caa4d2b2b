/* What the daemon knows of a model's language: the tokenizer and the chat template that lie in its
 * directory, or why there is none. The device's side knows nothing of it.
 *
 * A model whose tokenizer is refused serves tokens all the same, and whoever sends or asks for text
 * is told the reason; likewise a chat template.
 *
 * Made once, before the first request, and not changed afterwards: any thread reads it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/answer/answer_form.h"
#include "daemon/base/file_marks.h"
#include "daemon/request/pair_form.h"
#include "gpu/models/class_head.h"
#include "protocol/base/error.h"

struct tokenizer;
struct chat_template;

#define MODEL_TEXT_TOKEN_MAX 64
#define MODEL_TEXT_ROW_CUTS_MAX 32
#define MODEL_TEXT_TEXT_MAX ((size_t)8 << 20) /* bytes that tokens may stand for, in one answer */

struct model_text {
    struct tokenizer *tokenizer; /* NULL: `refusal` says why */
    struct error refusal;
    struct chat_template *chat; /* NULL: `chat_refusal` says why */
    struct error chat_refusal;
    struct answer_form answer; /* by that template */
    struct class_head head;    /* labels 0: none */
    struct pair_form pairs;
    /* What config.json says of rows that may be cut: any width, or those of the list. */
    bool row_cut_any;
    uint32_t row_cut[MODEL_TEXT_ROW_CUTS_MAX], row_cut_count;
    char bos_token[MODEL_TEXT_TOKEN_MAX],
        eos_token[MODEL_TEXT_TOKEN_MAX];  /* for templates; "": none */
    char pad_token[MODEL_TEXT_TOKEN_MAX]; /* for clients */
    uint64_t files[2]; /* a hash of the bytes of tokenizer and template */
    struct file_marks marks; /* of all files that were looked at for it */
};

/* model: a directory, or "synthetic:NAME", whose tokens are bytes; those above them, which models
 * answer, have their numbers for texts, and a conversation is its lines. Negative only for want of
 * memory or descriptors, and where a head of classes is not as it must be; what a model has not, or
 * what else is wrong with it, is a refusal of texts. */
int model_text_load(struct model_text *model_text, const char *model, struct error *error);
/* ERR_BAD_CONFIG where the other model's tokenizer has another token of some number. Without a
 * tokenizer, on either side, there is nothing to compare. */
int model_text_same_tokens(const struct model_text *model_text, const char *draft_model,
                           struct error *error);
/* Where texts do not become the same tokens, or tokens the same texts, by both: what differs, in
 * words. NULL: nothing. */
const char *model_text_differs(const struct model_text *model_text, const struct model_text *other);
/* The template of that file stands instead of the model's own. ERR_BAD_CONFIG when it cannot be
 * read or parsed: somebody asked for it. */
int model_text_template(struct model_text *model_text, const char *path, struct error *error);
/* Reads a template; the error names the file. */
int model_text_read_template(const char *path, struct chat_template **ret_template,
                             struct error *error);
void model_text_free(struct model_text *model_text);

/* ERR_UNSUPPORTED with the reason, or 0. */
int model_text_texts(const struct model_text *model_text, struct error *error);
int model_text_chats(const struct model_text *model_text, struct error *error);
/* Whether it has a head for tokens, and whether one of classes in its place. */
int model_text_generates(const struct model_text *model_text, struct error *error);
int model_text_classifies(const struct model_text *model_text, struct error *error);
/* What its head says of a row: the classes' probabilities, or the head's own values. */
void model_text_classes(const struct model_text *model_text, const float *row, bool own,
                        double *ret_values);
/* Whether the first so many numbers of a row are a row as well. */
bool model_text_cuts(const struct model_text *model_text, uint32_t width);
/* The text of tokens that are within the vocabulary, of at most `count_max`; the caller's to free.
 * special: special tokens are shown. */
int model_text_decode(const struct model_text *model_text, const int32_t *tokens, uint32_t count,
                      uint32_t count_max, bool special, char **ret_text, size_t *ret_length,
                      struct error *error);
