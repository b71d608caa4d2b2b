/* What --check says of a model's texts: whether it has a tokenizer and a chat template, and what it
 * costs where it has not. Before the loop starts.
 */
#pragma once

#include <stdio.h>

#include "protocol/base/error.h"

struct model_text;
struct options;
struct file_marks;

/* Tokenizer and template as the options say. ERR_BAD_CONFIG for a template that was asked for and
 * cannot be used; else as model_text_load(), and the model's own lacks are refusals. model_text_free()
 * it in any case. */
int check_text_load(struct model_text *ret_model_text, const struct options *options,
                    struct error *error);
/* What of the files that the options name differs and may not, in words, where they are to be
 * served in the place of what is; NULL: nothing. marks: of the files in which nothing differed when
 * they were read last, none of which is read while they hold; NULL: they are read. Any thread. */
int check_text_differs(const struct model_text *served, const struct options *options,
                       struct file_marks *marks, const char **ret_differs, struct error *error);
void check_text_print(const struct model_text *model_text, const struct options *options,
                      FILE *file);
