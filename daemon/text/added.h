/* Added tokens: texts that are found in the input before anything else and become one token whole.
 *
 * Filled by the loader, then read by any thread. Two sets exist: tokens matched in the text as it
 * came, and tokens matched in the normalised text.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/base/halt.h"

#define ADDED_TOKENS_MAX (1 << 16)
#define ADDED_TEXT_MAX 256 /* bytes; a search looks at no more than this from each place */

struct added_token {
    uint32_t id;
    bool single_word, lstrip, rstrip;
};

struct added_node {
    uint32_t child, sibling; /* 0: none */
    uint32_t token;          /* its index plus one; 0: no token ends here */
    unsigned char byte;
};

struct added_set {
    struct added_token *tokens;
    size_t count, tokens_room;
    struct added_node *nodes;
    size_t nodes_count, nodes_room;
    uint32_t first[256]; /* nodes of first bytes */
};

/* An equal text replaces the token before it. False: out of memory. */
bool added_insert(struct added_set *set, const char *text, size_t length,
                  const struct added_token *token);
void added_free(struct added_set *set);

/* The next token in valid UTF-8: true with its range, white space that it strips included; false
 * also once the halt is set. Start with a cursor of zeros but for its halt, over the same text. */
struct added_cursor {
    size_t searched, taken;          /* where matches may begin; where the last token ended */
    size_t spaces_start, spaces_end; /* the white space that was gone through last */
    size_t looked;                   /* bytes, since the halt was looked at */
    const struct halt *halt;         /* NULL: none */
};
bool added_next(const struct added_set *set, struct added_cursor *cursor, const char *text,
                size_t length, size_t *ret_start, size_t *ret_end, uint32_t *ret_id);
