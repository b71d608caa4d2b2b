/* How long a step may last for the prompts in it, by what the cost model predicts for all who wait.
 *
 * Whoever decodes waits for the step, whoever has a prompt for all steps that read it and those
 * before it. Long steps read faster, since each has the decode rows to do as well. So both waits
 * are set beside their targets: a step lasts as large a part of EVEN_US as the first token whose
 * time is shortest takes of ttft_target, and never more than itl_target. Alone a prompt is read in
 * short steps; the more there is to read, and the longer it has waited, the longer they are; once
 * a first token is late, only itl_target bounds them.
 *
 * Whoever comes above those that run waits for the step that runs. So for a while after one came,
 * a step that reads only prompts below it lasts half of itl_target, or twice its decode rows' time
 * where that is more: shorter ones would give too much of their time to decode rows.
 */
#include <math.h>

#include "daemon/sched/sched_inner.h"

#define EVEN_US 40000.0     /* a step, where the first token takes all of ttft_target */
#define TARGET_TOKENS 1024u /* of a prompt; longer ones have ttft_target for each so many */
#define STEPS_AHEAD 3u      /* whose prompts are here */
#define SURE_SHARE 0.25     /* of the decode rows' time, that the chunk may add that is sure */
#define BELOW_SHARE 0.5     /* of itl_target, where others above may come ... */
#define BELOW_ROWS 2.0      /* ... or so many times what the decode rows take */

struct forecast {
    const struct sched *sched;
    const struct cost_work *work; /* the step's decode rows */
    time_us now_us;
    double flight_us;  /* until this step begins */
    uint32_t position; /* of the first prompt's tokens on average */
};

/* Of its prompt; less what it will find, where it waits. */
static uint32_t to_compute(const struct seq *seq)
{
    uint32_t left = seq->prefill_len - seq->num_computed;
    return seq->phase == PHASE_WAITING ? left - sched_min(left, seq->cache.expected) : left;
}

/* The part of its target that the most urgent first token of the list takes, when prompt tokens
 * take so long each; adds the list's tokens to *ahead. */
static double urgency_of(const struct forecast *forecast, const struct list *list, double token_us,
                         double *ahead)
{
    double most = 0;
    list_each(link, list)
    {
        const struct seq *seq = container_of(link, struct seq, run_link);
        const struct seq_stamps *stamps = &seq->stamps;
        /* After a preemption it is the next token that is waited for. */
        time_us since = stamps->last_token_us != 0 ? stamps->last_token_us : seq->arrived_us;
        *ahead += to_compute(seq);
        double us =
            (double)forecast->now_us - (double)since + forecast->flight_us + *ahead * token_us;
        most = fmax(most, us / fmax(seq->prefill_len, TARGET_TOKENS));
    }
    return most;
}

static double urgency(const struct forecast *forecast, double token_us)
{
    const struct sched *sched = forecast->sched;
    double ahead = 0, started = urgency_of(forecast, &sched->prefill, token_us, &ahead);
    double waiting = urgency_of(forecast, &sched->waiting, token_us, &ahead);
    return fmax(started, waiting) * TARGET_TOKENS / (double)sched->options.ttft_target_us;
}

static double predict_us(const struct forecast *forecast, uint32_t tokens)
{
    struct cost_work work = *forecast->work;
    cost_add_row(&work, forecast->position, tokens);
    return cost_predict_us(&forecast->sched->cost, &work);
}

/* Steps of so many prompt tokens are too short for those who wait. */
static bool is_short(const struct forecast *forecast, uint32_t tokens)
{
    double us = predict_us(forecast, tokens), stages = forecast->sched->limits.stages;
    return us * stages < EVEN_US * urgency(forecast, us / tokens);
}

static struct forecast forecast_make(const struct sched *sched, const struct cost_work *work,
                                     time_us now_us)
{
    struct forecast forecast = {.sched = sched, .work = work, .now_us = now_us};
    forecast.flight_us = sched_estimate_us(sched);
    const struct list *list = list_empty(&sched->prefill) ? &sched->waiting : &sched->prefill;
    const struct seq *first = container_of(list->next, struct seq, run_link);
    forecast.position = first->num_computed + (first->prefill_len - first->num_computed) / 2;
    return forecast;
}

/* The fewest tokens of a step, up to `many`, that are not too short. */
static uint32_t enough(const struct forecast *forecast, uint32_t many)
{
    uint32_t few = forecast->sched->chunk_min;
    if (many <= few || is_short(forecast, many))
        return many;
    while (many - few > 1) {
        uint32_t middle = few + (many - few) / 2;
        if (is_short(forecast, middle))
            few = middle;
        else
            many = middle;
    }
    return many;
}

/* All prompt tokens that are to be read. */
static uint64_t tokens_of(const struct list *list)
{
    uint64_t sum = 0;
    list_each(link, list)
    {
        const struct seq *seq = container_of(link, struct seq, run_link);
        sum += seq->prefill_len - seq->num_computed;
    }
    return sum;
}

/* What waits is read in as many steps as with `tokens` each, but in equal ones: nobody's first
 * token comes later, and the longest step is shorter. Up to whole tiles, which cost no more. */
static uint32_t even(const struct sched *sched, uint64_t rows, uint32_t tokens)
{
    uint64_t ahead = tokens_of(&sched->prefill) + tokens_of(&sched->waiting);
    uint64_t steps = (ahead + tokens - 1) / tokens, each = (ahead + steps - 1) / steps;
    uint64_t tiles = (rows + each + SCHED_TILE_TOKENS - 1) / SCHED_TILE_TOKENS;
    if (tiles * SCHED_TILE_TOKENS >= SCHED_TILES_FROM)
        each = tiles * SCHED_TILE_TOKENS - rows;
    each = each > sched->chunk_min ? each : sched->chunk_min;
    return each < tokens ? (uint32_t)each : tokens;
}

/* Whether who may come above others that run is above all that is to be read. */
static bool are_below(const struct sched *sched)
{
    const struct list *lists[] = {&sched->prefill, &sched->waiting};
    bool below = sched_expects_above(sched);
    for (int i = 0; i < 2; i++)
        list_each(link, lists[i])
        {
            const struct seq *seq = container_of(link, struct seq, run_link);
            below = below && sched_level(seq) < sched->above_level;
        }
    return below;
}

/* What a step of prompts lasts at most. */
static double bound_us(const struct sched *sched, const struct cost_work *work)
{
    double itl_us = (double)sched->options.itl_target_us / sched->limits.stages;
    double below_us = fmax(BELOW_SHARE * itl_us, BELOW_ROWS * cost_predict_us(&sched->cost, work));
    return are_below(sched) ? fmin(itl_us, below_us) : itl_us;
}

struct sched_limit sched_limit(const struct sched *sched, const struct cost_work *work,
                               uint32_t tokens_max, time_us now_us)
{
    double target_us = bound_us(sched, work);
    if (sched->options.ttft_target_us == 0 ||
        (list_empty(&sched->prefill) && list_empty(&sched->waiting)))
        return (struct sched_limit){target_us, tokens_max};
    struct forecast forecast = forecast_make(sched, work, now_us);
    uint32_t many = cost_tokens(&sched->cost, work, forecast.position, tokens_max, target_us);
    uint32_t tokens = enough(&forecast, many);
    if (tokens < many)
        target_us = predict_us(&forecast, tokens);
    if (tokens == 0)
        return (struct sched_limit){target_us, tokens_max};
    return (struct sched_limit){target_us, even(sched, work->tokens, tokens)};
}

/* Some decode, or will once their prompts are read: so no step is long. */
static bool some_decode(const struct sched *sched)
{
    bool some = !list_empty(&sched->decode);
    list_each(link, &sched->prefill)
    {
        const struct seq *seq = container_of(link, struct seq, run_link);
        some = some || (seq->params.job == JOB_GENERATE && seq->sampling.max_tokens > 1);
    }
    return some;
}

uint64_t sched_prompts_ahead(const struct sched *sched)
{
    const uint32_t stages = sched->limits.stages;
    uint32_t tokens = sched->limits.tokens_max;
    const struct cost_work work = sched_decode_work(sched);
    if (some_decode(sched) && sched->options.itl_target_us > 0 && cost_known(&sched->cost)) {
        struct cost_work part = {.rows = work.rows / stages,
                                 .tokens = work.tokens / stages,
                                 .kv = work.kv / stages,
                                 .pairs = work.pairs / stages};
        double target_us = (double)sched->options.itl_target_us / stages;
        tokens = cost_tokens(&sched->cost, &part, 0, tokens, target_us);
        tokens = tokens > sched->chunk_min ? tokens : sched->chunk_min;
    }
    return (uint64_t)STEPS_AHEAD * tokens;
}

bool sched_chunk_is_sure(const struct sched *sched, const struct cost_work *work, uint32_t position,
                         uint32_t tokens)
{
    double alone_us = cost_predict_us(&sched->cost, work);
    return cost_tokens(&sched->cost, work, position, tokens, (1 + SURE_SHARE) * alone_us) == tokens;
}
