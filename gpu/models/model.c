#include "gpu/models/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/models/family.h"
#include "gpu/models/rope_config.h"
#include "gpu/models/synthetic.h"

int model_list(const struct model_config *config, uint32_t ranks, struct op_list *ret,
               struct error *error)
{
    struct build b;
    build_begin(&b, ranks, config->layers, config->hidden, config->vocab);
    b.number = synthetic_number;
    b.deviation = SYNTHETIC_DEVIATION;
    config->family->build(&b, config);
    return build_end(&b, ret, error);
}

/* Every tensor of the list is in the checkpoint, as the config makes it. */
static int match(struct model *model, struct error *error)
{
    const struct op_list *list = &model->list;
    struct checkpoint_wanted *wanted = calloc(list->tensor_count, sizeof *wanted);
    if (!wanted)
        return error_set(error, ERR_NO_MEMORY, "no memory for a list of %u tensors",
                         list->tensor_count);
    for (uint32_t i = 0; i < list->tensor_count; i++) {
        const struct list_tensor *tensor = &list->tensors[i];
        wanted[i] = (struct checkpoint_wanted){
            .name = tensor->name,
            .shape = {.rank = tensor->rank, .rows = tensor->rows, .columns = tensor->columns},
            .dtypes = tensor->elements == TENSOR_E4M3 ? 1u << MODEL_E4M3 : MODEL_NUMBERS,
            .squeezed = tensor->elements == TENSOR_SCALES};
    }
    int status = checkpoint_match(model->checkpoint, wanted, list->tensor_count, error);
    free(wanted);
    return status ? status : quantization_inputs(model->checkpoint, &model->list, error);
}

/* The way of names in which the checkpoint has its embedding, and whether it has a head; true: the
 * list is another. */
static bool names_find(struct model *model)
{
    const struct tensor_names *names = model->config.family->names;
    struct model_config *config = &model->config;
    char name[LIST_NAME_MAX];
    bool changed = false;
    for (; names && names->model; names++) {
        snprintf(name, sizeof name, "%sembed_tokens.weight", names->model);
        if (!checkpoint_has(model->checkpoint, name))
            continue;
        changed = names != config->names;
        config->names = names;
        break;
    }
    snprintf(name, sizeof name, "%s.weight", config->names->head);
    if (config->tied || checkpoint_has(model->checkpoint, name))
        return changed;
    return config->tied = true;
}

static int directory_open(const char *name, uint32_t ranks, uint32_t context_max,
                          struct model *model, struct error *error)
{
    int status = model_config_load(name, &model->config, error);
    if (!status)
        model->long_rope = rope_choose(&model->config, context_max);
    if (!status) /* what can be told of the config alone comes first */
        status = model_list(&model->config, ranks, &model->list, error);
    if (!status)
        status = checkpoint_open(name, &model->checkpoint, error);
    if (status)
        return status;
    if (names_find(model)) {
        op_list_free(&model->list);
        status = model_list(&model->config, ranks, &model->list, error);
    }
    if (!status)
        status = quantization_apply(&model->config.quantization, model->config.names->head,
                                    model->checkpoint, &model->list, error);
    return status ? status : match(model, error);
}

int model_load(const char *name, uint32_t ranks, uint32_t context_max, struct model *ret,
               struct error *error)
{
    struct model model = {.checkpoint = NULL};
    int status;
    if (!synthetic_is(name)) {
        status = directory_open(name, ranks, context_max, &model, error);
    } else {
        status = synthetic_config(name, &model.config, error);
        model.long_rope = !status && rope_choose(&model.config, context_max);
        if (!status)
            status = model_list(&model.config, ranks, &model.list, error);
        if (!status)
            status = quantization_apply(&model.config.quantization, model.config.names->head, NULL,
                                        &model.list, error);
        if (!status)
            status = quantization_inputs(NULL, &model.list, error);
    }
    if (status) {
        model_drop(&model);
        return status;
    }
    *ret = model;
    return 0;
}

void model_drop(struct model *model)
{
    op_list_free(&model->list);
    checkpoint_close(model->checkpoint);
    model->checkpoint = NULL;
}
