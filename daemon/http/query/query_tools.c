#include "daemon/http/query/query_tools.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/answer/answer_structure.h"
#include "daemon/answer/argument_types.h"
#include "daemon/answer/call_format.h"
#include "daemon/answer/call_object.h"
#include "daemon/request/model_text.h"
#include "daemon/request/request_builder.h"

static int wrong(const struct reading *reading, const char *what)
{
    return error_set(reading->error, ERR_BAD_VALUE, "%s: %s", reading->field->name, what);
}

/* ---- fields ------------------------------------------------------------------------------------
 */

static bool is_name(const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; i < length; i++)
        if (!call_name_takes(name[i]) || strchr("[]{}<>,", name[i]))
            return false;
    return length > 0 && length <= QUERY_TOOL_NAME_MAX;
}

static int add_tool(struct query *query, const json *name, const json *parameters,
                    const json *strict, struct error *error)
{
    struct query_tools *tools = &query->tools;
    const char *text = json_string(name);
    if (!is_name(text))
        return error_set(error, ERR_BAD_VALUE,
                         "tools: a name must have 1 to %u characters, no spaces or brackets",
                         QUERY_TOOL_NAME_MAX);
    if (parameters && !json_is_null(parameters) && !json_is_object(parameters))
        return error_set(error, ERR_BAD_VALUE, "tools: %s: its parameters must be a schema", text);
    if (strict && !json_is_null(strict) && !json_is_bool(strict))
        return error_set(error, ERR_BAD_VALUE, "tools: %s: strict must be true or false", text);
    for (uint32_t i = 0; i < tools->count; i++)
        if (strcmp(tools->list[i].name, text) == 0)
            return error_set(error, ERR_BAD_VALUE, "tools: there are two of the name %s", text);
    if (tools->count == QUERY_TOOLS_MAX)
        return error_limit(error, ERR_TOO_LARGE, QUERY_TOOLS_MAX, (size_t)tools->count + 1,
                           "tools: more than %u", QUERY_TOOLS_MAX);
    struct query_tool *list = realloc(tools->list, (tools->count + 1) * sizeof(*list));
    if (!list)
        return error_set(error, ERR_NO_MEMORY, "no memory for tools");
    tools->list = list;
    bool is_strict = json_bool(strict);
    list[tools->count++] =
        (struct query_tool){.name = text, .parameters = parameters, .strict = is_strict};
    tools->strict |= is_strict;
    return 0;
}

static int check_members(const json *object, const char *const *known, const char *where,
                         struct error *error)
{
    for (const json *item = json_child(object); item; item = json_next(item)) {
        bool found = false;
        for (size_t i = 0; known[i]; i++)
            found |= strcmp(json_key(item), known[i]) == 0;
        if (!found && !json_is_null(item))
            return error_set(error, ERR_UNKNOWN_FIELD, "tools: %s%.32s is not known", where,
                             json_key(item));
    }
    return 0;
}

int query_tools_function(struct query *query, const json *tool, struct error *error)
{
    static const char *const outer[] = {"type", "function", NULL};
    static const char *const inner[] = {"name", "description", "parameters", "strict", NULL};
    const json *function = json_get(tool, "function");
    if (strcmp(json_string(json_get(tool, "type")), "function") != 0)
        return error_set(error, ERR_UNSUPPORTED,
                         "tools: only those of type \"function\" are known");
    int rc = check_members(tool, outer, "", error);
    if (!rc)
        rc = check_members(function, inner, "function.", error);
    return rc ? rc
              : add_tool(query, json_get(function, "name"), json_get(function, "parameters"),
                         json_get(function, "strict"), error);
}

int read_tools(const struct reading *reading, const json *value)
{
    bool known;
    int rc = chat_prompt_field(&reading->query->chat, value, &known, reading->error);
    for (const json *tool = json_child(value); !rc && tool; tool = json_next(tool))
        rc = query_tools_function(reading->query, tool, reading->error);
    return rc;
}

int query_tools_choose(struct query *query, const char *name, struct error *error)
{
    query->tools.choice = TOOL_CHOICE_REQUIRED;
    query->tools.one_call = true;
    if (strlen(name) > QUERY_TOOL_NAME_MAX)
        return error_set(error, ERR_BAD_VALUE, "tool_choice: there is no tool of this name");
    strcpy(query->tools.only, name);
    return 0;
}

int read_tool_choice(const struct reading *reading, const json *value)
{
    static const char *const words[] = {[TOOL_CHOICE_AUTO] = "auto",
                                        [TOOL_CHOICE_NONE] = "none",
                                        [TOOL_CHOICE_REQUIRED] = "required"};
    const json *name = json_get(json_get(value, "function"), "name");
    for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (json_is_string(value) && strcmp(json_string(value), words[i]) == 0) {
            reading->query->tools.choice = (enum tool_choice)i;
            return 0;
        }
    if (!name) /* as /v1/responses writes it */
        name = json_get(value, "name");
    if (strcmp(json_string(json_get(value, "type")), "function") != 0 || !json_is_string(name))
        return wrong(reading,
                     "must be \"auto\", \"none\", \"required\", or a function by its name");
    return query_tools_choose(reading->query, json_string(name), reading->error);
}

int read_parallel_tool_calls(const struct reading *reading, const json *value)
{
    if (!json_is_bool(value))
        return wrong(reading, "must be true or false");
    reading->query->tools.one_call |= !json_bool(value);
    return 0;
}

int read_thinking_budget(const struct reading *reading, const json *value)
{
    int64_t budget;
    int rc = json_integer(value, reading->field->name, 0, INT32_MAX, &budget, reading->error);
    if (!rc)
        reading->query->tools.budget = (uint32_t)budget;
    return rc;
}

/* ---- as a whole --------------------------------------------------------------------------------
 */

static bool is_known(const struct query_tools *tools, const char *name)
{
    for (uint32_t i = 0; i < tools->count; i++)
        if (strcmp(tools->list[i].name, name) == 0)
            return true;
    return false;
}

/* The tools' names as readers of answers want them. */
static int keep_names(struct query_tools *tools, struct error *error)
{
    size_t size = 1;
    for (uint32_t i = 0; i < tools->count; i++)
        size += strlen(tools->list[i].name) + 1;
    char *at = tools->names = calloc(size, 1);
    if (!at)
        return error_set(error, ERR_NO_MEMORY, "no memory for tools");
    for (uint32_t i = 0; i < tools->count; i++) {
        strcpy(at, tools->list[i].name);
        at += strlen(at) + 1;
    }
    return 0;
}

int query_tools_check(struct query *query, struct error *error)
{
    struct query_tools *tools = &query->tools;
    if (tools->choice == TOOL_CHOICE_NONE) { /* as if there were none, to the template, too */
        query->chat.tools = NULL;
        tools->count = 0;
        tools->strict = tools->one_call = false;
        return 0;
    }
    if (tools->choice == TOOL_CHOICE_REQUIRED && tools->count == 0) {
        snprintf(query->param, sizeof(query->param), "tool_choice");
        return error_set(error, ERR_BAD_VALUE, "tool_choice: there are no tools");
    }
    if (tools->only[0] && !is_known(tools, tools->only)) {
        snprintf(query->param, sizeof(query->param), "tool_choice");
        return error_set(error, ERR_BAD_VALUE, "tool_choice: there is no tool of the name %s",
                         tools->only);
    }
    return tools->count > 0 ? keep_names(tools, error) : 0;
}

void query_tools_forget(struct query *query)
{
    for (uint32_t i = 0; i < query->tools.count && query->tools.list; i++)
        free(query->tools.list[i].types);
    free(query->tools.list);
    query->tools.list = NULL;
}

void query_tools_free(struct query *query)
{
    query_tools_forget(query);
    free(query->tools.names);
    free(query->tools.types);
    query->tools = (struct query_tools){0};
}

/* The types of a tool's parameters, in their order. */
static int find_types(struct query_tool *tool, struct error *error)
{
    size_t room = json_count(json_get(tool->parameters, "properties"));
    tool->types = calloc(room + 1, 1);
    if (!tool->types)
        return error_set(error, ERR_NO_MEMORY, "no memory for tools");
    tool->count = argument_types_list(tool->parameters, tool->types, room);
    return 0;
}

/* For models that write arguments without quotes. */
static int keep_types(struct query_tools *tools, struct error *error)
{
    struct buffer types = {0};
    int rc = 0;
    bool kept = true;
    for (uint32_t i = 0; i < tools->count && !rc; i++) {
        struct query_tool *tool = &tools->list[i];
        rc = find_types(tool, error);
        kept = !rc && kept &&
               argument_types_add(&types, tool->name, tool->parameters, tool->types, tool->count);
    }
    tools->types = argument_types_end(&types, kept && !rc);
    return rc || tools->types ? rc : error_set(error, ERR_NO_MEMORY, "no memory for tools");
}

/* ---- what answers must be ----------------------------------------------------------------------
 */

/* The schema of a tool's arguments as a text; they are an object whatever it says. */
static void write_schema(struct json_writer *writer, const void *parameters)
{
    json_open(writer, NULL, '{');
    for (const json *item = json_child(parameters); item; item = json_next(item))
        json_put_value(writer, json_key(item), item);
    if (!json_get(parameters, "type"))
        json_put_text(writer, "type", "object");
    if (json_count(parameters) == 0)
        json_put_bool(writer, "additionalProperties", false);
    json_close(writer, '}');
}

static int check_schema(const struct query_tool *tool, struct error *error)
{
    const json *type = json_get(tool->parameters, "type");
    if (type && strcmp(json_string(type), "object") != 0)
        return error_set(error, ERR_BAD_VALUE, "tools: %s: its parameters are no object",
                         tool->name);
    return 0;
}

/* Of the tools that may be called. */
static int make_tools(const struct query_tools *tools, struct answer_tool *made,
                      uint32_t *ret_count, struct error *error)
{
    *ret_count = 0;
    for (uint32_t i = 0; i < tools->count; i++) {
        const struct query_tool *tool = &tools->list[i];
        struct answer_tool *to = &made[*ret_count];
        if (tools->only[0] && strcmp(tools->only, tool->name) != 0)
            continue;
        *to = (struct answer_tool){.name = tool->name, .types = tool->types, .count = tool->count};
        ++*ret_count;
        int rc = check_schema(tool, error);
        if (rc)
            return rc;
        if (!tool->strict && tools->choice != TOOL_CHOICE_REQUIRED)
            continue;
        size_t length;
        to->schema = json_written(write_schema, tool->parameters, &length);
        if (!to->schema)
            return error_set(error, ERR_NO_MEMORY, "no memory for tools");
    }
    return 0;
}

static void write_structure(struct json_writer *writer, const void *structure)
{
    answer_structure_write(structure, writer);
}

static int set_structure(struct query *query, const struct answer_structure *structure,
                         struct error *error)
{
    size_t length;
    char *text = json_written(write_structure, structure, &length);
    if (!text)
        return error_set(error, ERR_NO_MEMORY, "no memory for a constraint");
    free(query->constraint_text);
    query->constraint_text = text;
    if (!query->constraint_field)
        query->constraint_field = query->tools.count > 0 ? "tools" : "thinking_token_budget";
    query->constraint = (struct message_constraint){
        .kind = MESSAGE_CONSTRAINT_STRUCTURE, .text = text, .length = length};
    return 0;
}

static int make_structure(struct query *query, const struct answer_form *form,
                          enum answer_thought thought, struct error *error)
{
    struct query_tools *tools = &query->tools;
    struct answer_tool *made = calloc(tools->count + 1, sizeof(*made));
    const char *field;
    uint32_t count = 0;
    enum message_constraint_kind kind = query->constraint.kind;
    int rc = made ? make_tools(tools, made, &count, error)
                  : error_set(error, ERR_NO_MEMORY, "no memory for tools");
    const struct answer_structure structure = {
        .form = form,
        .thought = thought,
        .budget = tools->budget,
        .tools = made,
        .tool_count = count,
        .must_call = tools->choice == TOOL_CHOICE_REQUIRED,
        .one_call = tools->one_call,
        .content_kind = kind == MESSAGE_CONSTRAINT_NONE ? NULL : message_constraint_name(kind),
        .content = query->constraint_text};
    if (!rc)
        rc = set_structure(query, &structure, error);
    for (uint32_t i = 0; i < count; i++)
        free((char *)made[i].schema);
    free(made);
    if (!rc && (rc = request_builder_unconstrained(&query->common, &field, error)))
        snprintf(query->param, sizeof(query->param), "%s", field);
    return rc;
}

int query_tools_render(struct query *query, const struct model_text *model_text,
                       struct error *error)
{
    struct query_tools *tools = &query->tools;
    const struct answer_form *form = &model_text->answer;
    const char *text = query->rendered;
    size_t length = strlen(text);
    if (tools->count > 0 && !form->calls) {
        snprintf(query->param, sizeof(query->param), "tools");
        return error_set(error, ERR_UNSUPPORTED,
                         "tools: the model's chat template writes calls in no form that is known "
                         "here, or tells it of no tools (daemon/answer/README.md has the list)");
    }
    if (tools->count > 0 && form->calls->shape.key) {
        int rc = keep_types(tools, error);
        if (rc)
            return rc;
    }
    if (tools->budget != QUERY_NO_BUDGET && !form->reasoning) {
        snprintf(query->param, sizeof(query->param), "thinking_token_budget");
        return error_set(error, ERR_UNSUPPORTED,
                         "thinking_token_budget: the model's chat template marks no thought");
    }
    tools->thinks = answer_form_thinks(form, text, length);
    enum answer_thought thought = tools->thinks ? ANSWER_THOUGHT_BEGUN
                                  : form->reasoning && !answer_form_thought(form, text, length)
                                      ? ANSWER_THOUGHT_MAY
                                      : ANSWER_THOUGHT_OVER;
    bool constrained = query->constraint.kind != MESSAGE_CONSTRAINT_NONE;
    bool bounded = constrained || tools->budget != QUERY_NO_BUDGET;
    bool calls = tools->count > 0 && (tools->strict || tools->one_call || constrained ||
                                      tools->choice == TOOL_CHOICE_REQUIRED);
    tools->reads = tools->count > 0 || form->reasoning;
    if (!calls && !(bounded && thought != ANSWER_THOUGHT_OVER))
        return 0;
    return make_structure(query, form, thought, error);
}
