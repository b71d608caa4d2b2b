/* Expressions, with Jinja's precedence: from `x if y else z` down to `a.b[c] | filter`. */
#include <string.h>

#include "daemon/text/template/chat_node.h"

#define NESTING_MAX 60

static bool enter(struct chat_parser *parser)
{
    if (++parser->depth > NESTING_MAX && !parser->code)
        parser->code =
            error_set(parser->error, ERR_TOO_LARGE, "chat template, line %u: nested deeper than %d",
                      parser->at->line, NESTING_MAX);
    return !parser->code;
}

static struct chat_node *pair(struct chat_parser *parser, enum chat_node_kind kind,
                              struct chat_node *a, struct chat_node *b)
{
    struct chat_node *node = chat_node(parser, kind);
    node->a = a;
    node->b = b;
    return node;
}

static bool symbol(struct chat_parser *parser, const char *text)
{
    return chat_accept(parser, TOKEN_OPERATOR, text);
}

static struct chat_node *constant(struct chat_parser *parser, struct chat_value value)
{
    struct chat_node *node = chat_node(parser, NODE_CONST);
    node->value = value;
    return node;
}

/* ( a, b, name = c ), behind the opening bracket. */
static struct chat_node *arguments(struct chat_parser *parser)
{
    struct chat_node *first = NULL, **link = &first;
    int count = 0;
    while (!parser->code && !symbol(parser, ")")) {
        struct chat_node *argument = chat_node(parser, NODE_ARGUMENT);
        if (first)
            chat_need(parser, TOKEN_OPERATOR, ",");
        if (first && symbol(parser, ")"))
            break;
        if (chat_at(parser, TOKEN_OPERATOR, "*") || chat_at(parser, TOKEN_OPERATOR, "**"))
            chat_refuse(parser, "an argument list in", "*", 1);
        const struct chat_token *name = parser->at;
        if (name->kind == TOKEN_NAME && name[1].kind == TOKEN_OPERATOR && name[1].length == 1 &&
            name[1].text[0] == '=') {
            argument->name = name->text;
            argument->length = name->length;
            parser->at += 2;
        }
        argument->a = chat_parse_expression(parser);
        *link = argument;
        link = &argument->next;
        if (++count > CHAT_ARGUMENTS_MAX)
            chat_refuse(parser, "a call with more than 16 arguments", "", 0);
    }
    return first;
}

static struct chat_node *list(struct chat_parser *parser, enum chat_node_kind kind,
                              const char *close)
{
    struct chat_node *node = chat_node(parser, kind), **link = &node->a;
    while (!parser->code && !symbol(parser, close)) {
        if (node->a)
            chat_need(parser, TOKEN_OPERATOR, ",");
        if (node->a && symbol(parser, close))
            break;
        *link = chat_parse_expression(parser);
        if (parser->code)
            break;
        link = &(*link)->next;
        if (kind != NODE_DICT)
            continue;
        chat_need(parser, TOKEN_OPERATOR, ":");
        *link = chat_parse_expression(parser);
        if (parser->code)
            break;
        link = &(*link)->next;
    }
    return node;
}

/* Strings side by side are one. */
static struct chat_node *strings(struct chat_parser *parser)
{
    size_t length = 0, at = 0;
    const struct chat_token *token = parser->at;
    for (; token->kind == TOKEN_STRING; token++)
        length += token->length;
    char *text = chat_arena_text(parser->arena, length);
    if (!text) {
        chat_refuse(parser, "a template this large", "", 0);
        return chat_node(parser, NODE_CONST);
    }
    for (; parser->at->kind == TOKEN_STRING; parser->at++) {
        memcpy(text + at, parser->at->text, parser->at->length);
        at += parser->at->length;
    }
    return constant(parser, chat_text(text, length));
}

static struct chat_node *name(struct chat_parser *parser)
{
    const struct chat_token *token = parser->at++;
    static const struct {
        const char *text;
        enum chat_kind kind;
        bool truth;
    } words[] = {{"true", CHAT_BOOL, true},   {"True", CHAT_BOOL, true},
                 {"false", CHAT_BOOL, false}, {"False", CHAT_BOOL, false},
                 {"none", CHAT_NONE, 0},      {"None", CHAT_NONE, 0}};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strlen(words[i].text) == token->length &&
            memcmp(words[i].text, token->text, token->length) == 0)
            return constant(parser,
                            words[i].kind == CHAT_BOOL ? chat_bool(words[i].truth) : chat_none());
    struct chat_node *node = chat_node(parser, NODE_NAME);
    node->name = token->text;
    node->length = token->length;
    return node;
}

static struct chat_node *primary(struct chat_parser *parser)
{
    const struct chat_token *token = parser->at;
    if (token->kind == TOKEN_NAME)
        return name(parser);
    if (token->kind == TOKEN_STRING)
        return strings(parser);
    if (token->kind == TOKEN_INTEGER || token->kind == TOKEN_FLOAT) {
        parser->at++;
        return constant(parser, token->kind == TOKEN_INTEGER ? chat_int(token->integer)
                                                             : chat_float(token->number));
    }
    if (symbol(parser, "["))
        return list(parser, NODE_LIST, "]");
    if (symbol(parser, "{"))
        return list(parser, NODE_DICT, "}");
    if (symbol(parser, "(")) {
        if (symbol(parser, ")"))
            return chat_node(parser, NODE_TUPLE);
        struct chat_node *node = chat_parse_tuple(parser, true);
        chat_need(parser, TOKEN_OPERATOR, ")");
        return node;
    }
    chat_expected(parser, "an expression");
    return chat_node(parser, NODE_CONST);
}

static struct chat_node *bound(struct chat_parser *parser)
{
    bool none = chat_at(parser, TOKEN_OPERATOR, ":") || chat_at(parser, TOKEN_OPERATOR, "]");
    return none ? NULL : chat_parse_expression(parser);
}

/* Behind the [ of a[b] or a[b:c:d]. */
static struct chat_node *subscript(struct chat_parser *parser, struct chat_node *of)
{
    struct chat_node *node = pair(parser, NODE_ITEM, of, bound(parser));
    if (symbol(parser, ":")) {
        node->kind = NODE_SLICE;
        node->c = bound(parser);
        if (symbol(parser, ":"))
            node->d = bound(parser);
    } else if (!node->b) {
        chat_expected(parser, "an index");
    }
    chat_need(parser, TOKEN_OPERATOR, "]");
    return node;
}

static struct chat_node *attribute(struct chat_parser *parser, struct chat_node *of)
{
    const struct chat_token *token = parser->at;
    struct chat_node *node = pair(parser, NODE_ATTRIBUTE, of, NULL);
    if (token->kind == TOKEN_INTEGER) {
        parser->at++;
        node->kind = NODE_ITEM;
        node->b = constant(parser, chat_int(token->integer));
        return node;
    }
    chat_need(parser, TOKEN_NAME, NULL);
    if (token->kind == TOKEN_NAME && token->text[0] == '_')
        chat_refuse(parser, "the attribute", token->text, token->length);
    node->name = token->text;
    node->length = token->length;
    return node;
}

/* Behind the ( of a call. */
static struct chat_node *call(struct chat_parser *parser, struct chat_node *of)
{
    if (of->kind == NODE_NAME) {
        of->id = chat_find_function(of->name, of->length);
        of->kind = of->id >= 0 ? NODE_FUNCTION : NODE_CALL;
        if (of->id < 0) {
            of->e = parser->calls;
            parser->calls = of;
        }
    } else if (of->kind == NODE_ATTRIBUTE) {
        of->id = chat_find_method(of->name, of->length);
        of->kind = NODE_METHOD;
        if (of->id < 0)
            chat_refuse(parser, "the method", of->name, of->length);
    } else {
        chat_refuse(parser, "calling this", "", 0);
    }
    of->b = arguments(parser);
    return of;
}

static struct chat_node *postfix(struct chat_parser *parser, struct chat_node *node)
{
    while (!parser->code) {
        if (symbol(parser, "."))
            node = attribute(parser, node);
        else if (symbol(parser, "["))
            node = subscript(parser, node);
        else if (symbol(parser, "("))
            node = call(parser, node);
        else
            break;
    }
    return node;
}

static struct chat_node *filter(struct chat_parser *parser, struct chat_node *of)
{
    const struct chat_token *token = parser->at;
    struct chat_node *node = pair(parser, NODE_FILTER, of, NULL);
    chat_need(parser, TOKEN_NAME, NULL);
    node->id = chat_find_filter(token->text, token->length);
    if (node->id < 0 || chat_at(parser, TOKEN_OPERATOR, "."))
        chat_refuse(parser, "the filter", token->text, token->length);
    if (symbol(parser, "("))
        node->b = arguments(parser);
    return node;
}

/* A test may have one argument without brackets: `is divisibleby 3`. */
static bool starts_argument(const struct chat_parser *parser)
{
    const struct chat_token *token = parser->at;
    if (token->kind == TOKEN_NAME)
        return !chat_at(parser, TOKEN_NAME, "else") && !chat_at(parser, TOKEN_NAME, "or") &&
               !chat_at(parser, TOKEN_NAME, "and") && !chat_at(parser, TOKEN_NAME, "is");
    return token->kind == TOKEN_STRING || token->kind == TOKEN_INTEGER ||
           token->kind == TOKEN_FLOAT || chat_at(parser, TOKEN_OPERATOR, "[") ||
           chat_at(parser, TOKEN_OPERATOR, "{");
}

static struct chat_node *test(struct chat_parser *parser, struct chat_node *of)
{
    bool negated = chat_accept(parser, TOKEN_NAME, "not");
    const struct chat_token *token = parser->at;
    struct chat_node *node = pair(parser, NODE_TEST, of, NULL);
    chat_need(parser, TOKEN_NAME, NULL);
    node->id = chat_find_test(token->text, token->length);
    if (node->id < 0 || chat_at(parser, TOKEN_OPERATOR, "."))
        chat_refuse(parser, "the test", token->text, token->length);
    if (symbol(parser, "(")) {
        node->b = arguments(parser);
    } else if (!parser->code && starts_argument(parser)) {
        node->b = chat_node(parser, NODE_ARGUMENT);
        node->b->a = postfix(parser, primary(parser));
    }
    return negated ? pair(parser, NODE_NOT, node, NULL) : node;
}

static struct chat_node *unary(struct chat_parser *parser, bool with_filter)
{
    struct chat_node *node;
    if (!enter(parser)) {
        parser->depth--;
        return chat_node(parser, NODE_CONST);
    }
    if (symbol(parser, "-"))
        node = pair(parser, NODE_NEGATIVE, unary(parser, false), NULL);
    else if (symbol(parser, "+"))
        node = pair(parser, NODE_POSITIVE, unary(parser, false), NULL);
    else
        node = primary(parser);
    node = postfix(parser, node);
    while (with_filter && !parser->code) {
        if (symbol(parser, "|"))
            node = filter(parser, node);
        else if (chat_accept(parser, TOKEN_NAME, "is"))
            node = test(parser, node);
        else if (symbol(parser, "("))
            node = call(parser, node);
        else
            break;
    }
    parser->depth--;
    return node;
}

static struct chat_node *binary(struct chat_parser *parser, int id, struct chat_node *a,
                                struct chat_node *b)
{
    struct chat_node *node = pair(parser, NODE_BINARY, a, b);
    node->id = id;
    return node;
}

static struct chat_node *product(struct chat_parser *parser)
{
    static const struct {
        const char *text;
        char id;
    } operators[] = {{"*", '*'}, {"/", '/'}, {"//", 'd'}, {"%", '%'}};
    struct chat_node *node = NULL;
    for (char id = 0;;) {
        struct chat_node *power = unary(parser, true);
        while (symbol(parser, "**"))
            power = binary(parser, 'p', power, unary(parser, true));
        node = node ? binary(parser, id, node, power) : power;
        id = 0;
        for (size_t i = 0; i < sizeof(operators) / sizeof(operators[0]) && !id; i++)
            if (symbol(parser, operators[i].text))
                id = operators[i].id;
        if (!id || parser->code)
            return node;
    }
}

static struct chat_node *concatenation(struct chat_parser *parser)
{
    struct chat_node *node = product(parser);
    while (symbol(parser, "~"))
        node = pair(parser, NODE_CONCAT, node, product(parser));
    return node;
}

static struct chat_node *total(struct chat_parser *parser)
{
    struct chat_node *node = concatenation(parser);
    for (;;) {
        if (symbol(parser, "+"))
            node = binary(parser, '+', node, concatenation(parser));
        else if (symbol(parser, "-"))
            node = binary(parser, '-', node, concatenation(parser));
        else
            return node;
    }
}

static int comparison(struct chat_parser *parser)
{
    static const char *const texts[] = {
        [COMPARE_EQ] = "==", [COMPARE_NE] = "!=", [COMPARE_LT] = "<",
        [COMPARE_LE] = "<=", [COMPARE_GT] = ">",  [COMPARE_GE] = ">="};
    for (int i = 0; i < (int)(sizeof(texts) / sizeof(texts[0])); i++)
        if (symbol(parser, texts[i]))
            return i;
    if (chat_accept(parser, TOKEN_NAME, "in"))
        return COMPARE_IN;
    if (chat_at(parser, TOKEN_NAME, "not") && parser->at[1].kind == TOKEN_NAME &&
        parser->at[1].length == 2 && memcmp(parser->at[1].text, "in", 2) == 0) {
        parser->at += 2;
        return COMPARE_NOT_IN;
    }
    return -1;
}

static struct chat_node *compare(struct chat_parser *parser)
{
    struct chat_node *first = total(parser), *node = NULL, **link = NULL;
    for (int id; !parser->code && (id = comparison(parser)) >= 0;) {
        if (!node) {
            node = pair(parser, NODE_COMPARE, first, NULL);
            link = &node->b;
        }
        *link = chat_node(parser, NODE_OPERAND);
        (*link)->id = id;
        (*link)->a = total(parser);
        link = &(*link)->next;
    }
    return node ? node : first;
}

static struct chat_node *negation(struct chat_parser *parser)
{
    struct chat_node *node;
    if (!chat_accept(parser, TOKEN_NAME, "not"))
        return compare(parser);
    if (!enter(parser)) {
        parser->depth--;
        return chat_node(parser, NODE_CONST);
    }
    node = pair(parser, NODE_NOT, negation(parser), NULL);
    parser->depth--;
    return node;
}

static struct chat_node *conjunction(struct chat_parser *parser)
{
    struct chat_node *node = negation(parser);
    while (chat_accept(parser, TOKEN_NAME, "and"))
        node = pair(parser, NODE_AND, node, negation(parser));
    return node;
}

struct chat_node *chat_parse_or(struct chat_parser *parser)
{
    struct chat_node *node = conjunction(parser);
    while (chat_accept(parser, TOKEN_NAME, "or"))
        node = pair(parser, NODE_OR, node, conjunction(parser));
    return node;
}

struct chat_node *chat_parse_expression(struct chat_parser *parser)
{
    struct chat_node *node;
    if (!enter(parser)) {
        parser->depth--;
        return chat_node(parser, NODE_CONST);
    }
    node = chat_parse_or(parser);
    while (!parser->code && chat_accept(parser, TOKEN_NAME, "if")) {
        struct chat_node *choice = chat_node(parser, NODE_CHOICE);
        choice->b = node;
        choice->a = chat_parse_or(parser);
        if (chat_accept(parser, TOKEN_NAME, "else"))
            choice->c = chat_parse_expression(parser);
        node = choice;
    }
    parser->depth--;
    return node;
}

/* One expression, or a tuple where commas follow. */
struct chat_node *chat_parse_tuple(struct chat_parser *parser, bool with_choice)
{
    struct chat_node *first = with_choice ? chat_parse_expression(parser) : chat_parse_or(parser);
    if (!chat_at(parser, TOKEN_OPERATOR, ","))
        return first;
    struct chat_node *node = pair(parser, NODE_TUPLE, first, NULL), *last = first;
    while (!parser->code && symbol(parser, ",")) {
        if (parser->at->kind == TOKEN_SHOW_END || parser->at->kind == TOKEN_BLOCK_END ||
            chat_at(parser, TOKEN_OPERATOR, ")"))
            break;
        last->next = with_choice ? chat_parse_expression(parser) : chat_parse_or(parser);
        last = last->next;
    }
    return node;
}
