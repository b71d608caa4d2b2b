/* Steps of a synthetic model through the engine alone: what a step costs the device.
 *     bench_step [--cache DIR] [--draft MODEL] [--kv-dtype auto|fp8] MODEL STEP...
 *     STEP: ROWS[^GUESSES][+TOKENS][@CONTEXT]
 *
 * With --cache products are timed first, as the daemon does it, or read from there.
 * For each, ROWS sequences of CONTEXT tokens (128) decode 100 tokens, two steps in flight, each
 * step beside the first TOKENS tokens of a new prompt; prints the device's time of a step and
 * between two, in microseconds, medians and averages, and a number made of all tokens: it changes
 * when one of them does. With GUESSES each row brings so many, none of which stands, and each step
 * waits for the one before, as the scheduler's do: the gap has the host's turn in it. With --draft
 * the draft model makes them, and reads the token before, as where all of a row stand (a head reads
 * all of them); what that takes is told beside. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "gpu/gpu.h"

#define STEPS 100u /* of decode rows */
#define ROWS_MAX 256u
#define GUESSES_MAX 8u
#define TOKENS_MAX 8192u
#define CONTEXT_MAX (TOKENS_MAX - STEPS)
#define TOGETHER 64u /* prompts in a step, at most */
#define DEPTH 2u
#define BLOCKS_MAX (TOKENS_MAX / 16) /* of a step's prompts */

struct shape {
    uint32_t rows, guesses, beside, context;
};

static const struct gpu_api *gpu = &gpu_module;
static const char *draft_model; /* NULL: guesses are the plan's */
static struct gpu_engine *engine;
static struct gpu_model model;
static struct error error;
static int wake_fd;
static uint64_t step, slabs[GPU_GROUPS_MAX], random_state = 1;

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

static uint32_t blocks_of(uint32_t tokens)
{
    return (tokens + model.block_tokens - 1) / model.block_tokens;
}

/* Slabs until there are so many blocks of each group. */
static void grow(struct gpu_plan *plan, struct gpu_slab *fresh, uint32_t blocks)
{
    for (uint32_t group = 0; group < model.group_count; group++)
        for (; slabs[group] * model.groups[group].slab_blocks < blocks; slabs[group]++) {
            struct gpu_slab *slab = &fresh[plan->slab_count++];
            slab->group = group;
            expect(gpu->kv_grow(engine, group, &slab->slab, &error));
        }
}

/* The first `tokens` tokens of a prompt for a slot, whose blocks begin at `block`. */
static void prompt(struct gpu_plan *plan, uint32_t slot, uint32_t block, uint32_t tokens,
                   uint32_t blocks)
{
    static int32_t ids[TOKENS_MAX];
    static struct gpu_append appends[GPU_GROUPS_MAX * (BLOCKS_MAX + TOGETHER * (STEPS / 16 + 2))];
    static struct gpu_open opens[TOGETHER];
    static struct gpu_row rows[TOGETHER];
    plan->ids = ids;
    plan->appends = appends;
    plan->opens = opens;
    if (!plan->rows)
        plan->rows = rows;
    opens[plan->open_count++] = (struct gpu_open){.slot = slot,
                                                  .sampler.top_p = 1,
                                                  .sampler.repetition_penalty = 1,
                                                  .prompt_len = tokens,
                                                  .eos_from = UINT32_MAX};
    ((struct gpu_row *)plan->rows)[plan->row_count++] =
        (struct gpu_row){.slot = slot,
                         .q_len = tokens,
                         .input = GPU_IDS,
                         .want = GPU_SAMPLE | (draft_model ? GPU_DRAFT : 0),
                         .ids = plan->id_count};
    for (uint32_t i = 0; i < model.group_count * blocks; i++)
        appends[plan->append_count++] = (struct gpu_append){
            .slot = slot, .group = i / blocks, .index = i % blocks, .block = block + i % blocks};
    for (uint32_t i = 0; i < tokens; i++)
        ids[plan->id_count++] = token();
    plan->token_count += tokens;
}

/* Sequences of `context` tokens in the slots from 0 on. */
static void prompts(const struct shape *shape)
{
    uint32_t blocks = blocks_of(shape->context + STEPS + GUESSES_MAX);
    uint32_t together =
        TOKENS_MAX / shape->context < TOGETHER ? TOKENS_MAX / shape->context : TOGETHER;
    for (uint32_t slot = 0; slot < shape->rows;) {
        struct gpu_slab fresh[128];
        struct gpu_plan plan = {.step = ++step, .slabs = fresh};
        for (uint32_t i = 0; i < together && slot < shape->rows; i++, slot++) {
            grow(&plan, fresh, (slot + 1) * blocks);
            prompt(&plan, slot, slot * blocks, shape->context, blocks);
        }
        expect(gpu->submit(engine, 0, &plan, &error));
        await(step);
    }
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

/* Rows that decode, and a prompt that begins, in the slot behind them. */
static void submit(const struct shape *shape, uint32_t number)
{
    static int32_t ids[ROWS_MAX * (2 + GUESSES_MAX)];
    struct gpu_row row[ROWS_MAX + 1];
    struct gpu_slab fresh[128];
    uint32_t width = 1 + shape->guesses;
    bool made_there = draft_model && shape->guesses;
    uint32_t unread = !made_there ? 0 : model.draft_rereads ? shape->guesses : 1;
    uint32_t named = made_there ? unread + 1 : width; /* of a row; made there: unread, its own */
    struct gpu_plan plan = {.step = ++step,
                            .rows = row,
                            .row_count = shape->rows,
                            .token_count = shape->rows * width,
                            .slabs = fresh};
    for (uint32_t r = 0; r < shape->rows; r++)
        row[r] = (struct gpu_row){.slot = r,
                                  .position = shape->context + number,
                                  .q_len = width,
                                  .input = shape->guesses ? GPU_IDS : GPU_LAST,
                                  .want = GPU_SAMPLE | (made_there ? GPU_DRAFT : 0),
                                  .ids = r * named + unread,
                                  .drafts = shape->guesses,
                                  .unread = unread};
    if (shape->guesses) {
        plan.ids = ids;
        plan.id_count = shape->rows * named;
        for (uint32_t i = 0; i < plan.id_count; i++)
            ids[i] = token();
    }
    if (shape->beside > 0) {
        uint32_t block = shape->rows * blocks_of(shape->context + STEPS + GUESSES_MAX);
        uint32_t blocks = blocks_of(shape->beside);
        grow(&plan, fresh, block + blocks);
        plan.closes = &shape->rows;
        plan.close_count = number > 0;
        prompt(&plan, shape->rows, block, shape->beside, blocks);
    }
    expect(gpu->submit(engine, 0, &plan, &error));
}

static void run(const struct shape *shape)
{
    static double compute[STEPS], gap[STEPS], guessed[STEPS];
    uint64_t mixed = 0, ended = 0;
    double sum = 0, sum_gap = 0;
    uint32_t count = 0;
    random_state = 1;
    prompts(shape);
    uint64_t first = step + 1;
    uint32_t depth = shape->guesses ? 1 : DEPTH;
    for (uint32_t i = 0; i < STEPS + depth; i++) {
        if (i >= depth) { /* of the first steps a graph is made beside them */
            struct gpu_results results;
            await(first + i - depth);
            gpu->results(engine, first + i - depth, &results);
            for (uint32_t r = 0; r < results.sample_count; r++)
                mixed = (mixed ^ (uint32_t)results.samples[r].token) * UINT64_C(0x100000001b3);
            if (i >= STEPS / 5) {
                compute[count] = (double)(results.end_ns - results.start_ns) * 1e-3;
                guessed[count] = (double)results.guesses_ns * 1e-3;
                gap[count] = (double)(results.start_ns - results.guesses_ns - ended) * 1e-3;
                sum += compute[count];
                sum_gap += gap[count++];
            }
            ended = results.end_ns;
        }
        if (i < STEPS)
            submit(shape, i);
    }
    uint32_t closes[ROWS_MAX + 1];
    for (uint32_t r = 0; r <= shape->rows; r++)
        closes[r] = r;
    struct gpu_plan last = {
        .step = ++step, .closes = closes, .close_count = shape->rows + (shape->beside > 0)};
    expect(gpu->submit(engine, 0, &last, &error));
    await(step);
    char guesses[64] = "";
    if (shape->guesses && draft_model)
        snprintf(guesses, sizeof guesses, " with %u guesses (%.1f us)", shape->guesses,
                 median(guessed, count));
    else if (shape->guesses)
        snprintf(guesses, sizeof guesses, " with %u guesses", shape->guesses);
    printf("%3u rows%s + %u @ %u: step %.1f us (average %.1f), gap %.1f (%.1f); tokens %016llx\n",
           shape->rows, guesses, shape->beside, shape->context, median(compute, count), sum / count,
           median(gap, count), sum_gap / count, (unsigned long long)mixed);
    fflush(stdout);
}

static bool read_shape(const char *text, struct shape *ret_shape)
{
    char *end;
    unsigned long rows = strtoul(text, &end, 10), guesses = 0, beside = 0, context = 128;
    if (*end == '^')
        guesses = strtoul(end + 1, &end, 10);
    if (*end == '+')
        beside = strtoul(end + 1, &end, 10);
    if (*end == '@')
        context = strtoul(end + 1, &end, 10);
    *ret_shape =
        (struct shape){(uint32_t)rows, (uint32_t)guesses, (uint32_t)beside, (uint32_t)context};
    return *end == '\0' && rows + beside > 0 && rows <= ROWS_MAX && rows + beside <= TOKENS_MAX &&
           guesses <= GUESSES_MAX && !(guesses && beside) && context > 0 &&
           context <= CONTEXT_MAX - GUESSES_MAX;
}

int main(int argument_count, char **arguments)
{
    int device = 0;
    struct gpu_limits limits;
    const char *cache = NULL;
    enum gpu_kv_dtype kv_dtype = GPU_KV_AUTO;
    for (; argument_count > 2; arguments += 2, argument_count -= 2) {
        if (!strcmp(arguments[1], "--cache"))
            cache = arguments[2];
        else if (!strcmp(arguments[1], "--draft"))
            draft_model = arguments[2];
        else if (!strcmp(arguments[1], "--kv-dtype"))
            kv_dtype = !strcmp(arguments[2], "fp8") ? GPU_KV_FP8 : GPU_KV_AUTO;
        else
            break;
        if (!strcmp(arguments[1], "--kv-dtype") && strcmp(arguments[2], "fp8") &&
            strcmp(arguments[2], "auto")) {
            fprintf(stderr, "%s is no dtype of keys and values\n", arguments[2]);
            return 2;
        }
    }
    if (argument_count < 3) {
        fprintf(stderr, "usage: bench_step [--cache DIR] [--draft MODEL] [--kv-dtype auto|fp8] "
                        "MODEL ROWS[^GUESSES][+TOKENS][@CONTEXT]...\n");
        return 2;
    }
    struct gpu_options options = {.model = arguments[1],
                                  .draft_model = draft_model,
                                  .devices = &device,
                                  .tp = 1,
                                  .pp = 1,
                                  .depth = DEPTH,
                                  .slots_max = ROWS_MAX + 1,
                                  .tokens_max = TOKENS_MAX,
                                  .cache_dir = cache,
                                  .kv_dtype = kv_dtype,
                                  .seed = 1};
    wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    expect(gpu->open(&options, &engine, &model, &limits, &error));
    expect(gpu->start(engine, 0, wake_fd, &error));
    printf("%s\n", arguments[1]);
    for (int i = 2; i < argument_count; i++) {
        struct shape shape;
        if (!read_shape(arguments[i], &shape)) {
            fprintf(stderr, "%s is no step\n", arguments[i]);
            return 2;
        }
        run(&shape);
    }
    (void)gpu->stop(engine, 0, NULL);
    gpu->close(engine);
    return 0;
}
