/* Whole numbers out of a checkpoint's words (words.h), as the device has them. Any thread, several
 * at once. */
#pragma once

#include "gpu/weights/weights.h"

/* Of a window, one byte each. ERR_NO_MEMORY, and those of reading. */
int packed_read(const struct checkpoint *checkpoint, const struct checkpoint_tensor *tensor,
                const struct words_window *window, uint8_t *to, struct error *error);

/* Rows of a part, from its row `row` on, in the part's format and order of columns. */
int packed_rows(const struct checkpoint *checkpoint, const struct weights_part *part, uint32_t row,
                uint32_t rows, uint8_t *to, struct error *error);
