/* Whole numbers of 4 and 8 bits that a checkpoint has in 32-bit words: where each of a matrix
 * [rows][columns] is.
 *
 * A word holds 32 / bits elements, the first in its low bits: of a row, of as many columns; or of a
 * column, of as many rows. Words make a matrix of their own, which may stand transposed. The last
 * word of a row (or column) has no more than is left. A plain value. Any thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct words {
    uint8_t bits;     /* 4, 8; 0: it is not packed */
    bool transposed;  /* words stand [columns][rows] */
    bool along_rows;  /* a word's elements are of several rows */
    bool interleaved; /* of 4 bits: elements 0 2 4 6 1 3 5 7, from the low ones on */
};

struct words_window {
    uint32_t row, rows, column, columns;
};

/* Words of a line and of a column that so many elements have. */
void words_count(struct words words, uint32_t rows, uint32_t columns, uint32_t *ret_rows,
                 uint32_t *ret_columns);

/* The words that hold a window's elements: itself in words, as the words stand. */
struct words_window words_of(struct words words, const struct words_window *window);

/* Elements of the window, one byte each, row by row, from the words that words_of names. */
void words_unpack(struct words words, const struct words_window *window, const uint32_t *from,
                  uint8_t *to);
