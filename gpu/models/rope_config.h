/* Rope parameters to inverse frequencies: default, linear, llama3 and yarn, in both spellings of
 * config.json (rope_theta with rope_scaling, and rope_parameters). Any thread.
 */
#pragma once

#include "gpu/graph/rope_table.h"

struct fields;
struct model_config;

/* Fills config->rope from the top-level fields; head_dim and context_max (max_position_embeddings)
 * are set already. With yarn, context_max grows to factor times the original length. */
int rope_read(const struct fields *top, struct model_config *config);
