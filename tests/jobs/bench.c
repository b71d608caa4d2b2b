#include "tests/jobs/bench.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* ---- programs ----------------------------------------------------------------------------------
 */

static const struct sluice_size sizes[] = {{"n", 1, 1 << 20}};
static const struct sluice_tensor inputs[] = {{"x", SLUICE_F32, 1, {SLUICE_SIZE(0)}}};
static const struct sluice_tensor outputs[] = {{"y", SLUICE_F32, 1, {SLUICE_SIZE(0)}}};
static const struct sluice_parameter parameters[] = {
    {"a", "", SLUICE_NUMBER, 0, {.number = 1}, {.number = -1e9}, {.number = 1e9}},
    {"b", "", SLUICE_NUMBER, 0, {.number = 0}, {.number = -1e9}, {.number = 1e9}},
};

struct staged_args {
    uint32_t *taken; /* a word of an item: its first stage was here */
};

static void first_stage(const struct sluice_item *items, const void *args, uint32_t index)
{
    const struct sluice_item *item = &items[index];
    const struct staged_args *staged = args;
    const float *x = item->inputs[0];
    float *product = item->scratch;
    for (uint64_t i = 0; i < item->sizes[0]; i++)
        product[i] = (float)item->values[0].number * x[i];
    staged->taken[index] = 1;
}

static void second_stage(const struct sluice_item *items, const void *args, uint32_t index)
{
    const struct sluice_item *item = &items[index];
    const struct staged_args *staged = args;
    const float *product = item->scratch;
    float *y = item->outputs[0];
    for (uint64_t i = 0; i < item->sizes[0]; i++)
        y[i] = staged->taken[index] == 1 ? product[i] + (float)item->values[1].number : -1;
}

static int enqueue_staged(const struct sluice_batch *batch, const struct sluice_streams *streams,
                          struct sluice_allocator *allocator)
{
    const struct sluice_cpu *cpu = streams->cpu;
    struct staged_args args = {.taken = allocator->take(allocator, batch->count * sizeof(uint32_t))};
    ck_assert(args.taken && !allocator->take(allocator, 1 << 20) && !allocator->take(allocator, 0));
    int rc = cpu->launch(streams->streams[0], "first", first_stage, batch, &args, sizeof(args),
                         batch->count);
    if (!rc)
        rc = cpu->record(streams->events[0], streams->streams[0]);
    if (!rc)
        rc = cpu->wait(streams->streams[1], streams->events[0]);
    return rc ? rc
              : cpu->launch(streams->streams[1], "second", second_stage, batch, &args, sizeof(args),
                            batch->count);
}

static uint64_t scratch_of(const struct sluice_item *item)
{
    return item->sizes[0] * sizeof(float);
}

const struct sluice_program bench_staged = {
    .abi = SLUICE_PROGRAM_ABI, .name = "staged", .size_count = 1, .input_count = 1,
    .output_count = 1, .parameter_count = 2, .sizes = sizes, .inputs = inputs, .outputs = outputs,
    .parameters = parameters, .stream_count = 2, .event_count = 1, .batch_scratch = 4096,
    .scratch = scratch_of, .enqueue = enqueue_staged};

static void read_all(const struct sluice_item *items, const void *args, uint32_t index)
{
    const struct sluice_item *item = &items[index];
    uint32_t *y = item->outputs[0], *scratch = item->scratch;
    (void)args;
    for (uint64_t i = 0; i < item->sizes[0]; i++) {
        y[i] |= scratch[i];
        scratch[i] = 0xabcdef01;
    }
}

static int enqueue_reader(const struct sluice_batch *batch, const struct sluice_streams *streams,
                          struct sluice_allocator *allocator)
{
    (void)allocator;
    return streams->cpu->launch(streams->streams[0], "read", read_all, batch, NULL, 0,
                                batch->count);
}

const struct sluice_program bench_reader = {
    .abi = SLUICE_PROGRAM_ABI, .name = "reader", .size_count = 1, .input_count = 1,
    .output_count = 1, .parameter_count = 2, .sizes = sizes, .inputs = inputs, .outputs = outputs,
    .parameters = parameters, .scratch = scratch_of, .enqueue = enqueue_reader};

static int enqueue_failing(const struct sluice_batch *batch, const struct sluice_streams *streams,
                           struct sluice_allocator *allocator)
{
    (void)batch;
    (void)streams;
    (void)allocator;
    return 7;
}

const struct sluice_program bench_failing = {
    .abi = SLUICE_PROGRAM_ABI, .name = "failing", .size_count = 1, .input_count = 1,
    .output_count = 1, .parameter_count = 2, .sizes = sizes, .inputs = inputs, .outputs = outputs,
    .parameters = parameters, .enqueue = enqueue_failing};

struct program bench_program(const struct sluice_program *said)
{
    struct program program;
    struct error error;
    ck_assert_msg(!program_read(said, &program, &error), "%s", error.text);
    return program;
}

/* ---- chunks ------------------------------------------------------------------------------------
 */

uint32_t bench_draw(uint64_t *state, uint32_t below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*state >> 33) % below);
}

static void make_item(struct bench_chunk *chunk, uint32_t i, uint64_t *state, uint64_t length)
{
    struct gpu_piece *piece = &chunk->pieces[i];
    chunk->x[i] = malloc(length * sizeof(float));
    chunk->y[i] = malloc(length * sizeof(float));
    for (uint64_t j = 0; j < length; j++)
        chunk->x[i][j] = (float)bench_draw(state, 2000) / 7 - 100;
    memset(chunk->y[i], 0x5a, length * sizeof(float));
    *piece = (struct gpu_piece){.sizes = {length}, .whole = length};
    piece->values[0].number = bench_draw(state, 100) / 3.0;
    piece->values[1].number = bench_draw(state, 100) / 9.0;
    piece->inputs[0] = chunk->x[i];
    piece->outputs[0] = chunk->y[i];
}

struct bench_chunk *bench_chunk(const struct program *program, uint64_t *state, uint32_t items,
                                uint32_t longest)
{
    struct bench_chunk *chunk = calloc(1, sizeof(*chunk));
    chunk->base = (struct gpu_chunk){.program = program, .count = items, .pieces = chunk->pieces};
    for (uint32_t i = 0; i < items; i++)
        make_item(chunk, i, state, 1 + bench_draw(state, longest));
    return chunk;
}

bool bench_right(const struct bench_chunk *chunk)
{
    for (uint32_t i = 0; i < chunk->base.count; i++) {
        const struct gpu_piece *piece = &chunk->pieces[i];
        for (uint64_t j = 0; j < piece->sizes[0]; j++) {
            volatile float product = (float)piece->values[0].number * chunk->x[i][j];
            volatile float sum = product + (float)piece->values[1].number;
            if (sum != chunk->y[i][j])
                return false;
        }
    }
    return true;
}

void bench_free(struct bench_chunk *chunk)
{
    for (uint32_t i = 0; i < chunk->base.count; i++) {
        free(chunk->x[i]);
        free(chunk->y[i]);
    }
    free(chunk);
}

/* ---- the device --------------------------------------------------------------------------------
 */

void bench_setup(enum emu_engine engine, uint64_t seed)
{
    const struct emu_options options = {.engine = engine,
                                        .devices = 1,
                                        .memory_bytes = 64u << 20,
                                        .team_threads = 1,
                                        .seed = seed,
                                        .poison = true,
                                        .strict = true};
    ck_assert_int_eq(emu_setup(&options), cudaSuccess);
}

struct gpu_jobs *bench_open(const struct gpu_jobs_options *options, int *ret_wake_fd)
{
    struct gpu_jobs *jobs = NULL;
    struct error error;
    *ret_wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ck_assert_msg(!gpu_jobs.open(options, &jobs, &error), "%s", error.text);
    ck_assert_msg(!gpu_jobs.start(jobs, *ret_wake_fd, &error), "%s", error.text);
    return jobs;
}

struct gpu_chunk *bench_wait(struct gpu_jobs *jobs, int wake_fd)
{
    struct gpu_chunk *chunk;
    struct error error;
    uint64_t drained;
    while (!(chunk = gpu_jobs.take(jobs, &error))) {
        struct pollfd poll_fd = {.fd = wake_fd, .events = POLLIN};
        ck_assert_msg(!error.code, "%s", error.text);
        if (emu_step())
            continue;
        ck_assert_msg(poll(&poll_fd, 1, 60000) == 1, "no chunk has ended for a minute");
        ck_assert(read(wake_fd, &drained, sizeof(drained)) == sizeof(drained));
    }
    return chunk;
}
