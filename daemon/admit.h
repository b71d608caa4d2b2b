/* Admission: accept or refuse, from counters and limits alone. Pure.
 *
 * too_large is final and names the limit: the same request fails again. busy is for now: it names
 * the limit, what is held, and when to come back. Any thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/user.h"
#include "protocol/base/error.h"
#include "protocol/message.h"

struct admit_limits {
    uint32_t connections_max;
    uint64_t sequences_max, tokens_max; /* queued, of all users; one user gets half of each */
    uint32_t batch_max;                 /* sequences of a SUBMIT, each n counted */
    uint32_t n_max, logprobs_max, stop_max;
    uint32_t context_max; /* tokens of a sequence */
    uint64_t kv_tokens;   /* what the KV memory holds at most */
};

/* Whether one more connection is taken. */
int admit_conn(const struct admit_limits *limits, uint32_t connections, struct error *error);

/* One prompt by itself; also sets sampling->max_tokens where it was 0 (as many as the context
 * holds, or default_max). */
int admit_prompt(const struct admit_limits *limits, enum job job, uint32_t prompt_len,
                 uint32_t default_max, struct sampling *sampling, struct error *error);

/* A whole batch against what is held now. retry_after_ms is the hint for `busy`. */
int admit_batch(const struct admit_limits *limits, const struct load *all, const struct load *user,
                uint64_t sequences, uint64_t tokens, uint32_t retry_after_ms, struct error *error);
