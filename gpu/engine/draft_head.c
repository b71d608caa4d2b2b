#include "gpu/engine/draft_head.h"

#include <stdlib.h>

#include "gpu/base/cuda_error.h"
#include "gpu/engine/engine.h"
#include "gpu/graph/capture.h"
#include "gpu/kernels/draft/spread.h"

/* As the authors have them, where the head does not say: one near the beginning, one in the middle
 * and one near the end. */
static void layers_choose(const struct model_config *head, uint32_t layers,
                          uint32_t ret[LIST_FEATURES])
{
    uint32_t end = layers > 3 ? layers - 3 : 0;
    const uint32_t otherwise[LIST_FEATURES] = {2, layers / 2, end};
    for (uint32_t i = 0; i < LIST_FEATURES; i++)
        ret[i] = head->captured_said ? head->captured[i] : otherwise[i];
}

/* d2t: of each token that the head knows, by how much it is more in the model's vocabulary. */
static int place_put(int32_t *places, uint32_t vocab, uint32_t place, int64_t further,
                     struct error *error)
{
    int64_t token = further < -(int64_t)vocab || further > vocab ? -1 : place + further;
    if (token < 0 || token >= vocab || places[token] != SPREAD_NONE)
        return error_set(error, ERR_BAD_MODEL,
                         "draft-model: d2t: element %u names no token of %u, or one that another "
                         "has named",
                         place, vocab);
    places[token] = (int32_t)place;
    return 0;
}

static int places_read(struct engine_draft *draft, struct error *error)
{
    const struct op_list *list = &draft->source.list;
    const struct checkpoint *checkpoint = draft->source.checkpoint;
    int64_t piece[512];
    int status = 0;
    if (!checkpoint || list->draft_tokens == LIST_NO_TENSOR)
        return 0;
    draft->places = malloc(list->vocab * sizeof *draft->places);
    if (!draft->places)
        return error_set(error, ERR_NO_MEMORY, "no memory for %u tokens", list->vocab);
    for (uint32_t i = 0; i < list->vocab; i++)
        draft->places[i] = SPREAD_NONE;
    const struct checkpoint_tensor *tensor = checkpoint_tensor(checkpoint, list->draft_tokens);
    const uint32_t most = sizeof piece / sizeof *piece;
    for (uint32_t i = 0; !status && i < list->draft_vocab; i += most) {
        uint32_t count = list->draft_vocab - i < most ? list->draft_vocab - i : most;
        status = checkpoint_read(checkpoint, tensor, i * sizeof *piece, count * sizeof *piece,
                                 piece, error);
        for (uint32_t j = 0; !status && j < count; j++)
            status = place_put(draft->places, list->vocab, i + j, piece[j], error);
    }
    return status;
}

int draft_head_read(struct engine_config *facts, struct error *error)
{
    const struct model_config *head = &facts->draft.source.config;
    struct op_list *list = &facts->source.list;
    uint32_t layers[LIST_FEATURES];
    if (head->target_hidden != list->hidden)
        return error_limit(error, ERR_BAD_CONFIG, list->hidden, head->target_hidden,
                           "draft-model: it reads states of a model %u wide, and this one is %u",
                           head->target_hidden, list->hidden);
    if (head->names->tableless && head->hidden != list->hidden)
        return error_limit(
            error, ERR_BAD_CONFIG, list->hidden, head->hidden,
            "draft-model: it is %u wide and has no table of embeddings, and the model's is "
            "%u wide",
            head->hidden, list->hidden);
    if (!head->captured_said && list->layers < 5)
        return error_limit(error, ERR_BAD_CONFIG, 5, list->layers,
                           "draft-model: it does not say which layers it reads, and of the model's "
                           "%u not all three that it then reads are there",
                           list->layers);
    layers_choose(head, list->layers, layers);
    int status = op_list_capture(list, layers, error);
    return status ? status : places_read(&facts->draft, error);
}

static uint64_t width_bytes(const struct engine_config *facts)
{
    return facts->draft.source.list.features * (uint64_t)dtype_bytes(facts->dtype);
}

struct head_layout {
    uint64_t step, kept, positions, rows, carried, tokens, bytes; /* offsets; bytes of all */
};

static struct head_layout layout_make(const struct engine_config *facts)
{
    const struct gpu_limits *limits = &facts->limits;
    const struct op_list *list = &facts->draft.source.list;
    const uint64_t slots = limits->slots_max, kept = slots * (FEATURES_KEPT + 1);
    struct head_layout at = {.step = 0};
    at.kept = mem_round(limits->tokens_max * width_bytes(facts));
    at.positions = at.kept + mem_round(kept * width_bytes(facts));
    at.rows = at.positions + mem_round(kept * sizeof(uint32_t));
    at.carried = at.rows + mem_round(slots * sizeof(struct features_row));
    at.tokens = at.carried + mem_round(slots * list->hidden * sizeof(float));
    at.bytes = at.tokens + mem_round(list->vocab * sizeof(int32_t));
    return at;
}

/* The model's table of embeddings. */
static struct weight table_of(const struct rank *rank)
{
    const struct op_list *list = rank->program.list;
    uint32_t i = 0;
    while (list->ops[i].kind != OP_EMBED)
        i++;
    return rank->weights.at[list->ops[i].weight];
}

int draft_head_open(struct rank *rank, struct error *error)
{
    const struct engine_config *facts = &rank->engine->facts;
    const struct head_layout at = layout_make(facts);
    struct draft_memory *both = &rank->drafter.draft_memory;
    void *base = NULL;
    int status = mem_fixed(&rank->mem, at.bytes, &base, error);
    if (status)
        return status;
    char *memory = base;
    *both = (struct draft_memory){
        .features = {.step = memory,
                     .kept = memory + at.kept,
                     .positions = (uint32_t *)(memory + at.positions),
                     .rows = (struct features_row *)(memory + at.rows),
                     .width = facts->draft.source.list.features,
                     .dtype = facts->dtype},
        .carried = (float *)(memory + at.carried),
        .places = facts->draft.places ? (const int32_t *)(memory + at.tokens) : NULL,
        .table = table_of(rank),
    };
    CUDA_TRY(cudaMemsetAsync(memory, 0, at.bytes, cudaStreamPerThread), error);
    CUDA_TRY(
        cudaMemsetAsync(memory + at.positions, 0xff, at.rows - at.positions, cudaStreamPerThread),
        error);
    if (both->places)
        CUDA_TRY(cudaMemcpyAsync(memory + at.tokens, facts->draft.places,
                                 facts->draft.source.list.vocab * sizeof(int32_t),
                                 cudaMemcpyHostToDevice, cudaStreamPerThread),
                 error);
    return 0;
}

struct gpu_row draft_head_row(const struct gpu_row *row)
{
    struct gpu_row made = *row;
    if (row->position > 0) {
        made.position--;
        return made;
    }
    made.q_len--;
    made.ids++;
    return made;
}
