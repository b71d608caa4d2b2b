/* Products whose inputs are rounded to e4m3 before: a kernel of our own, or cuBLASLt, multiplies
 * e4m3 by e4m3.
 *
 * Scales of whole rows and columns: up to EIGHT_ROWS_MAX rows by ours (matmul_eight.cu), which does
 * all that may be behind a product but handing on; up to RAW_ROWS_MAX by the library without any,
 * which takes it two thirds of the time that scales take it there, and a kernel behind it that
 * scales, adds the bias, activates and adds to the residual; more rows with a scale for each row
 * and column. Scales of blocks of 128 x 128 and of groups of 128 are its own too. It wants rows in
 * fours with them: what is left over of many rows is a product of its own. Sums are those of e4m3
 * numbers in float32, promoted as the library does.
 *
 * The kernel behind may also make the norm, and round for the product that reads it (rounded_hand):
 * then that one has nothing in front of it, nor where a norm or an activation of many rows rounds
 * (kernels/hand/hand.h). */
#include "gpu/kernels/matmul/cublaslt.cuh"
#include "gpu/kernels/matmul/rounded.cuh"

static bool is_blocks(const struct weight *w)
{
    return w->scales.n == LT_BLOCK && w->scales.k == LT_BLOCK &&
           w->input.rounding == ROUNDING_GROUP && w->input.group == LT_BLOCK;
}

static bool is_outer(const struct weight *w)
{
    return !w->scales.k && w->scales.n <= 1 && w->input.rounding != ROUNDING_GROUP;
}

/* Multiplied by a kernel of our own, once it is rounded. */
static bool is_own(const struct matmul_args *a)
{
    return is_outer(&a->w) && rounded_multiply_can(a);
}

/* What cuBLASLt gives is y itself. */
static bool is_direct(const struct matmul_args *a)
{
    bool many = a->rows.max > RAW_ROWS_MAX || is_blocks(&a->w);
    bool lies = a->y_stride % 8 == 0 && reinterpret_cast<uintptr_t>(a->y) % 16 == 0;
    return many && lies && !a->bias && !a->gated && !a->activates;
}

/* What comes rounded: where groups have scales of their own, those that one product reads, and what
 * is left over of fours of rows. */
static bool takes_can(const struct matmul_args *a)
{
    bool lies = a->w.k % 16 == 0 && a->x_stride >= a->w.k && a->x_dtype != DTYPE_F32 &&
                reinterpret_cast<uintptr_t>(a->x) % 16 == 0;
    return lies && (is_outer(&a->w) || (a->rows.max > RAW_ROWS_MAX && is_direct(a)));
}

/* What is handed on rounded: of the steps whose sums are scaled behind. */
static bool hands_can(const struct matmul_args *a)
{
    return is_outer(&a->w) && a->rows.max <= RAW_ROWS_MAX && rounded_hand_can(a);
}

bool matmul_scaled_can(const struct matmul_args *a)
{
    bool shape = a->w.k % 16 == 0 && a->w.n % 16 == 0 && a->w.k > 0 &&
                 reinterpret_cast<uintptr_t>(a->w.data) % 16 == 0;
    bool hands = a->hands.rounding != ROUNDING_NONE;
    bool behind = (!a->norm_out.weight || hands) && !a->norm_in.squares &&
                  (!a->adds || a->y_dtype == DTYPE_F32) &&
                  (!a->x_rounded || takes_can(a)) && (!hands || hands_can(a));
    bool activates = a->gated || a->activates; /* of many rows it would go by pieces */
    behind = behind && (!activates || a->rows.max <= RAW_ROWS_MAX);
    /* Fewer rows have a kernel that rounds by itself: it is faster than the library. */
    bool rows = a->rows.max > MATMUL_ROUNDS_MAX || is_own(a);
    return device_props()->major == 9 && rows && shape && behind && a->w.scales.data &&
           (is_outer(&a->w) || is_blocks(&a->w)) && rounded_can(a);
}

/* Rows from `first` on, of e4m3 by e4m3, as matmul_lt reads them (cublaslt.cuh). */
static struct matmul_args inner_of(const struct matmul_args *a, const struct rounded *r,
                                   uint32_t first, uint32_t count, bool direct)
{
    struct matmul_args inner = *a;
    inner.rows.max = count;
    inner.x = r->bytes + (size_t)first * r->stride;
    inner.x_stride = r->stride;
    inner.bias = NULL;
    inner.gated = inner.activates = false;
    inner.scratch = r->scales + rounded_scale_at(*r, first, 0);
    if (!direct && is_outer(&a->w))
        inner.w.scales.data = NULL;
    else if (r->columns)
        inner.w.scales.data = r->spread;
    inner.y =
        direct ? static_cast<char *>(a->y) + (size_t)first * a->y_stride * dtype_bytes(a->y_dtype)
               : reinterpret_cast<char *>(r->raw);
    if (!direct) {
        inner.y_stride = a->w.n;
        inner.y_dtype = DTYPE_F32;
        inner.adds = false;
    }
    return inner;
}

/* The columns in which the weights' scales are wanted; 0: as they lie. */
static uint32_t spread_columns(const struct matmul_args *a, bool direct)
{
    uint32_t blocks = ceil_div(a->w.k, LT_BLOCK);
    if (is_blocks(&a->w))
        return blocks % 4 ? (blocks + 3) / 4 * 4 : 0;
    return direct && !a->w.scales.n ? a->w.n : 0;
}

static uint32_t piece_of(const struct matmul_args *a, const struct rounded *r, bool direct)
{
    if (!direct)
        return r->rows < RAW_ROWS_MAX ? r->rows : RAW_ROWS_MAX;
    /* Scales of blocks lie by fours of rows: what is left over is a piece of its own, and fewer
     * than four rows are one piece. */
    return is_blocks(&a->w) && a->rows.max >= 4 ? a->rows.max / 4 * 4 : r->rows;
}

bool matmul_scaled_asks(const struct matmul_args *a, struct matmul_args *ret_inner)
{
    if (a->w.format != FORMAT_E4M3 || a->w.input.rounding == ROUNDING_NONE || !a->w.scales.data ||
        !is_outer(&a->w) || a->w.scales.n != 1 || is_own(a) || a->w.k % 16 || a->w.n % 16)
        return false;
    bool direct = is_direct(a);
    if (a->rows.max > RAW_ROWS_MAX && !direct)
        return false;
    struct rounded r = {};
    r.bytes = static_cast<uint8_t *>(const_cast<void *>(a->x));
    r.rows = r.piece = a->rows.max;
    r.stride = a->w.k;
    r.groups = 1;
    r.scales = reinterpret_cast<float *>(r.bytes + (size_t)a->rows.max * r.stride);
    *ret_inner = inner_of(a, &r, 0, a->rows.max, direct);
    ret_inner->y = a->y;
    return true;
}

cudaError_t matmul_scaled(const struct matmul_args *a, cudaStream_t stream)
{
    struct rounded r = a->x_rounded ? rounded_of(a) : rounded_cut(&a->w, a->rows.max, a->scratch);
    bool all_direct = is_direct(a), blocks = is_blocks(&a->w);
    const bool own = is_own(a);
    r.columns = spread_columns(a, all_direct);
    r.piece = piece_of(a, &r, all_direct);
    cudaError_t result = rounded_make(a, &r, stream);
    if (result == cudaSuccess && own && a->hands.rounding == ROUNDING_NONE)
        return rounded_multiply(a, &r, stream);
    for (uint32_t first = 0; first < a->rows.max && result == cudaSuccess; first += r.piece) {
        uint32_t left = a->rows.max - first, count = left < r.piece ? left : r.piece;
        bool direct = all_direct && (!blocks || count % 4 == 0);
        uint32_t rows = blocks ? rounded_piece_rows(r, first) : count;
        struct matmul_args inner = inner_of(a, &r, first, rows, direct);
        result = own ? rounded_multiply(&inner, &r, stream) : matmul_lt(&inner, stream);
        if (result == cudaSuccess && a->hands.rounding != ROUNDING_NONE)
            result = rounded_hand(a, &r, stream);
        else if (result == cudaSuccess && !direct)
            result = rounded_finish(a, &r, {first, count, blocks}, stream);
    }
    return result;
}
