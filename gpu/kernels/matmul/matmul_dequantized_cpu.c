/* Products of weights in 8 and 4 bits: the reference for all other ways. A piece of k of some rows
 * of x, rounded as the weight says, and the same piece of each output's row of w become float32
 * numbers; what follows is what a plain product does, lane by lane (matmul.h), so the bits are
 * those of a plain product of such numbers. */
#include "gpu/kernels/matmul/dequantized_cpu.h"

#include <math.h>

#define PIECE 512 /* of k: whole lanes, whole groups */
#define ROWS DEQUANTIZED_ROWS
#define E4M3_MAX 448.0f

struct block {
    float lanes[ROWS][MATMUL_OUTPUTS][SIMD_LANES];
    float x[ROWS][PIECE], w[PIECE];
    float scales[ROWS]; /* of whole rows of x */
};

static float greatest_of(const float *x, uint32_t count)
{
    float greatest = 0;
    for (uint32_t i = 0; i < count; i++)
        greatest = fabsf(x[i]) > greatest ? fabsf(x[i]) : greatest;
    return greatest;
}

static float scale_of(float greatest)
{
    return greatest > 0 ? greatest / E4M3_MAX : 1;
}

static void round_by(float *x, uint32_t count, float scale)
{
    for (uint32_t i = 0; i < count; i++)
        x[i] = e4m3_widen(e4m3_round(x[i] / scale)) * scale;
}

static void x_widen(const struct dequantized *of, float *to, uint32_t row, uint32_t first,
                    uint32_t count)
{
    const void *from = of->x[row];
    const uint32_t *order = of->w->order ? dev(of->w->order) : NULL;
    if (!order)
        number_widen(to, number_at(from, of->x_dtype, first), of->x_dtype, count);
    for (uint32_t i = 0; order && i < count; i++)
        number_widen(&to[i], number_at(from, of->x_dtype, order[first + i]), of->x_dtype, 1);
}

/* Of a whole row, whatever the piece. */
static float row_scale(const struct dequantized *of, uint32_t row)
{
    const struct weight_input *input = &of->w->input;
    if (input->rounding != ROUNDING_TOKEN)
        return input->scales ? *(const float *)dev(input->scales) : input->scale;
    float piece[PIECE], greatest = 0;
    for (uint32_t k = 0; k < of->w->k; k += PIECE) {
        uint32_t count = of->w->k - k < PIECE ? of->w->k - k : PIECE;
        x_widen(of, piece, row, k, count);
        float found = greatest_of(piece, count);
        greatest = found > greatest ? found : greatest;
    }
    float scale = scale_of(greatest), most = input->scale;
    return most > 0 && scale > most && isfinite(scale) ? most : scale;
}

static void x_round(const struct weight_input *input, float *x, uint32_t count, float scale)
{
    if (input->rounding == ROUNDING_TOKEN || input->rounding == ROUNDING_STATIC)
        round_by(x, count, scale);
    if (input->rounding != ROUNDING_GROUP)
        return;
    for (uint32_t i = 0; i < count; i += input->group) {
        uint32_t size = count - i < input->group ? count - i : input->group;
        round_by(x + i, size, scale_of(greatest_of(x + i, size)));
    }
}

static void x_take(const struct dequantized *of, struct block *block, uint32_t k, uint32_t count)
{
    for (uint32_t r = 0; r < of->rows; r++) {
        x_widen(of, block->x[r], r, k, count);
        x_round(&of->w->input, block->x[r], count, block->scales[r]);
        memset(block->x[r] + count, 0, (PIECE - count) * sizeof block->x[r][0]);
    }
}

/* What a row's element is before its zero is taken off and the scale comes. */
static float element_of(enum format format, const uint8_t *row, uint32_t k)
{
    if (format == FORMAT_E4M3)
        return e4m3_widen(row[k]);
    if (format == FORMAT_U8)
        return row[k];
    uint8_t half = k % 2 ? row[k / 2] >> 4 : row[k / 2] & 15;
    return format == FORMAT_E2M1 ? e2m1_widen(half) : half;
}

static float scale_at(const struct weight_scales *scales, size_t at)
{
    const void *data = dev(scales->data);
    return scales->exponents ? e8m0_widen(((const uint8_t *)data)[at]) : ((const float *)data)[at];
}

/* One row of w from column k on. */
static void w_take(const struct weight *w, float *to, uint32_t n, uint32_t k, uint32_t count)
{
    const struct weight_scales *scales = &w->scales;
    const uint8_t *row = (const uint8_t *)dev(w->data) + format_bytes(w->format, n, w->k);
    uint32_t columns = scales->k ? (w->k + scales->k - 1) / scales->k : 1;
    size_t first = (size_t)(scales->n ? n / scales->n : 0) * columns;
    const uint8_t *zeros = w->zeros ? (const uint8_t *)dev(w->zeros) + first : NULL;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t column = scales->k ? (k + i) / scales->k : 0;
        float element = element_of(w->format, row, k + i) - (zeros ? (float)zeros[column] : 0);
        to[i] = scales->data ? element * scale_at(scales, first + column) : element;
    }
    memset(to + count, 0, (PIECE - count) * sizeof *to);
}

static void lanes_add(float lanes[SIMD_LANES], const float *x, const float *w, uint32_t count)
{
    for (uint32_t i = 0; i < count; i += SIMD_LANES)
        for (uint32_t lane = 0; lane < SIMD_LANES; lane++)
            lanes[lane] += x[i + lane] * w[i + lane];
}

void dequantized_sums(const struct dequantized *of)
{
    struct block block;
    memset(block.lanes, 0, sizeof block.lanes);
    for (uint32_t r = 0; r < of->rows; r++)
        block.scales[r] = row_scale(of, r);
    for (uint32_t k = 0; k < of->w->k; k += PIECE) {
        uint32_t count = of->w->k - k < PIECE ? of->w->k - k : PIECE;
        x_take(of, &block, k, count);
        for (uint32_t i = 0; i < of->outputs; i++) {
            w_take(of->w, block.w, of->first + i, k, count);
            for (uint32_t r = 0; r < of->rows; r++)
                lanes_add(block.lanes[r][i], block.x[r], block.w, count);
        }
    }
    for (uint32_t r = 0; r < of->rows; r++)
        for (uint32_t i = 0; i < of->outputs; i++)
            of->sums[r * MATMUL_OUTPUTS + i] = simd_add_lanes(block.lanes[r][i]);
}

static void dequantized_block(const void *params, uint32_t index)
{
    const struct matmul_args *args = params;
    float sums[ROWS * MATMUL_OUTPUTS];
    uint32_t outputs = matmul_outputs(args), rows = body_rows(&args->rows);
    struct dequantized of = {
        .w = &args->w, .x_dtype = args->x_dtype, .first = index * outputs, .sums = sums};
    of.outputs = outputs < args->w.n - of.first ? outputs : args->w.n - of.first;
    for (uint32_t row = 0; row < rows; row += ROWS) {
        of.rows = rows - row < ROWS ? rows - row : ROWS;
        for (uint32_t r = 0; r < of.rows; r++)
            of.x[r] = body_at(args->x, args->x_dtype, row + r, args->x_stride);
        dequantized_sums(&of);
        matmul_store(args, sums, of.first, of.outputs, row, of.rows);
    }
}

bool dequantized_can(const struct weight *w)
{
    bool groups =
        w->input.rounding != ROUNDING_GROUP || (w->input.group && PIECE % w->input.group == 0);
    /* Groups of inputs are of columns as they stand, so they go with no order. */
    bool ordered = w->order && w->input.rounding == ROUNDING_GROUP;
    bool whole = w->format == FORMAT_U4 || w->format == FORMAT_U8;
    return groups && !ordered && (!w->zeros || (w->scales.data && whole)) &&
           (!w->scales.data || w->scales.exponents || w->scales.dtype == DTYPE_F32);
}

bool matmul_dequantized_can(const struct matmul_args *args)
{
    return dequantized_can(&args->w);
}

cudaError_t matmul_dequantized(const struct matmul_args *args, cudaStream_t stream)
{
    uint32_t outputs = matmul_outputs(args);
    return body_launch(stream, "product", dequantized_block, args, sizeof *args,
                       args->rows.max ? ((uint64_t)args->w.n + outputs - 1) / outputs : 0);
}

size_t matmul_scratch_bytes(const struct weight *w, uint32_t rows)
{
    (void)w;
    (void)rows;
    return 0;
}
