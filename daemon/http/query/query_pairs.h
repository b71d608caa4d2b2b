/* Bodies that want pairs of texts scored: readers of their fields, by field.def, and what holds
 * once all are read. Any thread. */
#pragma once

#include "daemon/http/query/query_field.h"

int read_ranked_query(const struct reading *reading, const json *value);
int read_documents(const struct reading *reading, const json *value);
int read_text_1(const struct reading *reading, const json *value);
int read_text_2(const struct reading *reading, const json *value);
int read_instruction(const struct reading *reading, const json *value);
int read_top_n(const struct reading *reading, const json *value);
int read_return_documents(const struct reading *reading, const json *value);
int read_use_activation(const struct reading *reading, const json *value);

int query_pairs_check(struct query *query, struct error *error);
