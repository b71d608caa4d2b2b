/* Rope parameters to inverse frequencies: default, linear, llama3, yarn and longrope, in both
 * spellings of config.json (rope_theta with rope_scaling, and rope_parameters). Any thread.
 */
#pragma once

#include <stdbool.h>

#include "gpu/graph/rope_table.h"

struct fields;
struct model_config;

/* Fills config->rope from the top-level fields; head_dim and context_max (max_position_embeddings)
 * are set already, as is what the family says of rotary_factor. With yarn, context_max grows to
 * factor times the original length. */
int rope_read(const struct fields *top, struct model_config *config);
/* Of layers that see all, to config->rope, and of those with a window, to config->rope_local:
 * rope_parameters by kinds of layers, or rope_theta with rope_scaling and rope_local_base_freq.
 * What is absent is 1,000,000 and 10,000. */
int rope_read_kinds(const struct fields *top, struct model_config *config);

/* longrope has two sets of frequencies, and a sequence keeps to one: that of the longest sequence
 * there can be, `context_max` tokens (0, and at most: the model's), though transformers turns to
 * the other when a sequence grows beyond the original length. The set becomes config->rope; true:
 * it is the one for long contexts. Other kinds have but one. */
bool rope_choose(struct model_config *config, uint32_t context_max);
