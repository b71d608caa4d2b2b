#include "daemon/request/admission.h"

#include <inttypes.h>

int admission_conn(const struct admission_limits *limits, uint32_t connections, struct error *error)
{
    if (connections < limits->connections_max)
        return 0;
    return error_limit(error, ERR_BUSY, limits->connections_max, connections,
                       "all %u connections are in use (connections-max)", limits->connections_max);
}

static int admission_context(const struct admission_limits *limits, uint64_t length,
                             struct error *error)
{
    if (length > limits->context_max)
        return error_limit(error, ERR_TOO_LARGE, limits->context_max, length,
                           "prompt and max_tokens are %" PRIu64 " tokens, the context holds %u",
                           length, limits->context_max);
    if (length > limits->kv_tokens)
        return error_limit(error, ERR_TOO_LARGE, limits->kv_tokens, length,
                           "prompt and max_tokens are %" PRIu64 " tokens, KV memory holds %" PRIu64
                           " at most",
                           length, limits->kv_tokens);
    return 0;
}

static int admission_fields(const struct admission_limits *limits, const struct sampling *sampling,
                            struct error *error)
{
    if (sampling->n > limits->n_max)
        return error_limit(error, ERR_TOO_LARGE, limits->n_max, sampling->n,
                           "n is %u, the limit is %u", sampling->n, limits->n_max);
    if (sampling->logprobs > (int32_t)limits->logprobs_max)
        return error_limit(error, ERR_TOO_LARGE, limits->logprobs_max, (uint64_t)sampling->logprobs,
                           "logprobs is %d, the limit is %u", sampling->logprobs,
                           limits->logprobs_max);
    return 0;
}

int admission_prompt(const struct admission_limits *limits, enum job job, uint32_t prompt_len,
                     uint32_t default_max, struct sampling *sampling, struct error *error)
{
    if (prompt_len == 0)
        return error_set(error, ERR_EMPTY, "the prompt is empty");
    int rc = admission_fields(limits, sampling, error);
    if (rc)
        return rc;
    if (job != JOB_GENERATE)
        return admission_context(limits, prompt_len, error);
    uint64_t room = limits->context_max;
    if (limits->kv_tokens < room)
        room = limits->kv_tokens;
    uint32_t max_tokens = sampling->max_tokens;
    if (max_tokens == 0) {
        uint64_t left = prompt_len < room ? room - prompt_len : 1;
        max_tokens = default_max && default_max < left ? default_max : (uint32_t)left;
    }
    rc = admission_context(limits, (uint64_t)prompt_len + max_tokens, error);
    if (!rc)
        sampling->max_tokens = max_tokens;
    return rc;
}

/* How much of something is asked for, held, and allowed. */
struct bound {
    const char *what, *option;
    uint64_t ask, all, user, max;
};

static int admission_bound(const struct bound *bound, uint32_t retry_after_ms, struct error *error)
{
    uint64_t half = bound->max / 2;
    if (bound->ask > half)
        return error_limit(error, ERR_TOO_LARGE, half, bound->ask,
                           "the request has %" PRIu64 " %s, one user may queue %" PRIu64
                           " (half of %s)",
                           bound->ask, bound->what, half, bound->option);
    if (bound->ask <= half - (bound->user < half ? bound->user : half) &&
        bound->ask <= bound->max - (bound->all < bound->max ? bound->all : bound->max))
        return 0;
    bool own = bound->ask > half - (bound->user < half ? bound->user : half);
    int rc =
        own ? error_limit(error, ERR_BUSY, half, bound->user,
                          "your queue holds %" PRIu64 " %s of at most %" PRIu64 " (half of %s)",
                          bound->user, bound->what, half, bound->option)
            : error_limit(error, ERR_BUSY, bound->max, bound->all,
                          "the queue holds %" PRIu64 " %s of at most %" PRIu64 " (%s)", bound->all,
                          bound->what, bound->max, bound->option);
    if (error)
        error->retry_after_ms = retry_after_ms;
    return rc;
}

int admission_batch(const struct admission_limits *limits, const struct load *all,
                    const struct load *user, uint64_t sequences, uint64_t tokens,
                    uint32_t retry_after_ms, struct error *error)
{
    struct bound bound[] = {
        {"sequences", "queue-sequences", sequences, all->sequences, user->sequences,
         limits->sequences_max},
        {"tokens", "queue-tokens", tokens, all->tokens, user->tokens, limits->tokens_max},
    };
    if (sequences > limits->batch_max)
        return error_limit(error, ERR_TOO_LARGE, limits->batch_max, sequences,
                           "the request has %" PRIu64 " sequences, the limit is %u (batch-max)",
                           sequences, limits->batch_max);
    for (uint32_t i = 0; i < sizeof(bound) / sizeof(bound[0]); i++) {
        int rc = admission_bound(&bound[i], retry_after_ms, error);
        if (rc)
            return rc;
    }
    return 0;
}

int admission_tensors(const struct admission_limits *limits, const struct load *all,
                      const struct load *user, uint64_t bytes, uint32_t retry_after_ms,
                      struct error *error)
{
    const struct bound bound = {"bytes of tensors", "tensors-max", bytes,
                                all->tensors,       user->tensors, limits->tensors_max};
    return admission_bound(&bound, retry_after_ms, error);
}

int admission_priority(int32_t priority_max, int32_t priority, struct error *error)
{
    if (priority <= priority_max)
        return 0;
    return error_set(error, ERR_DENIED,
                     "priority %d is above %d, the highest that you may ask for (priority-max, "
                     "users)",
                     priority, priority_max);
}

int admission_result(const struct admission_limits *limits, uint64_t bytes, struct error *error)
{
    uint64_t quarter = limits->results_max / 4;
    if (bytes <= quarter)
        return 0;
    return error_limit(error, ERR_TOO_LARGE, quarter, bytes,
                       "the results take up to %" PRIu64 " bytes, at most %" PRIu64
                       " are kept for one connection (a quarter of results-max)",
                       bytes, quarter);
}

static uint64_t left(uint64_t max, uint64_t held)
{
    return max > held ? max - held : 0;
}

bool admission_keep(const struct admission_limits *limits, uint64_t all, uint64_t user,
                    uint64_t conn, uint64_t bytes)
{
    return user + bytes <= left(limits->results_max, all + bytes) &&
           conn + bytes <= left(limits->results_max / 2, user + bytes);
}
