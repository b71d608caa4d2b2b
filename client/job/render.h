/* Results as the user reads them. */
#pragma once

#include "client/job/item.h"
#include "client/terminal/output.h"

/* What of an item in turn is not printed yet; with its end the line is closed. Returns whether all
 * of it is out. */
bool render_plain(struct output *output, struct item *item, int job, bool whole);
/* One object per result, one line each. */
void render_json(struct output *output, const struct item *item, int job);

struct json_writer;
/* client/job/batch_form.c: the item as one line of OpenAI's batches. */
void batch_form_write(struct json_writer *writer, const struct item *item);
/* client/job/batch_logprobs.c: before that, asks how tokens are called that it will name; waits for
 * the daemon. And its log-probabilities. */
void batch_form_ask(struct job *job, const struct item *item);
void batch_form_logprobs(struct json_writer *writer, const struct item *item,
                         const struct result *result);
