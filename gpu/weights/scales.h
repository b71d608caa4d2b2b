/* The scales and zeros of quantized weights: read, held to what scales may be, or for a synthetic
 * model made from its seed, and spread over rows and blocks as the weight has them (weights.h).
 * They are few beside the elements, so one thread reads them, a weight's at a time, before the
 * elements come. Thread: as loader.h.
 */
#pragma once

#include "gpu/weights/loader.h"

/* ERR_BAD_MODEL where a scale is no positive number, and the loader's own. All have been copied
 * when this returns. `orders`: of each weight of the list that has its columns in another order,
 * that order in fresh memory, also where this fails. */
int scales_load(const struct loader *loader, uint32_t **orders, struct error *error);
