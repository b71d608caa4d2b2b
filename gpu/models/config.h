/* Reads a model's hyperparameters: from config.json and generation_config.json of a Hugging Face
 * directory, in both spellings of the rope parameters. (Of a synthetic shape: synthetic.h.)
 * Any thread.
 */
#pragma once

#include <stddef.h>

#include "gpu/models/base/model_config.h"
#include "protocol/base/error.h"

#define MODEL_CONFIG_BYTES_MAX (1u << 20) /* of each file */

/* Before anything is read. */
#define MODEL_CONFIG_EMPTY                                                                         \
    {                                                                                              \
        .names = &tensor_names_plain, .norm_eps = 1e-6f, .embedding_multiplier = 1,                \
        .residual_multiplier = 1, .logits_scaling = 1, .experts_scale = 1, .bos_id = -1,           \
        .sampler = SAMPLER_GREEDY                                                                  \
    }

/* "model." and "lm_head". */
extern const struct tensor_names tensor_names_plain;

/* Reads directory/config.json and, where they exist, directory/generation_config.json and, where
 * config.json says nothing of quantization, directory/hf_quant_config.json.
 * ERR_BAD_MODEL with file, field and value. */
int model_config_load(const char *directory, struct model_config *ret, struct error *error);

/* The same from texts in memory; generation may be NULL. */
int model_config_parse(const char *config, size_t config_length, const char *generation,
                       size_t generation_length, struct model_config *ret, struct error *error);
