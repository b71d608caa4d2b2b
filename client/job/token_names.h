/* What tokens are called where answers name them by their texts: asked of the daemon, each token
 * once, and kept. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/sluice.h"

struct token_name {
    char *text; /* owned; NULL: its bytes are no text of their own, or nobody knows */
    size_t length;
    bool asked, special;
};

struct token_names {
    struct token_name *list; /* owned; by the token's number */
    size_t count;
};

/* Waits for the answers of those that were never asked for. What cannot be had stays without. */
void token_names_ask(struct token_names *names, sluice_client *client, const int32_t *tokens,
                     size_t count);
/* Of one that was asked for. */
const struct token_name *token_names_at(const struct token_names *names, int32_t token);
void token_names_free(struct token_names *names); /* zeroed memory is allowed */
