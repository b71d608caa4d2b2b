#include "gpu/models/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/models/base/family.h"
#include "gpu/models/base/rope_config.h"
#include "gpu/models/config.h"
#include "gpu/models/synthetic.h"
#include "gpu/models/unused.h"

int model_list(const struct model_config *config, uint32_t ranks, struct op_list *ret,
               struct error *error)
{
    struct build b;
    build_begin(&b, ranks, config->layers, config->hidden, config->vocab);
    b.number = synthetic_number;
    b.deviation = SYNTHETIC_DEVIATION;
    b.whole_experts = config->experts_whole;
    config->family->build(&b, config);
    return build_end(&b, ret, error);
}

static struct words packing_of(const struct list_tensor *tensor)
{
    bool zeros = tensor->elements == TENSOR_ZEROS_U4 || tensor->elements == TENSOR_ZEROS_U8;
    bool four = tensor->elements == TENSOR_ZEROS_U4 || tensor->elements == TENSOR_U4;
    if (!zeros && !elements_are_whole(tensor->elements))
        return (struct words){.bits = 0};
    return (struct words){.bits = four ? 4 : 8,
                          .transposed = tensor->packing != PACKING_COMPRESSED,
                          .along_rows = zeros || tensor->packing == PACKING_AWQ,
                          .interleaved = tensor->packing == PACKING_AWQ};
}

static uint32_t dtypes_of(enum tensor_elements elements)
{
    switch (elements) {
    case TENSOR_E4M3:
        return 1u << MODEL_E4M3;
    case TENSOR_U4:
    case TENSOR_U8:
    case TENSOR_ZEROS_U4:
    case TENSOR_ZEROS_U8:
    case TENSOR_GROUPS:
        return 1u << MODEL_I32;
    case TENSOR_E2M1:
    case TENSOR_EXPONENTS:
        return 1u << MODEL_U8;
    case TENSOR_SIZES:
    case TENSOR_TOKENS:
        return 1u << MODEL_I64;
    case TENSOR_NUMBERS:
    case TENSOR_SCALES:
        break;
    }
    return MODEL_NUMBERS;
}

static struct checkpoint_wanted wanted_of(const struct list_tensor *tensor)
{
    struct checkpoint_wanted wanted = {
        .name = tensor->name,
        .words = packing_of(tensor),
        .shape = {.rank = tensor->rank,
                  .rows = tensor->rows,
                  .columns = tensor->columns,
                  .matrices = tensor->experts},
        .dtypes = dtypes_of(tensor->elements),
        .squeezed = tensor->elements == TENSOR_SCALES};
    if (tensor->elements == TENSOR_E2M1) {
        wanted.shape.columns /= MXFP4_BLOCK;
        wanted.shape.block = MXFP4_BLOCK / 2;
    } else if (tensor->transposed) {
        wanted.shape.rows = tensor->columns;
        wanted.shape.columns = tensor->rows;
    }
    bool turned = tensor->packing == PACKING_GPTQ || tensor->packing == PACKING_AWQ;
    if (wanted.words.bits)
        words_count(wanted.words, tensor->rows, tensor->columns, &wanted.shape.rows,
                    &wanted.shape.columns);
    else if (tensor->elements == TENSOR_SCALES && turned)
        wanted.shape = (struct checkpoint_shape){2, tensor->columns, tensor->rows};
    return wanted;
}

/* Every tensor of the list is in the checkpoint, as the config makes it. */
static int match(struct model *model, struct error *error)
{
    const struct op_list *list = &model->list;
    struct checkpoint_wanted *wanted = calloc(list->tensor_count, sizeof *wanted);
    if (!wanted)
        return error_set(error, ERR_NO_MEMORY, "no memory for a list of %u tensors",
                         list->tensor_count);
    for (uint32_t i = 0; i < list->tensor_count; i++)
        wanted[i] = wanted_of(&list->tensors[i]);
    struct checkpoint_visitor rest = unused_visitor(&model->config);
    int status = checkpoint_match(model->checkpoint, wanted, list->tensor_count, &rest, error);
    free(wanted);
    if (!status)
        status = quantization_values(model->checkpoint, &model->list, error);
    return status ? status : kv_scales_read(model->checkpoint, &model->list, error);
}

/* In whatever form. */
static bool has_head(const struct model *model)
{
    static const char *const endings[] = {"weight", "qweight", "weight_packed"};
    char name[LIST_NAME_MAX];
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        snprintf(name, sizeof name, "%s.%s", model->config.names->head, endings[i]);
        if (checkpoint_has(model->checkpoint, name))
            return true;
    }
    return false;
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
        if (names->tableless || !checkpoint_has(model->checkpoint, name))
            continue;
        changed = names != config->names;
        config->names = names;
        break;
    }
    if (config->tied || has_head(model))
        return changed;
    return config->tied = true;
}

/* What no file says. */
static int sharing_set(struct model_config *config, const struct model_sharing *sharing,
                       struct error *error)
{
    if (sharing->whole_experts && !config->experts)
        return error_set(error, ERR_BAD_CONFIG,
                         "ep: the model is no mixture of experts, which ranks could share out");
    config->experts_whole = sharing->whole_experts;
    return 0;
}

static int directory_open(const char *name, const struct model_sharing *sharing,
                          uint32_t context_max, struct model *model, struct error *error)
{
    uint32_t ranks = sharing->ranks;
    int status = model_config_load(name, &model->config, error);
    if (!status)
        status = sharing_set(&model->config, sharing, error);
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
    if (!status)
        status = kv_scales_add(model->config.quantization.kv, model->checkpoint, &model->list,
                               error);
    return status ? status : match(model, error);
}

int model_load_shared(const char *name, const struct model_sharing *sharing, uint32_t context_max,
                      struct model *ret, struct error *error)
{
    struct model model = {.checkpoint = NULL};
    int status;
    if (!synthetic_is(name)) {
        status = directory_open(name, sharing, context_max, &model, error);
    } else {
        status = synthetic_config(name, &model.config, error);
        if (!status)
            status = sharing_set(&model.config, sharing, error);
        model.long_rope = !status && rope_choose(&model.config, context_max);
        if (!status)
            status = model_list(&model.config, sharing->ranks, &model.list, error);
        if (!status)
            status = quantization_apply(&model.config.quantization, model.config.names->head, NULL,
                                        &model.list, error);
        if (!status)
            status = quantization_values(NULL, &model.list, error);
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
