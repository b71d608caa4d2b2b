/* A template's source as tokens, with white space around tags already dropped. Private to chat. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "daemon/text/template/chat_arena.h"
#include "protocol/base/error.h"

enum chat_token_kind {
    TOKEN_DATA,      /* text between tags */
    TOKEN_SHOW,      /* {{ */
    TOKEN_SHOW_END,  /* }} */
    TOKEN_BLOCK,     /* {% */
    TOKEN_BLOCK_END, /* %} */
    TOKEN_NAME,
    TOKEN_STRING,
    TOKEN_INTEGER,
    TOKEN_FLOAT,
    TOKEN_OPERATOR,
    TOKEN_END
};

struct chat_token {
    enum chat_token_kind kind;
    uint32_t line, length;
    const char *text; /* of a string: its value */
    int64_t integer;
    double number;
};

/* The tokens end with TOKEN_END; they and what they point at live in the arena. */
int chat_lex(struct chat_arena *arena, const char *source, size_t length,
             struct chat_token **ret_tokens, struct error *error);
