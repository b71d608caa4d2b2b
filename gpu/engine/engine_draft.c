#include "gpu/engine/engine_draft.h"

#include <stdlib.h>

#include "gpu/engine/draft_head.h"
#include "gpu/graph/stages.h"
#include "gpu/program/program.h"

int facts_draft(const struct engine_config *facts, struct op **ret_ops, uint32_t *ret_count,
                struct error *error)
{
    const struct op_list *list = &facts->draft.source.list;
    return op_list_stage(list, 0, list->layers, ret_ops, ret_count, error);
}

struct weights_source facts_draft_weights(const struct engine_config *facts, const struct op *ops,
                                          uint32_t op_count)
{
    const struct model *source = &facts->draft.source;
    return (struct weights_source){.list = &source->list,
                                   .ops = ops,
                                   .op_count = op_count,
                                   .checkpoint = source->checkpoint,
                                   .own = source->config.dtype,
                                   .dtype = facts->dtype};
}

/* A layer of the draft model sees what the blocks of its group still hold. */
static bool window_fits(const struct list_group *model, const struct list_group *draft)
{
    return model->window == 0 || (draft->window > 0 && draft->window <= model->window);
}

/* `context`: what sequences may be long. */
static int fits(const struct engine_config *facts, uint32_t context, struct error *error)
{
    const struct model *source = &facts->draft.source;
    const struct op_list *list = &source->list, *model = &facts->source.list;
    if (!op_list_computes(list) || !op_list_computes(model))
        return error_set(error, ERR_BAD_CONFIG,
                         "draft-model: a model that computes nothing guesses nothing");
    if (list->vocab != model->vocab)
        return error_limit(error, ERR_BAD_CONFIG, model->vocab, list->vocab,
                           "draft-model: its vocabulary is of %u tokens, the model's of %u",
                           list->vocab, model->vocab);
    /* What a head was meant for is no bound: it guesses worse beyond. */
    if (!draft_is_head(&facts->draft) && source->config.context_max < context)
        return error_limit(error, ERR_BAD_CONFIG, context, source->config.context_max,
                           "draft-model: its context is %u tokens, sequences may have %u: "
                           "context-max may say less",
                           source->config.context_max, context);
    for (uint32_t i = 0; i < list->group_count; i++)
        if (i >= model->group_count || !window_fits(&model->groups[i], &list->groups[i]))
            return error_set(
                error, ERR_BAD_CONFIG,
                "draft-model: its attention looks further back than the model's, whose "
                "windows the blocks of both are kept for");
    return 0;
}

int engine_draft_read(struct engine_config *facts, const struct gpu_options *options,
                      struct error *error)
{
    if (!options->draft_model)
        return 0;
    if (facts->tp * facts->pp > 1)
        return error_set(error, ERR_BAD_CONFIG,
                         "draft-model: on one device alone, not with tp or pp above 1");
    int status =
        model_load(options->draft_model, 1, options->context_max, &facts->draft.source, error);
    facts->draft.there = !status;
    uint32_t context = facts->model.context_max;
    if (options->context_max && options->context_max < context)
        context = options->context_max;
    if (!status)
        status = fits(facts, context, error);
    if (!status && draft_is_head(&facts->draft))
        status = draft_head_read(facts, error);
    facts->model.draft_rereads = draft_is_head(&facts->draft);
    if (!status)
        facts->model.draft_parameters = stages_cost(&facts->draft.source.list);
    return status;
}

int engine_draft_blocks(struct engine_config *facts, struct error *error)
{
    struct engine_draft *draft = &facts->draft;
    const struct op_list *list = &draft->source.list;
    struct gpu_model *model = &facts->model;
    struct op *ops = NULL;
    uint32_t count = 0;
    if (!draft->there)
        return 0;
    int status = facts_draft(facts, &ops, &count, error);
    if (status)
        return status;
    for (uint32_t i = 0; i < list->group_count; i++) {
        const struct list_group *group = &list->groups[i];
        uint64_t bytes = program_block_bytes(list, ops, count, i, model->block_tokens, facts->kv);
        draft->kv_first[i] = model->groups[i].block_bytes;
        model->groups[i].block_bytes += bytes;
        facts->block_bytes[0][i] += bytes;
        model->kv_token_bytes +=
            group->layers * 2 * kv_bytes(facts->kv, group->kv_heads, 1, group->head_dim);
    }
    struct weights_source source = facts_draft_weights(facts, ops, count);
    model->weight_bytes += weights_bytes(&source);
    free(ops);
    return 0;
}
