/* Tools: which a request has, how they are chosen, and what that makes of its answers. Any thread.
 */
#pragma once

#include "daemon/http/query/query_field.h"

struct model_text;

#define QUERY_TOOLS_MAX 128u
#define QUERY_TOOL_NAME_MAX 64u

int read_tools(const struct reading *reading, const json *value);
int read_tool_choice(const struct reading *reading, const json *value);
int read_parallel_tool_calls(const struct reading *reading, const json *value);
int read_thinking_budget(const struct reading *reading, const json *value);

/* One tool, as the chat API writes it; it stays the document's. */
int query_tools_function(struct query *query, const json *tool, struct error *error);
/* By name; text that is the document's. */
int query_tools_choose(struct query *query, const char *name, struct error *error);
/* What only holds once all fields are read. */
int query_tools_check(struct query *query, struct error *error);
/* The prompt is rendered: how answers are read, and by what they are constrained. */
int query_tools_render(struct query *query, const struct model_text *model_text,
                       struct error *error);
/* What is not needed once the conversation is rendered. */
void query_tools_forget(struct query *query);
void query_tools_free(struct query *query);
