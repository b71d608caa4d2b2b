#include "daemon/text/template/chat_lex.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/text/codepoint.h"
#include "daemon/text/template/chat_text.h"

#define BRACKETS_MAX 64

struct lexer {
    struct chat_arena *arena;
    struct error *error;
    char *source; /* line ends are all \n */
    size_t length, at;
    uint32_t line;
    bool line_start; /* what was read last ended a line */
    struct chat_token *tokens;
    size_t count, room;
    int code;
    struct chat_token spare; /* handed out when memory ends */
};

static void fail(struct lexer *lexer, int code, const char *what)
{
    if (!lexer->code)
        lexer->code =
            error_set(lexer->error, code, "chat template, line %u: %s", lexer->line, what);
}

static void out_of_memory(struct lexer *lexer)
{
    fail(lexer, ERR_TOO_LARGE, "the template is too large");
}

static struct chat_token *add(struct lexer *lexer, enum chat_token_kind kind, const char *text,
                              size_t length)
{
    if (lexer->count == lexer->room) {
        size_t room = lexer->room ? 2 * lexer->room : 256;
        struct chat_token *tokens = chat_arena_take(lexer->arena, room * sizeof(*tokens));
        if (!tokens) {
            out_of_memory(lexer);
            return &lexer->spare;
        }
        if (lexer->count > 0)
            memcpy(tokens, lexer->tokens, lexer->count * sizeof(*tokens));
        lexer->tokens = tokens;
        lexer->room = room;
    }
    struct chat_token *token = &lexer->tokens[lexer->count++];
    *token = (struct chat_token){
        .kind = kind, .line = lexer->line, .length = (uint32_t)length, .text = text};
    return token;
}

static void count_lines(struct lexer *lexer, size_t to)
{
    for (; lexer->at < to; lexer->at++)
        lexer->line += lexer->source[lexer->at] == '\n';
}

static bool follows(const struct lexer *lexer, size_t at, const char *text)
{
    size_t length = strlen(text);
    return lexer->length - at >= length && memcmp(lexer->source + at, text, length) == 0;
}

static size_t skip_space(const struct lexer *lexer, size_t at)
{
    return at + chat_space_before(lexer->source + at, lexer->length - at);
}

/* The text before a tag, without what the tag's sign or lstrip_blocks takes off its end. */
static void add_data(struct lexer *lexer, size_t end, char sign, bool shows)
{
    const char *text = lexer->source + lexer->at;
    size_t length = end - lexer->at;
    if (sign == '-') {
        length -= chat_space_behind(text, length);
    } else if (sign != '+' && !shows) {
        size_t start = length;
        while (start > 0 && text[start - 1] != '\n')
            start--;
        if ((start > 0 || lexer->line_start) &&
            chat_space_before(text + start, length - start) == length - start)
            length = start;
    }
    if (length > 0)
        add(lexer, TOKEN_DATA, text, length);
    count_lines(lexer, end);
}

/* Past the end of a tag, with the white space that it takes along. `trims`: a newline behind it. */
static void end_tag(struct lexer *lexer, size_t behind, char sign, bool trims)
{
    size_t end = behind;
    if (sign == '-')
        end = skip_space(lexer, behind);
    else if (trims && sign != '+' && behind < lexer->length && lexer->source[behind] == '\n')
        end++;
    count_lines(lexer, end);
    lexer->line_start = lexer->source[end - 1] == '\n';
}

static void lex_comment(struct lexer *lexer, size_t start)
{
    for (size_t at = start; at + 1 < lexer->length; at++) {
        if (!follows(lexer, at, "#}"))
            continue;
        char sign = at > start ? lexer->source[at - 1] : 0;
        end_tag(lexer, at + 2, sign, true);
        return;
    }
    fail(lexer, ERR_BAD_MODEL, "a comment does not end");
}

static bool is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_' || (unsigned char)c >= 0x80;
}

static void lex_string(struct lexer *lexer)
{
    char quote = lexer->source[lexer->at];
    size_t start = lexer->at + 1, end = start;
    while (end < lexer->length && lexer->source[end] != quote)
        end += lexer->source[end] == '\\' ? 2 : 1;
    if (end >= lexer->length) {
        fail(lexer, ERR_BAD_MODEL, "a string does not end");
        return;
    }
    char *value = chat_arena_text(lexer->arena, end - start + 1);
    size_t length;
    if (!value)
        out_of_memory(lexer);
    else if (!chat_unescape(lexer->source + start, end - start, value, &length))
        fail(lexer, ERR_UNSUPPORTED, "an escape in a string is not supported");
    else
        add(lexer, TOKEN_STRING, value, length);
    count_lines(lexer, end + 1);
}

static void lex_number(struct lexer *lexer)
{
    const char *text = lexer->source + lexer->at;
    size_t left = lexer->length - lexer->at, whole = 0, length;
    while (whole < left && isdigit((unsigned char)text[whole]))
        whole++;
    length = whole;
    if (length + 1 < left && text[length] == '.' && isdigit((unsigned char)text[length + 1]))
        for (length++; length < left && isdigit((unsigned char)text[length]);)
            length++;
    if (length + 1 < left && (text[length] | 0x20) == 'e') {
        size_t digits = length + 1 + (text[length + 1] == '+' || text[length + 1] == '-');
        if (digits < left && isdigit((unsigned char)text[digits]))
            for (length = digits; length < left && isdigit((unsigned char)text[length]);)
                length++;
    }
    char copy[40];
    if (length >= sizeof(copy) || (length < left && is_name(text[length]))) {
        fail(lexer, ERR_UNSUPPORTED, "this number is not supported");
        return;
    }
    memcpy(copy, text, length);
    copy[length] = 0;
    errno = 0;
    struct chat_token *token =
        add(lexer, length == whole ? TOKEN_INTEGER : TOKEN_FLOAT, text, length);
    token->integer = strtoll(copy, NULL, 10);
    token->number = strtod(copy, NULL);
    if (errno)
        fail(lexer, ERR_UNSUPPORTED, "a number is out of range");
    lexer->at += length;
}

static void lex_operator(struct lexer *lexer, int *brackets)
{
    static const char doubles[][3] = {"//", "**", "==", "!=", ">=", "<="};
    const char *text = lexer->source + lexer->at;
    size_t length = 0;
    for (size_t i = 0; i < sizeof(doubles) / sizeof(doubles[0]) && length == 0; i++)
        if (follows(lexer, lexer->at, doubles[i]))
            length = 2;
    if (length == 0 && *text && strchr("+-/*%~[](){}<>=.:|,", *text))
        length = 1;
    if (length == 0) {
        fail(lexer, ERR_BAD_MODEL, "an unexpected character");
        return;
    }
    *brackets += strchr("([{", *text) ? 1 : strchr(")]}", *text) ? -1 : 0;
    if (*brackets < 0 || *brackets > BRACKETS_MAX)
        fail(lexer, ERR_BAD_MODEL, "brackets do not match");
    add(lexer, TOKEN_OPERATOR, text, length);
    lexer->at += length;
}

/* Between {{ and }} or {% and %}. The end counts only outside of brackets, for a dict may end so.
 */
static void lex_tag(struct lexer *lexer, bool shows)
{
    const char *close = shows ? "}}" : "%}";
    int brackets = 0;
    while (!lexer->code) {
        count_lines(lexer, skip_space(lexer, lexer->at));
        if (lexer->at == lexer->length) {
            fail(lexer, ERR_BAD_MODEL, "a tag does not end");
            return;
        }
        char c = lexer->source[lexer->at];
        bool sign = c == '-' || (c == '+' && !shows);
        if (brackets == 0 && follows(lexer, lexer->at + sign, close)) {
            add(lexer, shows ? TOKEN_SHOW_END : TOKEN_BLOCK_END, close, 2);
            end_tag(lexer, lexer->at + sign + 2, sign ? c : 0, !shows);
            return;
        }
        if (c == '"' || c == '\'') {
            lex_string(lexer);
        } else if (isdigit((unsigned char)c)) {
            lex_number(lexer);
        } else if (is_name(c)) {
            size_t length = 0;
            while (lexer->at + length < lexer->length && is_name(lexer->source[lexer->at + length]))
                length++;
            add(lexer, TOKEN_NAME, lexer->source + lexer->at, length);
            lexer->at += length;
        } else {
            lex_operator(lexer, &brackets);
        }
    }
}

static void lex_all(struct lexer *lexer)
{
    lexer->line_start = true;
    while (!lexer->code && lexer->at < lexer->length) {
        size_t tag = lexer->at;
        while (tag < lexer->length && !follows(lexer, tag, "{{") && !follows(lexer, tag, "{%") &&
               !follows(lexer, tag, "{#"))
            tag++;
        if (tag == lexer->length) {
            add(lexer, TOKEN_DATA, lexer->source + lexer->at, tag - lexer->at);
            lexer->at = tag;
            break;
        }
        char kind = lexer->source[tag + 1],
             sign = tag + 2 < lexer->length ? lexer->source[tag + 2] : 0;
        size_t inside = tag + 2 + (sign == '-' || sign == '+');
        add_data(lexer, tag, sign, kind == '{');
        if (kind == '#') {
            lex_comment(lexer, inside);
            continue;
        }
        add(lexer, kind == '{' ? TOKEN_SHOW : TOKEN_BLOCK, lexer->source + tag, 2);
        count_lines(lexer, inside);
        lex_tag(lexer, kind == '{');
    }
}

/* Line ends become \n, and one at the very end is dropped. */
static size_t normalise(const char *source, size_t length, char *out)
{
    size_t used = 0;
    for (size_t i = 0; i < length; i++) {
        if (source[i] == '\r' && i + 1 < length && source[i + 1] == '\n')
            continue;
        out[used++] = source[i] == '\r' ? '\n' : source[i];
    }
    return used > 0 && out[used - 1] == '\n' ? used - 1 : used;
}

int chat_lex(struct chat_arena *arena, const char *source, size_t length,
             struct chat_token **ret_tokens, struct error *error)
{
    struct lexer lexer = {.arena = arena, .error = error, .line = 1};
    lexer.source = chat_arena_text(arena, length + 1);
    if (!lexer.source)
        return error_set(error, ERR_TOO_LARGE, "the chat template is too large");
    lexer.length = normalise(source, length, lexer.source);
    lexer.source[lexer.length] = 0;
    lex_all(&lexer);
    add(&lexer, TOKEN_END, "", 0);
    *ret_tokens = lexer.tokens;
    return lexer.code;
}
