/* Statements. */
#include "daemon/text/template/chat_node.h"

#include <ctype.h>
#include <string.h>

#define STATEMENTS_DEEP_MAX 40

struct chat_node *chat_node(struct chat_parser *parser, enum chat_node_kind kind)
{
    struct chat_node *node = chat_arena_take(parser->arena, sizeof(*node));
    if (!node) {
        if (!parser->code)
            parser->code =
                error_set(parser->error, ERR_TOO_LARGE, "the chat template is too large");
        parser->spare = (struct chat_node){0};
        return &parser->spare;
    }
    node->kind = kind;
    node->line = parser->at->line;
    return node;
}

/* What stands there, cut and cleaned. */
static void show(const char *text, size_t length, char *shown, size_t size)
{
    size_t used = 0;
    for (; used < length && used < size - 1; used++)
        shown[used] = isprint((unsigned char)text[used]) ? text[used] : '?';
    shown[used] = 0;
}

void chat_expected(struct chat_parser *parser, const char *what)
{
    char shown[40];
    const struct chat_token *token = parser->at;
    show(token->text, token->length, shown, sizeof(shown));
    if (!parser->code)
        parser->code = error_set(parser->error, ERR_BAD_MODEL,
                                 "chat template, line %u: %s expected, not \"%s\"", token->line,
                                 what, token->kind == TOKEN_END ? "the end" : shown);
}

void chat_refuse(struct chat_parser *parser, const char *what, const char *name, size_t length)
{
    char shown[40];
    show(name, length, shown, sizeof(shown));
    if (!parser->code)
        parser->code = error_set(
            parser->error, ERR_UNSUPPORTED, "chat template, line %u: %s%s%s%s is not supported",
            parser->at->line, what, length ? " \"" : "", shown, length ? "\"" : "");
}

bool chat_at(const struct chat_parser *parser, enum chat_token_kind kind, const char *text)
{
    const struct chat_token *token = parser->at;
    return token->kind == kind && (!text || (strlen(text) == token->length &&
                                             memcmp(token->text, text, token->length) == 0));
}

bool chat_accept(struct chat_parser *parser, enum chat_token_kind kind, const char *text)
{
    if (parser->code || !chat_at(parser, kind, text))
        return false;
    parser->at++;
    return true;
}

void chat_need(struct chat_parser *parser, enum chat_token_kind kind, const char *text)
{
    if (!chat_accept(parser, kind, text))
        chat_expected(parser, text ? text : kind == TOKEN_NAME ? "a name" : "the end of the tag");
}

static struct chat_node *parse_body(struct chat_parser *parser, const char *const *ends);

static void end_block(struct chat_parser *parser)
{
    chat_need(parser, TOKEN_BLOCK_END, NULL);
}

/* {% endNAME %}; parse_body has stopped at the name. */
static void end_statement(struct chat_parser *parser, const char *name)
{
    chat_need(parser, TOKEN_NAME, name);
    end_block(parser);
}

static struct chat_node *target_name(struct chat_parser *parser)
{
    const struct chat_token *token = parser->at;
    struct chat_node *node = chat_node(parser, NODE_NAME);
    chat_need(parser, TOKEN_NAME, NULL);
    node->name = token->text;
    node->length = token->length;
    return node;
}

/* a, or a, b, or (a, b); with `attributes` also a.b. */
static struct chat_node *targets(struct chat_parser *parser, bool attributes)
{
    bool brackets = chat_accept(parser, TOKEN_OPERATOR, "(");
    struct chat_node *first = target_name(parser), **link = &first->next;
    if (attributes && chat_accept(parser, TOKEN_OPERATOR, ".")) {
        struct chat_node *node = chat_node(parser, NODE_ATTRIBUTE), *name = target_name(parser);
        node->a = first;
        node->name = name->name;
        node->length = name->length;
        return node;
    }
    while (chat_accept(parser, TOKEN_OPERATOR, ",")) {
        if (parser->at->kind != TOKEN_NAME || chat_at(parser, TOKEN_NAME, "in"))
            break;
        *link = target_name(parser);
        link = &(*link)->next;
    }
    if (brackets)
        chat_need(parser, TOKEN_OPERATOR, ")");
    return first;
}

static struct chat_node *parse_for(struct chat_parser *parser)
{
    static const char *const ends[] = {"endfor", "else", NULL}, *const last[] = {"endfor", NULL};
    struct chat_node *node = chat_node(parser, NODE_FOR);
    node->a = targets(parser, false);
    chat_need(parser, TOKEN_NAME, "in");
    node->b = chat_parse_tuple(parser, false);
    if (chat_accept(parser, TOKEN_NAME, "if"))
        node->e = chat_parse_expression(parser);
    if (chat_at(parser, TOKEN_NAME, "recursive"))
        chat_refuse(parser, "a loop that is", "recursive", 9);
    end_block(parser);
    parser->loops++;
    node->c = parse_body(parser, ends);
    parser->loops--;
    if (chat_accept(parser, TOKEN_NAME, "else")) {
        end_block(parser);
        node->d = parse_body(parser, last);
    }
    end_statement(parser, "endfor");
    return node;
}

static struct chat_node *parse_if(struct chat_parser *parser)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    static const char *const last[] = {"endif", NULL};
    struct chat_node *first = chat_node(parser, NODE_IF), *node = first;
    for (;;) {
        node->a = chat_parse_tuple(parser, true);
        end_block(parser);
        node->b = parse_body(parser, ends);
        if (!chat_accept(parser, TOKEN_NAME, "elif"))
            break;
        node->c = chat_node(parser, NODE_IF);
        node = node->c;
    }
    if (chat_accept(parser, TOKEN_NAME, "else")) {
        end_block(parser);
        node->c = parse_body(parser, last);
    }
    end_statement(parser, "endif");
    return first;
}

static struct chat_node *parse_set(struct chat_parser *parser)
{
    static const char *const ends[] = {"endset", NULL};
    struct chat_node *node = chat_node(parser, NODE_SET);
    node->a = targets(parser, true);
    if (chat_accept(parser, TOKEN_OPERATOR, "=")) {
        node->b = chat_parse_tuple(parser, true);
        end_block(parser);
        return node;
    }
    if (chat_at(parser, TOKEN_OPERATOR, "|"))
        chat_refuse(parser, "a filter of a set block", "", 0);
    end_block(parser);
    node->c = parse_body(parser, ends);
    end_statement(parser, "endset");
    return node;
}

static struct chat_node *parameters(struct chat_parser *parser)
{
    struct chat_node *first = NULL, **link = &first;
    int count = 0;
    chat_need(parser, TOKEN_OPERATOR, "(");
    while (!parser->code && !chat_accept(parser, TOKEN_OPERATOR, ")")) {
        if (first)
            chat_need(parser, TOKEN_OPERATOR, ",");
        struct chat_node *parameter = target_name(parser);
        parameter->kind = NODE_ARGUMENT;
        if (chat_accept(parser, TOKEN_OPERATOR, "="))
            parameter->a = chat_parse_expression(parser);
        *link = parameter;
        link = &parameter->next;
        if (++count > CHAT_ARGUMENTS_MAX)
            chat_refuse(parser, "a macro with more than 16 parameters", "", 0);
    }
    return first;
}

static struct chat_node *parse_macro(struct chat_parser *parser)
{
    static const char *const ends[] = {"endmacro", NULL};
    struct chat_node *node = target_name(parser);
    node->kind = NODE_MACRO;
    if (parser->in_macro || parser->loops > 0)
        chat_refuse(parser, "a macro within a macro or a loop", "", 0);
    node->a = parameters(parser);
    end_block(parser);
    parser->in_macro = true;
    node->b = parse_body(parser, ends);
    parser->in_macro = false;
    end_statement(parser, "endmacro");
    node->e = parser->macros;
    parser->macros = node;
    return node;
}

static struct chat_node *parse_jump(struct chat_parser *parser, enum chat_node_kind kind)
{
    struct chat_node *node = chat_node(parser, kind);
    if (parser->loops == 0)
        chat_expected(parser, "a loop around break or continue");
    end_block(parser);
    return node;
}

/* {% generation %} marks what the model said, for training; rendering goes through it. */
static struct chat_node *parse_generation(struct chat_parser *parser)
{
    static const char *const ends[] = {"endgeneration", NULL};
    struct chat_node *node = chat_node(parser, NODE_GROUP);
    end_block(parser);
    node->b = parse_body(parser, ends);
    end_statement(parser, "endgeneration");
    return node;
}

static struct chat_node *parse_statement(struct chat_parser *parser)
{
    const struct chat_token *token = parser->at;
    if (chat_accept(parser, TOKEN_NAME, "for"))
        return parse_for(parser);
    if (chat_accept(parser, TOKEN_NAME, "if"))
        return parse_if(parser);
    if (chat_accept(parser, TOKEN_NAME, "set"))
        return parse_set(parser);
    if (chat_accept(parser, TOKEN_NAME, "macro"))
        return parse_macro(parser);
    if (chat_accept(parser, TOKEN_NAME, "break"))
        return parse_jump(parser, NODE_BREAK);
    if (chat_accept(parser, TOKEN_NAME, "continue"))
        return parse_jump(parser, NODE_CONTINUE);
    if (chat_accept(parser, TOKEN_NAME, "generation"))
        return parse_generation(parser);
    if (token->kind == TOKEN_NAME)
        chat_refuse(parser, "the statement", token->text, token->length);
    else
        chat_expected(parser, "a statement");
    return NULL;
}

static bool at_end(const struct chat_parser *parser, const char *const *ends)
{
    for (; ends && *ends; ends++)
        if (chat_at(parser, TOKEN_NAME, *ends))
            return true;
    return false;
}

/* Up to a tag that begins with one of the names, behind its {%; or, without names, to the end. */
static struct chat_node *parse_body(struct chat_parser *parser, const char *const *ends)
{
    struct chat_node *first = NULL, **link = &first;
    if (++parser->depth > STATEMENTS_DEEP_MAX)
        chat_refuse(parser, "nesting this deep", "", 0);
    while (!parser->code) {
        struct chat_node *node = NULL;
        const struct chat_token *token = parser->at;
        if (chat_accept(parser, TOKEN_DATA, NULL)) {
            node = chat_node(parser, NODE_DATA);
            node->name = token->text;
            node->length = token->length;
        } else if (chat_accept(parser, TOKEN_SHOW, NULL)) {
            node = chat_node(parser, NODE_SHOW);
            node->a = chat_parse_tuple(parser, true);
            chat_need(parser, TOKEN_SHOW_END, NULL);
        } else if (chat_accept(parser, TOKEN_BLOCK, NULL)) {
            if (at_end(parser, ends))
                break;
            node = parse_statement(parser);
        } else if (ends) {
            chat_expected(parser, *ends);
        } else {
            break;
        }
        if (node) {
            *link = node;
            link = &node->next;
        }
    }
    parser->depth--;
    return first;
}

/* A call of what is no macro of the template: a function that is not known here. */
static void check_calls(struct chat_parser *parser)
{
    for (const struct chat_node *call = parser->calls; call && !parser->code; call = call->e) {
        const struct chat_node *macro = parser->macros;
        while (macro && (macro->length != call->length ||
                         memcmp(macro->name, call->name, call->length) != 0))
            macro = macro->e;
        if (!macro) {
            char shown[40];
            show(call->name, call->length, shown, sizeof(shown));
            parser->code = error_set(parser->error, ERR_UNSUPPORTED,
                                     "chat template, line %u: the function \"%s\" is not supported",
                                     call->line, shown);
        }
    }
}

int chat_parse(struct chat_arena *arena, const struct chat_token *tokens,
               struct chat_node **ret_body, struct error *error)
{
    struct chat_parser parser = {.arena = arena, .at = tokens, .error = error};
    struct chat_node *body = parse_body(&parser, NULL);
    if (!parser.code && parser.at->kind != TOKEN_END)
        chat_expected(&parser, "the end");
    if (!parser.code)
        check_calls(&parser);
    if (!parser.code)
        *ret_body = body;
    return parser.code;
}
