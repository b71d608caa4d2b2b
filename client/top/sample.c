#include "client/top/sample.h"

#include <string.h>

static const char *const counter_names[COUNTERS] = {
    [COUNTER_REQUESTS] = "requests_total",
    [COUNTER_SEQUENCES] = "sequences_total",
    [COUNTER_BUSY] = "refused_busy_total",
    [COUNTER_FINAL] = "refused_final_total",
    [COUNTER_STOP] = "finished_stop_total",
    [COUNTER_LENGTH] = "finished_length_total",
    [COUNTER_CANCELLED] = "finished_cancelled_total",
    [COUNTER_DEADLINE] = "finished_deadline_total",
    [COUNTER_ERROR] = "finished_error_total",
    [COUNTER_STEPS] = "steps_total",
    [COUNTER_PROMPT_TOKENS] = "prompt_tokens_total",
    [COUNTER_GENERATED] = "generated_tokens_total",
    [COUNTER_PREEMPTIONS] = "preemptions_total",
    [COUNTER_CACHED_TOKENS] = "prompt_tokens_cached_total",
    [COUNTER_CACHE_HITS] = "cache_hits_total",
    [COUNTER_CACHE_MISSES] = "cache_misses_total",
    [COUNTER_CACHE_EVICTIONS] = "cache_evictions_total",
    [COUNTER_DRAFTED] = "tokens_drafted_total",
    [COUNTER_ACCEPTED] = "tokens_accepted_total",
    [COUNTER_HOST_OUT] = "host_blocks_out_total",
    [COUNTER_HOST_IN] = "host_blocks_in_total",
};
static const char *const gauge_names[GAUGES] = {
    [GAUGE_CONNECTIONS] = "connections",    [GAUGE_WAITING] = "waiting",
    [GAUGE_STARTING] = "starting",          [GAUGE_RUNNING] = "running",
    [GAUGE_KV_USED] = "kv_blocks_used",     [GAUGE_KV_FREE] = "kv_blocks_free",
    [GAUGE_KV_MAX] = "kv_blocks_max",       [GAUGE_KV_SLABS] = "kv_slabs",
    [GAUGE_KV_CACHED] = "kv_blocks_cached", [GAUGE_HOST] = "host_blocks",
};
static const char *const hist_names[HISTS] = {
    [HIST_TTFT] = "time_to_first_token", [HIST_ITL] = "inter_token_latency",
    [HIST_E2E] = "end_to_end",           [HIST_STEP] = "step_time",
    [HIST_STEP_IN] = "step_in",          [HIST_STEP_COMPUTE] = "step_compute",
    [HIST_STEP_OUT] = "step_out",        [HIST_STEP_GAP] = "step_gap",
};
static const char *const memory_names[MEMORIES] = {
    [MEMORY_WEIGHTS] = "weights",  [MEMORY_KV_USED] = "kv_used",
    [MEMORY_KV_HELD] = "kv_held",  [MEMORY_SCRATCH] = "scratch_held",
    [MEMORY_FREE] = "device_free", [MEMORY_TOTAL] = "device_total",
    [MEMORY_HOST] = "host_cache",
};

static uint64_t whole(const json *value)
{
    double number = json_number(value);
    return number > 0 && number < 9e15 ? (uint64_t)number : 0;
}

static void read_hist(const json *from, struct hist *hist)
{
    hist_clear(hist);
    hist->count = whole(json_get(from, "count"));
    hist->sum_us = whole(json_get(from, "sum_us"));
    hist->max_us = whole(json_get(from, "max_us"));
    for (const json *pair = json_child(json_get(from, "buckets")); pair; pair = json_next(pair)) {
        uint64_t index = whole(json_child(pair));
        const json *count = json_child(pair) ? json_next(json_child(pair)) : NULL;
        if (index < HIST_BUCKETS && count)
            hist->bucket[index] = (uint32_t)whole(count);
    }
}

int sample_read(const json *stats, time_us at_us, struct sample *ret_sample, struct error *error)
{
    const json *counters = json_get(stats, "counters"), *gauges = json_get(stats, "gauges");
    const json *hists = json_get(stats, "histograms"), *memory = json_get(stats, "memory");
    if (!counters || !gauges || !hists)
        return error_set(error, ERR_BAD_HEAD, "the daemon's answer has no figures");
    ret_sample->at_us = at_us;
    ret_sample->uptime_us = whole(json_get(stats, "uptime_us"));
    for (int i = 0; i < COUNTERS; i++)
        ret_sample->counters[i] = whole(json_get(counters, counter_names[i]));
    for (int i = 0; i < GAUGES; i++)
        ret_sample->gauges[i] = whole(json_get(gauges, gauge_names[i]));
    for (int i = 0; i < MEMORIES; i++)
        ret_sample->memory[i] = whole(json_get(memory, memory_names[i]));
    for (int i = 0; i < HISTS; i++)
        read_hist(json_get(hists, hist_names[i]), &ret_sample->hists[i]);
    return 0;
}

static bool restarted(const struct sample *from, const struct sample *to)
{
    return to->uptime_us < from->uptime_us;
}

double sample_rate(const struct sample *from, const struct sample *to, enum sample_counter which)
{
    uint64_t before = restarted(from, to) ? 0 : from->counters[which];
    double seconds = (double)(to->at_us - from->at_us) / 1e6;
    return seconds > 0 && to->counters[which] > before
               ? (double)(to->counters[which] - before) / seconds
               : 0;
}

void sample_between(const struct sample *from, const struct sample *to, enum sample_hist which,
                    struct hist *ret_hist)
{
    const struct hist *before = &from->hists[which];
    *ret_hist = to->hists[which];
    if (restarted(from, to) || before->count > ret_hist->count)
        return;
    ret_hist->count -= before->count;
    ret_hist->sum_us -= before->sum_us < ret_hist->sum_us ? before->sum_us : ret_hist->sum_us;
    for (int i = 0; i < HIST_BUCKETS; i++)
        ret_hist->bucket[i] -=
            before->bucket[i] < ret_hist->bucket[i] ? before->bucket[i] : ret_hist->bucket[i];
}

double sample_mean_us(const struct hist *hist)
{
    return hist->count ? (double)hist->sum_us / (double)hist->count : 0;
}
