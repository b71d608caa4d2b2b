/* A head of classes: what a checkpoint of a class "...ForSequenceClassification" has in place of
 * the head for tokens. Its values are products of the last token's final hidden state with the rows
 * of score.weight, in float32, which the host makes: they are few.
 *
 * Made once and not changed afterwards: any thread reads it.
 */
#pragma once

#include <stdint.h>

#include "protocol/base/error.h"

#define CLASS_LABELS_MAX 4096u
#define CLASS_WEIGHTS_MAX (4u << 20) /* labels times the hidden size: some ms a text at most */

/* What a value becomes where a probability is asked for. */
enum class_function { CLASS_SIGMOID, CLASS_SOFTMAX, CLASS_IDENTITY };

struct class_head {
    uint32_t labels; /* 0: the model has no such head */
    uint32_t hidden;
    float *weights; /* owned; [labels][hidden] */
    char **names;   /* owned; of the labels */
    /* Of a text's classes (problem_type), and of a pair's score (sentence-transformers' word). */
    enum class_function function, pair_function;
};

/* Of a directory; ERR_BAD_MODEL where what config.json says of classes, or score.weight, is not as
 * it must be. Of a config.json that says no model there is no head: who computes it says what is
 * wrong. */
int class_head_load(const char *directory, struct class_head *ret, struct error *error);
void class_head_free(struct class_head *head); /* zeroed memory is allowed */

/* The values of `labels` classes. hidden: a row of the model's hidden size. */
void class_head_values(const struct class_head *head, const float *hidden, double *ret_values);
/* In place. */
void class_head_apply(enum class_function function, double *values, uint32_t count);
