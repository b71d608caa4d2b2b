/* Admission: accept or refuse, from counters and limits alone. Pure.
 *
 * too_large is final and names the limit: the same request fails again. busy is for now: it names
 * the limit, what is held, and when to come back. Any thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/request/users.h"
#include "protocol/base/error.h"
#include "protocol/message.h"

struct admission_limits {
    uint32_t connections_max;
    uint64_t sequences_max, tokens_max; /* queued, of all users; one user gets half of each */
    uint32_t batch_max;                 /* sequences of a SUBMIT, each n counted */
    uint32_t n_max, logprobs_max, stop_max;
    uint32_t context_max; /* tokens of a sequence */
    uint64_t kv_tokens;   /* what the KV memory holds at most */
    uint64_t results_max; /* bytes of results that were not read, of all users */
    uint64_t tensors_max; /* bytes of jobs' tensors, of all users; one user gets half */
};

/* Whether one more connection is taken. */
int admission_conn(const struct admission_limits *limits, uint32_t connections,
                   struct error *error);

/* One prompt by itself; also sets sampling->max_tokens where it was 0 (as many as the context
 * holds, or default_max). */
int admission_prompt(const struct admission_limits *limits, enum job job, uint32_t prompt_len,
                     uint32_t default_max, struct sampling *sampling, struct error *error);

/* A whole batch against what is held now. retry_after_ms is the hint for `busy`. */
int admission_batch(const struct admission_limits *limits, const struct load *all,
                    const struct load *user, uint64_t sequences, uint64_t tokens,
                    uint32_t retry_after_ms, struct error *error);

/* So many bytes of tensors beside what is held now: before they are copied or mapped. */
int admission_tensors(const struct admission_limits *limits, const struct load *all,
                      const struct load *user, uint64_t bytes, uint32_t retry_after_ms,
                      struct error *error);

/* Whether the user may ask for this priority. */
int admission_priority(int32_t priority_max, int32_t priority, struct error *error);

/* Bytes of results of one sequence, or of one answer that is told as a whole: whether they can be
 * kept at all. */
int admission_result(const struct admission_limits *limits, uint64_t bytes, struct error *error);
/* Whether so many can be kept now, beside what all, this user and this connection hold. A user gets
 * at most as much as is left behind it, so that the next one finds something; and so does a
 * connection of what its user may have, which is half of all. */
bool admission_keep(const struct admission_limits *limits, uint64_t all, uint64_t user,
                    uint64_t conn, uint64_t bytes);
