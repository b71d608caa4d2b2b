/* A draft model that is a head (gpu/models/families/eagle3.c): what it reads of its model, and the
 * memory by which it does.
 *
 * A row of it is a token and what the model made of the position before, and stands there: the row
 * at position p has token p + 1. So a plan's rows are one position further back for it, and the
 * first token of a sequence has none. What it guessed from its own states it reads once more from
 * the model's, where that stands (gpu_model.draft_rereads).
 */
#pragma once

#include "gpu/engine/engine_config.h"
#include "gpu/program/draft.h"

struct rank;

static inline bool draft_is_head(const struct engine_draft *draft)
{
    return draft->there && draft->source.config.draft_vocab > 0;
}

/* Behind the draft model's own reading: the model's list captures what the head reads. Any thread.
 * ERR_BAD_CONFIG where it is the head of another model, ERR_BAD_MODEL where its tokens are none. */
int draft_head_read(struct engine_config *facts, struct error *error);

/* Once the rank's weights are there: fixed memory, without anything in it. */
int draft_head_open(struct rank *rank, struct error *error);

/* Rows as they stand for the head; the plan's own arrays stay. 0 tokens: it has no row of it. */
struct gpu_row draft_head_row(const struct gpu_row *row);
