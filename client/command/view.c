#include "client/command/view.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DEPTH_MAX 4

static void print_value(const json *value)
{
    if (json_is_string(value))
        printf("%s", json_string(value));
    else if (json_is_bool(value))
        printf("%s", json_bool(value) ? "yes" : "no");
    else if (json_is_number(value))
        printf("%.15g", json_number(value));
    else if (json_is_array(value))
        for (const json *item = json_child(value); item; item = json_next(item)) {
            print_value(item);
            printf("%s", json_next(item) ? " " : "");
        }
    else
        printf("-");
}

static void print_fields(const json *object, int depth)
{
    for (const json *member = json_child(object); member; member = json_next(member)) {
        if (json_is_object(member) && depth < DEPTH_MAX) {
            printf("%*s%s\n", 2 * depth, "", json_key(member));
            print_fields(member, depth + 1);
            continue;
        }
        printf("%*s%-*s ", 2 * depth, "", 26 - 2 * depth, json_key(member));
        print_value(member);
        printf("\n");
    }
}

void view_object(const json *object)
{
    print_fields(object, 0);
}

static double number_of(const json *object, const char *name)
{
    return json_number(json_get(object, name));
}

/* Times, in milliseconds; histograms without a value are left out, but their count tells that. */
static void print_histograms(const json *histograms)
{
    printf("%-18s %10s %9s %9s %9s %9s %9s %9s\n", "ms", "count", "mean", "p50", "p90", "p99",
           "p99.9", "max");
    for (const json *hist = json_child(histograms); hist; hist = json_next(hist)) {
        static const char *const names[] = {"mean_us", "p50_us",  "p90_us",
                                            "p99_us",  "p999_us", "max_us"};
        printf("%-18s %10.0f", json_key(hist), number_of(hist, "count"));
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
            printf(" %9.3f", number_of(hist, names[i]) / 1000);
        printf("\n");
    }
}

static void print_requests(const json *requests)
{
    printf("%-12s %-12s %-8s %4s %9s %8s %8s %9s %9s\n", "request", "user", "job", "prio",
           "sequences", "waiting", "running", "tokens", "age s");
    for (const json *request = json_child(requests); request; request = json_next(request)) {
        const json *adapter = json_get(request, "adapter");
        printf("%-12.0f %-12s %-8s %4.0f %9.0f %8.0f %8.0f %9.0f %9.1f%s%s\n",
               number_of(request, "request"), json_string(json_get(request, "user")),
               json_string(json_get(request, "job")), number_of(request, "priority"),
               number_of(request, "sequences"), number_of(request, "waiting"),
               number_of(request, "running"), number_of(request, "tokens"),
               number_of(request, "age_us") / 1e6, adapter ? " " : "",
               adapter ? json_string(adapter) : "");
    }
}

static void print_memory(const json *memory)
{
    printf("memory, MiB\n");
    for (const json *member = json_child(memory); member; member = json_next(member))
        printf("  %-24s %.1f\n", json_key(member), json_number(member) / (1 << 20));
}

static void print_latency(const json *stats, const char *name, const char *histogram)
{
    const json *hist = json_get(json_get(stats, "histograms"), histogram);
    if (number_of(hist, "count") > 0)
        printf("%-14s p50 %.1f ms, p99 %.1f ms\n", name, number_of(hist, "p50_us") / 1000,
               number_of(hist, "p99_us") / 1000);
    else
        printf("%-14s none yet\n", name);
}

static void print_formats(const json *formats)
{
    const json *weights = json_child(json_get(formats, "weights"));
    if (!formats)
        return;
    printf("%-14s ", "formats");
    for (; weights; weights = json_next(weights))
        printf("%s %.0f MiB, ", json_key(weights), json_number(weights) / (1 << 20));
    printf("KV %s, %.0f bytes a token\n", json_string(json_get(formats, "kv")),
           number_of(formats, "kv_token_bytes"));
}

/* Of each, where there are several. */
static void print_models(const json *models)
{
    for (const json *model = json_child(models); model && json_count(models) > 1;
         model = json_next(model))
        printf("%-14s %s: %.0f running, %.0f waiting, %.0f requests, %.0f tokens generated\n",
               model == json_child(models) ? "models" : "", json_string(json_get(model, "name")),
               number_of(model, "running"), number_of(model, "waiting"),
               number_of(model, "requests"), number_of(model, "generated_tokens"));
}

/* What an operator looks for first, in a line each; all figures follow. */
static void print_summary(const json *stats)
{
    const json *counters = json_get(stats, "counters"), *gauges = json_get(stats, "gauges");
    const json *memory = json_get(stats, "memory");
    double blocks = number_of(gauges, "kv_blocks_max"), used = number_of(gauges, "kv_blocks_used");
    printf("%-14s %.0f s\n", "up for", number_of(stats, "uptime_us") / 1e6);
    printf("%-14s %.0f running, %.0f starting, %.0f waiting\n", "now", number_of(gauges, "running"),
           number_of(gauges, "starting"), number_of(gauges, "waiting"));
    printf("%-14s %.0f accepted, %.0f refused as busy, %.0f for good\n", "requests",
           number_of(counters, "requests_total"), number_of(counters, "refused_busy_total"),
           number_of(counters, "refused_final_total"));
    printf("%-14s %.0f stop, %.0f length, %.0f cancelled, %.0f late, %.0f error\n", "ended",
           number_of(counters, "finished_stop_total"), number_of(counters, "finished_length_total"),
           number_of(counters, "finished_cancelled_total"),
           number_of(counters, "finished_deadline_total"),
           number_of(counters, "finished_error_total"));
    printf("%-14s %.0f of prompts (and %.0f shared, %.0f cached), %.0f generated\n", "tokens",
           number_of(counters, "prompt_tokens_total"),
           number_of(counters, "prompt_tokens_shared_total"),
           number_of(counters, "prompt_tokens_cached_total"),
           number_of(counters, "generated_tokens_total"));
    print_latency(stats, "first token", "time_to_first_token");
    print_latency(stats, "between tokens", "inter_token_latency");
    print_latency(stats, "end to end", "end_to_end");
    printf("%-14s %.1f %% of %.0f blocks, %.0f preemptions\n", "KV",
           blocks > 0 ? 100 * used / blocks : 0, blocks, number_of(counters, "preemptions_total"));
    printf("%-14s %.0f blocks, %.0f hits, %.0f misses, %.0f blocks given up\n", "cache",
           number_of(gauges, "kv_blocks_cached"), number_of(counters, "cache_hits_total"),
           number_of(counters, "cache_misses_total"), number_of(counters, "cache_evictions_total"));
    if (number_of(counters, "tokens_drafted_total") > 0)
        printf("%-14s %.0f tokens, %.0f stood\n", "guesses",
               number_of(counters, "tokens_drafted_total"),
               number_of(counters, "tokens_accepted_total"));
    if (number_of(memory, "host_cache") > 0)
        printf("%-14s %.0f blocks, %.0f MiB, %.0f copied out, %.0f back\n", "host cache",
               number_of(gauges, "host_blocks"), number_of(memory, "host_cache") / (1 << 20),
               number_of(counters, "host_blocks_out_total"),
               number_of(counters, "host_blocks_in_total"));
    printf("%-14s %.0f MiB weights, %.0f KV, %.0f free on the device\n", "memory",
           number_of(memory, "weights") / (1 << 20), number_of(memory, "kv_held") / (1 << 20),
           number_of(memory, "device_free") / (1 << 20));
    print_formats(json_get(stats, "formats"));
    print_models(json_get(stats, "models"));
    printf("\n");
}

void view_stats(const json *stats)
{
    if (json_get(stats, "counters"))
        print_summary(stats);
    for (const json *member = json_child(stats); member; member = json_next(member)) {
        const char *name = json_key(member);
        if (!strcmp(name, "uptime_us"))
            continue; /* is told above */
        if (!strcmp(name, "histograms"))
            print_histograms(member);
        else if (!strcmp(name, "memory"))
            print_memory(member);
        else if (!strcmp(name, "requests"))
            print_requests(member);
        else if (!strcmp(name, "formats"))
            continue; /* likewise */
        else if (json_is_object(member)) {
            printf("%s\n", name);
            print_fields(member, 1);
        }
    }
}
