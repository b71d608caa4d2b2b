/* How a model's output ends and what sampling it asks for: the tokens in config.json, and all of
 * generation_config.json. Any thread.
 */
#pragma once

#include "gpu/checkpoint/config_field.h"
#include "gpu/models/base/model_config.h"

/* bos_token_id and eos_token_id: a number, and a number or a list. Tokens that are there already
 * stay: a second file adds to the first. */
int generation_read_ends(const struct fields *fields, struct model_config *config);

/* generation_config.json: the ends, and the sampling that requests take where they are silent. */
int generation_read(const struct fields *fields, struct model_config *config);
