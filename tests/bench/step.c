/* Decode steps of a synthetic model through the engine alone: what a step costs the device.
 *     bench_step MODEL ROWS...
 *
 * For each number of rows, so many sequences of 128 tokens decode 100 tokens, two steps in flight;
 * prints the device's time of a step and between two, in microseconds, medians and averages, and a
 * number made of all tokens: it changes when one of them does. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "gpu/gpu.h"

#define PROMPT 128u
#define STEPS 100u /* of decode rows */
#define ROWS_MAX 256u
#define TOGETHER 64u /* prompts in a step */
#define DEPTH 2u
#define BLOCKS_MAX 16u /* of a sequence */

static const struct gpu_api *gpu = &gpu_module;
static struct gpu_engine *engine;
static struct gpu_model model;
static struct error error;
static int wake_fd;
static uint64_t step, slabs, random_state = 1;

static void expect(int status)
{
    if (!status)
        return;
    fprintf(stderr, "%s\n", error.text);
    exit(1);
}

static int32_t token(void)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int32_t)((random_state >> 33) % (model.vocab - 256));
}

static void await(uint64_t number)
{
    struct pollfd wake = {.fd = wake_fd, .events = POLLIN};
    uint64_t count;
    while (gpu->completed(engine, 0) < number)
        if (poll(&wake, 1, 20000) != 1 || read(wake_fd, &count, sizeof count) < 0)
            exit(1);
}

/* Opens so many slots from the first on with their blocks, and reads the prompts. */
static void prompts(uint32_t first, uint32_t rows)
{
    static int32_t ids[TOGETHER * PROMPT];
    static struct gpu_append appends[TOGETHER * BLOCKS_MAX];
    struct gpu_open opens[TOGETHER];
    struct gpu_row row[TOGETHER];
    struct gpu_slab fresh[64];
    uint32_t closes[TOGETHER];
    uint32_t blocks = (PROMPT + STEPS) / model.block_tokens + 1;
    struct gpu_plan plan = {.step = ++step,
                            .slabs = fresh,
                            .opens = opens,
                            .appends = appends,
                            .rows = row,
                            .ids = ids,
                            .row_count = rows,
                            .open_count = rows,
                            .append_count = rows * blocks,
                            .id_count = rows * PROMPT,
                            .token_count = rows * PROMPT,
                            .closes = closes};
    while (slabs * model.groups[0].slab_blocks < (first + rows) * blocks) {
        expect(gpu->kv_grow(engine, 0, &fresh[plan.slab_count].slab, &error));
        fresh[plan.slab_count++].group = 0;
        slabs++;
    }
    for (uint32_t i = 0; i < rows; i++) {
        uint32_t slot = first + i;
        opens[i] = (struct gpu_open){.slot = slot,
                                     .sampler.top_p = 1,
                                     .sampler.repetition_penalty = 1,
                                     .prompt_len = PROMPT,
                                     .eos_from = UINT32_MAX};
        row[i] = (struct gpu_row){
            .slot = slot, .q_len = PROMPT, .input = GPU_IDS, .want = GPU_SAMPLE, .ids = i * PROMPT};
        for (uint32_t b = 0; b < blocks; b++)
            appends[i * blocks + b] =
                (struct gpu_append){.slot = slot, .index = b, .block = slot * blocks + b};
    }
    for (uint32_t i = 0; i < rows * PROMPT; i++)
        ids[i] = token();
    expect(gpu->submit(engine, 0, &plan, &error));
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, uint32_t count)
{
    qsort(values, count, sizeof *values, ascending);
    return values[count / 2];
}

static void run(uint32_t rows)
{
    static double compute[STEPS], gap[STEPS];
    struct gpu_row row[ROWS_MAX];
    uint64_t mixed = 0, ended = 0;
    double sum = 0, sum_gap = 0;
    uint32_t count = 0;
    random_state = 1;
    for (uint32_t done = 0; done < rows; done += TOGETHER) {
        prompts(done, rows - done < TOGETHER ? rows - done : TOGETHER);
        await(step);
    }
    uint64_t first = step + 1;
    for (uint32_t i = 0; i < STEPS + DEPTH; i++) {
        if (i >= DEPTH) { /* of the first steps a graph is made beside them */
            struct gpu_results results;
            await(first + i - DEPTH);
            gpu->results(engine, first + i - DEPTH, &results);
            for (uint32_t r = 0; r < results.sample_count; r++)
                mixed = (mixed ^ (uint32_t)results.samples[r].token) * UINT64_C(0x100000001b3);
            if (i >= STEPS / 5) {
                compute[count] = (double)(results.end_ns - results.start_ns) * 1e-3;
                gap[count] = (double)(results.start_ns - ended) * 1e-3;
                sum += compute[count];
                sum_gap += gap[count++];
            }
            ended = results.end_ns;
        }
        if (i >= STEPS)
            continue;
        for (uint32_t r = 0; r < rows; r++)
            row[r] = (struct gpu_row){.slot = r,
                                      .position = PROMPT + i,
                                      .q_len = 1,
                                      .input = GPU_LAST,
                                      .want = GPU_SAMPLE};
        struct gpu_plan plan = {
            .step = ++step, .rows = row, .row_count = rows, .token_count = rows};
        expect(gpu->submit(engine, 0, &plan, &error));
    }
    uint32_t closes[ROWS_MAX];
    for (uint32_t r = 0; r < rows; r++)
        closes[r] = r;
    struct gpu_plan last = {.step = ++step, .closes = closes, .close_count = rows};
    expect(gpu->submit(engine, 0, &last, &error));
    await(step);
    printf("%3u rows: step %.1f us (average %.1f), gap %.1f (%.1f); tokens %016llx\n", rows,
           median(compute, count), sum / count, median(gap, count), sum_gap / count,
           (unsigned long long)mixed);
    fflush(stdout);
}

int main(int argument_count, char **arguments)
{
    int device = 0;
    struct gpu_limits limits;
    if (argument_count < 3) {
        fprintf(stderr, "usage: bench_step MODEL ROWS...\n");
        return 2;
    }
    struct gpu_options options = {.model = arguments[1],
                                  .devices = &device,
                                  .tp = 1,
                                  .pp = 1,
                                  .depth = DEPTH,
                                  .slots_max = ROWS_MAX,
                                  .tokens_max = 8192,
                                  .seed = 1};
    wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    expect(gpu->open(&options, &engine, &model, &limits, &error));
    expect(gpu->start(engine, 0, wake_fd, &error));
    printf("%s\n", arguments[1]);
    for (int i = 2; i < argument_count; i++) {
        long rows = strtol(arguments[i], NULL, 10);
        if (rows > 0 && rows <= ROWS_MAX)
            run((uint32_t)rows);
    }
    gpu->stop(engine, 0);
    gpu->close(engine);
    return 0;
}
