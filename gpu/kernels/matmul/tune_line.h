/* What a choice of cuBLASLt's algorithms depends on, and how it stands in a file: a line
 *
 *     rows n k W X Y bias choice
 *
 * of decimal numbers and words. W is the name of a format (common/format.h) and Y that of a dtype.
 * X is W where that is a dtype. Where W is e4m3, of inputs rounded to it, X is e4m3 (sums are
 * scaled behind the product), e4m3-rows (with a scale for each row and column) or e4m3-blocks. bias
 * is 0 or 1, choice numbers the library's own candidates (below TUNE_CANDIDATES) or is the word
 * tiles, our own kernel (matmul_tiles.cu). Whatever is not of this form is no line: a file can only
 * ever pick among what there is. Any thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "gpu/kernels/common/kernel.h"

#define TUNE_CANDIDATES 8
#define TUNE_TILES TUNE_CANDIDATES /* the choice behind the library's: our own */
#define TUNE_LINE_BYTES 128

/* How what is multiplied is scaled by the product itself; PLAIN: it is numbers of a dtype. */
enum lt_scaling { LT_PLAIN, LT_UNSCALED, LT_OUTER, LT_BLOCKS };

/* A plain value without gaps: compared and hashed as bytes. */
struct lt_shape {
    uint32_t rows, n, k;
    uint8_t w_format, x_dtype, y_dtype, bias; /* x_dtype of e4m3: LT_X_SCALED + enum lt_scaling */
};

#define LT_X_SCALED 3 /* past the dtypes */

/* The line, its end included; 0: it has no line. */
OP_C size_t tune_line_write(const struct lt_shape *shape, uint32_t choice,
                            char line[TUNE_LINE_BYTES]);
/* False: it is none, and nothing is returned. */
OP_C bool tune_line_read(const char *line, struct lt_shape *ret_shape, uint32_t *ret_choice);
