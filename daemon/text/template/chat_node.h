/* A template as a tree, and the parser's state. Private to chat. */
#pragma once

#include "daemon/text/template/chat_lex.h"
#include "daemon/text/template/chat_value.h"

enum chat_node_kind {
    /* Expressions; a, b, c and d are what is said behind each. */
    NODE_CONST,     /* value */
    NODE_NAME,      /* name */
    NODE_LIST,      /* a: elements, by next */
    NODE_TUPLE,     /* the same */
    NODE_DICT,      /* a: key, value, key, value, ... by next */
    NODE_ATTRIBUTE, /* a . name */
    NODE_ITEM,      /* a [ b ] */
    NODE_SLICE,     /* a [ b : c : d ], each of the three or NULL */
    NODE_FUNCTION,  /* id ( b: arguments ) */
    NODE_CALL,      /* macro name ( b ) */
    NODE_METHOD,    /* a . id ( b ) */
    NODE_FILTER,    /* a | id ( b ) */
    NODE_TEST,      /* a is id ( b ) */
    NODE_ARGUMENT,  /* name or none = a */
    NODE_NOT,
    NODE_NEGATIVE,
    NODE_POSITIVE,
    NODE_AND,
    NODE_OR,
    NODE_COMPARE, /* a, and b: operands by next */
    NODE_OPERAND, /* id a */
    NODE_BINARY,  /* a id b */
    NODE_CONCAT,  /* a ~ b */
    NODE_CHOICE,  /* b if a else c */
    /* Statements. */
    NODE_DATA,  /* name, as it is */
    NODE_SHOW,  /* a */
    NODE_FOR,   /* a: targets, b: what is gone through, c: body, d: else, e: condition */
    NODE_IF,    /* a: condition, b: body, c: else or another if */
    NODE_SET,   /* a: targets, b: value, or c: body */
    NODE_MACRO, /* name, a: parameters (arguments with defaults), b: body */
    NODE_BREAK,
    NODE_CONTINUE,
    NODE_GROUP /* b: body */
};

enum chat_comparison {
    COMPARE_EQ,
    COMPARE_NE,
    COMPARE_LT,
    COMPARE_LE,
    COMPARE_GT,
    COMPARE_GE,
    COMPARE_IN,
    COMPARE_NOT_IN
};

struct chat_node {
    enum chat_node_kind kind;
    uint32_t line, length; /* of the name */
    int id;
    const char *name;
    struct chat_node *a, *b, *c, *d, *e, *next;
    struct chat_value value;
};

struct chat_parser {
    struct chat_arena *arena;
    const struct chat_token *at;
    struct error *error;
    int code; /* sticky */
    int depth, loops;
    bool in_macro;
    struct chat_node *calls;  /* of macros, by e: checked when all macros are known */
    struct chat_node *macros; /* by e */
    struct chat_node spare;   /* handed out when memory ends; nobody looks at what it holds */
};

int chat_parse(struct chat_arena *arena, const struct chat_token *tokens,
               struct chat_node **ret_body, struct error *error);

/* For chat_parse.c and chat_expression.c. */
struct chat_node *chat_parse_expression(struct chat_parser *parser);
struct chat_node *chat_parse_tuple(struct chat_parser *parser, bool with_choice);
struct chat_node *chat_parse_or(struct chat_parser *parser);
struct chat_node *chat_node(struct chat_parser *parser, enum chat_node_kind kind);
void chat_expected(struct chat_parser *parser, const char *what);
void chat_refuse(struct chat_parser *parser, const char *what, const char *name, size_t length);
bool chat_at(const struct chat_parser *parser, enum chat_token_kind kind, const char *text);
bool chat_accept(struct chat_parser *parser, enum chat_token_kind kind, const char *text);
void chat_need(struct chat_parser *parser, enum chat_token_kind kind, const char *text);
