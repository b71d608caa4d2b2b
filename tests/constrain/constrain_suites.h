/* The suites of the program test_constrain, and what they share: a vocabulary of a few styles of
 * tokens, and whether a text meets a constraint. */
#pragma once

#include <check.h>

#include "daemon/constrain/constraint.h"

Suite *instance_suite(void);
Suite *mask_suite(void);

#define STYLE_BYTES 0 /* each byte */
#define STYLE_WORDS 1 /* bytes, and pieces that JSON is made of */
#define STYLE_SPLIT 2 /* bytes, and pieces that begin or end within a character */
#define STYLES 3
#define END_TOKEN 256 /* of all styles */

struct vocabulary *style_new(int style);

/* 1: the text is one that the constraint ends with; 0: not; -1: a beginning of one. */
int meets(struct constraint *constraint, const char *text, size_t length);
