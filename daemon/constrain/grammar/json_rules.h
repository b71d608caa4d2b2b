/* JSON's own parts as rules of a grammar: strings, numbers, constants, any value. One thread. */
#pragma once

#include "daemon/constrain/grammar/grammar.h"
#include "protocol/base/json.h"

#define JSON_ANY_DEPTH 24u  /* of arrays and objects in a value that may be any */
#define JSON_DIGITS_MAX 64u /* of a number, on either side of its point */

struct number_bounds {
    bool has_low, has_high, open_low, open_high; /* open: the bound itself is outside */
    double low, high;
};

/* Each returns the node behind it. */
uint32_t json_any(struct grammar *grammar, uint32_t from);
uint32_t json_any_object(struct grammar *grammar, uint32_t from);
uint32_t json_comma(struct grammar *grammar, uint32_t from); /* and a space, or none */
uint32_t json_colon(struct grammar *grammar, uint32_t from);
uint32_t json_text(struct grammar *grammar, uint32_t from, uint32_t min, uint32_t max);
uint32_t json_digits(struct grammar *grammar, uint32_t from, uint32_t min, uint32_t max);
uint32_t json_number_any(struct grammar *grammar, uint32_t from, bool whole);
/* Up to so many digits before the point, and any behind it. */
uint32_t json_number_of_digits(struct grammar *grammar, uint32_t from, uint32_t whole_max);
/* Without an exponent. `path` is for the error when bounds are beyond 10^17 or too fine. */
uint32_t json_number_between(struct grammar *grammar, uint32_t from, bool whole,
                             struct number_bounds bounds, const char *path);
/* A value as it stands; common beginnings of those with the same `from` are shared. */
uint32_t json_constant(struct grammar *grammar, uint32_t from, const json *value);
/* The same for a key or string in its one form, with quotes. */
uint32_t json_quoted(struct grammar *grammar, uint32_t from, const char *text);
uint32_t json_shared(struct grammar *grammar, uint32_t from, const char *bytes, size_t length);

/* One character of a string, in its one form; several in any form of JSON. */
uint32_t json_canonical_rule(struct grammar *grammar);
uint32_t json_text_rule(struct grammar *grammar);
