#include "client/bench/workload.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/bench/random.h"
#include "client/bench/schedule.h"
#include "client/bench/trace.h"

#define NUM_PROMPTS_DEFAULT 1000
#define PROBE_INPUT_LEN 16

/* One generator for each of these, so that none moves another's draws. */
enum {
    STREAM_ARRIVALS,
    STREAM_LENGTHS,
    STREAM_TOKENS,
    STREAM_CANCELS,
    STREAM_PRIORITIES,
    STREAM_PREFIX,
    STREAM_PROBES,
    STREAM_PROBE_TOKENS,
    STREAM_WARMUP,
    STREAM_THINK
};

static uint32_t draw_length(struct random *random, int64_t length, double ratio)
{
    double low = floor((double)length * (1 - ratio)), high = ceil((double)length * (1 + ratio));
    low = low < 1 ? 1 : low;
    high = high < low ? low : high;
    return (uint32_t)low + (uint32_t)random_below(random, (uint64_t)(high - low) + 1);
}

static void draw_lengths(struct workload *workload, const struct bench_options *options,
                         uint64_t stream)
{
    struct random random;
    random_init(&random, workload->seed, stream);
    for (uint32_t i = 0; i < workload->count; i++) {
        struct item *item = &workload->items[i];
        item->prompt_tokens = draw_length(&random, options->input_len, options->range_ratio);
        item->output_tokens = draw_length(&random, options->output_len, options->range_ratio);
        item->cancel_after = WORKLOAD_NO_CANCEL;
    }
}

static void draw_starts(struct workload *workload, uint64_t stream)
{
    struct random random;
    random_init(&random, workload->seed, stream);
    for (uint32_t i = 0; i < workload->count; i++) {
        struct item *item = &workload->items[i];
        item->start = (uint32_t)(random_next(&random) >> 32);
        item->prompt_tokens += i % workload->turns == 0
                                   ? workload->prefix_tokens
                                   : item[-1].prompt_tokens + item[-1].output_tokens;
        if (item->prompt_tokens > workload->prompt_tokens_most)
            workload->prompt_tokens_most = item->prompt_tokens;
    }
}

static void draw_cancels(struct workload *workload, double rate)
{
    struct random random;
    random_init(&random, workload->seed, STREAM_CANCELS);
    for (uint32_t i = 0; i < workload->count; i++) {
        struct item *item = &workload->items[i];
        bool cancelled = random_unit(&random) <= rate;
        uint32_t after = (uint32_t)random_below(&random, item->output_tokens);
        if (cancelled && rate > 0)
            item->cancel_after = after;
    }
}

static int draw_priorities(struct workload *workload, const char *mix, struct error *error)
{
    double weights[BENCH_PRIORITIES], sum = 0;
    struct random random;
    int rc = bench_parse_priorities(mix, weights, error);
    if (rc || !mix)
        return rc;
    for (int i = 0; i < BENCH_PRIORITIES; i++)
        sum += weights[i];
    random_init(&random, workload->seed, STREAM_PRIORITIES);
    for (uint32_t i = 0; i < workload->count; i++) {
        double left = random_unit(&random) * sum;
        int which = 0, last = 0;
        /* Sums of weights are not exact: the draw falls to the last one that has a weight. */
        for (; which < BENCH_PRIORITIES && left > 0; which++) {
            left -= weights[which];
            last = weights[which] > 0 ? which : last;
        }
        workload->items[i].priority = last + BENCH_PRIORITY_MIN;
    }
    return 0;
}

/* Makes room for `max` items and draws when they arrive: `count` of them, or those of a span. */
static int draw_arrivals(struct workload *workload, const struct schedule_rule *rule,
                         uint64_t stream, uint32_t max, uint64_t span_us, struct error *error)
{
    struct random random;
    uint64_t *arrivals = malloc(max * sizeof(*arrivals));
    random_init(&random, workload->seed, stream);
    if (!arrivals)
        return error_set(error, ERR_NO_MEMORY, "no memory for a schedule of %u requests", max);
    if (span_us)
        workload->count = (uint32_t)schedule_draw_span(rule, &random, arrivals, max, span_us);
    else
        schedule_draw(rule, &random, arrivals, workload->count = max);
    workload->items = calloc(workload->count ? workload->count : 1, sizeof(*workload->items));
    for (uint32_t i = 0; workload->items && i < workload->count; i++)
        workload->items[i].due_us = arrivals[i];
    free(arrivals);
    return workload->items ? 0 : error_set(error, ERR_NO_MEMORY, "no memory for the requests");
}

/* Room for the requests of a span: far more than the mean, so that the span decides. */
static uint32_t span_room(double rate, double seconds)
{
    double room = rate * seconds * 1.5 + 1000;
    return room < WORKLOAD_ITEMS_MAX ? (uint32_t)room : WORKLOAD_ITEMS_MAX;
}

/* ---- sessions ----------------------------------------------------------------------------------
 */

/* The arrivals are those of sessions: room for the turns of each. */
static int make_turns(struct workload *workload, const struct bench_options *options,
                      struct error *error)
{
    double longest =
        (double)options->prefix_len + (double)options->turns * (1 + options->range_ratio) *
                                          (double)(options->input_len + options->output_len + 2);
    uint64_t count = (uint64_t)workload->count * workload->turns;
    if (longest > WORKLOAD_LENGTH_MAX)
        return error_set(error, ERR_USAGE, "turns: the last prompts would have over %u tokens",
                         WORKLOAD_LENGTH_MAX);
    if (count > WORKLOAD_ITEMS_MAX)
        return error_set(error, ERR_USAGE, "turns: over %u requests", WORKLOAD_ITEMS_MAX);
    struct item *items = calloc(count, sizeof(*items));
    if (!items)
        return error_set(error, ERR_NO_MEMORY, "no memory for the requests");
    for (uint32_t i = 0; i < workload->count; i++)
        items[(size_t)i * workload->turns].due_us = workload->items[i].due_us;
    free(workload->items);
    workload->items = items;
    workload->count = (uint32_t)count;
    return 0;
}

/* Lengths are known: room for the answers, and when each turn comes. */
static int draw_turns(struct workload *workload, double think_s, struct error *error)
{
    struct random random;
    size_t answers = 0;
    workload->item_turns = calloc(workload->count, sizeof(*workload->item_turns));
    if (!workload->item_turns)
        return error_set(error, ERR_NO_MEMORY, "no memory for the sessions");
    random_init(&random, workload->seed, STREAM_THINK);
    for (uint32_t i = 0; i < workload->count; i++) {
        workload->item_turns[i] = (struct item_turn){
            .think_us = (uint64_t)(random_gamma(&random, 1) * think_s * 1e6), .answer = answers};
        answers += workload->items[i].output_tokens;
    }
    workload->answers = malloc(answers * sizeof(*workload->answers));
    if (!workload->answers)
        return error_set(error, ERR_NO_MEMORY, "no memory for %zu tokens of answers", answers);
    memset(workload->answers, 0xff, answers * sizeof(*workload->answers));
    return 0;
}

static int draw_random(struct workload *workload, const struct bench_options *options,
                       struct error *error)
{
    struct schedule_rule rule = {.rate = options->request_rate, .burstiness = options->burstiness};
    int rc = bench_parse_ramp(options->ramp_up, &rule, error);
    if (rc)
        return rc;
    double highest = rule.ramp == RAMP_NONE ? rule.rate : fmax(rule.ramp_start, rule.ramp_end);
    bool spanned = options->duration_s > 0 && !isinf(highest);
    uint32_t max = options->num_prompts > 0 ? (uint32_t)options->num_prompts
                   : spanned                ? span_room(highest, options->duration_s)
                                            : NUM_PROMPTS_DEFAULT;
    rc = draw_arrivals(workload, &rule, STREAM_ARRIVALS, max,
                       spanned ? (uint64_t)(options->duration_s * 1e6) : 0, error);
    if (!rc && workload->turns > 1)
        rc = make_turns(workload, options, error);
    if (!rc)
        draw_lengths(workload, options, STREAM_LENGTHS);
    if (!rc && workload->turns > 1)
        rc = draw_turns(workload, options->think_s, error);
    return rc;
}

static int read_trace(struct workload *workload, const struct bench_options *options,
                      struct error *error)
{
    uint32_t max = options->num_prompts > 0 ? (uint32_t)options->num_prompts : WORKLOAD_ITEMS_MAX;
    int rc = trace_read(options->trace, max, &workload->items, &workload->count, error);
    if (rc)
        return rc;
    while (options->duration_s > 0 && workload->count > 1 &&
           (double)workload->items[workload->count - 1].due_us > options->duration_s * 1e6)
        workload->count--;
    return 0;
}

/* Of settled options. */
static struct workload workload_of(const struct bench_options *options)
{
    return (struct workload){.seed = (uint64_t)options->seed,
                             .turns = 1,
                             .prefix_tokens = (uint32_t)options->prefix_len,
                             .ignore_eos = options->ignore_eos != 0,
                             .no_cache = !options->cache,
                             .cache_salt = options->cache_salt};
}

int workload_make(const struct bench_options *given, struct workload *ret_workload,
                  struct error *error)
{
    struct bench_options settled;
    const struct bench_options *options = &settled;
    int rc = bench_options_settle(given, &settled, error);
    if (rc)
        return rc;
    struct workload workload = workload_of(options);
    workload.turns = (uint32_t)options->turns;
    rc = options->trace ? read_trace(&workload, options, error)
                        : draw_random(&workload, options, error);
    if (!rc && options->priority_mix)
        rc = draw_priorities(&workload, options->priority_mix, error);
    if (!rc && workload.count == 0)
        rc = error_set(error, ERR_USAGE, "no request arrives in that time at that rate");
    if (rc) {
        workload_free(&workload);
        return rc;
    }
    draw_starts(&workload, STREAM_TOKENS);
    draw_cancels(&workload, options->cancel_rate);
    *ret_workload = workload;
    return 0;
}

int workload_make_probes(const struct bench_options *options, const struct workload *beside,
                         struct workload *ret_workload, struct error *error)
{
    struct workload workload = {.seed = (uint64_t)options->seed, .turns = 1};
    struct schedule_rule rule = {.rate = options->probe_rate, .burstiness = INFINITY};
    struct bench_options one = {.input_len = PROBE_INPUT_LEN, .output_len = 1};
    uint64_t span_us = beside->items[beside->count - beside->turns].due_us + 1;
    double seconds = (double)span_us / 1e6;
    int rc = draw_arrivals(&workload, &rule, STREAM_PROBES, span_room(rule.rate, seconds), span_us,
                           error);
    if (rc)
        return rc;
    draw_lengths(&workload, &one, STREAM_PROBES);
    draw_starts(&workload, STREAM_PROBE_TOKENS);
    *ret_workload = workload;
    return 0;
}

int workload_make_warmup(const struct bench_options *given, struct workload *ret_workload,
                         struct error *error)
{
    struct bench_options settled;
    const struct bench_options *options = &settled;
    struct schedule_rule rule = {.rate = INFINITY, .burstiness = 1};
    int rc = bench_options_settle(given, &settled, error);
    if (rc)
        return rc;
    struct workload workload = workload_of(options);
    rc = draw_arrivals(&workload, &rule, STREAM_WARMUP, (uint32_t)options->warmup, 0, error);
    if (rc)
        return rc;
    draw_lengths(&workload, options, STREAM_WARMUP);
    draw_starts(&workload, STREAM_WARMUP);
    *ret_workload = workload;
    return 0;
}

void workload_free(struct workload *workload)
{
    free(workload->items);
    free(workload->item_turns);
    free(workload->answers);
    *workload = (struct workload){0};
}

/* ---- prompts -----------------------------------------------------------------------------------
 */

void workload_answer(const struct workload *workload, uint32_t index, uint32_t from,
                     const int32_t *tokens, uint32_t count)
{
    uint32_t most = workload->items[index].output_tokens;
    if (!workload->item_turns || from >= most)
        return;
    count = count < most - from ? count : most - from;
    memcpy(workload->answers + workload->item_turns[index].answer + from, tokens,
           count * sizeof(*tokens));
}

/* Numbers that count up from the item's first; *number goes along. */
static void put_numbers(const struct workload *workload, uint64_t *number, uint32_t count,
                        int32_t *tokens)
{
    for (uint32_t i = 0; i < count; i++)
        tokens[i] = (int32_t)((*number)++ % workload->vocabulary);
}

/* What was answered; numbers where that is not known. */
static void put_answer(const struct workload *workload, uint32_t index, uint64_t number,
                       int32_t *tokens)
{
    const int32_t *answer = workload->answers + workload->item_turns[index].answer;
    uint32_t count = workload->items[index].output_tokens;
    put_numbers(workload, &number, count, tokens);
    for (uint32_t i = 0; i < count && answer[i] >= 0; i++)
        tokens[i] = answer[i];
}

void workload_prompt(const struct workload *workload, uint32_t index, int32_t *tokens)
{
    struct random random;
    uint32_t end = workload->prefix_tokens;
    assert(workload->vocabulary > 0);
    random_init(&random, workload->seed, STREAM_PREFIX);
    for (uint32_t i = 0; i < workload->prefix_tokens; i++)
        tokens[i] = (int32_t)random_below(&random, workload->vocabulary);
    for (uint32_t at = index - index % workload->turns; at <= index; at++) {
        const struct item *item = &workload->items[at];
        uint64_t number = (uint64_t)item->start + at;
        put_numbers(workload, &number, item->prompt_tokens - end, tokens + end);
        end = item->prompt_tokens;
        if (at == index)
            break;
        put_answer(workload, at, number, tokens + end);
        end += item->output_tokens;
    }
}
