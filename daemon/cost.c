#include "daemon/cost.h"

#include <math.h>

#define SAMPLES_KNOWN 8
#define FORGET 0.98    /* per step that taught something: 50 such steps reach back */
#define SURPRISE 0.05  /* a relative error above this teaches something */
#define NOISE 0.05     /* what steps of the same work differ by, relatively */
#define SPREAD 10.0    /* first guess of a coefficient's deviation, in durations of a step */
#define SPREAD_MAX 1e4 /* where forgetting has gone too far: the deviation starts anew */

/* Features of the same order of magnitude keep the least squares well conditioned. */
static const double scale[COST_FEATURES] = {1.0, 1.0 / 64, 1.0 / 512, 1.0 / 65536, 1.0 / 4194304};

static void features(const struct cost_work *work, double *x)
{
    x[0] = scale[0];
    x[1] = scale[1] * (double)work->rows;
    x[2] = scale[2] * (double)work->tokens;
    x[3] = scale[3] * (double)work->kv;
    x[4] = scale[4] * (double)work->pairs;
}

void cost_init(struct cost *cost)
{
    *cost = (struct cost){.samples = 0};
}

static void reset_covariance(struct cost *cost, int i, double us)
{
    for (int j = 0; j < COST_FEATURES; j++)
        cost->covariance[i][j] = cost->covariance[j][i] = 0;
    cost->covariance[i][i] = SPREAD * SPREAD * us * us;
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
    features(work, x);
    for (int i = 0; i < COST_FEATURES; i++)
        sum += cost->coefficient[i] * x[i];
    return sum;
}

bool cost_known(const struct cost *cost)
{
    return cost->samples >= SAMPLES_KNOWN;
}

void cost_learn(struct cost *cost, const struct cost_work *work, double us)
{
    if (!(us > 0) || work->rows == 0)
        return;
    double x[COST_FEATURES], px[COST_FEATURES], denominator;
    features(work, x);
    double miss = us - cost_predict_us(cost, work);
    bool surprise = cost->samples < SAMPLES_KNOWN || fabs(miss) > SURPRISE * us;
    double forget = surprise ? FORGET : 1.0;
    if (cost->samples == 0)
        for (int i = 0; i < COST_FEATURES; i++)
            reset_covariance(cost, i, us);
    /* The noise grows with the step: a relative error counts the same in short and long ones. */
    denominator = forget * NOISE * NOISE * us * us;
    for (int i = 0; i < COST_FEATURES; i++) {
        px[i] = 0;
        for (int j = 0; j < COST_FEATURES; j++)
            px[i] += cost->covariance[i][j] * x[j];
        denominator += x[i] * px[i];
    }
    for (int i = 0; i < COST_FEATURES; i++) {
        cost->coefficient[i] = fmax(0.0, cost->coefficient[i] + px[i] / denominator * miss);
        for (int j = 0; j < COST_FEATURES; j++)
            cost->covariance[i][j] =
                (cost->covariance[i][j] - px[i] * px[j] / denominator) / forget;
    }
    for (int i = 0; i < COST_FEATURES; i++)
        if (!(cost->covariance[i][i] <= SPREAD_MAX * SPREAD_MAX * us * us))
            reset_covariance(cost, i, us);
    cost->samples++;
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
