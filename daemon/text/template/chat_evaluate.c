/* Expressions. */
#include <string.h>

#include "daemon/text/template/chat_eval.h"

/* A template may have as many variables, and as long names, as its source or a request's
 * chat_template_kwargs hold. */
static bool same_name(struct chat_render *render, const char *a, size_t a_length, const char *b,
                      size_t b_length)
{
    return chat_bytes(render, 1) && a_length == b_length && chat_bytes(render, a_length) &&
           memcmp(a, b, a_length) == 0;
}

static struct chat_variable *find(struct chat_render *render, struct chat_scope *scope,
                                  const char *name, size_t length)
{
    struct chat_variable *variable = scope->variables;
    while (variable && !render->code &&
           !same_name(render, variable->name, variable->length, name, length))
        variable = variable->next;
    return render->code ? NULL : variable;
}

void chat_define(struct chat_render *render, struct chat_scope *scope, const char *name,
                 size_t length, struct chat_value value)
{
    struct chat_variable *variable = find(render, scope, name, length);
    if (!variable) {
        variable = chat_allocate(render, sizeof(*variable));
        if (!variable)
            return;
        *variable =
            (struct chat_variable){.name = name, .length = length, .next = scope->variables};
        scope->variables = variable;
    }
    variable->value = value;
}

/* Names for messages end with a 0, and live as long as the rendering. */
static struct chat_value missing(struct chat_render *render, const struct chat_node *node)
{
    char *name = chat_allocate(render, node->length + 1);
    if (name)
        memcpy(name, node->name, node->length);
    return chat_undefined(name);
}

static struct chat_value look_up(struct chat_render *render, const struct chat_node *node)
{
    for (struct chat_scope *scope = render->scope; scope; scope = scope->parent) {
        const struct chat_variable *variable = find(render, scope, node->name, node->length);
        if (variable)
            return variable->value;
    }
    /* A function that is not called: templates ask whether it is defined. */
    if (chat_find_function(node->name, node->length) >= 0)
        return (struct chat_value){.kind = CHAT_METHOD};
    return missing(render, node);
}

static struct chat_value list(struct chat_render *render, const struct chat_node *node)
{
    size_t count = 0, i = 0;
    for (const struct chat_node *item = node->a; item; item = item->next)
        count++;
    struct chat_value *items = chat_items(render, count);
    for (const struct chat_node *item = node->a; item && items; item = item->next)
        items[i++] = chat_evaluate(render, item);
    struct chat_value result = chat_list(items, items ? count : 0);
    result.kind = node->kind == NODE_TUPLE ? CHAT_TUPLE : CHAT_LIST;
    return result;
}

static struct chat_value dict(struct chat_render *render, const struct chat_node *node)
{
    struct chat_value result = chat_new_dict(render, CHAT_DICT);
    for (const struct chat_node *key = node->a; key && !render->code; key = key->next->next) {
        struct chat_value name = chat_evaluate(render, key);
        struct chat_value value = chat_evaluate(render, key->next);
        if (name.kind != CHAT_STRING && !chat_is_number(name) && name.kind != CHAT_NONE)
            return chat_fail(render, ERR_UNSUPPORTED, "a %s as a key", chat_kind_name(name));
        chat_dict_set(render, result.dict, name, value);
    }
    return result;
}

static struct chat_value slice(struct chat_render *render, const struct chat_node *node)
{
    const struct chat_node *const nodes[3] = {node->b, node->c, node->d};
    struct chat_value value = chat_evaluate(render, node->a), bounds[3];
    for (int i = 0; i < 3; i++)
        bounds[i] = nodes[i] ? chat_evaluate(render, nodes[i]) : chat_none();
    return render->code ? chat_undefined(NULL) : chat_slice(render, value, bounds);
}

static void evaluate_arguments(struct chat_render *render, const struct chat_node *node,
                               struct chat_arguments *arguments)
{
    arguments->count = arguments->named = 0;
    for (; node && !render->code; node = node->next) {
        struct chat_value value = chat_evaluate(render, node->a);
        if (node->name) {
            arguments->names[arguments->named].name = node->name;
            arguments->names[arguments->named].length = node->length;
            arguments->names[arguments->named++].value = value;
        } else if (arguments->named > 0) {
            chat_fail(render, ERR_BAD_VALUE, "an argument without a name behind one with a name");
        } else {
            arguments->values[arguments->count++] = value;
        }
    }
}

static struct chat_value call_macro(struct chat_render *render, const struct chat_node *macro,
                                    const struct chat_arguments *arguments)
{
    struct chat_scope scope = {.parent = render->globals}, *outer = render->scope;
    char name[64];
    size_t place = 0;
    render->scope = &scope;
    for (const struct chat_node *p = macro->a; p && !render->code; p = p->next, place++) {
        struct chat_value value =
            place < arguments->count ? arguments->values[place] : chat_undefined("a parameter");
        bool given = place < arguments->count;
        for (size_t i = 0; i < arguments->named && !given; i++) {
            given = same_name(render, arguments->names[i].name, arguments->names[i].length, p->name,
                              p->length);
            if (given)
                value = arguments->names[i].value;
        }
        if (!given && p->a)
            value = chat_evaluate(render, p->a);
        chat_define(render, &scope, p->name, p->length, value);
    }
    if (arguments->count > place) {
        size_t length = macro->length < sizeof(name) ? macro->length : sizeof(name) - 1;
        memcpy(name, macro->name, length);
        name[length] = 0;
        chat_fail(render, ERR_BAD_VALUE, "macro %s takes %zu arguments", name, place);
    }
    struct chat_value result = render->code ? chat_undefined(NULL) : chat_capture(render, macro->b);
    render->scope = outer;
    return result;
}

static struct chat_value call(struct chat_render *render, const struct chat_node *node)
{
    struct chat_arguments arguments;
    struct chat_value of = chat_undefined(NULL);
    if (node->kind == NODE_CALL)
        of = look_up(render, node);
    else if (node->kind != NODE_FUNCTION)
        of = chat_evaluate(render, node->a);
    evaluate_arguments(render, node->b, &arguments);
    render->line = node->line;
    if (render->code)
        return chat_undefined(NULL);
    switch (node->kind) {
    case NODE_FUNCTION:
        return chat_call_function(render, (enum chat_function)node->id, &arguments);
    case NODE_METHOD:
        return chat_call_method(render, (enum chat_method)node->id, of, &arguments);
    case NODE_FILTER:
        return chat_call_filter(render, (enum chat_filter)node->id, of, &arguments);
    case NODE_TEST:
        return chat_bool(chat_call_test(render, (enum chat_test)node->id, of, &arguments));
    default:
        return of.kind == CHAT_MACRO
                   ? call_macro(render, of.macro, &arguments)
                   : chat_fail(render, ERR_BAD_VALUE, "%s cannot be called", chat_kind_name(of));
    }
}

static bool holds(struct chat_render *render, enum chat_comparison comparison, struct chat_value a,
                  struct chat_value b)
{
    switch (comparison) {
    case COMPARE_EQ:
        return chat_equal(render, a, b);
    case COMPARE_NE:
        return !chat_equal(render, a, b);
    case COMPARE_LT:
        return chat_order(render, a, b) < 0;
    case COMPARE_LE:
        return chat_order(render, a, b) <= 0;
    case COMPARE_GT:
        return chat_order(render, a, b) > 0;
    case COMPARE_GE:
        return chat_order(render, a, b) >= 0;
    case COMPARE_IN:
        return chat_contains(render, b, a);
    case COMPARE_NOT_IN:
        return !chat_contains(render, b, a);
    }
    return false;
}

static struct chat_value compare(struct chat_render *render, const struct chat_node *node)
{
    struct chat_value left = chat_evaluate(render, node->a);
    for (const struct chat_node *next = node->b; next && !render->code; next = next->next) {
        struct chat_value right = chat_evaluate(render, next->a);
        if (render->code || !holds(render, (enum chat_comparison)next->id, left, right))
            return chat_bool(false);
        left = right;
    }
    return chat_bool(!render->code);
}

static struct chat_value sign(struct chat_render *render, const struct chat_node *node)
{
    struct chat_value value = chat_evaluate(render, node->a);
    if (render->code)
        return value;
    return chat_binary(render, node->kind == NODE_NEGATIVE ? '-' : '+', chat_int(0), value);
}

static struct chat_value concat(struct chat_render *render, const struct chat_node *node)
{
    struct chat_value a = chat_evaluate(render, node->a), b = chat_evaluate(render, node->b);
    a = chat_string(render, a);
    b = chat_string(render, b);
    return render->code ? chat_undefined(NULL) : chat_concat(render, a, b);
}

static struct chat_value either(struct chat_render *render, const struct chat_node *node)
{
    struct chat_value value = chat_evaluate(render, node->a);
    return chat_truth(value) == (node->kind == NODE_OR) ? value : chat_evaluate(render, node->b);
}

static struct chat_value choice(struct chat_render *render, const struct chat_node *node)
{
    bool truth = chat_truth(chat_evaluate(render, node->a));
    const struct chat_node *chosen = truth ? node->b : node->c;
    return chosen ? chat_evaluate(render, chosen) : chat_undefined("an if without else");
}

static struct chat_value binary(struct chat_render *render, const struct chat_node *node)
{
    struct chat_value a = chat_evaluate(render, node->a), b = chat_evaluate(render, node->b);
    render->line = node->line;
    return render->code ? chat_undefined(NULL) : chat_binary(render, (char)node->id, a, b);
}

static struct chat_value member(struct chat_render *render, const struct chat_node *node)
{
    struct chat_value of = chat_evaluate(render, node->a), key = chat_undefined(NULL);
    if (node->kind == NODE_ITEM)
        key = chat_evaluate(render, node->b);
    render->line = node->line;
    if (render->code)
        return chat_undefined(NULL);
    return node->kind == NODE_ITEM ? chat_item(render, of, key)
                                   : chat_attribute(render, of, node->name, node->length);
}

static struct chat_value evaluate(struct chat_render *render, const struct chat_node *node)
{
    switch (node->kind) {
    case NODE_CONST:
        return node->value;
    case NODE_NAME:
        return look_up(render, node);
    case NODE_LIST:
    case NODE_TUPLE:
        return list(render, node);
    case NODE_DICT:
        return dict(render, node);
    case NODE_ATTRIBUTE:
    case NODE_ITEM:
        return member(render, node);
    case NODE_SLICE:
        return slice(render, node);
    case NODE_FUNCTION:
    case NODE_CALL:
    case NODE_METHOD:
    case NODE_FILTER:
    case NODE_TEST:
        return call(render, node);
    case NODE_NOT:
        return chat_bool(!chat_truth(chat_evaluate(render, node->a)));
    case NODE_NEGATIVE:
    case NODE_POSITIVE:
        return sign(render, node);
    case NODE_AND:
    case NODE_OR:
        return either(render, node);
    case NODE_COMPARE:
        return compare(render, node);
    case NODE_BINARY:
        return binary(render, node);
    case NODE_CONCAT:
        return concat(render, node);
    default:
        return choice(render, node);
    }
}

struct chat_value chat_evaluate(struct chat_render *render, const struct chat_node *node)
{
    struct chat_value value = chat_undefined(NULL);
    render->line = node->line;
    if (chat_enter(render) && chat_step(render, 0))
        value = evaluate(render, node);
    chat_leave(render);
    return render->code ? chat_undefined(NULL) : value;
}
