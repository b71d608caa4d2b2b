#include "gpu/engine/engine_config.h"

#include <assert.h>
#include <float.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/base/device.h"
#include "gpu/checkpoint/snapshot.h"
#include "gpu/engine/engine_draft.h"
#include "gpu/graph/stages.h"
#include "gpu/kernels/step/null_rule.h"
#include "gpu/models/base/family.h"
#include "gpu/models/synthetic.h"
#include "gpu/program/program.h"
#include "protocol/base/minimum.h"

#define SLOTS_MAX 4096
#define TOKENS_MAX 65536
#define DEPTH_DEFAULT 2
#define SLABS_MAX 65536
#define MOVES_MAX 256
#define SLABS_PER_STEP_MAX 64
#define BIAS_PER_STEP_MAX 4096
#define CHUNK_PLACES_MAX (1u << 24)  /* of a group */
#define STATE_SLAB_BYTES (64u << 10) /* of a model that keeps some bytes of a position alone */

static_assert(MODEL_EOS_MAX == GPU_EOS_MAX, "every end token of a config has room");

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
    group->slab_blocks =
        slab_bytes > block_bytes ? (uint32_t)min_u64(slab_bytes / block_bytes, 1u << 20) : 1;
    /* Twice what the slots can hold: blocks that are kept for their content have room too. */
    uint64_t slabs = 2 * ((blocks + group->slab_blocks - 1) / group->slab_blocks);
    group->slabs_max = (uint32_t)min_u64(slabs, SLABS_MAX);
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

static void limits_set(struct engine_config *facts, const struct gpu_options *options)
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
        .embeds_max = embeds < 1 ? 1 : (uint32_t)min_u64(tokens, embeds),
        .context_max = model->context_max,
        .depth = (options->depth ? options->depth : DEPTH_DEFAULT) + facts->pp - 1,
        .samplings_max = GPU_SAMPLINGS_MAX,
        .sampling_rows_max = min_u32(slots, GPU_SAMPLING_ROWS_MAX),
        .stages = facts->pp,
    };
    /* New blocks of every row, the table of one sequence whole, and a patch for every move. */
    limits->appends_max =
        model->group_count * (tokens / model->block_tokens + 2 * slots + blocks + MOVES_MAX);
    limits->ids_max = tokens + slots + slots * GPU_STOP_IDS_MAX;
    if (facts->draft.there) {
        limits->drafts_max = GPU_DRAFTS_MAX;
        limits->unread_max = tokens - slots / 2; /* a row with drafts has two samples or more */
        limits->ids_max += limits->unread_max;
    }
}

static void id_set(struct gpu_model *model, const char *name)
{
    if (synthetic_is(name))
        snprintf(model->id, sizeof model->id, "%s", name);
    else
        snapshot_name(name, model->id, sizeof model->id);
}

int facts_stage(const struct engine_config *facts, uint32_t stage, struct op **ret_ops,
                uint32_t *ret_count, struct error *error)
{
    return op_list_stage(&facts->source.list, facts->first[stage], facts->first[stage + 1], ret_ops,
                         ret_count, error);
}

struct weights_source facts_weights(const struct engine_config *facts, const struct op *ops,
                                    uint32_t op_count, uint32_t rank)
{
    return (struct weights_source){.list = &facts->source.list,
                                   .ops = ops,
                                   .op_count = op_count,
                                   .checkpoint = facts->source.checkpoint,
                                   .own = facts->source.config.dtype,
                                   .dtype = facts->dtype,
                                   .rank = rank};
}

/* Whether weights are multiplied at all. */
static bool computes(const struct engine_config *facts)
{
    return op_list_computes(&facts->source.list);
}

static_assert(FORMATS <= GPU_FORMATS_MAX, "each format of weights has a place in gpu_model");

/* The largest first. */
static void formats_fill(const uint64_t bytes[FORMATS], struct gpu_model *model)
{
    for (enum format format = 0; format < FORMATS; format++) {
        uint32_t at = model->format_count;
        if (!bytes[format])
            continue;
        for (; at > 0 && model->formats[at - 1].bytes < bytes[format]; at--)
            model->formats[at] = model->formats[at - 1];
        struct gpu_format *to = &model->formats[at];
        to->bytes = bytes[format];
        snprintf(to->name, sizeof to->name, "%s", format_info(format).name);
        model->format_count++;
    }
}

/* What all stages come to: bytes of the weights of all ranks, and of a block of each group where it
 * is largest, for block numbers mean the same on all. */
static int stages_add(struct engine_config *facts, struct error *error)
{
    struct gpu_model *model = &facts->model;
    const struct op_list *list = &facts->source.list;
    uint64_t cost[FORMATS] = {0};
    for (uint32_t stage = 0; stage < facts->pp; stage++) {
        struct op *ops = NULL;
        uint32_t count = 0;
        int status = facts_stage(facts, stage, &ops, &count, error);
        if (status)
            return status;
        struct weights_source source = facts_weights(facts, ops, count, 0);
        uint64_t adapters = 0;
        if (computes(facts)) {
            struct adapter_layers layers = {facts->first[stage], facts->first[stage + 1]};
            status = adapter_weights_bytes(&facts->adapters, layers, &source, &adapters, error);
            model->weight_bytes += (weights_bytes(&source) + adapters) * facts->tp;
            weights_cost(&source, cost);
        }
        for (uint32_t i = 0; i < list->group_count; i++) {
            uint64_t bytes =
                program_block_bytes(list, ops, count, i, model->block_tokens, facts->kv);
            facts->block_bytes[stage][i] = bytes;
            if (bytes > model->groups[i].block_bytes)
                model->groups[i].block_bytes = bytes;
        }
        free(ops);
        if (status)
            return status;
    }
    for (enum format format = 0; format < FORMATS; format++)
        cost[format] *= facts->tp;
    formats_fill(cost, model);
    return 0;
}

/* Of all ranks; a model that multiplies by nothing keeps bytes of its own. */
static uint64_t kv_token_bytes(const struct engine_config *facts)
{
    const struct op_list *list = &facts->source.list;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < list->group_count; i++) {
        const struct list_group *group = &list->groups[i];
        uint64_t heads = 2 * kv_bytes(facts->kv, group->kv_heads, 1, group->head_dim) * facts->tp;
        bytes += group->layers * (group->position_bytes ? group->position_bytes : heads);
    }
    return bytes;
}

static void model_fill(const struct engine_config *facts, const struct gpu_options *options,
                       struct gpu_model *model)
{
    const struct model_config *config = &facts->source.config;
    const struct op_list *list = &facts->source.list;
    bool mixes = op_list_has(list, OP_EXPERTS);
    *model = (struct gpu_model){
        .vocab = list->vocab,
        .context_max = config->context_max,
        .hidden = list->hidden,
        .layers = list->layers,
        .parameters = op_list_elements(list),
        .step_parameters = stages_cost(list),
        .experts = mixes ? config->experts : 0,
        .experts_per_token = mixes ? config->experts_top : 0,
        .kv_token_bytes = kv_token_bytes(facts),
        .block_tokens = computes(facts) ? device_traits.block_tokens : NULL_BLOCK_TOKENS,
        .group_count = list->group_count,
        .eos_count = config->eos_count,
        .bos = config->bos_id,
        .sampler = config->sampler,
        .max_tokens = config->max_tokens,
    };
    id_set(model, options->model);
    snprintf(model->arch, sizeof model->arch, "%s", config->family->type);
    snprintf(model->dtype, sizeof model->dtype, "%s",
             !computes(facts)             ? "none"
             : facts->dtype == DTYPE_F32  ? "f32"
             : facts->dtype == DTYPE_BF16 ? "bf16"
                                          : "f16");
    model->invariant = facts->invariant || device_traits.invariant;
    snprintf(model->kv_dtype, sizeof model->kv_dtype, "%s",
             facts->kv == FORMAT_E4M3 ? "fp8" : model->dtype);
    memcpy(model->eos, config->eos_ids, sizeof model->eos);
    for (uint32_t i = 0; i < list->group_count; i++)
        model->groups[i] =
            (struct gpu_group){.window = list->groups[i].window, .layers = list->groups[i].layers};
}

/* Of its matrices: those of a checkpoint say it themselves, a config may be wrong about them.
 * Elements of a format say nothing about the rest. */
static enum model_dtype own_dtype(const struct model *source)
{
    tensor_id first = op_list_first_matrix(&source->list);
    if (!source->checkpoint || source->list.tensors[first].elements != TENSOR_NUMBERS)
        return source->config.dtype;
    return checkpoint_tensor(source->checkpoint, first)->dtype;
}

/* Matrices that come in numbers become others, where that is asked for. */
static int quantize(struct model *source, const struct gpu_options *options, struct error *error)
{
    if (options->quantize == GPU_QUANTIZE_NONE)
        return 0;
    if (!source->checkpoint)
        return error_set(error, ERR_BAD_CONFIG,
                         "quantize: not of a synthetic model: synthetic:NAME:fp8 is one in fp8");
    if (source->config.quantization.groups)
        return error_set(error, ERR_BAD_CONFIG,
                         "quantize: not of a checkpoint that is quantized already, as its config "
                         "says");
    quantization_make(source->config.names->head, &source->list);
    return 0;
}

static int kv_choose(struct engine_config *facts, enum gpu_kv_dtype asked, struct error *error)
{
    facts->kv = format_plain(facts->dtype);
    if (asked == GPU_KV_AUTO)
        return 0;
    if (!computes(facts))
        return error_set(error, ERR_BAD_CONFIG, "kv-dtype is fp8: the model has no keys and values");
    if (facts->source.config.quantization.kv == KV_SCHEME_OTHER)
        return error_set(error, ERR_BAD_CONFIG,
                         "kv-dtype is fp8: the model's kv_cache_scheme is another, with scales that "
                         "fp8 cannot use");
    facts->kv = FORMAT_E4M3;
    return 0;
}

/* What has kernels of one order. A device whose kernels all are so takes everything. */
static int invariant_choose(struct engine_config *facts, bool asked, struct error *error)
{
    const struct op_list *list = &facts->source.list;
    facts->invariant = asked;
    if (!asked || device_traits.invariant)
        return 0;
    if (facts->tp > 1)
        return error_set(error, ERR_BAD_CONFIG,
                         "invariant: not with tp %u: sums over devices are cut by the rows of a "
                         "step", facts->tp);
    if (facts->kv == FORMAT_E4M3)
        return error_set(error, ERR_BAD_CONFIG,
                         "invariant: not with kv-dtype fp8: its kernels are others for prompts than "
                         "for single tokens");
    for (uint32_t i = 0; i < list->weight_count; i++) {
        const struct list_weight *weight = &list->weights[i];
        if (weight->scheme.elements != TENSOR_NUMBERS)
            return error_set(error, ERR_BAD_CONFIG,
                             "invariant: not of a quantized model: %.64s is multiplied by other "
                             "kernels for few rows than for many",
                             list->tensors[weight->parts[0].tensor].name);
    }
    return 0;
}

static float most_of(enum dtype dtype)
{
    return dtype == DTYPE_F16 ? 65504 : dtype == DTYPE_BF16 ? 0x1.fep127f : FLT_MAX;
}

static int adapters_read(struct engine_config *facts, const struct gpu_options *options,
                         struct error *error)
{
    const struct adapter_room room = {options->adapters_max, options->adapter_rank_max,
                                      most_of(facts->dtype)};
    const char *name = options->adapter_count ? options->adapters[0].name : "(adapters-max)";
    bool any = options->adapter_count || options->adapters_max;
    if (any && !computes(facts))
        return error_set(error, ERR_BAD_CONFIG, "adapter %.64s: the model computes nothing", name);
    return adapters_open(options->adapters, options->adapter_count, room, &facts->source.list,
                         &facts->adapters, error);
}

static int model_read(struct engine_config *facts, const struct gpu_options *options,
                      struct error *error)
{
    facts->tp = options->tp ? options->tp : 1;
    facts->pp = options->pp ? options->pp : 1;
    struct model_sharing sharing = {.ranks = facts->tp, .whole_experts = options->ep};
    int status =
        model_load_shared(options->model, &sharing, options->context_max, &facts->source, error);
    if (!status && facts->source.config.draft_vocab)
        status = error_set(error, ERR_BAD_CONFIG,
                           "model: a head that guesses for another model is none by itself: it is "
                           "a draft-model");
    if (!status)
        status = quantize(&facts->source, options, error);
    if (!status)
        status = device_dtype(options->dtype, own_dtype(&facts->source), &facts->dtype, error);
    if (!status)
        status = adapters_read(facts, options, error);
    if (!status && computes(facts)) /* else each stage is all of the model */
        status = stages_split(&facts->source.list, facts->pp, facts->first, error);
    if (!status)
        status = kv_choose(facts, options->kv_dtype, error);
    return status ? status : invariant_choose(facts, options->invariant, error);
}

/* The smallest request is a prompt of one token and one behind it: a block of each group. */
static int least_check(const struct engine_config *facts, const struct gpu_options *options,
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

/* The part of kv-max; whole numbers, so that what holds a block of each group gives each its own.
 */
static uint64_t share_of(uint64_t kv_max, uint64_t block, uint64_t sum)
{
    return kv_max / sum * block + kv_max % sum * block / sum;
}

static int groups_set(struct engine_config *facts, const struct gpu_options *options,
                      struct error *error)
{
    struct gpu_model *model = &facts->model;
    uint64_t slab_bytes = options->slab_bytes ? options->slab_bytes
                          : computes(facts)   ? device_traits.slab_bytes
                                              : STATE_SLAB_BYTES;
    uint32_t tokens = model->block_tokens;
    uint64_t blocks =
        (uint64_t)facts->limits.slots_max * ((facts->limits.context_max + tokens - 1) / tokens);
    uint64_t block[GPU_GROUPS_MAX] = {0}, sum = 0;
    for (uint32_t i = 0; i < model->group_count; i++) {
        block[i] = model->groups[i].block_bytes;
        sum += block[i];
    }
    int status = least_check(facts, options, sum, error);
    /* All groups count the same positions, so that none may take what another needs. */
    for (uint32_t i = 0; !status && i < model->group_count; i++)
        slabs_set(&model->groups[i], block[i], slab_bytes, blocks,
                  share_of(options->kv_max, block[i], sum));
    return status;
}

/* Chunks of about the same size for all groups, each of which gets some. */
static int chunks_set(struct engine_config *facts, const struct gpu_options *options,
                      struct error *error)
{
    struct gpu_model *model = &facts->model;
    bool chosen = options->host_max == GPU_HOST_AUTO;
    uint64_t host_max = chosen ? device_traits.host_bytes : options->host_max;
    uint64_t chunk_bytes =
        options->host_chunk_bytes ? options->host_chunk_bytes : device_traits.host_chunk_bytes;
    uint64_t largest = 0, blocks_most = 0;
    if (host_max == 0 || model->group_count == 0)
        return 0;
    chunk_bytes = min_u64(chunk_bytes, host_max / model->group_count);
    for (uint32_t i = 0; i < model->group_count; i++) {
        uint64_t block = 0;
        for (uint32_t stage = 0; stage < facts->pp; stage++)
            block += facts->block_bytes[stage][i] * facts->tp;
        uint64_t blocks = chunk_bytes > block ? min_u64(chunk_bytes / block, 1u << 16) : 1;
        model->groups[i].chunk_blocks = (uint32_t)blocks;
        blocks_most = blocks > blocks_most ? blocks : blocks_most;
        largest = blocks * block > largest ? blocks * block : largest;
    }
    uint64_t chunks = min_u64(host_max / largest, CHUNK_PLACES_MAX / blocks_most);
    if (chunks < model->group_count) {
        for (uint32_t i = 0; i < model->group_count; i++)
            model->groups[i].chunk_blocks = 0;
        if (chosen)
            return 0;
        largest *= model->group_count;
        return error_limit(error, ERR_BAD_CONFIG, largest, host_max,
                           "host-cache gives %" PRIu64
                           " bytes to a replica, which hold no block of "
                           "each kind of layer: at least %" PRIu64 " are needed, or 0 for none",
                           host_max, largest);
    }
    model->host_bytes = chunks * largest;
    facts->limits.chunks_max = (uint32_t)chunks;
    return 0;
}

int engine_config_make(const struct gpu_options *options, struct engine_config *ret,
                       struct error *error)
{
    struct engine_config facts = {0};
    int status = options_check(options, error);
    if (!status)
        status = model_read(&facts, options, error);
    if (status) {
        engine_config_drop(&facts);
        return status;
    }
    model_fill(&facts, options, &facts.model);
    facts.model.ranks = facts.tp * facts.pp;
    status = block_tokens_set(&facts.model, options, error);
    if (!status)
        status = engine_draft_read(&facts, options, error);
    if (!status)
        status = stages_add(&facts, error);
    if (!status)
        status = engine_draft_blocks(&facts, error);
    if (status) {
        engine_config_drop(&facts);
        return status;
    }
    limits_set(&facts, options);
    status = groups_set(&facts, options, error);
    if (!status)
        status = chunks_set(&facts, options, error);
    if (status) {
        engine_config_drop(&facts);
        return status;
    }
    *ret = facts;
    return 0;
}

void engine_config_drop(struct engine_config *facts)
{
    adapters_drop(&facts->adapters);
    model_drop(&facts->source);
    if (facts->draft.there)
        model_drop(&facts->draft.source);
    free(facts->draft.places);
}
