/* The requests of a run, drawn ahead from the seed: when each arrives, how long it is, what it
 * asks.
 *
 * Lengths follow vLLM's rule for its random data set: uniform between the floor of L * (1 - ratio)
 * and the ceiling of L * (1 + ratio), at least 1. Prompts are token numbers below the vocabulary: a
 * prefix that all share, then numbers that count up from a random one, so that no two prompts begin
 * alike by accident. Read-only once made: any thread.
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

struct workload {
    struct item *items; /* by due_us */
    uint32_t count;
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

/* The item's prompt; room for its prompt_tokens. */
void workload_prompt(const struct workload *workload, uint32_t index, int32_t *tokens);
