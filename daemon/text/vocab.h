/* The tokens of a tokenizer: their texts by id, and ids by text.
 *
 * Filled by the loader, then read by any thread. Ids may have holes; vocab_text of a hole is NULL.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/base/buffer.h"
#include "daemon/text/idmap.h"

#define VOCAB_ID_MAX ((1 << 20) - 1) /* the largest id; published vocabularies stay under 2^18 */
#define VOCAB_TOKEN_BYTES_MAX 4096   /* Llama 3 has tokens of 128 spaces, 256 bytes as text */
#define VOCAB_BYTES_MAX ((size_t)64 << 20)

struct span {
    uint32_t at, length;
};

struct vocab {
    struct buffer text;
    struct span *spans; /* by id; length 0 where no token has the id: no token is empty */
    uint32_t bound;     /* the largest id plus one */
    struct idmap by_text;
};

bool vocab_init(struct vocab *vocab, uint32_t bound);
void vocab_free(struct vocab *vocab);

enum vocab_outcome {
    VOCAB_ADDED,
    VOCAB_ID_TAKEN,
    VOCAB_TEXT_TAKEN,
    VOCAB_CROWDED,
    VOCAB_NO_MEMORY
};
enum vocab_outcome vocab_add(struct vocab *vocab, uint32_t id, const char *text, size_t length);

uint32_t vocab_find(const struct vocab *vocab, const char *text, size_t length); /* IDMAP_NONE */

static inline bool vocab_has(const struct vocab *vocab, uint32_t id)
{
    return id < vocab->bound && vocab->spans[id].length > 0;
}

static inline const char *vocab_text(const struct vocab *vocab, uint32_t id, size_t *ret_length)
{
    if (!vocab_has(vocab, id))
        return NULL;
    *ret_length = vocab->spans[id].length;
    return vocab->text.data + vocab->spans[id].at;
}

/* The byte-level alphabet: each byte stands as one printable character. */
uint32_t vocab_byte_char(unsigned char byte);
/* Writes the bytes that the text stands for, at most `length` of them; false when the text has a
 * character outside of the alphabet. */
bool vocab_byte_text(const char *text, size_t length, char *ret_bytes, size_t *ret_count);
