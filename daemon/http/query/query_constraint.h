/* Readers of the fields that say what an answer must be; see field.def. Any thread. */
#pragma once

#include "daemon/http/query/query_field.h"

int read_response_format(const struct reading *reading, const json *value);
/* The same as /v1/responses and Anthropic write it: no object within. */
int read_text_format(const struct reading *reading, const json *value);
int read_structured_outputs(const struct reading *reading, const json *value);
int read_schema(const struct reading *reading, const json *value);
int read_pattern(const struct reading *reading, const json *value);
int read_choices(const struct reading *reading, const json *value);
int read_grammar(const struct reading *reading, const json *value);
