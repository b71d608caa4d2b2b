#include "gpu/program/scratch_layout.h"

#include "gpu/base/device.h"
#include "gpu/kernels/attention/attention.h"
#include "gpu/kernels/experts/experts.h"
#include "gpu/kernels/matmul/matmul.h"
#include "gpu/kernels/sampling/sample.h"

static enum dtype sum_dtype(const struct program *program)
{
    return program->list->sums_rounded ? program->dtype : DTYPE_F32;
}

enum dtype scratch_dtype(const struct program *program, value_id value)
{
    enum value_type type = program->list->values[value].type;
    return type == VALUE_COMPUTE ? program->dtype
           : type == VALUE_SUM   ? sum_dtype(program)
                                 : DTYPE_F32;
}

static uint32_t picked_rows(struct scratch_layout *layout, const struct op_list *list,
                            const struct batch *batch)
{
    uint64_t fit = device_traits.logit_bytes / sizeof(float) / list->vocab;
    fit = fit ? fit : 1;
    layout->logit_rows = fit < batch->scores_max ? (uint32_t)fit : batch->scores_max;
    return layout->logit_rows > batch->samples_max ? layout->logit_rows : batch->samples_max;
}

static uint64_t value_bytes(const struct program *program, value_id id, const struct batch *batch,
                            uint64_t picked)
{
    const struct op_list *list = program->list;
    const struct list_value *value = &list->values[id];
    uint64_t rows = value->rows == VALUE_OF_PICKED ? picked : batch->tokens_max;
    if (!program->used[id])
        return 0;
    switch (value->type) {
    case VALUE_ATTENTION_SCRATCH:
        return attention_scratch_bytes(batch, value->heads, value->head_dim);
    case VALUE_SAMPLE_SCRATCH:
        return sample_scratch_bytes(batch->samples_max, list->vocab);
    case VALUE_STATE:
        return rows * value->width * sizeof(uint64_t);
    default:
        return (rows * value->width + value->once) * dtype_bytes(scratch_dtype(program, id));
    }
}

/* The most that a product wants; the head has no more rows than the others. */
static uint64_t product_bytes(const struct program *program, uint32_t rows)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < program->scaled_count; i++) {
        const struct program_scaled *of = &program->scaled[i];
        uint64_t bytes =
            of->top ? experts_scratch_bytes(&of->weight, of->own, rows, of->top, of->spread,
                                            program->dtype)
                    : matmul_scratch_bytes(&of->weight, rows);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* What is there all the time; returns where that ends. */
static uint64_t common_place(struct scratch_layout *layout, const struct program *program,
                             const struct batch *batch)
{
    const struct op_list *list = program->list;
    uint64_t end = 0;
    for (uint32_t i = 0; i < list->value_count; i++) {
        if (!list->values[i].common)
            continue;
        layout->at[i] = end;
        layout->size[i] = value_bytes(program, (value_id)i, batch, 0);
        if (i == list->squares && batch->tokens_max <= GEMV_ROWS_MAX)
            layout->size[i] = (uint64_t)batch->tokens_max * MATMUL_PARTS * sizeof(float);
        if (i == list->sum && sum_dtype(program) == program->dtype) {
            layout->at[i] = layout->at[list->normed];
            continue;
        }
        end += mem_round(layout->size[i]);
    }
    layout->workspace = end;
    if (op_list_computes(list))
        end += mem_round(device_traits.workspace_bytes);
    layout->product = end;
    layout->product_bytes = product_bytes(program, batch->tokens_max);
    return end + mem_round(layout->product_bytes);
}

/* A value stands before those that are behind it, or in it. */
void scratch_layout_make(struct scratch_layout *layout, const struct program *program,
                         const struct batch *batch)
{
    const struct op_list *list = program->list;
    uint64_t common = common_place(layout, program, batch);
    uint32_t picked = picked_rows(layout, list, batch);
    layout->bytes = common;
    for (uint32_t i = 0; i < list->value_count; i++) {
        const struct list_value *value = &list->values[i];
        if (value->common)
            continue;
        if (value->of != LIST_NONE) {
            layout->at[i] = layout->at[value->of] +
                            (uint64_t)value->first * dtype_bytes(scratch_dtype(program, value->of));
            continue;
        }
        layout->at[i] = value->before == LIST_NONE
                            ? common
                            : layout->at[value->before] + mem_round(layout->size[value->before]);
        layout->size[i] = value_bytes(program, (value_id)i, batch, picked);
        uint64_t end = layout->at[i] + mem_round(layout->size[i]);
        layout->bytes = end > layout->bytes ? end : layout->bytes;
    }
}
