/* The requests of a run, drawn ahead from the seed: when each arrives, how long it is, what it
 * asks.
 *
 * Lengths follow vLLM's rule for its random data set: uniform between the floor of L * (1 - ratio)
 * and the ceiling of L * (1 + ratio), at least 1. Prompts are token numbers below the vocabulary: a
 * prefix that all share, then numbers that count up from a random one, so that no two prompts begin
 * alike by accident. Read-only once made: any thread.
 *
 * Of sessions (turns > 1) each request but the first has for its beginning all of the one before
 * and what was answered: as far as the transport tells which tokens these were, else further
 * numbers. So lengths are drawn ahead, too. When it is sent the answer before decides, and
 * think_us.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/bench/options.h"
#include "protocol/base/error.h"

#define WORKLOAD_ITEMS_MAX 50000000u
#define WORKLOAD_LENGTH_MAX (1u << 24) /* tokens of a prompt */
#define WORKLOAD_NO_CANCEL UINT32_MAX

struct item {
    uint64_t due_us; /* after the start of the run */
    uint32_t prompt_tokens, output_tokens;
    uint32_t cancel_after; /* so many tokens; 0 = as soon as it is sent */
    uint32_t start;        /* picks the first token */
    int32_t priority;
};

/* Of an item in a session. */
struct item_turn {
    uint64_t think_us; /* from the end of the answer before */
    size_t answer;     /* where its answer's tokens are kept */
};

struct workload {
    struct item *items; /* by due_us; or sessions by their first's, each one's turns in a row */
    uint32_t count;
    uint32_t turns;
    struct item_turn *item_turns; /* NULL: of one turn each */
    int32_t *answers;             /* -1: not known. A session's are of the thread that drives it */
    uint32_t prefix_tokens;
    uint32_t prompt_tokens_most;
    uint64_t seed;
    uint32_t vocabulary; /* set once it is known, before any prompt is made */
    bool ignore_eos, no_cache;
    const char *cache_salt; /* NULL: none; borrowed from the options */
};

int workload_make(const struct bench_options *options, struct workload *ret_workload,
                  struct error *error);
/* Requests of one token beside the load, for the span of `beside`, at --probe-rate. */
int workload_make_probes(const struct bench_options *options, const struct workload *beside,
                         struct workload *ret_workload, struct error *error);
/* --warmup requests, all at once. */
int workload_make_warmup(const struct bench_options *options, struct workload *ret_workload,
                         struct error *error);
void workload_free(struct workload *workload);

/* Tokens of the item's answer, from its `from`th on: for the prompts that follow. */
void workload_answer(const struct workload *workload, uint32_t index, uint32_t from,
                     const int32_t *tokens, uint32_t count);
/* The item's prompt; room for its prompt_tokens. */
void workload_prompt(const struct workload *workload, uint32_t index, int32_t *tokens);
