/* What a step costs: a linear model of its microseconds, learned from the steps that ran.
 *
 * Least squares of the relative error, with forgetting, over seven features: one (launches,
 * weights), rows, tokens (products), KV positions read (attention's traffic), pairs of query and
 * key (attention's arithmetic), tokens beyond COST_FREE_TOKENS: up to about so many a GPU's
 * products wait for their weights, and a token more costs little; and of a mixture of experts the
 * share of them that so many tokens are expected to go through, whose weights alone are read. There
 * an expert has a part of the tokens only, so more of them are free. Coefficients are never
 * negative, so more work never looks cheaper. Steps that tell nothing new (predicted within a few per cent)
 * are not learned, so that an hour of decode steps does not make it forget what prompts cost.
 *
 * Pure, one thread, no allocation.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define COST_FEATURES 7
#define COST_FREE_TOKENS 256u

struct cost_work {
    uint64_t rows, tokens;
    uint64_t kv;    /* sum over rows of the positions that it reads */
    uint64_t pairs; /* sum over tokens of the positions that each sees */
};

/* Of so many experts each token goes through `top`; 0 and 0: the model has none. */
struct cost_experts {
    uint32_t count, top;
};

struct cost {
    struct cost_experts experts;
    double coefficient[COST_FEATURES]; /* us per scaled feature */
    double squares[COST_FEATURES][COST_FEATURES]; /* sums over steps, older ones weigh less */
    double products[COST_FEATURES];               /* of features and durations */
    uint64_t samples;
};

void cost_init(struct cost *cost, struct cost_experts experts);

/* Adds a row of q_len tokens from `position` on. */
void cost_add_row(struct cost_work *work, uint32_t position, uint32_t q_len);

/* A step of this work took so long. */
void cost_learn(struct cost *cost, const struct cost_work *work, double us);

/* True once enough steps were seen to trust a prediction. */
bool cost_known(const struct cost *cost);
double cost_predict_us(const struct cost *cost, const struct cost_work *work);

/* What a token of a prompt takes, in nanoseconds, that is read in steps of so many; 0: unknown. */
uint64_t cost_token_ns(const struct cost *cost, uint32_t tokens);

/* The most tokens, up to q_max, of a further row from `position` on that keep the step within
 * target_us; 0 when even one does not. */
uint32_t cost_tokens(const struct cost *cost, const struct cost_work *work, uint32_t position,
                     uint32_t q_max, double target_us);
