/* Sequences as the scheduler has them, and what the device must have answered. */
#include "tests/daemon/rig/fake_inner.h"

#include <stdlib.h>
#include <string.h>

static const int32_t next_ids[] = {15, 3, 11, 15, 9, 12, 4, 7, 13, 6, 2, 14, 8, 10, 5, 1};

struct seq *fake_seq(const struct fake_options *options, time_us now_us)
{
    struct seq *seq = calloc(1, sizeof(*seq));
    uint64_t random = options->seed, stem = options->stem;
    int32_t *prompt = calloc(options->prompt_len, sizeof(*prompt));
    for (uint32_t i = 0; i < options->prompt_len; i++)
        prompt[i] =
            10 + (int32_t)fake_below(i < options->stem_len ? &stem : &random, FAKE_VOCAB - 10);
    uint32_t out =
        options->prompt_len > options->max_tokens ? options->prompt_len : options->max_tokens;
    out = out > options->next ? out : options->next;
    uint32_t tops = options->logprobs > 0 ? (uint32_t)options->logprobs : 1;
    seq->id = options->seed;
    seq->params.job = options->job;
    seq->params.pooling = options->pooling;
    seq->priority = options->priority;
    seq->owed = options->owed;
    seq->turn = options->turn;
    seq->arrived_us = now_us;
    seq->sampling = (struct sampling){.sampler.top_p = 1,
                                      .sampler.repetition_penalty = options->penalty ? 1.5f : 1,
                                      .seed = options->seed,
                                      .max_tokens = options->max_tokens,
                                      .min_tokens = options->min_tokens,
                                      .ignore_eos = options->ignore_eos,
                                      .logprobs = options->logprobs,
                                      .n = options->n > 1 ? options->n : 1};
    seq->prompt = prompt;
    seq->prompt_len = options->prompt_len;
    seq->next = next_ids;
    seq->next_count = options->job == JOB_SCORE ? options->next : 0;
    seq->out_tokens = calloc(out, sizeof(*seq->out_tokens));
    seq->out_logprobs = calloc(out, sizeof(*seq->out_logprobs));
    seq->out_tops = calloc((size_t)out * tops, sizeof(*seq->out_tops));
    seq->out_scores = calloc(out, sizeof(*seq->out_scores));
    seq->out_rows = calloc((size_t)out * FAKE_HIDDEN, sizeof(*seq->out_rows));
    seq->failure = calloc(1, sizeof(*seq->failure));
    return seq;
}

void fake_seq_cache(struct seq *seq, const struct gpu_model *model, const char *salt)
{
    uint32_t size = model->block_tokens, blocks = seq->prompt_len / size;
    struct prefix_key *keys = calloc(blocks + 1u, sizeof(*keys));
    bool generates = seq->params.job == JOB_GENERATE;
    seq->caches = true;
    seq->key_root = prefix_key_root(model, 1, seq->adapter, PREFIX_GIVEN, salt, strlen(salt));
    seq->key_count = prefix_keys(seq->key_root, seq->prompt, seq->prompt_len, size, keys);
    seq->keys = keys;
    seq->out_key_count =
        generates ? (seq->prompt_len + seq->sampling.max_tokens - 1) / size - blocks : 0;
    seq->out_keys = calloc(seq->out_key_count + 1u, sizeof(*seq->out_keys));
}

/* For what is told apart by who made it: the number of a sequence stands nowhere else here. */
#define SIBLING UINT32_MAX

void fake_seq_sibling(struct seq *seq, const struct seq *first)
{
    free((void *)seq->prompt);
    seq->prompt = first->prompt;
    seq->prompt_len = first->prompt_len;
    seq->number = SIBLING;
}

void fake_seq_free(struct seq *seq)
{
    if (seq->number != SIBLING)
        free((void *)seq->prompt);
    free((void *)seq->keys);
    free(seq->out_keys);
    free(seq->out_tokens);
    free(seq->out_logprobs);
    free(seq->out_tops);
    free(seq->out_scores);
    free(seq->out_rows);
    free(seq->failure);
    free(seq);
}

static int32_t known(const struct seq *seq, uint32_t position)
{
    return position < seq->prompt_len ? seq->prompt[position]
                                      : seq->out_tokens[position - seq->prompt_len];
}

static uint64_t hash_of(const struct seq *seq, uint64_t start, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++)
        start = fake_mix(start, known(seq, i));
    return start;
}

static const char *check_tokens(const struct gpu_engine *engine, const struct seq *seq,
                                uint32_t count, bool complete)
{
    struct gpu_open settings = {.seed = seq->sampling.seed,
                                .eos_from = seq->sampling.ignore_eos
                                                ? UINT32_MAX
                                                : seq->prompt_len + seq->sampling.min_tokens};
    uint32_t width = engine->shape.window, bits[(FAKE_VOCAB + 31) / 32];
    bool ends;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t length = seq->prompt_len + i;
        uint64_t window = 2, full = hash_of(seq, 1, 0, length);
        if (engine->shape.group_count > 1)
            window = hash_of(seq, 2, length > width ? length - width : 0, length);
        int32_t token = fake_rule(full, window, &settings, length, &engine->knobs);
        if (fake_is_constrained(seq) && fake_allowed(seq, i, bits, &ends) > 0)
            token = fake_pick(full, window, &settings, length, bits);
        else if (fake_is_constrained(seq))
            return "a token where none may be";
        if (seq->out_tokens[i] != token)
            return "a wrong token";
        if (token == FAKE_EOS && i + 1 < count)
            return "tokens after the end token";
        if (seq->sampling.logprobs >= 0 && seq->out_logprobs[i] != (float)-token)
            return "a wrong logprob";
        for (int32_t t = 0; t < seq->sampling.logprobs; t++)
            if (seq->out_tops[(size_t)i * (size_t)seq->sampling.logprobs + (size_t)t].token !=
                token + t)
                return "wrong likeliest tokens";
    }
    if (!complete)
        return "";
    if (seq->finish == FINISH_LENGTH)
        return count == seq->sampling.max_tokens ? "" : "length without max_tokens";
    if (fake_is_constrained(seq) && fake_allowed(seq, count, bits, &ends) == 0 && ends)
        return "";
    return count > 0 && seq->out_tokens[count - 1] == FAKE_EOS ? "" : "stop without an end token";
}

static const char *check_embed(const struct seq *seq, uint32_t count)
{
    float sum[FAKE_HIDDEN] = {0};
    for (uint32_t p = 0; p < seq->prompt_len; p++) {
        uint64_t full = hash_of(seq, 1, 0, p + 1);
        for (uint32_t d = 0; d < FAKE_HIDDEN; d++) {
            sum[d] += fake_embed(full, d);
            if (seq->params.pooling == POOLING_ALL && p < count &&
                seq->out_rows[p * FAKE_HIDDEN + d] != fake_embed(full, d))
                return "a wrong embedding row";
            if (seq->params.pooling == POOLING_LAST && count == 1 && p + 1 == seq->prompt_len &&
                seq->out_rows[d] != fake_embed(full, d))
                return "a wrong embedding";
        }
    }
    for (uint32_t d = 0; d < FAKE_HIDDEN; d++)
        if (seq->params.pooling == POOLING_MEAN && count == 1 &&
            seq->out_rows[d] != sum[d] / (float)seq->prompt_len)
            return "a wrong mean";
    return "";
}

static int32_t scored(const struct seq *seq, uint32_t i)
{
    return seq->next_count > 0 ? seq->next[i] : seq->prompt[i + 1];
}

const char *fake_check(const struct gpu_engine *engine, const struct seq *seq)
{
    uint32_t count = atomic_load(&seq->out_count);
    bool complete =
        seq->stamps.ended_us > 0 && (seq->finish == FINISH_STOP || seq->finish == FINISH_LENGTH);
    if (seq->params.job == JOB_GENERATE)
        return check_tokens(engine, seq, count, complete);
    uint32_t all = seq->params.job == JOB_SCORE         ? seq_score_count(seq)
                   : seq->params.pooling == POOLING_ALL ? seq->prompt_len
                                                        : 1;
    if (complete && (count != all || seq->finish != FINISH_STOP))
        return "ended before everything was answered";
    if (seq->params.job == JOB_EMBED)
        return check_embed(seq, count);
    for (uint32_t i = 0; i < count; i++)
        if (seq->out_scores[i].logprob !=
            fake_score(hash_of(seq, 1, 0, seq->next_count > 0 ? seq->prompt_len : i + 1),
                       scored(seq, i)))
            return "a wrong score";
    for (uint32_t i = 0; i < count && seq->sampling.logprobs > 1; i++)
        for (int32_t t = 0; t < seq->sampling.logprobs; t++)
            if (seq->out_tops[i * (uint32_t)seq->sampling.logprobs + (uint32_t)t].token !=
                scored(seq, i) + t)
                return "wrong likeliest tokens of a score";
    return "";
}
