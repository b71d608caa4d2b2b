/* The engine launches on the CUDA device what launches.digests has: for each family, layout and
 * dtype the loading, the warming up, and steps of decode rows and prompts of many sizes, eager,
 * captured and as graphs. LAUNCHES_SHOW=FILE writes them all in words; LAUNCHES_MODEL=NAME takes
 * one model.
 */
#include <stdlib.h>
#include <string.h>

#include "gpu/emu/emu.h"
#include "gpu/kernels/adapt/adapt.h"
#include "gpu/kernels/common/device_context.h"
#include "gpu/kernels/matmul/matmul.h"
#include "tests/gpu/engine/digest.h"
#include "tests/gpu/engine/launches.h"
#include "tests/gpu/rig/engine_client.h"
#include "tests/gpu/rig/reference.h"

#define LAUNCHES "tests/gpu/launches.digests"
#define ROWS 300
#define TOKENS 8192
#define BLOCKS 1024

static struct engine_client talk;
static struct gpu_slab slabs[64];
static struct gpu_open opens[ROWS];
static struct gpu_append appends[BLOCKS * GPU_GROUPS_MAX];
static struct gpu_row rows[ROWS];
static uint32_t closes[ROWS], open_rows;
static int32_t ids[2 * TOKENS];

/* A step of `rows` rows of q_len tokens, all at position 0 of new slots. */
static const struct step {
    const char *name;
    uint32_t rows, q_len, want, flags, times;
} steps[] = {
    {"decode1", 1, 1, GPU_SAMPLE, 0, 3},
    {"decode16", 16, 1, GPU_SAMPLE | GPU_LOGPROBS, 0, 3},
    {"decode17", 17, 1, GPU_SAMPLE, 0, 3},
    {"penalties3", 3, 1, GPU_SAMPLE, GPU_SLOT_PENALTIES, 3},
    {"decode256", 256, 1, GPU_SAMPLE, 0, 3},
    {"decode257", 257, 1, GPU_SAMPLE, 0, 1},
    {"mute5", 5, 1, 0, 0, 3},
    {"prompt16", 1, 16, GPU_SAMPLE, 0, 1},
    {"prompt17", 1, 17, GPU_SAMPLE, 0, 1},
    {"prompt256", 2, 128, GPU_SAMPLE, 0, 1},
    {"prompt257", 1, 257, GPU_SAMPLE, 0, 1},
    {"prompt512", 1, 512, GPU_SAMPLE, 0, 1},
    {"prompt8192", 16, 512, GPU_SAMPLE, 0, 1},
    {"score40", 2, 20, GPU_SCORE, 0, 1},
    {"score8192", 16, 512, GPU_SCORE | GPU_SAMPLE, 0, 1},
    {"embed60", 3, 20, GPU_EMBED_LAST, 0, 1},
    {"mean60", 3, 20, GPU_POOL_ADD | GPU_POOL_OUT, GPU_SLOT_POOL, 1},
};

/* No model of these has adapters. */
bool adapt_fuses(const struct adapt_args *args)
{
    return args->gated && args->alike;
}

static bool blocks_make(struct gpu_plan *plan, uint32_t blocks)
{
    for (uint32_t group = 0; group < talk.model.group_count; group++) {
        while (talk.block_end[group] < blocks) {
            uint32_t slab;
            if (gpu_module.kv_grow(talk.engine, group, &slab, &talk.error))
                return false;
            slabs[plan->slab_count++] = (struct gpu_slab){.group = group, .slab = slab};
            talk.block_end[group] += talk.model.groups[group].slab_blocks;
        }
    }
    return true;
}

/* Where there is a draft model it reads prompts. */
static void row_make(struct gpu_plan *plan, const struct step *step, uint32_t slot)
{
    bool reads = talk.limits.drafts_max && step->q_len > 1;
    uint32_t blocks = (step->q_len + talk.model.block_tokens - 1) / talk.model.block_tokens;
    opens[plan->open_count++] = (struct gpu_open){.slot = slot,
                                                  .flags = step->flags,
                                                  .sampler.repetition_penalty = 1,
                                                  .sampler.top_p = 1,
                                                  .prompt_len = step->q_len};
    for (uint32_t group = 0; group < talk.model.group_count; group++) {
        for (uint32_t i = 0; i < blocks; i++)
            appends[plan->append_count++] = (struct gpu_append){
                .slot = slot, .group = group, .index = i, .block = slot * blocks + i};
    }
    bool score = step->want & GPU_SCORE;
    rows[plan->row_count++] =
        (struct gpu_row){.slot = slot,
                         .q_len = step->q_len,
                         .input = GPU_IDS,
                         .want = (uint16_t)(step->want | (reads ? GPU_DRAFT : 0)),
                         .ids = plan->id_count,
                         .score_count = score ? step->q_len - 1 : 0};
    plan->id_count += step->q_len;
    plan->token_count += step->q_len;
}

static bool step_run(const struct step *step)
{
    struct gpu_plan plan = {
        .step = ++talk.step,
        .closes = closes,
        .close_count = open_rows,
        .slabs = slabs,
        .opens = opens,
        .appends = appends,
        .rows = rows,
        .ids = ids,
    };
    uint32_t blocks = (step->q_len + talk.model.block_tokens - 1) / talk.model.block_tokens;
    for (uint32_t i = 0; i < open_rows; i++)
        closes[i] = i;
    if (!blocks_make(&plan, step->rows * blocks))
        return false;
    for (uint32_t i = 0; i < step->rows; i++)
        row_make(&plan, step, i);
    open_rows = step->rows;
    for (uint32_t rank = 0; rank < talk.ranks; rank++) {
        if (gpu_module.submit(talk.engine, rank, &plan, &talk.error))
            return false;
    }
    for (uint32_t rank = 0; rank < talk.ranks; rank++) {
        while (gpu_module.completed(talk.engine, rank) < talk.step)
            continue;
    }
    return true;
}

static void engine_run(struct digest_book *book, const struct gpu_options *options,
                       const char *layout, FILE *show)
{
    struct emu_options setup = {
        .devices = LAUNCHES_DEVICES, .memory_bytes = UINT64_C(40) << 30, .team_threads = 1};
    launches_reset(show);
    if (show)
        fprintf(show, "== %s\n", layout);
    open_rows = 0;
    if (emu_setup(&setup) != cudaSuccess) {
        printf("%s: no emulation\n", layout);
        book->different++;
        return;
    }
    int status = engine_client_open(&talk, options, false);
    if (status == -ERR_BAD_CONFIG) /* the layout does not suit the model */
        return;
    if (status || engine_client_start(&talk)) {
        printf("%s: %s\n", layout, talk.error.text);
        book->different++;
        return;
    }
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        bool fits = steps[i].rows * steps[i].q_len <= talk.limits.tokens_max &&
                    steps[i].q_len <= talk.limits.context_max &&
                    steps[i].rows <= talk.limits.rows_max;
        if (show)
            fprintf(show, "-- %s\n", steps[i].name);
        for (uint32_t j = 0; fits && j < steps[i].times; j++) {
            if (!step_run(&steps[i]))
                printf("%s %s: %s\n", layout, steps[i].name, talk.error.text);
        }
    }
    uint64_t digest = DIGEST_START;
    for (uint32_t rank = 0; rank < talk.ranks; rank++)
        digest = launches_add(digest, (int)rank);
    digest_note(book, layout, digest);
    engine_client_close(&talk);
}

/* `dtypes`: 1: bf16 alone, 2: f16 too. */
static void model_run(struct digest_book *book, const char *model, const char *label, size_t dtypes,
                      FILE *show)
{
    static const struct {
        uint32_t tp, pp;
    } layouts[] = {{1, 1}, {2, 1}, {1, 2}, {2, 2}};
    const char *wanted = getenv("LAUNCHES_MODEL");
    if ((wanted && strcmp(wanted, label)) || !digest_turn(book, label))
        return;
    for (size_t i = 0; i < dtypes * sizeof layouts / sizeof *layouts; i++) {
        bool f16 = i % dtypes;
        enum gpu_dtype dtype = f16 ? GPU_DTYPE_F16 : GPU_DTYPE_BF16;
        struct gpu_options options = {.model = model,
                                      .dtype = dtype,
                                      .tp = layouts[i / dtypes].tp,
                                      .pp = layouts[i / dtypes].pp,
                                      .tokens_max = TOKENS,
                                      .cache_dir = i == 0 ? "/nonexistent" : NULL};
        char layout[160];
        snprintf(layout, sizeof layout, "%.63s/tp%u/pp%u/%s", label, options.tp, options.pp,
                 f16 ? "f16" : "bf16");
        engine_run(book, &options, layout, show);
    }
}

/* Weights in whole numbers, which are put into another order behind all that fills them: made of a
 * seed, and of checkpoints, with columns in an order of their own and without. And in e4m3, whose
 * rounded inputs are handed on. */
#define QUANTIZED REFERENCE_DATA "/../quantized/"
static const struct {
    const char *model, *label;
    size_t dtypes;
} packed[] = {
    {"synthetic:tiny-wide:u4", "tiny-wide-u4", 2},
    {"synthetic:llama-3.2-1b:u8-zeros", "llama-3.2-1b-u8-zeros", 1},
    {"synthetic:llama-3.2-1b:fp8", "llama-3.2-1b-fp8", 1},
    {QUANTIZED "llama-awq", "llama-awq", 1},
    {QUANTIZED "llama-ct-u4-order", "llama-ct-u4-order", 1},
    {QUANTIZED "qwen2-gptq-order", "qwen2-gptq-order", 1},
};

/* With a draft model, which is loaded beside and reads prompts. */
static void drafted_run(struct digest_book *book, const char *model, const char *draft,
                        const char *label, FILE *show)
{
    struct gpu_options options = {.model = model, .draft_model = draft, .tokens_max = TOKENS};
    char layout[160];
    snprintf(layout, sizeof layout, "%.63s/bf16", label);
    if (digest_turn(book, label))
        engine_run(book, &options, layout, show);
}

/* No device is given back here. */
void matmul_forget(int device)
{
    (void)device;
}

cudaError_t device_reserve(int device)
{
    (void)device;
    return cudaSuccess;
}

cudaError_t device_reset(int device)
{
    (void)device;
    return cudaSuccess;
}

int main(int argc, char **argv)
{
    static const char *const shapes[] = {"tiny",         "tiny-wide",  "llama-3.2-1b",
                                         "llama-3.1-8b", "qwen2.5-7b", "qwen3-0.6b",
                                         "mistral-7b",   "gemma-2-9b", "gemma-3-4b"};
    static char names[REFERENCES_MAX][REFERENCE_NAME];
    struct digest_book book;
    const char *path = getenv("LAUNCHES_SHOW");
    FILE *show = path ? fopen(path, "w") : NULL;
    if (!digest_open(&book, LAUNCHES, argc, argv)) {
        fprintf(stderr, "usage: %s [--write FILE]\n", argv[0]);
        return 2;
    }
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        char model[64];
        snprintf(model, sizeof model, "synthetic:%s", shapes[i]);
        model_run(&book, model, shapes[i], 2, show);
    }
    for (size_t i = 0; i < sizeof packed / sizeof *packed; i++)
        model_run(&book, packed[i].model, packed[i].label, packed[i].dtypes, show);
    drafted_run(&book, "synthetic:llama-3.1-8b", "synthetic:llama-3.2-1b", "8b-draft-1b", show);
    drafted_run(&book, "synthetic:llama-3.1-8b", "synthetic:llama-3.1-8b-eagle3", "8b-eagle3",
                show);
    uint32_t count = reference_names(names);
    for (uint32_t i = 0; i < count; i++) {
        char model[128];
        snprintf(model, sizeof model, REFERENCE_DATA "/%.63s", names[i]);
        model_run(&book, model, names[i], 1, show);
    }
    if (show)
        fclose(show);
    return digest_close(&book, ENGINE_CLIENT_THIN == 1 && !getenv("LAUNCHES_MODEL"));
}
