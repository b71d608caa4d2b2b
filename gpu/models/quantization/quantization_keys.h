/* Reading keys of quantization_config, for the files of its methods: what is said and not known is
 * refused by name. ERR_BAD_MODEL with field and value. Any thread. */
#pragma once

#include "gpu/models/quantization/quantization.h"

#define QUANTIZATION_BLOCK 128   /* rows and columns of a block, columns of a group of inputs */
#define QUANTIZATION_BITS_ALL 16 /* and more: not quantized; of inputs, not rounded */
#define QUANTIZATION_KEY "quantization_config"

#define QUANTIZATION_PATH_MAX 160 /* of a key with those it is in, as messages show it */

/* Fields of an object that a key of another has, "config_groups.group_0.weights"; `path` is theirs
 * for as long as they are. */
struct fields quantization_fields(const struct fields *parent, const char *key,
                                  char path[QUANTIZATION_PATH_MAX]);
/* Whether a key is absent, null, false, or an object or list of nothing. */
bool quantization_unsaid(const json *value);
/* No key but those of a list that ends with NULL says anything. */
int quantization_known(const struct fields *fields, const char *const *keys);
/* Of two lists. */
int quantization_known_of(const struct fields *fields, const char *const *keys,
                          const char *const *more);
/* The key is absent, or that word. */
int quantization_word(const struct fields *fields, const char *key, const char *word);
/* One name, and a list of names that may be absent. */
int quantization_name(const struct fields *fields, const char *key, const json *value,
                      uint32_t group, struct quantization *to);
int quantization_names(const struct fields *fields, const char *key, uint32_t group,
                       struct quantization *to);
/* Likewise, of a name that the value `value` of the key gives. */
int quantization_name_add(const struct fields *fields, const char *key, const json *value,
                          const char *name, uint32_t group, struct quantization *to);
/* The group of a scheme of whole numbers that differs from others of the method in bits, groups or
 * their order, if in anything. */
int quantization_group(const struct fields *fields, const struct list_scheme *scheme,
                       struct quantization *to, uint32_t *ret);

/* The key is [128, 128]. */
int quantization_block(const struct fields *fields, const char *key);

/* What kv_cache_scheme says. */
enum kv_scheme quantization_kv(const json *scheme);

/* What a method says, `fields` being quantization_config: quantization_methods.def. */
#define METHOD(word, reader)                                                                       \
    int quantization_##reader(const struct fields *fields, struct quantization *to);
#define ALIAS(word, reader)
#include "gpu/models/quantization/quantization_methods.def"

/* How the tensors of such are named and lie; bits and groups are not said yet. */
struct list_scheme quantization_gptq_scheme(void);
struct list_scheme quantization_awq_scheme(void);
/* What these have in common: quantization_numbers.c. 4 or 8 bits; groups of -1 or a multiple of 32.
 */
int quantization_bits(const struct fields *fields, const char *key, struct list_scheme *scheme);
int quantization_group_size(const struct fields *fields, const char *key,
                            struct list_scheme *scheme);
/* What AutoRound says of how it made a checkpoint, in whatever format; and whether of these what
 * would round inputs, or makes elements no whole numbers, is not there. */
extern const char *const quantization_autoround_keys[];
int quantization_alone(const struct fields *fields);
/* "weights" of a group of pack-quantized: quantization_packed.c. */
int quantization_whole(const struct fields *weights, struct list_scheme *ret);
