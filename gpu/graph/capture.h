/* A model that a head guesses for also leaves what that reads: a pass over its list. Any thread. */
#pragma once

#include "gpu/graph/op_list.h"
#include "protocol/base/error.h"

/* The residual as it enters these layers is captured, in that order, and kept: an op behind the
 * first product of each, where nothing that is fused stands apart by it, and one behind the last.
 * ERR_BAD_CONFIG: the model has no such layer. ERR_NO_MEMORY. */
int op_list_capture(struct op_list *list, const uint32_t layers[LIST_FEATURES],
                    struct error *error);
