/* Running a parsed template. Private to chat. */
#pragma once

#include "daemon/text/template/chat_node.h"

/* The variables of a place: of the whole template, of one turn of a loop, of one call of a macro.
 */
struct chat_variable {
    const char *name;
    size_t length;
    struct chat_value value;
    struct chat_variable *next;
};

struct chat_scope {
    struct chat_variable *variables;
    struct chat_scope *parent;
};

void chat_define(struct chat_render *render, struct chat_scope *scope, const char *name,
                 size_t length, struct chat_value value);

struct chat_value chat_evaluate(struct chat_render *render, const struct chat_node *node);
/* Runs a body and takes what it shows. */
struct chat_value chat_capture(struct chat_render *render, const struct chat_node *body);
