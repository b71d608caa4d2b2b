/* Latency under load without the GPU: the real scheduler on a model of an 8B model's steps on one
 * H200 (machine.h), in virtual time. Its figures are modelled, not measured.
 *
 *     bench_latency [--ttft-target MS] [--itl-target MS] [--seconds S] [--seeds N] [--drawn]
 *                   [--slower PERCENT] [--check]
 *
 * --drawn: at a rate what `sluice bench` sends with these seeds. --slower: steps that read prompts.
 * --check: exit 1 unless the figures are within bounds, which are the modelled ones and a few per
 * cent, so that a plan that became worse is seen. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/option.h"
#include "tests/bench/latency/machine.h"
#include "tests/bench/latency/run.h"

#define SEEDS_MAX 64
#define SATURATED 1500
#define BESIDE_FROM_US 0.75e6
#define BESIDE_S 6

struct settings {
    struct sched_options sched;
    double seconds;
    int seeds;
    bool check, drawn;
};

/* Milliseconds; 0 is no bound. */
struct bounds {
    double ttft_p50, ttft_p99, itl_p99, itl_max, tpot_p50, tpot_p99, rate;
};

static int wrong;

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Field by field. */
static struct figures median(const struct figures *of, int count)
{
    struct figures result;
    size_t fields = sizeof(result) / sizeof(double);
    for (size_t field = 0; field < fields; field++) {
        double values[SEEDS_MAX];
        for (int i = 0; i < count; i++)
            memcpy(&values[i], (const char *)&of[i] + field * sizeof(double), sizeof(double));
        qsort(values, (size_t)count, sizeof(double), compare);
        memcpy((char *)&result + field * sizeof(double), &values[count / 2], sizeof(double));
    }
    return result;
}

static void hold(const char *row, const char *what, double value, double bound)
{
    if (bound == 0 || value <= bound)
        return;
    printf("%s: %s is %.2f, at most %.2f\n", row, what, value, bound);
    wrong++;
}

static void put(int width, int digits, double value)
{
    if (isfinite(value))
        printf(" %*.*f", width, digits, value);
    else
        printf(" %*s", width, "-");
}

static void tell(const struct settings *settings, const char *row, const struct figures *f,
                 const struct bounds *bounds)
{
    printf("%-22s", row);
    put(8, 1, f->ttft_p50);
    put(8, 1, f->ttft_p99);
    put(8, 1, f->ttft_max);
    put(8, 2, f->itl_p50);
    put(6, 2, f->itl_p99);
    put(6, 2, f->itl_max);
    put(8, 1, f->tpot_p50);
    put(6, 1, f->tpot_p99);
    put(8, 2, f->rate);
    put(8, 1, f->step_tokens);
    putchar('\n');
    if (!settings->check)
        return;
    hold(row, "TTFT p50", f->ttft_p50, bounds->ttft_p50);
    hold(row, "TTFT p99", f->ttft_p99, bounds->ttft_p99);
    hold(row, "ITL p99", f->itl_p99, bounds->itl_p99);
    hold(row, "the longest gap", f->itl_max, bounds->itl_max);
    hold(row, "TPOT p50", f->tpot_p50, bounds->tpot_p50);
    hold(row, "TPOT p99", f->tpot_p99, bounds->tpot_p99);
    hold(row, "time of a request", 1000 / f->rate, bounds->rate > 0 ? 1000 / bounds->rate : 0);
    hold(row, "idle device, per cent", f->idle_percent, 2);
}

static void run_rates(const struct settings *settings, const char *suffix,
                      const struct bounds *bounds)
{
    static const double rates[] = {10, 20, 28};
    for (int r = 0; r < 3; r++) {
        struct figures figures[SEEDS_MAX];
        for (int seed = 1; seed <= settings->seeds; seed++) {
            struct load load = (settings->drawn ? load_drawn : load_poisson)(
                rates[r], settings->seconds, (uint64_t)seed);
            figures[seed - 1] = run_load(&load, &settings->sched, (struct room){0}, 0, INFINITY);
            load_free(&load);
        }
        char row[64];
        snprintf(row, sizeof(row), "%g requests/s%s", rates[r], suffix);
        struct figures middle = median(figures, settings->seeds);
        tell(settings, row, &middle, &bounds[r]);
    }
}

/* Of conversations, where memory is short: of the requests a second that the device has with all
 * of its memory, so many per cent at least. */
struct shortage {
    uint32_t sessions;
    struct room room;
    double kept;
};

static void tell_kept(const struct settings *settings, const struct shortage *of,
                      const struct figures *f, double whole)
{
    char row[64];
    double kept = 100 * f->all_rate / whole;
    snprintf(row, sizeof(row), "%u sessions, %u + %u GiB", of->sessions, of->room.device_gib,
             of->room.host_gib);
    printf("%-28s %6.2f %6.1f %6.1f %8.1f %8.0f %8.0f %6.0f %8.1f %8.1f\n", row, f->all_rate, kept,
           f->found_percent, f->step_rows, f->blocks_out, f->blocks_in, f->preemptions, f->ttft_p50,
           f->ttft_p99);
    if (settings->check && kept < of->kept) {
        printf("%s: %.1f %% are kept, at least %.1f\n", row, kept, of->kept);
        wrong++;
    }
}

static void run_conversations(const struct settings *settings)
{
    static const struct shortage shortages[] = {{64, {0, 0}, 100},   {64, {6, 20}, 62},
                                                {256, {0, 0}, 100},  {256, {24, 80}, 87},
                                                {256, {24, 40}, 60}, {256, {64, 0}, 62}};
    double whole = 0;
    printf("%-28s %6s %6s %6s %8s %8s %8s %6s %8s %8s\n", "modelled", "req/s", "%", "found %",
           "rows/step", "out", "in", "gave", "TTFT p50", "p99");
    for (size_t i = 0; i < sizeof(shortages) / sizeof(shortages[0]); i++) {
        struct load load = load_conversations(shortages[i].sessions);
        struct figures figures = run_load(&load, &settings->sched, shortages[i].room, 0, INFINITY);
        if (shortages[i].room.device_gib == 0)
            whole = figures.all_rate;
        tell_kept(settings, &shortages[i], &figures, whole);
        load_free(&load);
    }
}

static void run_all(struct settings *settings)
{
    static const struct bounds rates[] = {
        {.ttft_p50 = 42, .ttft_p99 = 99, .itl_p99 = 19, .tpot_p50 = 7.1, .tpot_p99 = 9.9},
        {.ttft_p50 = 57, .ttft_p99 = 187, .itl_p99 = 33, .tpot_p50 = 10.3, .tpot_p99 = 20.6},
        {.ttft_p50 = 107, .ttft_p99 = 390, .itl_p99 = 43, .tpot_p50 = 22.7, .tpot_p99 = 35.1}};
    static const struct bounds tighter[] = {{.ttft_p50 = 42, .ttft_p99 = 99, .itl_p99 = 19},
                                            {.ttft_p50 = 57, .ttft_p99 = 201, .itl_p99 = 25},
                                            {.ttft_p50 = 178, .ttft_p99 = 824, .itl_p99 = 25.5}};
    static const struct bounds beside = {.ttft_p50 = 180, .itl_p99 = 17, .itl_max = 17.5};
    static const struct bounds saturated = {.itl_p99 = 47, .rate = 30.6};
    printf("%-22s %8s %8s %8s %8s %6s %6s %8s %6s %8s %8s\n", "modelled, ms", "TTFT p50", "p99",
           "max", "ITL p50", "p99", "max", "TPOT p50", "p99", "req/s", "tok/step");
    run_rates(settings, "", rates);
    struct load load = load_beside(BESIDE_S);
    struct figures figures = run_load(&load, &settings->sched, (struct room){0}, BESIDE_FROM_US,
                                      BESIDE_FROM_US + 1e6 * BESIDE_S);
    tell(settings, "4,096 beside 64 rows", &figures, &beside);
    load_free(&load);
    load = load_saturated(SATURATED);
    figures = run_load(&load, &settings->sched, (struct room){0}, 0, INFINITY);
    tell(settings, "saturated, 1,024/128", &figures, &saturated);
    load_free(&load);
    run_conversations(settings);
    if (!settings->check)
        return;
    settings->sched.itl_target_us = 25000;
    run_rates(settings, ", 25 ms", tighter);
}

/* What the daemon has when nothing is said. */
static void defaults(struct settings *settings)
{
    struct options *options;
    struct error error;
    if (options_defaults(&options, &error) < 0) {
        fprintf(stderr, "%s\n", error.text);
        exit(2);
    }
    settings->sched = (struct sched_options){.ttft_target_us = options->ttft_target,
                                             .itl_target_us = options->itl_target,
                                             .chunk_every = 8,
                                             .kv_idle_release_us = options->kv_idle_release,
                                             .prefix_cache = true,
                                             .cache_idle_release_us = options->cache_idle_release,
                                             .stall_us = UINT64_MAX};
    options_free(options);
    settings->seconds = 60;
    settings->seeds = 3;
}

static bool set(struct settings *settings, const char *flag, const char *text)
{
    double value = text ? strtod(text, NULL) : 0;
    if (!strcmp(flag, "--slower") && value != 0 && fabs(value) < 90) {
        machine_slow(1 + value / 100);
        return true;
    }
    if (!(value > 0) || value > 1e6)
        return false;
    if (!strcmp(flag, "--ttft-target"))
        settings->sched.ttft_target_us = (uint64_t)(value * 1000);
    else if (!strcmp(flag, "--itl-target"))
        settings->sched.itl_target_us = (uint64_t)(value * 1000);
    else if (!strcmp(flag, "--seconds"))
        settings->seconds = value;
    else if (!strcmp(flag, "--seeds") && value >= 1 && value <= SEEDS_MAX)
        settings->seeds = (int)value;
    else
        return false;
    return true;
}

int main(int argc, char **argv)
{
    struct settings settings = {.check = false};
    defaults(&settings);
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--check")) {
            settings.check = true;
        } else if (!strcmp(argv[i], "--drawn")) {
            settings.drawn = true;
        } else if (!set(&settings, argv[i], argv[i + 1]) || ++i == argc) {
            fprintf(stderr, "%s: see tests/bench/latency/main.c\n", argv[i]);
            return 2;
        }
    run_all(&settings);
    return wrong ? 1 : 0;
}
