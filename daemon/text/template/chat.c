#include "daemon/text/template/chat.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/text/template/chat_eval.h"
#include "protocol/base/utf8.h"

/* Tokens and nodes of the largest source take less. */
#define TEMPLATE_MEMORY_MAX ((size_t)64 << 20)

struct chat_template {
    struct chat_arena arena;
    struct chat_node *body;
    char source[]; /* terminated */
};

enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE };

int chat_template_load(const char *source, size_t length, struct chat_template **ret_template,
                       struct error *error)
{
    struct chat_token *tokens;
    if (length > CHAT_SOURCE_MAX)
        return error_limit(error, ERR_BAD_MODEL, CHAT_SOURCE_MAX, length,
                           "the chat template has %zu bytes, %zu is the limit", length,
                           CHAT_SOURCE_MAX);
    for (size_t at = 0, step; at < length; at += step) {
        step = utf8_length((const unsigned char *)source + at, length - at);
        if (step == 0 || source[at] == 0)
            return error_set(error, ERR_BAD_MODEL, "the chat template is no text at byte %zu", at);
    }
    struct chat_template *template = calloc(1, sizeof(*template) + length + 1);
    if (!template)
        return error_set(error, ERR_NO_MEMORY, "no memory for the chat template");
    memcpy(template->source, source, length);
    chat_arena_init(&template->arena, TEMPLATE_MEMORY_MAX);
    int code = chat_lex(&template->arena, source, length, &tokens, error);
    if (!code)
        code = chat_parse(&template->arena, tokens, &template->body, error);
    if (code)
        chat_template_free(template);
    else
        *ret_template = template;
    return code;
}

void chat_template_free(struct chat_template *template)
{
    if (!template)
        return;
    chat_arena_free(&template->arena);
    free(template);
}

const char *chat_template_source(const struct chat_template *template)
{
    return template->source;
}

static enum flow run(struct chat_render *render, const struct chat_node *body);

struct chat_value chat_capture(struct chat_render *render, const struct chat_node *body)
{
    struct buffer outer = render->output;
    render->output = (struct buffer){0};
    run(render, body);
    struct chat_value text = chat_take(render, &render->output);
    render->output = outer;
    return text;
}

/* One name, or several that a list or tuple is spread over. */
static void assign(struct chat_render *render, const struct chat_node *target,
                   struct chat_value value)
{
    if (target->kind == NODE_ATTRIBUTE) {
        struct chat_value of = chat_evaluate(render, target->a);
        if (of.kind != CHAT_NAMESPACE)
            chat_fail(render, ERR_BAD_VALUE, "only attributes of a namespace can be set");
        else
            chat_dict_set(render, of.dict, chat_text(target->name, target->length), value);
        return;
    }
    if (!target->next) {
        chat_define(render, render->scope, target->name, target->length, value);
        return;
    }
    struct chat_value items = chat_elements(render, value);
    uint32_t i = 0;
    for (; target && i < items.length && !render->code; target = target->next)
        chat_define(render, render->scope, target->name, target->length, items.items[i++]);
    if (target || i < items.length)
        chat_fail(render, ERR_BAD_VALUE, "as many values as names are needed");
}

/* The elements that the loop's condition lets through. */
static struct chat_value filtered(struct chat_render *render, const struct chat_node *node,
                                  struct chat_value all)
{
    struct chat_scope scope = {.parent = render->scope}, *outer = render->scope;
    struct chat_value *items = chat_items(render, all.length);
    size_t count = 0;
    render->scope = &scope;
    for (uint32_t i = 0; items && i < all.length && !render->code; i++) {
        scope.variables = NULL;
        assign(render, node->a, all.items[i]);
        if (!render->code && chat_truth(chat_evaluate(render, node->e)))
            items[count++] = all.items[i];
    }
    render->scope = outer;
    return chat_list(items, count);
}

static enum flow run_for(struct chat_render *render, const struct chat_node *node)
{
    struct chat_scope scope = {.parent = render->scope}, *outer = render->scope;
    struct chat_value items = chat_elements(render, chat_evaluate(render, node->b));
    if (node->e && !render->code)
        items = filtered(render, node, items);
    if (render->code)
        return FLOW_NEXT;
    if (items.length == 0)
        return node->d ? run(render, node->d) : FLOW_NEXT;
    struct chat_loop *loop = chat_allocate(render, sizeof(*loop));
    if (!loop)
        return FLOW_NEXT;
    *loop = (struct chat_loop){.items = items.items, .count = items.length};
    render->scope = &scope;
    for (; loop->at < loop->count && chat_step(render, 0); loop->at++) {
        scope.variables = NULL;
        chat_define(render, &scope, "loop", 4,
                    (struct chat_value){.kind = CHAT_LOOP, .loop = loop});
        assign(render, node->a, items.items[loop->at]);
        if (!render->code && run(render, node->c) == FLOW_BREAK)
            break;
    }
    render->scope = outer;
    return FLOW_NEXT;
}

static enum flow run_if(struct chat_render *render, const struct chat_node *node)
{
    for (;;) {
        if (chat_truth(chat_evaluate(render, node->a)))
            return run(render, node->b);
        if (render->code || !node->c)
            return FLOW_NEXT;
        /* An elif is the only statement of its else. */
        if (node->c->kind != NODE_IF || node->c->next)
            return run(render, node->c);
        node = node->c;
    }
}

static enum flow run_statement(struct chat_render *render, const struct chat_node *node)
{
    switch (node->kind) {
    case NODE_DATA:
        chat_put(render, &render->output, node->name, node->length);
        return FLOW_NEXT;
    case NODE_SHOW:
        chat_put_text(render, &render->output, chat_evaluate(render, node->a));
        return FLOW_NEXT;
    case NODE_FOR:
        return run_for(render, node);
    case NODE_IF:
        return run_if(render, node);
    case NODE_SET:
        assign(render, node->a,
               node->b ? chat_evaluate(render, node->b) : chat_capture(render, node->c));
        return FLOW_NEXT;
    case NODE_MACRO:
        chat_define(render, render->scope, node->name, node->length,
                    (struct chat_value){.kind = CHAT_MACRO, .macro = node});
        return FLOW_NEXT;
    case NODE_BREAK:
        return FLOW_BREAK;
    case NODE_CONTINUE:
        return FLOW_CONTINUE;
    default:
        return run(render, node->b);
    }
}

static enum flow run(struct chat_render *render, const struct chat_node *body)
{
    enum flow flow = FLOW_NEXT;
    if (chat_enter(render))
        for (; body && flow == FLOW_NEXT && !render->code; body = body->next) {
            render->line = body->line;
            if (chat_step(render, 0))
                flow = run_statement(render, body);
        }
    chat_leave(render);
    return flow;
}

static void define(struct chat_render *render, const char *name, struct chat_value value)
{
    chat_define(render, render->globals, name, strlen(name), value);
}

static void define_input(struct chat_render *render, const struct chat_input *input)
{
    define(render, "messages", chat_from_json(render, input->messages));
    define(render, "tools", input->tools ? chat_from_json(render, input->tools) : chat_none());
    define(render, "documents", chat_none());
    define(render, "add_generation_prompt", chat_bool(input->add_generation_prompt));
    if (input->bos_token)
        define(render, "bos_token", chat_text(input->bos_token, strlen(input->bos_token)));
    if (input->eos_token)
        define(render, "eos_token", chat_text(input->eos_token, strlen(input->eos_token)));
    if (input->reasoning_effort)
        define(render, "reasoning_effort",
               chat_text(input->reasoning_effort, strlen(input->reasoning_effort)));
    for (const json *extra = input->extra ? json_child(input->extra) : NULL; extra;
         extra = json_next(extra))
        define(render, json_key(extra), chat_from_json(render, extra));
}

int chat_template_render(const struct chat_template *template, const struct chat_input *input,
                         const struct chat_limits *limits, char **ret_text, size_t *ret_length,
                         struct error *error)
{
    struct chat_scope globals = {0};
    struct chat_render render = {.limits = *limits,
                                 .globals = &globals,
                                 .scope = &globals,
                                 .now = input->now,
                                 .error = error};
    chat_arena_init(&render.arena, limits->memory_max);
    define_input(&render, input);
    if (!render.code)
        run(&render, template->body);
    chat_arena_free(&render.arena);
    if (!render.code && !buffer_append(&render.output, "", 1, limits->output_max + 1))
        chat_fail(&render, ERR_NO_MEMORY, "no memory for the text");
    if (render.code) {
        buffer_free(&render.output);
        return render.code;
    }
    *ret_text = render.output.data;
    *ret_length = render.output.length - 1;
    return 0;
}
