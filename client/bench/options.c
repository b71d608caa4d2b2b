#include "client/bench/options.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/bench/schedule.h"

void bench_options_init(struct bench_options *options)
{
    *options = (struct bench_options){
        .request_rate = INFINITY,
        .burstiness = 1,
        .duration_s = -1,
        .max_concurrency = -1,
        .num_prompts = -1,
        .input_len = -1,
        .output_len = -1,
        .prefix_len = -1,
        .turns = -1,
        .think_s = -1,
        .connections = 4,
        .threads = 1,
        .vocabulary = -1,
        .cache = 1,
    };
}

/* Sizes of the conversations that people have, and of agents that look at something, again and
 * again. */
static const struct {
    const char *name;
    int64_t turns, prefix_len, input_len, output_len;
    double think_s;
} workloads[] = {{"random", 1, 0, 1024, 128, 0},
                 {"conversations", 10, 1000, 200, 150, 5},
                 {"agents", 20, 8000, 60, 40, 0}};

static void settle(int64_t *value, int64_t usual)
{
    if (*value < 0)
        *value = usual;
}

int bench_options_settle(const struct bench_options *options, struct bench_options *ret_options,
                         struct error *error)
{
    struct bench_options settled = *options;
    size_t which = 0, count = sizeof(workloads) / sizeof(workloads[0]);
    while (options->workload && which < count && strcmp(workloads[which].name, options->workload))
        which++;
    if (which == count)
        return error_set(error, ERR_USAGE,
                         "workload: %s is not one of random, conversations, agents",
                         options->workload);
    settle(&settled.turns, workloads[which].turns);
    settle(&settled.prefix_len, workloads[which].prefix_len);
    settle(&settled.input_len, workloads[which].input_len);
    settle(&settled.output_len, workloads[which].output_len);
    if (settled.think_s < 0)
        settled.think_s = workloads[which].think_s;
    if (options->trace && (settled.turns > 1 || options->workload))
        return error_set(error, ERR_USAGE, "a trace's requests are single: no workload, no turns");
    *ret_options = settled;
    return 0;
}

/* "NAME:NUMBER" at *text, up to a comma or the end; moves *text behind it. */
static int read_pair(const char **text, char *name, size_t size, double *number)
{
    const char *colon = strchr(*text, ':');
    size_t length = colon ? (size_t)(colon - *text) : 0;
    char *end;
    if (length == 0 || length >= size)
        return -ERR_USAGE;
    memcpy(name, *text, length);
    name[length] = 0;
    *number = strtod(colon + 1, &end);
    if (end == colon + 1 || (*end && *end != ',') || isnan(*number))
        return -ERR_USAGE;
    *text = *end ? end + 1 : end;
    return 0;
}

int bench_parse_goals(const char *text, struct bench_goals *ret_goals, struct error *error)
{
    static const char *const names[GOALS] = {"ttft", "tpot", "e2el"};
    struct bench_goals goals = {{INFINITY, INFINITY, INFINITY}, 0};
    while (text && *text) {
        char name[8];
        double number;
        int which = 0;
        if (read_pair(&text, name, sizeof(name), &number) || number < 0)
            return error_set(error, ERR_USAGE, "goodput: give milliseconds, as ttft:200,tpot:50");
        while (which < GOALS && strcmp(names[which], name))
            which++;
        if (which == GOALS)
            return error_set(error, ERR_USAGE, "goodput: %s is not one of ttft, tpot, e2el", name);
        goals.limit_ms[which] = number;
        goals.given = 1;
    }
    *ret_goals = goals;
    return 0;
}

int bench_parse_priorities(const char *text, double weights[BENCH_PRIORITIES], struct error *error)
{
    double sum = 0;
    memset(weights, 0, BENCH_PRIORITIES * sizeof(*weights));
    if (!text || !*text)
        weights[-BENCH_PRIORITY_MIN] = sum = 1;
    while (text && *text) {
        char name[8], *end;
        double weight;
        if (read_pair(&text, name, sizeof(name), &weight))
            return error_set(error, ERR_USAGE, "priority-mix: give weights, as 0:80,5:20");
        long priority = strtol(name, &end, 10) - BENCH_PRIORITY_MIN;
        if (*end || priority < 0 || priority >= BENCH_PRIORITIES || !(weight >= 0) || isinf(weight))
            return error_set(error, ERR_USAGE,
                             "priority-mix: priorities are -8 to 7, weights "
                             "from 0 on");
        weights[priority] += weight;
        sum += weight;
    }
    return sum > 0 ? 0 : error_set(error, ERR_USAGE, "priority-mix: all weights are 0");
}

int bench_parse_ramp(const char *text, struct schedule_rule *rule, struct error *error)
{
    char name[16];
    double start, end;
    int used = 0;
    if (!text)
        return 0;
    bool fits = sscanf(text, "%15[a-z]:%lf:%lf%n", name, &start, &end, &used) == 3 && !text[used] &&
                start > 0 && end > 0 && !isinf(start) && !isinf(end);
    if (!fits || (strcmp(name, "linear") && strcmp(name, "exponential")))
        return error_set(error, ERR_USAGE,
                         "ramp-up: give linear:START:END or exponential:START:END, both in "
                         "requests per second");
    rule->ramp = *name == 'l' ? RAMP_LINEAR : RAMP_EXPONENTIAL;
    rule->ramp_start = start;
    rule->ramp_end = end;
    return 0;
}
