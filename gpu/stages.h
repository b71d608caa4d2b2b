/* Which layers each stage of a pipeline has: as even as whole layers allow.
 *
 * The cost of a stage is counted in the elements of the matrices that a step multiplies by: it
 * reads them once and multiplies every row by them, so time follows them whether memory or
 * arithmetic bounds it. The head counts, with the last stage; the embedding does not, since a step
 * takes only its rows. Pure. Any thread.
 */
#pragma once

#include "gpu/gpu.h"
#include "gpu/model/config.h"

/* Sets first[0 .. stages]: stage s has the layers first[s] up to first[s + 1]. ERR_BAD_CONFIG with
 * fewer layers than stages. */
int stages_split(const struct model_config *config, uint32_t stages, uint32_t *first,
                 struct error *error);

/* The config of layers `first` up to `end` alone. */
struct model_config stages_part(const struct model_config *config, uint32_t first, uint32_t end);
