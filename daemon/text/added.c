#include "daemon/text/added.h"

#include <stdlib.h>
#include <utf8proc.h>

#include "daemon/text/codepoint.h"

static void *grow(void *array, size_t size, size_t count, size_t *room)
{
    if (count < *room)
        return array;
    size_t more = *room > 0 ? *room * 2 : 64;
    void *larger = realloc(array, more * size);
    if (larger)
        *room = more;
    return larger;
}

/* The node for a byte, below `link`; made when it is missing, 0 when memory runs out. */
static uint32_t make_node(struct added_set *set, uint32_t parent, unsigned char byte)
{
    uint32_t first = parent ? set->nodes[parent].child : set->first[byte];
    for (uint32_t node = first; node; node = set->nodes[node].sibling)
        if (set->nodes[node].byte == byte)
            return node;
    if (set->nodes_count == 0)
        set->nodes_count = 1; /* 0 means none */
    struct added_node *nodes = grow(set->nodes, sizeof(*nodes), set->nodes_count, &set->nodes_room);
    if (!nodes)
        return 0;
    set->nodes = nodes;
    uint32_t node = (uint32_t)set->nodes_count++;
    nodes[node] = (struct added_node){.sibling = parent ? first : 0, .byte = byte};
    if (parent)
        nodes[parent].child = node;
    else
        set->first[byte] = node;
    return node;
}

bool added_insert(struct added_set *set, const char *text, size_t length,
                  const struct added_token *token)
{
    struct added_token *tokens = grow(set->tokens, sizeof(*tokens), set->count, &set->tokens_room);
    if (!tokens)
        return false;
    set->tokens = tokens;
    uint32_t node = 0;
    for (size_t i = 0; i < length; i++)
        if ((node = make_node(set, node, (unsigned char)text[i])) == 0)
            return false;
    if (node == 0)
        return true;
    tokens[set->count++] = *token;
    set->nodes[node].token = (uint32_t)set->count;
    return true;
}

void added_free(struct added_set *set)
{
    free(set->tokens);
    free(set->nodes);
    *set = (struct added_set){0};
}

/* The longest token that begins at `at`; NULL when none does. */
static const struct added_token *longest(const struct added_set *set, struct added_cursor *cursor,
                                         const char *text, size_t length, size_t at,
                                         size_t *ret_end)
{
    const struct added_token *token = NULL;
    uint32_t node = set->first[(unsigned char)text[at]];
    while (node) {
        at++;
        cursor->looked++;
        if (set->nodes[node].token) {
            token = &set->tokens[set->nodes[node].token - 1];
            *ret_end = at;
        }
        if (at == length)
            break;
        unsigned char byte = (unsigned char)text[at];
        for (node = set->nodes[node].child; node && set->nodes[node].byte != byte;)
            node = set->nodes[node].sibling;
    }
    return token;
}

/* A character of words as regular expressions have it: letters, marks, decimal digits, connectors,
 * and the two joiners. */
static bool is_word(uint32_t code)
{
    if (code == 0x200c || code == 0x200d || (code >= 0x24b6 && code <= 0x24e9) ||
        (code >= 0x1f130 && code <= 0x1f149) || (code >= 0x1f150 && code <= 0x1f169) ||
        (code >= 0x1f170 && code <= 0x1f189))
        return true; /* circled and squared letters are alphabetic, though symbols */
    switch (utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        return false;
    }
}

static bool stands_alone(const char *text, size_t length, size_t start, size_t end)
{
    size_t before;
    if (start > 0 && is_word(codepoint_before(text, start, &before)))
        return false;
    return end == length || !is_word(codepoint_next(text, &end));
}

static bool stopped(struct added_cursor *cursor)
{
    if (++cursor->looked < HALT_LOOK)
        return false;
    cursor->looked = 0;
    return halt_code(cursor->halt) != 0;
}

static size_t spaces_before(struct added_cursor *cursor, const char *text, size_t at, size_t least)
{
    size_t start;
    while (at > least && !stopped(cursor) && codepoint_is_space(codepoint_before(text, at, &start)))
        at = start;
    return at;
}

static size_t spaces_after(struct added_cursor *cursor, const char *text, size_t at, size_t length)
{
    for (size_t next = at; next < length && !stopped(cursor); at = next)
        if (!codepoint_is_space(codepoint_next(text, &next)))
            break;
    return at;
}

/* Tokens may follow each other through one stretch of white space, which is gone through once. */
static size_t past_spaces(struct added_cursor *cursor, const char *text, size_t at, size_t length)
{
    if (at < cursor->spaces_start || at > cursor->spaces_end || cursor->spaces_end == 0) {
        cursor->spaces_start = at;
        cursor->spaces_end = spaces_after(cursor, text, at, length);
    }
    return cursor->spaces_end;
}

bool added_next(const struct added_set *set, struct added_cursor *cursor, const char *text,
                size_t length, size_t *ret_start, size_t *ret_end, uint32_t *ret_id)
{
    if (set->count == 0)
        return false;
    while (cursor->searched < length) {
        size_t start = cursor->searched, end = 0;
        const struct added_token *token = longest(set, cursor, text, length, start, &end);
        cursor->searched = token ? end : start + 1;
        if (stopped(cursor))
            return false;
        if (!token || (token->single_word && !stands_alone(text, length, start, end)))
            continue;
        if (token->lstrip)
            start = spaces_before(cursor, text, start, cursor->taken);
        if (token->rstrip)
            end = past_spaces(cursor, text, end, length);
        cursor->taken = end;
        *ret_start = start;
        *ret_end = end;
        *ret_id = token->id;
        return true;
    }
    return false;
}
