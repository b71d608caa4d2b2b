/* Matrices that a checkpoint has the other way round, [columns][rows] for each expert. Any thread.
 */
#pragma once

#include "gpu/weights/weights.h"

/* `rows` rows of the part from `row` on, this rank's columns of each, behind one another. */
int turned_rows(const struct checkpoint *checkpoint, const struct weights_part *part, uint32_t row,
                uint32_t rows, char *to, struct error *error);
