/* A rank's draft model: what it is made of, and its part of a step.
 *
 * It lives in the rank's own memory, stream and batch. Its layers are further ones of the model's
 * KV blocks (engine_draft.h), so tables, slabs and the state of slots are the model's, and whatever
 * becomes of a block becomes of its part too. It is run twice in two ways:
 *
 * - Guesses. Before the model's step as many small steps go as the plan's longest row has drafts,
 *   one token a row: the first reads what the row has unread and its known token, each other one
 *   what the one before has drawn. They are steps like any other, with a packed plan each beside
 *   the model's in one copy, and graphs of their own; a row leaves them when it has its guesses.
 *   Each draws with the numbers that the model will draw with, and leaves what it drew in
 *   `guesses`, where the model's step finds it.
 * - Reading. Rows that bring no guesses and are to be read (GPU_DRAFT) go through its layers behind
 *   the model's step, by the batch that is there, with all others of the step.
 *
 * A head (draft_head.h) is run the same way, but each row stands a position further back, and its
 * reading is a small step too, with a plan and results of its own.
 *
 * A guess is only ever a guess: whatever its KV holds, what is sampled does not depend on it.
 *
 * Thread: the rank's own. Owns weights, program, graphs.
 */
#pragma once

#include "gpu/engine/cuda_graph.h"
#include "gpu/program/draft.h"
#include "gpu/program/program.h"

struct rank;

struct drafter {
    struct weights weights;
    struct program program; /* without a list: there is no draft model */
    struct batch batch;     /* the rank's, with the windows of its own layers */
    struct cuda_graphs graphs;
    struct draft_memory draft_memory; /* of a head */
    int32_t *guesses;          /* [GPU_DRAFTS_MAX][slots_max], device */
    uint64_t guesses_bytes;
    struct gpu_row *rows; /* [rows_max], of the small step that is being made */
};

/* One small step. */
struct draft_step {
    struct gpu_plan plan; /* until the next is made */
    struct launch launch; /* without its wire and scratch */
    struct cuda_graph_key graph;
    bool fits, there; /* it may run as a graph; that is captured */
};

static inline bool drafter_exists(const struct drafter *drafter)
{
    return drafter->program.list != NULL;
}

/* Nothing where the options name none. Weights first, the rest once all memory has its place. */
int drafter_load(struct rank *rank, struct error *error);
int drafter_open(struct rank *rank, struct error *error);
int drafter_close(struct rank *rank, struct error *error);

/* Of the plan's rows those with more than j drafts; PACK_READING: of a head those that it reads. */
void drafter_plan(const struct rank *rank, const struct gpu_plan *plan, uint32_t j,
                  struct gpu_plan *ret);
void drafter_step(const struct rank *rank, const struct gpu_plan *plan, uint32_t j, bool counts,
                  struct draft_step *ret);
/* With its wire and scratch. */
int drafter_run(struct rank *rank, const struct draft_step *step, struct error *error);

/* Whether its reading is a small step, by drafter_step: of a head. */
bool drafter_reads_apart(const struct rank *rank);
/* Else the launch that reads a step's rows; `step` is the model's. */
struct launch drafter_reading(const struct rank *rank, const struct launch *step);
