/* Tensors of a checkpoint that the model's list does not take. What belongs to the part that is
 * computed would change its results, so it is refused by name, unless it is known to say nothing
 * or, as biases that some tools write everywhere, is zeros alone. What belongs to other parts (a
 * vision tower, layers behind the last) is left alone. Any thread. */
#pragma once

#include "gpu/checkpoint/checkpoint.h"
#include "gpu/models/base/model_config.h"

/* For checkpoint_match; the config is borrowed. ERR_BAD_MODEL with file and tensor. */
struct checkpoint_visitor unused_visitor(const struct model_config *config);
