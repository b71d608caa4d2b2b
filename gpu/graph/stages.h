/* Which layers each stage of a pipeline has: as even as whole layers allow.
 *
 * The cost of a stage is counted in the elements of the matrices that a step multiplies by: it
 * reads them once and multiplies every row by them, so time follows them whether memory or
 * arithmetic bounds it. What comes behind the layers counts, with the last stage; the embedding
 * does not, since a step takes only its rows. Pure. Any thread.
 */
#pragma once

#include "gpu/graph/op_list.h"

/* The cost of all layers. */
uint64_t stages_cost(const struct op_list *list);

/* Sets first[0 .. stages]: stage s has the layers first[s] up to first[s + 1]. ERR_BAD_CONFIG with
 * fewer layers than stages. */
int stages_split(const struct op_list *list, uint32_t stages, uint32_t *first, struct error *error);
