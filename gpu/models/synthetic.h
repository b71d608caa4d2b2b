/* Shapes without files: "synthetic:NAME" is a model of known dimensions whose weights the engine
 * fills on the device from a seed, "synthetic:NAME:FORMAT" the same with its matrices but the head
 * quantized, "synthetic:null" the model that computes nothing; "null" is a
 * config alone, for a daemon without an engine.
 * Any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "gpu/models/base/model_config.h"

#define SYNTHETIC_DEVIATION 0.02f /* of the random weights; norm weights are 1, biases 0 */

/* True for "synthetic:..." and "null": `model` is no directory then. */
bool synthetic_is(const char *model);

/* True for "null" alone: no weights, no engine. */
bool synthetic_is_null(const char *model);

/* ERR_BAD_MODEL names the unknown shape and lists the known ones. */
int synthetic_config(const char *model, struct model_config *ret, struct error *error);

/* The number that a tensor's values are made from, of its name without a layer's prefix. */
uint32_t synthetic_number(const char *tensor, int32_t layer);

/* The i-th known shape's name, and format's; NULL behind the last. */
const char *synthetic_name(size_t i);
const char *synthetic_format(size_t i);
