#include "daemon/sched/cost.h"

#include <math.h>
#include <string.h>

#define SAMPLES_KNOWN 8
#define FORGET 0.98   /* per step that is learned: 50 such steps reach back */
#define SURPRISE 0.05 /* a relative error above this is learned */
#define SWEEPS 20
#define INERTIA 1e-3 /* how much a coefficient that the steps do not determine stays where it is   \
                      */

/* Features of the same order of magnitude keep the least squares well conditioned. */
static const double scale[COST_FEATURES] = {1.0,           1.0 / 64,  1.0 / 512, 1.0 / 65536,
                                            1.0 / 4194304, 1.0 / 512, 1.0};

/* The share of experts that is expected to have one of so many tokens, each of which takes `top`
 * different ones; none where that is the same for all steps, which the first feature knows. */
static double touched(const struct cost_experts *experts, uint64_t tokens)
{
    if (experts->top >= experts->count)
        return 0;
    return 1 - pow(1 - (double)experts->top / experts->count, (double)tokens);
}

static double beyond_free(const struct cost_experts *experts, uint64_t tokens)
{
    double free = COST_FREE_TOKENS;
    if (experts->count)
        free = free * experts->count / experts->top;
    return (double)tokens > free ? (double)tokens - free : 0;
}

static void features(const struct cost *cost, const struct cost_work *work, double *x)
{
    x[0] = scale[0];
    x[1] = scale[1] * (double)work->rows;
    x[2] = scale[2] * (double)work->tokens;
    x[3] = scale[3] * (double)work->kv;
    x[4] = scale[4] * (double)work->pairs;
    x[5] = scale[5] * beyond_free(&cost->experts, work->tokens);
    x[6] = scale[6] * touched(&cost->experts, work->tokens);
}

void cost_init(struct cost *cost, struct cost_experts experts)
{
    *cost = (struct cost){.experts = experts};
}

void cost_add_row(struct cost_work *work, uint32_t position, uint32_t q_len)
{
    uint64_t q = q_len;
    work->rows += 1;
    work->tokens += q;
    work->kv += position + q;
    work->pairs += q * position + q * (q + 1) / 2;
}

double cost_predict_us(const struct cost *cost, const struct cost_work *work)
{
    double x[COST_FEATURES], sum = 0;
    features(cost, work, x);
    for (int i = 0; i < COST_FEATURES; i++)
        sum += cost->coefficient[i] * x[i];
    return sum;
}

bool cost_known(const struct cost *cost)
{
    return cost->samples >= SAMPLES_KNOWN;
}

/* Coordinate descent from the present coefficients, each kept from falling below zero. */
static void solve(struct cost *cost)
{
    double before[COST_FEATURES];
    memcpy(before, cost->coefficient, sizeof(before));
    for (int sweep = 0; sweep < SWEEPS; sweep++)
        for (int i = 0; i < COST_FEATURES; i++) {
            double square = cost->squares[i][i], rest = cost->products[i];
            if (!(square > 0))
                continue;
            for (int j = 0; j < COST_FEATURES; j++)
                rest -= j == i ? 0 : cost->squares[i][j] * cost->coefficient[j];
            cost->coefficient[i] =
                fmax(0.0, (rest + INERTIA * square * before[i]) / (square * (1 + INERTIA)));
        }
}

void cost_learn(struct cost *cost, const struct cost_work *work, double us)
{
    if (!(us > 0) || work->rows == 0)
        return;
    double x[COST_FEATURES], miss = us - cost_predict_us(cost, work);
    if (cost_known(cost) && fabs(miss) <= SURPRISE * us)
        return;
    features(cost, work, x);
    for (int i = 0; i < COST_FEATURES; i++) {
        cost->products[i] = FORGET * cost->products[i] + x[i] / us;
        for (int j = 0; j < COST_FEATURES; j++)
            cost->squares[i][j] = FORGET * cost->squares[i][j] + x[i] * x[j] / (us * us);
    }
    solve(cost);
    cost->samples++;
}

uint64_t cost_token_ns(const struct cost *cost, uint32_t tokens)
{
    struct cost_work work = {.rows = 0};
    if (!cost_known(cost))
        return 0;
    cost_add_row(&work, 0, tokens);
    return (uint64_t)(cost_predict_us(cost, &work) * 1000 / tokens);
}

static bool within(const struct cost *cost, const struct cost_work *work, uint32_t position,
                   uint32_t q_len, double target_us)
{
    struct cost_work more = *work;
    cost_add_row(&more, position, q_len);
    return cost_predict_us(cost, &more) <= target_us;
}

uint32_t cost_tokens(const struct cost *cost, const struct cost_work *work, uint32_t position,
                     uint32_t q_max, double target_us)
{
    if (q_max == 0 || within(cost, work, position, q_max, target_us))
        return q_max;
    uint32_t good = 0, bad = q_max; /* more tokens never cost less */
    while (bad - good > 1) {
        uint32_t middle = good + (bad - good) / 2;
        if (within(cost, work, position, middle, target_us))
            good = middle;
        else
            bad = middle;
    }
    return good;
}
