#include "daemon/base/prefix_key.h"

#include <string.h>

#include "daemon/base/siphash.h"

enum { OF_ROOT = 1, OF_BLOCK = 2 }; /* what is hashed: no root has the name of a block */

static struct siphash_key secret;

void prefix_key_set_secret(uint64_t first, uint64_t second)
{
    secret = (struct siphash_key){{first, second}};
}

struct prefix_key prefix_key_root(const struct gpu_model *model, uint64_t load, uint64_t adapter,
                                  enum prefix_salt kind, const char *salt, size_t length)
{
    const uint64_t words[] = {
        OF_ROOT, load, adapter, kind, length, model->block_tokens, model->kv_token_bytes};
    struct siphash hash;
    struct prefix_key key;
    siphash_begin_wide(&hash, &secret);
    siphash_add(&hash, words, sizeof(words));
    siphash_add(&hash, model->dtype, sizeof(model->dtype));
    siphash_add(&hash, salt, length);
    siphash_end_wide(&hash, key.word);
    return key;
}

struct prefix_key prefix_key_next(struct prefix_key before, const int32_t *tokens, uint32_t count,
                                  const int32_t *more, uint32_t more_count)
{
    const uint64_t words[] = {OF_BLOCK, before.word[0], before.word[1]};
    struct siphash hash;
    struct prefix_key key;
    siphash_begin_wide(&hash, &secret);
    siphash_add(&hash, words, sizeof(words));
    siphash_add(&hash, tokens, count * sizeof(*tokens));
    siphash_add(&hash, more, more_count * sizeof(*more));
    siphash_end_wide(&hash, key.word);
    return key;
}

uint32_t prefix_keys(struct prefix_key root, const int32_t *tokens, uint32_t count,
                     uint32_t block_tokens, struct prefix_key *keys)
{
    uint32_t blocks = count / block_tokens;
    for (uint32_t i = 0; i < blocks; i++)
        root = keys[i] =
            prefix_key_next(root, tokens + (size_t)i * block_tokens, block_tokens, NULL, 0);
    return blocks;
}
