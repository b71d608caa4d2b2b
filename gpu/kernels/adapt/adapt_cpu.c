/* Two kernels: A x, an index for each row; then B of that, an index for a row and a run of outputs.
 * Every sum is computed alone (cpu/simd.h), so a row's neighbours change none of its bits. */
#include "gpu/kernels/adapt/adapt.h"

#include "gpu/kernels/cpu/body.h"

#define ADAPT_RUN 1024 /* outputs of an index */
#define ADAPT_PIECE 64

/* NULL: the row has no adapter. */
static const struct adapt_place *place_of(const struct adapt_args *args, uint32_t row)
{
    const uint32_t *token_row = (const uint32_t *)dev(args->token_row) + args->rows.first;
    const struct batch_row *rows = dev(args->batch_rows);
    uint32_t adapter = rows[token_row[row]].adapter;
    return adapter ? (const struct adapt_place *)dev(args->places) + adapter - 1 : NULL;
}

static float *inner_of(const struct adapt_args *args, uint32_t row, uint32_t part)
{
    return (float *)dev(args->inner) + ((size_t)row * ADAPT_PARTS + part) * args->rank_max;
}

static void down_row(const void *params, uint32_t row)
{
    const struct adapt_args *args = params;
    const struct adapt_place *place;
    if (row >= body_rows(&args->rows) || !(place = place_of(args, row)))
        return;
    for (uint32_t p = 0; p < args->part_count; p++) {
        const struct adapt_part *part = &place->parts[p];
        if (!part->a || part->from != p)
            continue;
        struct simd_panel panel = {.w = dev(part->a),
                                   .x = body_at(args->x, args->x_dtype, row, args->x_stride),
                                   .y = inner_of(args, row, p),
                                   .w_stride = args->k,
                                   .x_stride = args->x_stride,
                                   .y_stride = place->rank,
                                   .n = place->rank,
                                   .rows = 1,
                                   .k = args->k,
                                   .w_dtype = part->a_dtype,
                                   .x_dtype = args->x_dtype};
        simd_best()->panel(&panel);
    }
}

/* Outputs `first` and on of a part, which begin at `at` of the row. */
static void up_piece(const struct adapt_args *args, const struct adapt_place *place, uint32_t row,
                     uint32_t part, uint32_t first, uint32_t count, uint32_t at)
{
    const struct adapt_part *of = &place->parts[part];
    float sums[ADAPT_PIECE], y[ADAPT_PIECE];
    struct simd_panel panel = {.w = body_at(of->b, of->b_dtype, first, place->rank),
                               .x = inner_of(args, row, of->from),
                               .y = sums,
                               .w_stride = place->rank,
                               .x_stride = place->rank,
                               .y_stride = ADAPT_PIECE,
                               .n = count,
                               .rows = 1,
                               .k = place->rank,
                               .w_dtype = of->b_dtype,
                               .x_dtype = DTYPE_F32};
    simd_best()->panel(&panel);
    void *to = number_at(body_at(args->y, args->y_dtype, row, args->y_stride), args->y_dtype, at);
    number_widen(y, to, args->y_dtype, count);
    for (uint32_t i = 0; i < count; i++)
        y[i] += place->scale * sums[i];
    number_round(to, y, args->y_dtype, count);
}

static uint32_t runs_of(const struct adapt_args *args)
{
    return (args->ends[args->part_count - 1] + ADAPT_RUN - 1) / ADAPT_RUN;
}

static void up_run(const void *params, uint32_t index)
{
    const struct adapt_args *args = params;
    uint32_t runs = runs_of(args), row = index / runs;
    uint32_t begin = index % runs * ADAPT_RUN, end = begin + ADAPT_RUN, at = 0;
    const struct adapt_place *place;
    if (row >= body_rows(&args->rows) || !(place = place_of(args, row)))
        return;
    for (uint32_t p = 0; p < args->part_count; at = args->ends[p++]) {
        uint32_t from = at > begin ? at : begin, to = args->ends[p] < end ? args->ends[p] : end;
        if (!place->parts[p].b)
            continue;
        for (uint32_t i = from; i < to; i += ADAPT_PIECE)
            up_piece(args, place, row, p, i - at, to - i < ADAPT_PIECE ? to - i : ADAPT_PIECE, i);
    }
}

bool adapt_fuses(const struct adapt_args *args)
{
    (void)args;
    return false;
}

cudaError_t op_adapt(const struct adapt_args *args, cudaStream_t stream)
{
    if (!args->part_count || args->part_count > ADAPT_PARTS || args->rank_max > ADAPT_RANK_MAX ||
        args->gated)
        return cudaErrorInvalidValue;
    cudaError_t status =
        body_launch(stream, "adapt_down", down_row, args, sizeof *args, args->rows.max);
    if (status != cudaSuccess)
        return status;
    return body_launch(stream, "adapt_up", up_run, args, sizeof *args,
                       (uint64_t)args->rows.max * runs_of(args));
}
