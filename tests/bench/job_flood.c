/* A client that floods a daemon with jobs of affine, for gpu_jobs.py:
 *     bench_job_flood SOCKET [--bytes N] [--rate GBPS] [--seconds S] [--open K] [--inline]
 * [--rounds R]
 *
 * Jobs of N bytes in and out (64 MiB), at most K open at once (8), sent evenly at a rate of inputs
 * (0: as fast as they end) for S seconds (5). Inputs and outputs lie in shared memory, made once,
 * or go through the socket. Each result's first and last elements are looked at. Prints JSON: jobs,
 * failed, wrong, seconds, GB/s of inputs, and of both directions. */
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "client/sluice.h"

#define OPEN_MAX 64

static struct {
    uint64_t bytes;
    double rate, seconds;
    uint32_t open;
    bool inlined;
    int64_t rounds;
} flags = {.bytes = UINT64_C(64) << 20, .seconds = 5, .open = 8, .rounds = 1};

struct request {
    bool open;
    int fd;
    float *outputs; /* mapped, or the client's own */
};

static struct request requests[OPEN_MAX];
static uint64_t ended, failed, wrong;
static float *inputs;
static int inputs_fd = -1;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

/* ---- memory ------------------------------------------------------------------------------------
 */

static void *shared(int *ret_fd)
{
    int fd = memfd_create("flood", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || posix_fallocate(fd, 0, (off_t)flags.bytes) != 0)
        fail("memory");
    void *memory = mmap(NULL, flags.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        fail("mapping");
    *ret_fd = fd;
    return memory;
}

/* Memory of inputs is sealed against writing, which nobody may be able to do by then. */
static void make_inputs(void)
{
    inputs = flags.inlined ? malloc(flags.bytes) : shared(&inputs_fd);
    if (!inputs)
        fail("memory");
    for (uint64_t i = 0; i < flags.bytes / sizeof(float); i++)
        inputs[i] = (float)(i % 1000);
    if (flags.inlined)
        return;
    munmap(inputs, flags.bytes);
    if (fcntl(inputs_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
        fail("sealing");
}

static void make_outputs(struct request *request)
{
    request->outputs = flags.inlined ? malloc(flags.bytes) : shared(&request->fd);
    if (!request->outputs)
        fail("memory");
    if (!flags.inlined && fcntl(request->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0)
        fail("sealing");
}

/* ---- requests ----------------------------------------------------------------------------------
 */

static float expected(uint64_t at)
{
    float value = (float)(at % 1000);
    for (int64_t i = 0; i < flags.rounds; i++)
        value = 0.5f * value + 1;
    return value;
}

static void output(void *context, uint32_t item, uint32_t which, uint64_t at, const void *data,
                   size_t bytes)
{
    struct request *request = context;
    (void)item;
    (void)which;
    if (at + bytes <= flags.bytes)
        memcpy((char *)request->outputs + at, data, bytes);
}

static void end(void *context, uint32_t item, const sluice_end *how)
{
    struct request *request = context;
    const uint64_t last = flags.bytes / sizeof(float) - 1;
    (void)item;
    request->open = false;
    ended++;
    if (how->finish != SLUICE_FINISH_STOP) {
        failed++;
        return;
    }
    wrong += request->outputs[0] != expected(0) || request->outputs[last] != expected(last);
    request->outputs[0] = request->outputs[last] = -1;
}

static void submit(sluice_client *client, struct request *request)
{
    const sluice_array input = {.name = "x",
                                .dtype = SLUICE_DTYPE_F32,
                                .rank = 1,
                                .shape = {flags.bytes / sizeof(float)},
                                .data = inputs};
    const sluice_argument arguments[] = {
        {.name = "a", .type = SLUICE_ARGUMENT_NUMBER, .number = 0.5},
        {.name = "b", .type = SLUICE_ARGUMENT_INTEGER, .integer = 1},
        {.name = "rounds", .type = SLUICE_ARGUMENT_INTEGER, .integer = flags.rounds}};
    const sluice_job_item item = {&input, 1, arguments, 3};
    sluice_job job;
    sluice_job_init(&job);
    job.program = "affine";
    job.items = &item;
    job.item_count = 1;
    job.output = output;
    job.end = end;
    job.context = request;
    if (flags.inlined) {
        job.inline_max = UINT64_MAX;
    } else {
        job.inputs_fd = inputs_fd;
        job.inputs_bytes = flags.bytes;
        job.outputs_fd = request->fd;
        job.outputs_bytes = flags.bytes;
    }
    request->open = true;
    if (sluice_submit_job(client, &job, NULL) == 0)
        return;
    fprintf(stderr, "job_flood: %s\n", sluice_client_error(client)->text);
    exit(1);
}

static void send_due(sluice_client *client, double begin, uint64_t *sent)
{
    for (uint32_t i = 0; i < flags.open; i++) {
        const double due = flags.rate > 0
                               ? begin + (double)*sent * (double)flags.bytes / (flags.rate * 1e9)
                               : begin;
        if (now() < due || now() - begin >= flags.seconds)
            return;
        if (requests[i].open)
            continue;
        submit(client, &requests[i]);
        ++*sent;
    }
}

static void flood(sluice_client *client)
{
    const double begin = now();
    uint64_t sent = 0;
    while (now() - begin < flags.seconds || ended < sent) {
        send_due(client, begin, &sent);
        struct pollfd poll_fd = {.fd = sluice_client_fd(client),
                                 .events = sluice_client_events(client)};
        (void)poll(&poll_fd, 1, 1);
        if (poll_fd.revents && sluice_client_process(client) < 0) {
            fprintf(stderr, "job_flood: %s\n", sluice_client_error(client)->text);
            exit(1);
        }
    }
    const double took = now() - begin;
    const double rate = (double)(ended - failed) * (double)flags.bytes / took / 1e9;
    printf(
        "{\"jobs\":%lu,\"failed\":%lu,\"wrong\":%lu,\"seconds\":%.3f,\"in\":%.3f,\"both\":%.3f}\n",
        ended, failed, wrong, took, rate, 2 * rate);
}

/* ---- the command line --------------------------------------------------------------------------
 */

static void read_flags(int argc, char **argv)
{
    for (int i = 2; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "0";
        if (strcmp(argv[i], "--inline") == 0) {
            flags.inlined = true;
            continue;
        }
        if (strcmp(argv[i], "--bytes") == 0)
            flags.bytes = strtoull(value, NULL, 10) / 256 * 256;
        else if (strcmp(argv[i], "--rate") == 0)
            flags.rate = strtod(value, NULL);
        else if (strcmp(argv[i], "--seconds") == 0)
            flags.seconds = strtod(value, NULL);
        else if (strcmp(argv[i], "--open") == 0)
            flags.open = (uint32_t)strtoul(value, NULL, 10);
        else if (strcmp(argv[i], "--rounds") == 0)
            flags.rounds = strtoll(value, NULL, 10);
        else
            exit(2);
        i++;
    }
    if (flags.bytes == 0 || flags.open == 0 || flags.open > OPEN_MAX)
        exit(2);
}

int main(int argc, char **argv)
{
    sluice_client *client;
    sluice_error error;
    if (argc < 2)
        return 2;
    read_flags(argc, argv);
    if (sluice_connect(argv[1], 5000, &client, &error)) {
        fprintf(stderr, "job_flood: %s\n", error.text);
        return 1;
    }
    make_inputs();
    for (uint32_t i = 0; i < flags.open; i++)
        make_outputs(&requests[i]);
    flood(client);
    sluice_close(client);
    return failed > 0 || wrong > 0;
}
