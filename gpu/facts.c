#include "gpu/facts.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "gpu/device.h"
#include "gpu/forward.h"
#include "gpu/kernels/null_rule.h"
#include "gpu/model/synthetic.h"
#include "gpu/stages.h"
#include "gpu/weights.h"

#define SLOTS_MAX 4096
#define TOKENS_MAX 65536
#define DEPTH_DEFAULT 2
#define SLABS_MAX 65536
#define MOVES_MAX 256
#define SLABS_PER_STEP_MAX 64
#define BIAS_PER_STEP_MAX 4096
#define NULL_SLAB_BYTES (64u << 10)

static_assert(MODEL_EOS_MAX == GPU_EOS_MAX, "every end token of a config has room");
static_assert(MODEL_GROUPS_MAX == GPU_GROUPS_MAX, "and every layer group");

static uint32_t least(uint64_t a, uint64_t b)
{
    return (uint32_t)(a < b ? a : b);
}

static void null_model(struct gpu_model *model)
{
    *model = (struct gpu_model){
        .id = "synthetic:null",
        .arch = "null",
        .dtype = "none",
        .vocab = NULL_VOCAB,
        .context_max = NULL_CONTEXT,
        .hidden = NULL_HIDDEN,
        .layers = 1,
        .block_tokens = NULL_BLOCK_TOKENS,
        .group_count = 1,
        .groups = {{.layers = 1}},
        .eos_count = 1,
        .eos = {NULL_END},
        .bos = -1,
        .temperature = 0,
        .top_p = 1,
        .repetition = 1,
    };
}

/* Blocks of 16 to 256 positions, a power of two: kernels count on it. */
static int block_tokens_set(struct gpu_model *model, const struct gpu_options *options,
                            struct error *error)
{
    uint32_t tokens = options->block_tokens;
    if (!tokens)
        return 0;
    if (tokens < 16 || tokens > 256 || (tokens & (tokens - 1)))
        return error_limit(error, ERR_BAD_CONFIG, 256, tokens,
                           "block-tokens is %u: it must be 16, 32, 64, 128 or 256", tokens);
    model->block_tokens = tokens;
    return 0;
}

/* `share` of kv-max is the group's; 0 is no limit. */
static void slabs_set(struct gpu_group *group, uint64_t block_bytes, uint64_t slab_bytes,
                      uint64_t blocks, uint64_t share)
{
    if (share && slab_bytes > share)
        slab_bytes = share;
    group->block_bytes = block_bytes;
    group->slab_blocks = slab_bytes > block_bytes ? least(slab_bytes / block_bytes, 1u << 20) : 1;
    /* Twice what the slots can hold: blocks that are kept for their content have room too. */
    uint64_t slabs = 2 * ((blocks + group->slab_blocks - 1) / group->slab_blocks);
    group->slabs_max = least(slabs, SLABS_MAX);
    /* What kv-max forbids does not exist: admission tells by it what can never fit. */
    uint64_t fit = share / (group->slab_blocks * block_bytes);
    assert(!share || fit > 0); /* it holds a block, and a slab is no larger than it */
    if (share && fit < group->slabs_max)
        group->slabs_max = (uint32_t)fit;
}

static int options_check(const struct gpu_options *options, struct error *error)
{
    if (!options->model || !options->model[0])
        return error_set(error, ERR_BAD_CONFIG, "no model is named");
    if (options->pp > GPU_STAGES_MAX)
        return error_limit(error, ERR_BAD_CONFIG, GPU_STAGES_MAX, options->pp,
                           "pp is %u: at most %d", options->pp, GPU_STAGES_MAX);
    if (options->tp > GPU_DEVICES_MAX / (options->pp ? options->pp : 1))
        return error_limit(error, ERR_BAD_CONFIG, GPU_DEVICES_MAX, options->tp,
                           "tp is %u: tp * pp is at most %d", options->tp, GPU_DEVICES_MAX);
    if (options->depth > 2)
        return error_limit(error, ERR_BAD_CONFIG, 2, options->depth, "depth is %u: 1 or 2",
                           options->depth);
    if (options->slots_max > SLOTS_MAX)
        return error_limit(error, ERR_BAD_CONFIG, SLOTS_MAX, options->slots_max,
                           "slots is %u: at most %u", options->slots_max, SLOTS_MAX);
    if (options->tokens_max > TOKENS_MAX)
        return error_limit(error, ERR_BAD_CONFIG, TOKENS_MAX, options->tokens_max,
                           "tokens of a step are %u: at most %u", options->tokens_max, TOKENS_MAX);
    return 0;
}

static void limits_set(struct facts *facts, const struct gpu_options *options)
{
    struct gpu_model *model = &facts->model;
    struct gpu_limits *limits = &facts->limits;
    if (options->context_max && options->context_max < model->context_max)
        model->context_max = options->context_max;
    /* A pipeline has steps of other sequences on each stage, and a part of their KV. */
    uint32_t slots = options->slots_max ? options->slots_max : device_traits.slots_max * facts->pp;
    uint32_t tokens = options->tokens_max ? options->tokens_max : device_traits.tokens_max;
    if (facts->pp > 1 && !options->tokens_max)
        tokens /= 2 * facts->pp; /* a long prompt is read by all stages at once, in pieces */
    if (tokens < slots)
        tokens = slots; /* every slot may decode in one step */
    uint64_t embeds = device_traits.embed_bytes / sizeof(float) / model->hidden;
    uint32_t blocks = (model->context_max + model->block_tokens - 1) / model->block_tokens;
    *limits = (struct gpu_limits){
        .slots_max = slots,
        .rows_max = slots,
        .tokens_max = tokens,
        .opens_max = slots,
        .moves_max = MOVES_MAX,
        .slabs_max = SLABS_PER_STEP_MAX,
        .bias_max = BIAS_PER_STEP_MAX,
        .scores_max = tokens,
        .embeds_max = embeds < 1 ? 1 : least(tokens, embeds),
        .context_max = model->context_max,
        .depth = (options->depth ? options->depth : DEPTH_DEFAULT) + facts->pp - 1,
        .stages = facts->pp,
    };
    /* New blocks of every row, the table of one sequence whole, and a patch for every move. */
    limits->appends_max =
        model->group_count * (tokens / model->block_tokens + 2 * slots + blocks + MOVES_MAX);
    limits->ids_max = tokens + slots + slots * GPU_STOP_IDS_MAX;
}

/* "synthetic:NAME" whole, or the last part of the directory's path. */
static void id_set(struct gpu_model *model, const char *name)
{
    size_t end = strlen(name);
    while (end > 1 && name[end - 1] == '/')
        end--;
    size_t first = end;
    while (first > 0 && name[first - 1] != '/')
        first--;
    if (synthetic_is(name))
        first = 0;
    snprintf(model->id, sizeof model->id, "%.*s", (int)(end - first), name + first);
}

/* Of all ranks together. */
static uint64_t weights_total(const struct facts *facts)
{
    uint64_t bytes = 0;
    for (uint32_t stage = 0; stage < facts->pp; stage++) {
        struct weights_source source = {.config = &facts->config,
                                        .checkpoint = facts->checkpoint,
                                        .dtype = facts->dtype,
                                        .ranks = facts->tp,
                                        .first = facts->first[stage],
                                        .end = facts->first[stage + 1]};
        bytes += weights_bytes(&source) * facts->tp;
    }
    return bytes;
}

static void real_model(const struct facts *facts, const struct gpu_options *options,
                       struct gpu_model *model)
{
    const struct model_config *config = &facts->config;
    *model = (struct gpu_model){
        .vocab = config->vocab,
        .context_max = config->context_max,
        .hidden = config->hidden,
        .layers = config->layers,
        .parameters = weight_elements(config),
        .weight_bytes = weights_total(facts),
        .block_tokens = device_traits.block_tokens,
        .group_count = config->groups_count,
        .eos_count = config->eos_count,
        .bos = config->bos_id,
        .temperature = config->sampling.temperature,
        .top_p = config->sampling.top_p,
        .min_p = config->sampling.min_p,
        .repetition = config->sampling.repetition,
        .top_k = (int32_t)config->sampling.top_k,
        .max_tokens = config->sampling.max_tokens,
    };
    id_set(model, options->model);
    snprintf(model->arch, sizeof model->arch, "%s", model_arch_name(config->arch));
    snprintf(model->dtype, sizeof model->dtype, "%s",
             facts->dtype == DTYPE_F32    ? "f32"
             : facts->dtype == DTYPE_BF16 ? "bf16"
                                          : "f16");
    memcpy(model->eos, config->eos_ids, sizeof model->eos);
    for (uint32_t i = 0; i < config->groups_count; i++)
        model->groups[i] = (struct gpu_group){.window = config->groups[i].window,
                                              .layers = config->groups[i].layers};
}

/* Of its matrices: those of a checkpoint say it themselves, a config may be wrong about them. */
static enum model_dtype own_dtype(const struct facts *facts)
{
    return facts->checkpoint ? checkpoint_weight(facts->checkpoint, WEIGHT_Q, 0)->dtype
                             : facts->config.dtype;
}

static int model_read(struct facts *facts, const struct gpu_options *options, struct error *error)
{
    facts->tp = options->tp ? options->tp : 1;
    facts->pp = options->pp ? options->pp : 1;
    facts->null = strcmp(options->model, "synthetic:null") == 0;
    if (facts->null)
        return device_dtype(options->dtype, MODEL_F32, &facts->dtype, error);
    bool synthetic = synthetic_is(options->model);
    int status = synthetic ? synthetic_config(options->model, &facts->config, error)
                           : model_config_load(options->model, &facts->config, error);
    if (!status)
        status = weights_share(&facts->config, facts->tp, &facts->share, error);
    if (!status)
        status = stages_split(&facts->config, facts->pp, facts->first, error);
    if (!status && !synthetic)
        status = checkpoint_open(options->model, &facts->config, &facts->checkpoint, error);
    return status ? status : device_dtype(options->dtype, own_dtype(facts), &facts->dtype, error);
}

/* Of the stage with the most: block numbers mean the same on all of them. */
static uint64_t block_bytes(const struct facts *facts, uint32_t group)
{
    uint64_t most = 0;
    for (uint32_t stage = 0; stage < facts->pp; stage++) {
        struct model_config part =
            stages_part(&facts->share, facts->first[stage], facts->first[stage + 1]);
        uint64_t bytes = forward_block_bytes(&part, group, facts->model.block_tokens, facts->dtype);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* The smallest request is a prompt of one token and one behind it: a block of each group. */
static int least_check(const struct facts *facts, const struct gpu_options *options,
                       uint64_t blocks_bytes, struct error *error)
{
    const struct gpu_model *model = &facts->model;
    if (model->context_max < 2 && options->context_max == 1)
        return error_limit(error, ERR_BAD_CONFIG, 2, 1,
                           "context-max is 1: at least 2 are needed, a token and one behind it");
    if (model->context_max < 2)
        return error_limit(error, ERR_BAD_MODEL, 2, model->context_max,
                           "the model's context is %u tokens: at least 2 are needed",
                           model->context_max);
    if (options->kv_max && options->kv_max < blocks_bytes)
        return error_limit(error, ERR_BAD_CONFIG, blocks_bytes, options->kv_max,
                           "kv-max of %" PRIu64 " bytes holds no request: at least %" PRIu64
                           " are needed, a block of %u tokens",
                           options->kv_max, blocks_bytes, model->block_tokens);
    return 0;
}

/* The part of kv-max; whole numbers, so that what holds a block of each group gives each its own. */
static uint64_t share_of(uint64_t kv_max, uint64_t block, uint64_t sum)
{
    return kv_max / sum * block + kv_max % sum * block / sum;
}

static int groups_set(struct facts *facts, const struct gpu_options *options, struct error *error)
{
    struct gpu_model *model = &facts->model;
    uint64_t slab_bytes = options->slab_bytes ? options->slab_bytes
                          : facts->null       ? NULL_SLAB_BYTES
                                              : device_traits.slab_bytes;
    uint32_t tokens = model->block_tokens;
    uint64_t blocks =
        (uint64_t)facts->limits.slots_max * ((facts->limits.context_max + tokens - 1) / tokens);
    uint64_t block[GPU_GROUPS_MAX] = {0}, sum = 0;
    for (uint32_t i = 0; i < model->group_count; i++) {
        block[i] = facts->null ? tokens * sizeof(uint64_t) : block_bytes(facts, i);
        sum += block[i];
    }
    int status = least_check(facts, options, sum, error);
    /* All groups count the same positions, so that none may take what another needs. */
    for (uint32_t i = 0; !status && i < model->group_count; i++)
        slabs_set(&model->groups[i], block[i], slab_bytes, blocks,
                  share_of(options->kv_max, block[i], sum));
    return status;
}

int facts_make(const struct gpu_options *options, struct facts *ret, struct error *error)
{
    struct facts facts = {0};
    int status = options_check(options, error);
    if (!status)
        status = model_read(&facts, options, error);
    if (status) {
        facts_drop(&facts);
        return status;
    }
    if (facts.null)
        null_model(&facts.model);
    else
        real_model(&facts, options, &facts.model);
    facts.model.ranks = facts.tp * facts.pp;
    status = block_tokens_set(&facts.model, options, error);
    if (status) {
        facts_drop(&facts);
        return status;
    }
    limits_set(&facts, options);
    status = groups_set(&facts, options, error);
    if (status) {
        facts_drop(&facts);
        return status;
    }
    *ret = facts;
    return 0;
}

void facts_drop(struct facts *facts)
{
    if (facts->checkpoint)
        checkpoint_close(facts->checkpoint);
    facts->checkpoint = NULL;
}
