#include "daemon/base/siphash.h"

#include <string.h>

static uint64_t rotated(uint64_t value, unsigned bits)
{
    return value << bits | value >> (64 - bits);
}

static void mix(uint64_t v[4], unsigned rounds)
{
    while (rounds-- > 0) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = rotated(v[1], 13) ^ v[0];
        v[3] = rotated(v[3], 16) ^ v[2];
        v[0] = rotated(v[0], 32) + v[3];
        v[2] += v[1];
        v[3] = rotated(v[3], 21) ^ v[0];
        v[1] = rotated(v[1], 17) ^ v[2];
        v[2] = rotated(v[2], 32);
    }
}

static void take(struct siphash *hash, uint64_t word)
{
    hash->v[3] ^= word;
    mix(hash->v, 2);
    hash->v[0] ^= word;
}

void siphash_begin(struct siphash *hash, const struct siphash_key *key)
{
    *hash = (struct siphash){
        .v = {key->word[0] ^ 0x736f6d6570736575u, key->word[1] ^ 0x646f72616e646f6du,
              key->word[0] ^ 0x6c7967656e657261u, key->word[1] ^ 0x7465646279746573u}};
}

void siphash_begin_wide(struct siphash *hash, const struct siphash_key *key)
{
    siphash_begin(hash, key);
    hash->v[1] ^= 0xee;
}

void siphash_add(struct siphash *hash, const void *bytes, size_t length)
{
    const unsigned char *at = bytes;
    for (; length >= 8 && hash->length % 8 == 0; length -= 8, at += 8, hash->length += 8) {
        uint64_t word;
        memcpy(&word, at, sizeof(word)); /* little endian, as all that it runs on */
        take(hash, word);
    }
    for (; length > 0; length--, at++) {
        hash->tail |= (uint64_t)*at << 8 * (hash->length % 8);
        if (++hash->length % 8 > 0)
            continue;
        take(hash, hash->tail);
        hash->tail = 0;
    }
}

static void take_last(struct siphash *hash)
{
    take(hash, hash->tail | (uint64_t)hash->length << 56);
}

static uint64_t word_of(const uint64_t v[4])
{
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

uint64_t siphash_end(struct siphash *hash)
{
    take_last(hash);
    hash->v[2] ^= 0xff;
    mix(hash->v, 4);
    return word_of(hash->v);
}

void siphash_end_wide(struct siphash *hash, uint64_t ret_words[2])
{
    take_last(hash);
    hash->v[2] ^= 0xee;
    mix(hash->v, 4);
    ret_words[0] = word_of(hash->v);
    hash->v[1] ^= 0xdd;
    mix(hash->v, 4);
    ret_words[1] = word_of(hash->v);
}
