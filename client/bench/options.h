/* What `sluice bench` is told. Numbers that may be left out are -1 then. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/base/error.h"

struct bench_options {
    double request_rate, burstiness, duration_s;
    double range_ratio, cancel_rate, probe_rate, think_s;
    int64_t max_concurrency, num_prompts;
    int64_t input_len, output_len, prefix_len, turns;
    int64_t seed, warmup, connections, threads, vocabulary;
    int ignore_eos, save_detailed, cache;
    const char *trace, *ramp_up, *goodput, *priority_mix, *cache_salt, *workload;
    const char *openai, *model, *api_key_file;
    const char *json_file, *report_file;
};

#define BENCH_PRIORITY_MIN (-8)
#define BENCH_PRIORITIES 16

enum { GOAL_TTFT, GOAL_TPOT, GOAL_E2EL, GOALS };

struct bench_goals {
    double limit_ms[GOALS]; /* infinite: none */
    int given;
};

void bench_options_init(struct bench_options *options);

/* What was left out has the value of the workload that was asked for, or the usual one. */
int bench_options_settle(const struct bench_options *options, struct bench_options *ret_options,
                         struct error *error);

/* The options that are small languages of their own. A NULL text gives what holds without them. */
int bench_parse_goals(const char *text, struct bench_goals *ret_goals, struct error *error);
/* Weights of the priorities from BENCH_PRIORITY_MIN on. */
int bench_parse_priorities(const char *text, double weights[BENCH_PRIORITIES], struct error *error);
struct schedule_rule;
int bench_parse_ramp(const char *text, struct schedule_rule *rule, struct error *error);
