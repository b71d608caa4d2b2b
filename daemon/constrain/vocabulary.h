/* A model's tokens as constraints see them: bytes in a trie, special tokens left out.
 *
 * Tokens that are a few plain characters of a JSON string (whole UTF-8, no quote, no backslash, no
 * control) stand in a trie of their own and, by how many characters they have, in masks that are
 * made once: inside a string they are all allowed, without a walk. Of the others only what follows
 * their plain characters has to be walked there, which few tokens do not share with many.
 *
 * Made once for a model and then read by any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/base/error.h"

#define VOCABULARY_TOKENS_MAX (1u << 20)
#define VOCABULARY_TOKEN_BYTES_MAX 1024u /* a longer one is never allowed */
#define VOCABULARY_PLAIN_MAX 32u         /* characters */
#define VOCABULARY_ENDS_MAX 16u

struct vocabulary_node { /* in the order of a walk */
    uint64_t below;      /* kinds of bytes below it: a bit of vocabulary_kind each */
    uint32_t skip;       /* the next that is not below this one */
    uint32_t first;      /* in `order`: the first token at or below this node */
    uint16_t depth;      /* from 1 */
    uint8_t byte;
    bool token; /* tokens end here: those before the first of the next node */
};

struct vocabulary_trie {
    struct vocabulary_node *nodes; /* one more than count, at which all tokens have ended */
    uint32_t *order;               /* tokens by their bytes */
    uint32_t count;
};

struct vocabulary_token {
    const char *bytes; /* NULL or no length: never allowed (special tokens, holes) */
    size_t length;
};

struct vocabulary {
    uint32_t tokens, words; /* words of 32 bits in a mask */
    struct vocabulary_trie plain, rest;
    /* Those of the rest once more: by how many plain characters they begin with, what follows
     * them, and that of all of them; and, beginning with more of these than VOCABULARY_PLAIN_MAX,
     * whole. */
    struct vocabulary_trie tails[VOCABULARY_PLAIN_MAX + 1], all_tails, longer;
    uint32_t *plain_mask; /* [n * words]: plain tokens of up to n characters */
    uint32_t plain_count[VOCABULARY_PLAIN_MAX + 1];
    uint32_t *offset; /* of each token's bytes; one more than tokens */
    char *bytes;
    int32_t ends[VOCABULARY_ENDS_MAX]; /* tokens that end an output */
    uint32_t ends_count;
};

/* Kinds of bytes, 64 of them: letters each by itself, others by what they are used for together. */
uint64_t vocabulary_kind(uint8_t byte);

/* `tokens` by id and its bytes are copied. */
int vocabulary_new(const struct vocabulary_token *tokens, uint32_t count, const int32_t *ends,
                   uint32_t ends_count, struct vocabulary **ret_vocabulary, struct error *error);
void vocabulary_free(struct vocabulary *vocabulary);
