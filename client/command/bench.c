#include "client/command/bench.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/bench/api_key.h"
#include "client/bench/html.h"
#include "client/bench/native.h"
#include "client/bench/openai.h"
#include "client/bench/report.h"
#include "client/bench/run.h"
#include "client/terminal/connect.h"
#include "client/terminal/interrupt.h"

#define VOCABULARY_OPENAI 30000

struct bench {
    const struct bench_options *options;
    const char *socket;    /* NULL: the library looks for it */
    char key[API_KEY_MAX]; /* of --openai; "": none */
    struct bench_goals goals;
    struct workload load, probes, warmup;
    struct transport **transports;
    uint32_t threads;
    struct transport_info info;
    struct recorder records, probe_records;
};

static enum status tell(const struct error *error)
{
    say("bench: %s", error->text);
    if (error->code == ERR_USAGE || error->code == ERR_BAD_HEAD)
        return STATUS_USAGE;
    return error->code == ERR_CONNECT || error->code == ERR_TIMEOUT ? STATUS_CONNECT
                                                                    : STATUS_SERVER;
}

/* ---- before ------------------------------------------------------------------------------------
 */

static int make_loads(struct bench *bench, struct error *error)
{
    const struct bench_options *options = bench->options;
    int rc = bench_parse_goals(options->goodput, &bench->goals, error);
    if (!rc)
        rc = workload_make(options, &bench->load, error);
    if (!rc && options->probe_rate > 0)
        rc = workload_make_probes(options, &bench->load, &bench->probes, error);
    if (!rc && options->warmup > 0)
        rc = workload_make_warmup(options, &bench->warmup, error);
    return rc;
}

static int open_one(struct bench *bench, uint32_t number, struct error *error)
{
    const struct bench_options *options = bench->options;
    uint32_t all = (uint32_t)options->connections;
    uint32_t own = all / bench->threads + (number < all % bench->threads);
    if (options->openai)
        return openai_open(options->openai, options->model, bench->key, &bench->transports[number],
                           &bench->info, error);
    return native_open(bench->socket, options->model, own, &bench->transports[number], &bench->info,
                       error);
}

static int open_all(struct bench *bench, struct error *error)
{
    const struct bench_options *options = bench->options;
    bench->threads = (uint32_t)(options->threads < options->connections ? options->threads
                                                                        : options->connections);
    int rc = 0;
    if (options->openai)
        rc = api_key_read(options->api_key_file, bench->key, error);
    else if (options->api_key_file)
        rc = error_set(error, ERR_USAGE,
                       "api-key-file: a Unix socket of the daemon asks no key; "
                       "this is for --openai");
    if (rc)
        return rc;
    bench->transports = calloc(bench->threads, sizeof(struct transport *));
    if (!bench->transports)
        return error_set(error, ERR_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; i < bench->threads; i++) {
        rc = open_one(bench, i, error);
        if (rc)
            return rc;
    }
    uint32_t vocabulary = options->vocabulary > 0 ? (uint32_t)options->vocabulary
                          : options->openai       ? VOCABULARY_OPENAI
                                                  : bench->info.vocabulary;
    if (vocabulary == 0)
        return error_set(error, ERR_LOADING,
                         "the daemon is loading its model, and does not say "
                         "yet how large the vocabulary is");
    bench->load.vocabulary = bench->probes.vocabulary = bench->warmup.vocabulary = vocabulary;
    return 0;
}

/* ---- while it runs -----------------------------------------------------------------------------
 */

static void show(void *context, const struct driver_live *live, uint64_t elapsed_us)
{
    const struct bench *bench = context;
    uint64_t first = atomic_load(&live->first_count), done = atomic_load(&live->done);
    double seconds = (double)elapsed_us / 1e6;
    if ((int64_t)elapsed_us <= 0)
        return;
    fprintf(stderr,
            "\r%5.1f s  %" PRIu64 "/%u sent  %" PRIu64 " running  %" PRIu64 " done  %" PRIu64
            " failed  %.0f req/s  %.0f tok/s  TTFT %.1f ms\x1b[K",
            seconds, atomic_load(&live->sent), bench->load.count, atomic_load(&live->running), done,
            atomic_load(&live->failed), (double)done / seconds,
            (double)atomic_load(&live->tokens) / seconds,
            first ? (double)atomic_load(&live->first_sum_us) / (double)first / 1000 : 0.0);
}

static int run_load(struct bench *bench, struct error *error)
{
    const struct bench_options *options = bench->options;
    bool shown = isatty(STDERR_FILENO) == 1;
    const struct run run = {
        .load = &bench->load,
        .probes = bench->probes.count ? &bench->probes : NULL,
        .warmup = bench->warmup.count ? &bench->warmup : NULL,
        .transports = bench->transports,
        .threads = bench->threads,
        .open_max = options->max_concurrency > 0 ? (uint32_t)options->max_concurrency : 0,
        .until_us = options->duration_s > 0 ? (uint64_t)(options->duration_s * 1e6) : 0,
        .stopped = interrupt_came,
        .show = shown ? show : NULL,
        .context = bench,
    };
    interrupt_watch();
    int rc = run_all(&run, &bench->records, &bench->probe_records, error);
    if (shown)
        fputs("\r\x1b[K", stderr);
    return rc;
}

/* ---- after -------------------------------------------------------------------------------------
 */

static int write_files(const struct result *result, struct error *error)
{
    const struct bench_options *options = result->options;
    int rc = options->json_file ? report_json(options->json_file, result, error) : 0;
    if (!rc && options->report_file)
        rc = html_write(options->report_file, result, error);
    return rc;
}

static int report(const struct bench *bench, enum status *ret_status, struct error *error)
{
    struct result result = {
        .options = bench->options,
        .goals = &bench->goals,
        .backend = bench->options->openai ? "openai" : "sluice",
        .info = bench->info,
        .load = &bench->load,
        .probes = bench->probes.count ? &bench->probes : NULL,
        .records = &bench->records,
        .probe_records = &bench->probe_records,
    };
    int rc = summary_make(result.load, result.records, result.goals, &result.summary, error);
    if (!rc && result.probes)
        rc = summary_make(result.probes, result.probe_records, result.goals, &result.probe_summary,
                          error);
    if (!rc) {
        report_print(stdout, &result);
        rc = write_files(&result, error);
        *ret_status =
            result.summary.completed + result.summary.cancelled > 0 ? STATUS_OK : STATUS_SERVER;
    }
    summary_free(&result.summary);
    summary_free(&result.probe_summary);
    return rc;
}

static void free_bench(struct bench *bench)
{
    for (uint32_t i = 0; i < bench->threads && bench->transports; i++)
        if (bench->transports[i])
            bench->transports[i]->close(bench->transports[i]);
    free(bench->transports);
    free(bench->records.records);
    free(bench->probe_records.records);
    recorder_free(&bench->records);
    recorder_free(&bench->probe_records);
    workload_free(&bench->load);
    workload_free(&bench->probes);
    workload_free(&bench->warmup);
}

enum status bench_command(const struct command *command, const struct settings *settings, int argc,
                          char **argv)
{
    struct bench bench = {.options = &settings->bench};
    struct error error;
    char room[CONNECT_PATH_SIZE];
    if (argc > 0) {
        say("%s takes no argument but options: %s", command->name, argv[0]);
        return STATUS_USAGE;
    }
    enum status status = connect_socket(settings, room, &bench.socket);
    if (status != STATUS_OK)
        return status;
    int rc = make_loads(&bench, &error);
    if (!rc)
        rc = open_all(&bench, &error);
    if (!rc)
        rc = run_load(&bench, &error);
    if (!rc)
        rc = report(&bench, &status, &error);
    if (rc)
        status = tell(&error);
    else if (interrupt_came())
        status = STATUS_INTERRUPTED;
    free_bench(&bench);
    return status;
}
