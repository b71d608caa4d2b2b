#include "tests/bench/latency/machine.h"

#include <math.h>

#define LAYERS 32
#define KV_HEADS 8
#define HEAD_QUERIES 4 /* of a KV head */
#define PROCESSORS 132
#define TILE 128                          /* queries of a block of prompts' attention */
#define KEY_US (4.0 * TILE * 128 / 3.5e6) /* a tile, one key: 3.5 TFLOP/s a processor */
#define TILE_US 10                        /* a wave of blocks, beside its keys */
#define SHARED 1.15                       /* where they share a tile's keys: what that takes */
#define KV_BYTES_PER_US 4.2e6             /* decode attention, long contexts */
#define KV_TOKEN_BYTES 131072
#define ATTENTION_ROW_US                                                                           \
    4 /* decode attention beside the bytes: what short contexts do not fill                        \
       */
#define HEAD_US 290
#define TOKEN_US 1.9 /* norms, rope, SwiGLU */
#define STEP_US 100  /* begin, end */
#define EAGER_US 255 /* between kernels, where there is no graph */
#define TILE_TOKENS 64
#define NOISE 0.015
#define SLOTS 512
#define TOKENS 8192
#define CONTEXT 8192
#define BLOCK_TOKENS 32
#define SLAB_BLOCKS 16 /* of 64 MiB */
#define SLABS 1800     /* 112 GiB */
#define CHUNK_BLOCKS 16
#define COPY_BYTES_PER_US 50e3
#define COPY_US 20 /* of a call, beside the bytes */

const struct gpu_model machine_model = {
    .id = "8b",
    .dtype = "bf16",
    .context_max = CONTEXT,
    .hidden = 4096,
    .layers = LAYERS,
    .ranks = 1,
    .kv_token_bytes = KV_TOKEN_BYTES,
    .block_tokens = BLOCK_TOKENS,
    .group_count = 1,
    .groups = {{.layers = LAYERS,
                .block_bytes = (uint64_t)BLOCK_TOKENS * KV_TOKEN_BYTES,
                .slab_blocks = SLAB_BLOCKS,
                .slabs_max = SLABS,
                .chunk_blocks = CHUNK_BLOCKS}},
};

const struct gpu_limits machine_limits = {
    .slots_max = SLOTS,
    .rows_max = SLOTS,
    .tokens_max = TOKENS,
    .opens_max = SLOTS,
    .appends_max = TOKENS / BLOCK_TOKENS + 2 * SLOTS + CONTEXT / BLOCK_TOKENS,
    .moves_max = 0,
    .slabs_max = 64,
    .ids_max = TOKENS + SLOTS + SLOTS * GPU_STOP_IDS_MAX,
    .bias_max = GPU_BIAS_MAX,
    .scores_max = TOKENS,
    .embeds_max = 512,
    .context_max = CONTEXT,
    .depth = 2,
    .stages = 1,
};

/* The four products of a layer: what steps of bench_step leave beside all else that is here. */
static const struct {
    double tokens, us;
} products[] = {{1, 101},     {16, 113},    {64, 121},    {128, 131},    {192, 154},
                {256, 194},   {320, 237},   {384, 277},   {448, 339},    {512, 355},
                {576, 410},   {640, 418},   {768, 503},   {1024, 665},   {1536, 978},
                {2048, 1290}, {4096, 2559}, {8192, 5140}, {16384, 10300}};

static double product_us(double tokens)
{
    int i = 1;
    if (tokens > 256)
        tokens = ceil(tokens / TILE_TOKENS) * TILE_TOKENS;
    while (products[i].tokens < tokens)
        i++;
    double part = (tokens - products[i - 1].tokens) / (products[i].tokens - products[i - 1].tokens);
    return products[i - 1].us + part * (products[i].us - products[i - 1].us);
}

void machine_copy(struct machine_copies *copies, const struct gpu_copies *plan, double now_us)
{
    double *free_us = &copies->free_us[plan->way], bytes = 0;
    for (uint32_t i = 0; i < plan->count; i++)
        bytes += (double)machine_model.groups[plan->copies[i].group].block_bytes;
    *free_us = fmax(*free_us, now_us) + COPY_US + bytes / COPY_BYTES_PER_US;
    copies->end_us[plan->way][plan->number % GPU_COPIES_MAX] = *free_us;
}

double machine_copied_us(const struct machine_copies *copies, enum gpu_way way, uint64_t number)
{
    return copies->end_us[way][number % GPU_COPIES_MAX];
}

double machine_random(uint64_t *random)
{
    *random += 0x9E3779B97F4A7C15u;
    uint64_t z = *random;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (double)((z ^ (z >> 31)) >> 11) / 9007199254740992.0;
}

static double slow = 1;

void machine_slow(double times)
{
    slow = times;
}

double machine_step_us(const struct gpu_plan *plan, uint64_t *random)
{
    double decode_us = 0, tiles = 0, keys = 0;
    for (uint32_t i = 0; i < plan->row_count; i++) {
        const struct gpu_row *row = &plan->rows[i];
        if (row->input == GPU_LAST) {
            decode_us +=
                ATTENTION_ROW_US + (double)row->position * KV_TOKEN_BYTES / KV_BYTES_PER_US;
            continue;
        }
        double row_tiles = ceil((double)row->q_len * HEAD_QUERIES / TILE) * KV_HEADS;
        tiles += row_tiles;
        keys += row_tiles * (row->position + row->q_len / 2.0);
    }
    double waves = ceil(tiles / PROCESSORS);
    double prompts_us = waves > 0 ? waves * (TILE_US + keys / tiles * KEY_US) : 0;
    prompts_us = fmin(prompts_us, TILE_US * waves + SHARED * keys / PROCESSORS * KEY_US);
    double us = STEP_US + (tiles > 0 ? EAGER_US : 0) + HEAD_US + TOKEN_US * plan->token_count +
                decode_us + LAYERS * (product_us(plan->token_count) + prompts_us);
    return (tiles > 0 ? slow : 1) * us * (1 + NOISE * (2 * machine_random(random) - 1));
}
