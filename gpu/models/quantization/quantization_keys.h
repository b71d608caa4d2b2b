/* Reading keys of quantization_config, for the files of its methods: what is said and not known is
 * refused by name. ERR_BAD_MODEL with field and value. Any thread. */
#pragma once

#include "gpu/models/quantization/quantization.h"

#define QUANTIZATION_BLOCK 128 /* rows and columns of a block, columns of a group of inputs */
#define QUANTIZATION_KEY "quantization_config"

/* Whether a key is absent, null, false, or an object or list of nothing. */
bool quantization_unsaid(const json *value);
/* No key but those of a list that ends with NULL says anything. */
int quantization_known(const struct fields *fields, const char *const *keys);
/* The key is absent, or that word. */
int quantization_word(const struct fields *fields, const char *key, const char *word);
/* One name, and a list of names that may be absent. */
int quantization_name(const struct fields *fields, const char *key, const json *value,
                      uint32_t group, struct quantization *to);
int quantization_names(const struct fields *fields, const char *key, uint32_t group,
                       struct quantization *to);

/* The key is [128, 128]. */
int quantization_block(const struct fields *fields, const char *key);

/* What kv_cache_scheme says. */
enum kv_scheme quantization_kv(const json *scheme);

/* The methods of one scheme in e4m3: quantization_fp8.c. */
int quantization_fp8(const struct fields *fields, struct quantization *to);
int quantization_fbgemm(const struct fields *fields, struct quantization *to);
int quantization_modelopt(const struct fields *fields, struct quantization *to);
/* The methods whose elements are whole numbers: quantization_packed.c. */
int quantization_gptq(const struct fields *fields, struct quantization *to);
int quantization_awq(const struct fields *fields, struct quantization *to);
/* "weights" of a group of compressed-tensors' pack-quantized. */
int quantization_whole(const struct fields *weights, struct list_scheme *ret);
