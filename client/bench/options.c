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
        .input_len = 1024,
        .output_len = 128,
        .connections = 4,
        .threads = 1,
        .vocabulary = -1,
        .cache = 1,
    };
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
