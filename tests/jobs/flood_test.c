/* Many clients at once: jobs of random lengths, by message and by shared memory, with cancels and
 * deadlines. Each ends exactly once, and who ends well has the bytes of the same job run alone.
 * SLUICE_JOBS says how many; 10,000 are the number that counts, under a sanitizer a share.
 * SLUICE_JOBS_DEVICE=cuda has them run on a GPU, with what the build in SPAWN_BUILD has for it. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <check.h>

#include "client/sluice.h"
#include "protocol/base/json.h"
#include "tests/daemon/rig/spawn.h"
#include "tests/jobs/service_suites.h"

#define CLIENTS 32
#define KINDS 48
#define ITEMS_MAX 6
#define OPEN_MAX 4 /* requests of a client */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define JOBS_USUAL 1500
#else
#define JOBS_USUAL 10000
#endif

/* A job that is sent again and again; `alone` is what came of it by itself. */
struct kind {
    sluice_array input;
    sluice_argument arguments[2];
    sluice_job_item item;
    float *x, *alone;
    uint64_t bytes;
};

struct request {
    struct client *client;
    bool open;
    uint32_t count, ended;
    bool cancelled, dated;
    bool shared; /* outputs lie in memory of ours */
    int fd;
    unsigned char *outputs;
    uint64_t mapped;
    const struct kind *kinds[ITEMS_MAX];
    unsigned char *got[ITEMS_MAX];
    uint64_t got_bytes[ITEMS_MAX];
    uint32_t ends[ITEMS_MAX];
};

struct client {
    sluice_client *connection;
    struct request requests[OPEN_MAX];
};

static struct spawn spawn;
static struct kind kinds[KINDS];
static struct client clients[CLIENTS];
static uint64_t state = 1;
static uint64_t sent, ended, finishes[5], wrong;

static uint32_t draw(uint32_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((state >> 33) % below);
}

/* ---- one by one --------------------------------------------------------------------------------
 */

static void make_kind(struct kind *kind, uint32_t number)
{
    uint32_t length = number % 8 == 0 ? 60000 + draw(140000) : 1 + draw(3000);
    kind->bytes = length * sizeof(float);
    kind->x = malloc(kind->bytes);
    kind->alone = calloc(1, kind->bytes);
    ck_assert(kind->x && kind->alone);
    for (uint32_t i = 0; i < length; i++)
        kind->x[i] = (float)draw(1 << 20) / 777 - 600;
    if (number == 1) /* what is no number is a value as any other */
        memset(kind->x, 0xff, kind->bytes);
    kind->input = (sluice_array){
        .name = "x", .dtype = SLUICE_DTYPE_F32, .rank = 1, .shape = {length}, .data = kind->x};
    kind->arguments[0] =
        (sluice_argument){.name = "a", .type = SLUICE_ARGUMENT_NUMBER, .number = draw(1000) / 7.0};
    kind->arguments[1] =
        (sluice_argument){.name = "b", .type = SLUICE_ARGUMENT_INTEGER, .integer = draw(1000)};
    kind->item = (sluice_job_item){.inputs = &kind->input,
                                   .input_count = 1,
                                   .arguments = kind->arguments,
                                   .argument_count = 2};
}

static void take_alone(void *context, uint32_t item, uint32_t output, uint64_t at, const void *data,
                       size_t bytes)
{
    struct kind *kind = context;
    if (item == 0 && output == 0 && at + bytes <= kind->bytes)
        memcpy((char *)kind->alone + at, data, bytes);
}

static void end_alone(void *context, uint32_t item, const sluice_end *end)
{
    (void)context;
    (void)item;
    wrong += end->finish != SLUICE_FINISH_STOP;
}

static void run_alone(sluice_client *client, struct kind *kind)
{
    sluice_job job;
    sluice_job_init(&job);
    job.program = "affine";
    job.items = &kind->item;
    job.item_count = 1;
    job.output = take_alone;
    job.end = end_alone;
    job.context = kind;
    ck_assert_int_eq(sluice_run_job(client, &job, SPAWN_PATIENCE_MS), 0);
    ck_assert_uint_eq(wrong, 0);
}

static void check_plain(const struct kind *kind)
{
    uint64_t other = 0;
    for (uint64_t i = 0; i < kind->input.shape[0]; i++) {
        volatile float product = (float)kind->arguments[0].number * kind->x[i];
        volatile float sum = product + (float)kind->arguments[1].integer;
        other += kind->alone[i] != sum && (sum == sum || kind->alone[i] == kind->alone[i]);
    }
    ck_assert_uint_eq(other, 0);
}

/* ---- the flood ---------------------------------------------------------------------------------
 */

static void take(void *context, uint32_t item, uint32_t output, uint64_t at, const void *data,
                 size_t bytes)
{
    struct request *request = context;
    if (item >= request->count || output > 0 || at != request->got_bytes[item] || request->shared ||
        at + bytes > request->kinds[item]->bytes) {
        wrong++;
        return;
    }
    memcpy(request->got[item] + at, data, bytes);
    request->got_bytes[item] += bytes;
}

static void close_request(struct request *request)
{
    for (uint32_t i = 0; i < request->count && !request->shared; i++)
        free(request->got[i]);
    if (request->shared) {
        munmap(request->outputs, request->mapped);
        close(request->fd);
    }
    request->open = false;
}

static void end(void *context, uint32_t item, const sluice_end *how)
{
    struct request *request = context;
    if (item >= request->count || ++request->ends[item] > 1) {
        wrong++;
        return;
    }
    finishes[how->finish]++;
    ended++;
    if (how->finish == SLUICE_FINISH_STOP)
        wrong += (!request->shared && request->got_bytes[item] != request->kinds[item]->bytes) ||
                 memcmp(request->got[item], request->kinds[item]->alone,
                        request->kinds[item]->bytes) != 0;
    else if (how->finish == SLUICE_FINISH_CANCELLED)
        wrong += !request->cancelled;
    else
        wrong += how->finish != SLUICE_FINISH_DEADLINE || !request->dated;
    if (++request->ended == request->count)
        close_request(request);
}

static void make_outputs(struct request *request)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < request->count; i++) {
        request->got[i] = request->shared ? NULL : malloc(request->kinds[i]->bytes);
        request->mapped += (request->kinds[i]->bytes + 7) / 8 * 8;
    }
    if (!request->shared)
        return;
    request->fd = memfd_create("outputs", MFD_ALLOW_SEALING | MFD_CLOEXEC);
    ck_assert(request->fd >= 0 && posix_fallocate(request->fd, 0, (off_t)request->mapped) == 0 &&
              fcntl(request->fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    request->outputs =
        mmap(NULL, request->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, request->fd, 0);
    ck_assert_ptr_ne(request->outputs, MAP_FAILED);
    for (uint32_t i = 0; i < request->count; i++) {
        request->got[i] = request->outputs + at;
        at += (request->kinds[i]->bytes + 7) / 8 * 8;
    }
}

static void submit(struct client *client, struct request *request, uint64_t left)
{
    sluice_job_item items[ITEMS_MAX];
    sluice_job job;
    uint64_t id;
    *request = (struct request){.client = client, .open = true, .fd = -1};
    request->count = 1 + draw(ITEMS_MAX);
    request->count = request->count < left ? request->count : (uint32_t)left;
    request->shared = draw(4) == 0;
    request->dated = draw(5) == 0;
    for (uint32_t i = 0; i < request->count; i++) {
        request->kinds[i] = &kinds[draw(KINDS)];
        items[i] = request->kinds[i]->item;
    }
    make_outputs(request);
    sluice_job_init(&job);
    job.program = "affine";
    job.items = items;
    job.item_count = request->count;
    job.priority = -(int)draw(3);
    job.deadline_ms = request->dated ? 1 + draw(40) : 0;
    job.outputs_fd = request->fd;
    job.outputs_bytes = request->shared ? request->mapped : 0;
    job.output = take;
    job.end = end;
    job.context = request;
    request->cancelled = draw(5) == 0;
    sent += request->count;
    ck_assert_msg(!sluice_submit_job(client->connection, &job, &id), "%s",
                  sluice_client_error(client->connection)->text);
    if (request->cancelled && request->open)
        ck_assert_int_eq(sluice_cancel(client->connection, id), 0);
}

static void flood(uint64_t jobs)
{
    struct pollfd fds[CLIENTS];
    while (ended < jobs) {
        for (int i = 0; i < CLIENTS; i++) {
            for (int j = 0; j < OPEN_MAX && sent < jobs; j++)
                if (!clients[i].requests[j].open)
                    submit(&clients[i], &clients[i].requests[j], jobs - sent);
            fds[i] = (struct pollfd){.fd = sluice_client_fd(clients[i].connection),
                                     .events = sluice_client_events(clients[i].connection)};
        }
        int ready = poll(fds, CLIENTS, SPAWN_PATIENCE_MS);
        ck_assert_msg(ready > 0 || errno == EINTR, "nothing happens, %llu of %llu have ended",
                      (unsigned long long)ended, (unsigned long long)jobs);
        for (int i = 0; i < CLIENTS; i++)
            if (fds[i].revents)
                ck_assert_msg(!sluice_client_process(clients[i].connection), "%s",
                              sluice_client_error(clients[i].connection)->text);
    }
}

static double figure(const json *stats, const char *group, const char *name)
{
    const json *value = json_get(json_get(stats, group), name);
    ck_assert_msg(value != NULL, "no figure %s", name);
    return json_number(value);
}

/* What the daemon counts is what it was sent, and nothing is left. */
static void check_figures(sluice_client *client, uint64_t jobs)
{
    static const struct json_bounds bounds = {.bytes_max = 1 << 20, .depth_max = 16};
    const char *text;
    json *stats = NULL;
    ck_assert_int_eq(sluice_control(client, SLUICE_STATS, NULL, SPAWN_PATIENCE_MS, &text), 0);
    ck_assert_int_eq(json_parse(text, strlen(text), bounds, &stats, NULL), 0);
    ck_assert_uint_eq((uint64_t)figure(stats, "counters", "jobs_total"), jobs);
    ck_assert_uint_eq((uint64_t)figure(stats, "counters", "finished_stop_total"),
                      finishes[SLUICE_FINISH_STOP] + KINDS);
    ck_assert_uint_eq((uint64_t)figure(stats, "counters", "finished_cancelled_total"),
                      finishes[SLUICE_FINISH_CANCELLED]);
    ck_assert_uint_eq((uint64_t)figure(stats, "counters", "finished_deadline_total"),
                      finishes[SLUICE_FINISH_DEADLINE]);
    ck_assert_uint_eq((uint64_t)figure(stats, "gauges", "jobs_waiting"), 0);
    ck_assert_uint_eq((uint64_t)figure(stats, "gauges", "jobs_running"), 0);
    ck_assert_uint_eq((uint64_t)figure(stats, "gauges", "tensor_bytes"), 0);
    ck_assert_uint_eq((uint64_t)figure(stats, "gauges", "result_bytes"), 0);
    ck_assert_uint_eq((uint64_t)figure(stats, "gauges", "requests"), 0);
    ck_assert_uint_gt((uint64_t)figure(stats, "lanes", "overlapped"), 0);
    ck_assert_uint_eq((uint64_t)figure(stats, "lanes", "memory_used"), 0);
    ck_assert_uint_eq((uint64_t)(figure(stats, "lanes", "synchronizes") + figure(stats, "lanes", "allocations") +
                                 figure(stats, "lanes", "pageable_copies")),
                      0);
    json_free(stats);
}

START_TEST(jobs_of_many_clients_end_once_each_with_the_bytes_of_a_job_run_alone)
{
    char state_dir[80];
    const char *const environment[] = {state_dir, NULL};
    const char *asked = getenv("SLUICE_JOBS"), *device = getenv("SLUICE_JOBS_DEVICE");
    const char *build = getenv("SPAWN_BUILD");
    char program[4096];
    device = device ? device : "cpu";
    snprintf(program, sizeof(program), "%s", AFFINE_CPU);
    if (build)
        snprintf(program, sizeof(program), "%s/gpu/programs/affine-%s.so", build, device);
    const char *const arguments[] = {"--program",   program, "--device", device,
                                     "--job-chunk", "64KiB", NULL};
    const uint64_t jobs = asked ? strtoull(asked, NULL, 10) : JOBS_USUAL;
    spawn_make(&spawn);
    snprintf(state_dir, sizeof(state_dir), "STATE_DIRECTORY=%s", spawn.directory);
    spawn_start(&spawn, arguments, environment);
    spawn_await_ready(&spawn);
    for (int i = 0; i < CLIENTS; i++)
        ck_assert_int_eq(
            sluice_connect(spawn.socket, SPAWN_PATIENCE_MS, &clients[i].connection, NULL), 0);
    for (uint32_t i = 0; i < KINDS; i++) {
        make_kind(&kinds[i], i);
        run_alone(clients[0].connection, &kinds[i]);
        check_plain(&kinds[i]);
    }
    flood(jobs);
    printf("%llu jobs of %d clients: %llu done, %llu cancelled, %llu late\n",
           (unsigned long long)jobs, CLIENTS, (unsigned long long)finishes[SLUICE_FINISH_STOP],
           (unsigned long long)finishes[SLUICE_FINISH_CANCELLED],
           (unsigned long long)finishes[SLUICE_FINISH_DEADLINE]);
    ck_assert_uint_eq(wrong, 0);
    ck_assert_uint_eq(ended, jobs);
    ck_assert_uint_gt(finishes[SLUICE_FINISH_STOP], jobs / 4);
    ck_assert_uint_gt(finishes[SLUICE_FINISH_CANCELLED], 0);
    check_figures(clients[0].connection, jobs + KINDS);
    for (int i = 0; i < CLIENTS; i++)
        sluice_close(clients[i].connection);
    for (uint32_t i = 0; i < KINDS; i++) {
        free(kinds[i].x);
        free(kinds[i].alone);
    }
    kill(spawn.pid, SIGTERM);
    ck_assert_int_eq(spawn_wait(&spawn), 0);
    spawn_free(&spawn);
}
END_TEST

Suite *flood_suite(void)
{
    Suite *suite = suite_create("flood");
    TCase *tests = tcase_create("flood");
    tcase_set_timeout(tests, 280);
    tcase_add_test(tests, jobs_of_many_clients_end_once_each_with_the_bytes_of_a_job_run_alone);
    suite_add_tcase(suite, tests);
    return suite;
}
