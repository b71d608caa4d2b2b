#include "client/bench/schedule.h"

#include <math.h>

static double gap_s(const struct schedule_rule *rule, struct random *random, double rate)
{
    if (isinf(rate))
        return 0;
    if (isinf(rule->burstiness))
        return 1 / rate;
    return random_gamma(random, rule->burstiness) / (rate * rule->burstiness);
}

static double rate_at(const struct schedule_rule *rule, double part)
{
    switch (rule->ramp) {
    case RAMP_LINEAR:
        return rule->ramp_start + (rule->ramp_end - rule->ramp_start) * part;
    case RAMP_EXPONENTIAL:
        return rule->ramp_start * pow(rule->ramp_end / rule->ramp_start, part);
    default:
        return rule->rate;
    }
}

void schedule_draw(const struct schedule_rule *rule, struct random *random, uint64_t *arrivals_us,
                   size_t count)
{
    struct random again = *random;
    double sum = 0, stretch = 1, at = 0;
    for (size_t i = 0; i < count; i++)
        sum += gap_s(rule, &again, rate_at(rule, count > 1 ? (double)i / (double)(count - 1) : 0));
    if (rule->ramp == RAMP_NONE && sum > 0)
        stretch = (double)count / rule->rate / sum;
    for (size_t i = 0; i < count; i++) {
        at += gap_s(rule, random, rate_at(rule, count > 1 ? (double)i / (double)(count - 1) : 0));
        arrivals_us[i] = (uint64_t)llround(at * stretch * 1e6);
    }
}

size_t schedule_draw_span(const struct schedule_rule *rule, struct random *random,
                          uint64_t *arrivals_us, size_t max, uint64_t span_us)
{
    double at = 0, span = (double)span_us / 1e6;
    size_t count = 0;
    while (count < max) {
        at += gap_s(rule, random, rate_at(rule, at < span ? at / span : 1));
        if (at > span)
            break;
        arrivals_us[count++] = (uint64_t)llround(at * 1e6);
    }
    return count;
}
