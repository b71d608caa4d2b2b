#include "gpu/kernels/step/step_begin.h"

#include <string.h>

#include "gpu/emu/emu.h"
#include "gpu/kernels/common/clock_cpu.h"
#include "protocol/base/minimum.h"

/* Everything here is device memory, read through dev(). */
static void tables_write(const struct pack_head *wire, const struct step_begin_args *args)
{
    const struct batch *batch = &args->batch;
    const int32_t *ids = (const int32_t *)((const char *)args->wire + wire->ids); /* device */
    const char *base = (const char *)wire;
    const struct pack_slab *slabs = (const struct pack_slab *)(base + wire->slabs);
    for (uint32_t i = 0; i < wire->slab_count; i++) {
        void **addresses = dev(batch->groups[slabs[i].group].slabs);
        addresses[slabs[i].slab] = slabs[i].base;
    }
    const struct pack_open *opens = (const struct pack_open *)(base + wire->opens);
    const struct gpu_bias *bias = (const struct gpu_bias *)(base + wire->bias);
    for (uint32_t i = 0; i < wire->open_count; i++) {
        const struct pack_open *open = &opens[i];
        struct batch_slot *slots = dev(batch->slots);
        slots[open->slot] = open->state;
        slots[open->slot].before = ids + open->seen_first;
        struct gpu_bias *to = dev(batch->bias + (size_t)open->slot * GPU_BIAS_MAX);
        if (open->state.bias_count)
            memcpy(to, bias + open->bias_first, open->state.bias_count * sizeof *to);
    }
    const struct gpu_append *appends = (const struct gpu_append *)(base + wire->appends);
    for (uint32_t i = 0; i < wire->append_count; i++) {
        const struct gpu_append *append = &appends[i];
        const struct batch_group *group = &batch->groups[append->group];
        uint32_t *table = dev(group->tables + (size_t)append->slot * group->blocks_max);
        table[append->index] = append->block;
    }
}

/* What the draft model guessed, behind the one id of such a row. */
static void guesses_write(const struct pack_head *wire, const struct batch_row *row,
                          int32_t *token_id)
{
    const int32_t *guesses = dev(wire->guesses);
    for (uint32_t j = 0; j < row->drafts; j++)
        token_id[1 + j] = guesses[(size_t)j * wire->guess_stride + row->slot];
}

static void tokens_write(const struct pack_head *wire, const struct step_begin_args *args,
                         const struct pack_row *row, uint32_t number)
{
    const struct batch *batch = &args->batch;
    struct batch_slot *slot = (struct batch_slot *)dev(batch->slots) + row->row.slot;
    const int32_t *ids = (const int32_t *)((const char *)wire + wire->ids) + row->ids;
    if (row->row.uncounted)
        slot->before = (const int32_t *)((const char *)args->wire + wire->ids) + row->ids -
                       row->row.uncounted; /* device */
    const int32_t *others = wire->tokens_in ? dev(wire->tokens_in) : NULL;
    int32_t previous = others ? others[row->row.slot] : slot->last;
    int32_t *token_id = dev(batch->token_id + row->row.token);
    uint32_t *token_row = dev(batch->token_row + row->row.token);
    uint32_t *token_position = dev(batch->token_position + row->row.token);
    bool guessed = row->row.want & GPU_DRAFT && row->row.drafts;
    uint32_t known = guessed ? 1 : row->row.q_len;
    for (uint32_t i = 0; i < row->row.q_len; i++) {
        if (i < known)
            token_id[i] = row->ids == PACK_NONE ? previous : ids[i];
        token_row[i] = number;
        token_position[i] = row->row.position + i;
    }
    if (guessed)
        guesses_write(wire, &row->row, token_id);
    uint32_t *score_token = dev(batch->score_token + row->score_first);
    int32_t *score_target = dev(batch->score_target + row->score_first);
    for (uint32_t i = 0; i < row->score_count; i++) {
        score_token[i] = row->row.token + min_u32(row->score_from + i, row->row.q_len - 1);
        score_target[i] = ids[row->score_from + i + 1];
    }
}

static void lists_write(const struct batch *batch, const struct pack_row *row, uint32_t number)
{
    uint32_t last = row->row.token + row->row.q_len - 1;
    if (row->sample != PACK_NONE) {
        for (uint32_t i = 0; i <= row->row.drafts; i++) {
            ((uint32_t *)dev(batch->sample_row))[row->sample + i] = number;
            ((uint32_t *)dev(batch->sample_token))[row->sample + i] = last - row->row.drafts + i;
        }
    }
    struct batch_embed *embeds = dev(batch->embeds + row->embed_first);
    bool all = row->row.want & GPU_EMBED_ALL;
    for (uint32_t i = 0; i < row->embed_count; i++) {
        embeds[i] = (struct batch_embed){
            .row = number,
            .token = all ? row->row.token + i : last,
            .mean = row->row.want & GPU_POOL_OUT ? 1 : 0,
            .normalize = row->row.want & GPU_NORMALIZE ? 1 : 0,
        };
    }
}

static bool row_fits(const struct batch *batch, const struct pack_row *row)
{
    return row->row.token <= batch->tokens_max &&
           row->row.q_len <= batch->tokens_max - row->row.token && row->row.q_len > 0 &&
           row->row.drafts < row->row.q_len &&
           (row->sample == PACK_NONE || (row->sample < batch->samples_max &&
                                         row->row.drafts < batch->samples_max - row->sample)) &&
           row->score_first <= batch->scores_max &&
           row->score_count <= batch->scores_max - row->score_first &&
           row->embed_first <= batch->embeds_max &&
           row->embed_count <= batch->embeds_max - row->embed_first;
}

static void expand(const void *data, uint32_t index)
{
    (void)index;
    const struct step_begin_args *args = data;
    const struct batch *batch = &args->batch;
    const struct pack_head *wire = dev(args->wire);
    *(struct step_control *)dev(args->control) = (struct step_control){
        .step = wire->step,
        .start_ns = clock_now_ns(),
        .result = wire->result,
        .result_samples = wire->result_samples,
        .result_tops = wire->result_tops,
        .tokens_out = wire->tokens_out,
    };
    tables_write(wire, args);
    struct batch_counts counts = wire->counts;
    counts.rows = min_u32(counts.rows, batch->rows_max);
    counts.tokens = min_u32(counts.tokens, batch->tokens_max);
    counts.samples = min_u32(counts.samples, batch->samples_max);
    counts.scores = min_u32(counts.scores, batch->scores_max);
    counts.embeds = min_u32(counts.embeds, batch->embeds_max);
    counts.moves = min_u32(counts.moves, batch->moves_max);
    *(struct batch_counts *)dev(batch->counts) = counts;
    const char *base = (const char *)wire;
    if (counts.moves)
        memcpy(dev(batch->moves), base + wire->moves, counts.moves * sizeof *batch->moves);
    const struct pack_row *rows = (const struct pack_row *)(base + wire->rows);
    struct batch_row *to = dev(batch->rows);
    for (uint32_t i = 0; i < counts.rows; i++) {
        if (!row_fits(batch, &rows[i]))
            break;
        to[i] = rows[i].row;
        tokens_write(wire, args, &rows[i], i);
        lists_write(batch, &rows[i], i);
    }
}

bool expand_begins(const struct step_begin_args *args)
{
    (void)args;
    return false;
}

cudaError_t op_step_begin(const struct step_begin_args *args, cudaStream_t stream)
{
    if (args->first.table.data)
        return cudaErrorInvalidValue;
    return emu_launch(stream, "expand", expand, args, sizeof *args, 1);
}

bool expand_is(cudaGraphNode_t node)
{
    const char *name = emu_graph_node_name(node);
    return name && !strcmp(name, "expand");
}

cudaError_t expand_retarget(cudaGraphExec_t exec, cudaGraphNode_t node,
                            const struct step_begin_args *args)
{
    return emu_graph_set_args(exec, node, args, sizeof *args);
}
