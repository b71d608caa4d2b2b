/* Names of prefixes: 128 bits for each whole block of a sequence's tokens, by which the KV of that
 * block and of all before it is found again (daemon/sched/cache.h).
 *
 * A name is a hash, under a secret of this process, of the block's tokens and of the name of the
 * block before it. Before the first stands a root, of all else that KV depends on: this load of the
 * model and the adapter, the format of its KV, the size of a block; and of a salt, which says between whom blocks
 * are shared. Who does not know the secret can find no two beginnings of one name. Any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/gpu.h"

#define PREFIX_SALT_MAX 256 /* bytes of a salt that a request gives */

struct prefix_key {
    uint64_t word[2];
};

/* Drawn once per process, before any other call. */
void prefix_key_set_secret(uint64_t first, uint64_t second);

/* Between whom: those of one user by its full name, or all who give one salt. */
enum prefix_salt { PREFIX_USER, PREFIX_GIVEN };

/* load: differs between any two times that a model was loaded; adapter:
 * likewise of its own, 0: none */
struct prefix_key prefix_key_root(const struct gpu_model *model, uint64_t load, uint64_t adapter,
                                  enum prefix_salt kind, const char *salt, size_t length);
/* The name of a block behind `before`, whose tokens are these and, behind them, those. */
struct prefix_key prefix_key_next(struct prefix_key before, const int32_t *tokens, uint32_t count,
                                  const int32_t *more, uint32_t more_count);
/* Those of all whole blocks of so many tokens; returns how many. */
uint32_t prefix_keys(struct prefix_key root, const int32_t *tokens, uint32_t count,
                     uint32_t block_tokens, struct prefix_key *keys);

static inline bool prefix_key_same(const struct prefix_key *a, const struct prefix_key *b)
{
    return a->word[0] == b->word[0] && a->word[1] == b->word[1];
}
