/* Where the arrays of tensors lie in a body of the inference protocol: the value of each "data" of
 * the objects in the top level's "inputs". Pure but for the text that it makes. Any thread.
 *
 * It looks no closer than it must to tell strings from brackets: what it leaves is parsed strictly
 * by others, and so is what it cut out.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "protocol/base/error.h"

struct tensor_cut {
    const char *text; /* borrows from the body; begins with the bracket */
    size_t length;
};

/* *ret_text, which the caller frees, is the body with `null` for each of them. ERR_TOO_LARGE: there
 * are more than `max`. */
int tensor_cut(const char *body, size_t length, struct tensor_cut *cuts, uint32_t max,
               uint32_t *ret_count, char **ret_text, size_t *ret_length, struct error *error);
