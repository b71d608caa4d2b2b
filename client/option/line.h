/* A line of a batch file: one prompt and how to treat it, as a JSON object of the options' own
 * names, or as a request of OpenAI's batches: custom_id, method, url and body. */
#pragma once

#include "client/option/settings.h"

#define LINE_BYTES_MAX (64u << 20)

/* A copy of the command line's work with the fields of one line over it; work_clear() it. On
 * failure it has the line's names and its form alone, to say with the error. */
int line_read(const struct option_group *groups, const struct work *common, const char *line,
              size_t length, struct work *ret_work, struct error *error);
