/* Tensors as JSON text: arrays of numbers, read by their dtype and not as JSON's numbers, so that
 * integers beyond 2^53 stay whole, and NaN, Infinity and -Infinity, which JSON has not and NumPy
 * writes, are taken. Elements go from the text into memory one by one; nothing is kept of them
 * beside. Pure. Any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/base/error.h"

/* Text enough for any element, with a comma. */
#define TENSOR_TEXT_MAX 32u

/* The array `text`, all of it, flat or nested as `shape` is, into `count` elements. Errors begin
 * with `name`. */
int tensor_text_read(const char *text, size_t length, const char *name, uint32_t dtype,
                     uint32_t rank, const uint64_t *shape, void *elements, struct error *error);

/* The element at `index` as text; its length. Reads back as the same bits, but for what a NaN
 * carries. */
size_t tensor_text_write(uint32_t dtype, const void *elements, uint64_t index,
                         char text[TENSOR_TEXT_MAX]);

/* Whether JSON has numbers for them: f16 and bf16 have none. */
bool tensor_text_has(uint32_t dtype);
