/* Texts of config.json for tests: a small valid one of Llama, with some fields put otherwise. */
#pragma once

#include <stddef.h>

#include "gpu/models/config.h"

#define CONFIG_TEXT_MAX 4096

/* Changes. */
#define PHI3 "\"architectures\":[\"Phi3ForCausalLM\"],\"model_type\":\"phi3\""

#define LONGROPE(original, short_factors, long_factors)                                            \
    PHI3 ",\"original_max_position_embeddings\":" original                                         \
         ",\"rope_scaling\":{\"rope_type\":\"longrope\",\"short_factor\":" short_factors           \
         ",\"long_factor\":" long_factors "}"

/* `changes` is a list of fields, "\"head_dim\":80,\"vocab_size\":300": each takes the place of the
 * base's field of that name, or is added. "\"-model_type\":0" takes a field out (and adds one that
 * nobody reads). NULL or "": the base alone. */
void config_text(const char *changes, char text[CONFIG_TEXT_MAX]);

/* The base with changes, parsed. */
int config_with(const char *changes, struct model_config *ret, struct error *error);
