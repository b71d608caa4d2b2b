/* Conversations as other APIs write them, made one of the chat API's: what templates know. A query
 * keeps what was sent until its fields are read; then its conversation is made at once. Any thread.
 */
#pragma once

#include "daemon/http/query/query_field.h"

/* daemon/http/query/query_responses.c, query_messages.c: readers of fields, by field.def. */
int read_responses_text(const struct reading *reading, const json *value);
int read_responses_reasoning(const struct reading *reading, const json *value);
int read_messages_choice(const struct reading *reading, const json *value);
int read_messages_thinking(const struct reading *reading, const json *value);
int read_messages_output(const struct reading *reading, const json *value);
int read_messages_output_config(const struct reading *reading, const json *value);

/* Writes {"messages": [...], "tools": [...], "extra": {...}} from the body; tools and extra may be
 * missing. What it does not know it refuses, by *ret_param. */
typedef int (*query_writer)(const struct query *query, struct json_writer *writer,
                            const char **ret_param, struct error *error);
int query_write_responses(const struct query *query, struct json_writer *writer,
                          const char **ret_param, struct error *error);
int query_write_messages(const struct query *query, struct json_writer *writer,
                         const char **ret_param, struct error *error);

/* The query's conversation and tools become what `write` writes. */
int query_convert(struct query *query, query_writer write, struct error *error);
/* What a response tells of its request, into query->told. */
int query_keep_told(struct query *query, struct error *error);
/* A function in the chat API's form, whose members stand between: a call by its id, or, without
 * one, a tool. */
void query_open_function(struct json_writer *writer, const char *id);
void query_close_function(struct json_writer *writer);
/* Texts of a list of parts whose types are `types`, a list that ends with NULL, as one string. */
int query_put_texts(struct json_writer *writer, const char *key, const json *content,
                    const char *const *types, struct error *error);
