/* SipHash-2-4 of 64 and of 128 bits (Aumasson and Bernstein, 2012): who does not know the key can
 * neither tell nor choose what collides. Any thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct siphash_key {
    uint64_t word[2];
};

/* A text that comes in pieces: siphash_begin(), siphash_add() for each, then one of the ends. */
struct siphash {
    uint64_t v[4];
    uint64_t tail; /* bytes that do not fill a word yet */
    size_t length; /* so far */
};

void siphash_begin(struct siphash *hash, const struct siphash_key *key);
void siphash_add(struct siphash *hash, const void *bytes, size_t length);
uint64_t siphash_end(struct siphash *hash);

/* The 128-bit variant has a beginning and an end of its own. */
void siphash_begin_wide(struct siphash *hash, const struct siphash_key *key);
void siphash_end_wide(struct siphash *hash, uint64_t ret_words[2]);
