/* Products of whole numbers where nothing is faster: of any shape; of many rows by way of 16 bits;
 * and of columns in an order of their own.
 *
 * By 16 bits: some rows of w at a time become numbers in scratch, few enough that they stay in the
 * L2, and what multiplies such numbers does so. Their rounding to 16 bits is this way's own.
 * By an order: x is put into it in scratch, some rows at a time, and multiplied as if w had none.
 * Any shape: a warp per output and eight rows, as in matmul_any.cu. */
#include "gpu/kernels/matmul/whole.cuh"

#define ANY_WARPS 8
#define ANY_ROWS 8
#define COPY_THREADS 256
#define COPY_EACH 8
#define COPY_BYTES (24u << 20)
#define ORDER_THREADS 256
#define ORDER_BYTES (64u << 20)
#define GRID_ROWS 65535u
#define ALIGNMENT 256

/* ---- scratch ---- */

static uint32_t copy_rows(const struct weight *w)
{
    uint32_t rows = COPY_BYTES / (w->k * 2u + 1) / 16 * 16;
    rows = rows ? rows : 16;
    return rows < w->n ? rows : w->n;
}

/* Rows of x that are put into order at a time, of so many. */
static uint32_t order_rows(const struct weight *w, uint32_t rows)
{
    uint32_t most = ORDER_BYTES / (w->k * 2u + 1);
    most = most > GEMV_ROWS_MAX ? most < GRID_ROWS ? most : GRID_ROWS : GEMV_ROWS_MAX;
    return rows < most ? rows : most;
}

static size_t order_bytes(const struct weight *w, uint32_t rows)
{
    return ((size_t)order_rows(w, rows) * w->k * 2 + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

size_t whole_scratch_bytes(const struct weight *w, uint32_t rows)
{
    return (w->order ? order_bytes(w, rows) : 0) +
           (rows > GEMV_ROWS_MAX ? (size_t)copy_rows(w) * w->k * 2 : 0);
}

/* ---- an element ---- */

__device__ __forceinline__ float whole_element(const struct weight &w, uint32_t n, uint32_t k)
{
    const uint8_t *row = static_cast<const uint8_t *>(w.data) +
                         (size_t)n * (w.format == FORMAT_U4 ? (w.k + 1) / 2 : w.k);
    uint32_t at = whole_repacked(&w) ? whole_place(w.format, k) : k;
    uint32_t number = w.format == FORMAT_U8 ? row[at] : row[at / 2] >> at % 2 * 4 & 15;
    float value = whole_number(number);
    if (!w.scales.data)
        return value;
    size_t scale = (size_t)(w.scales.n ? n / w.scales.n : 0) * whole_columns(w) +
                   (w.scales.k ? k / w.scales.k : 0);
    if (w.zeros)
        value -= whole_number(w.zeros[scale]);
    return value * static_cast<const float *>(w.scales.data)[scale];
}

/* ---- by 16 bits ---- */

/* Eight columns for each thread, of `rows` rows from `first` on: a pair of each of a block's four
 * words (gpu/kernels/common/whole.h). */
__global__ void __launch_bounds__(COPY_THREADS)
    copy_kernel(const struct weight w, void *to, enum dtype dtype, uint32_t first, uint32_t rows)
{
    uint64_t at = ((uint64_t)blockIdx.x * COPY_THREADS + threadIdx.x) * COPY_EACH;
    grid_wait();
    grid_trigger();
    if (at >= (uint64_t)rows * w.k)
        return;
    uint32_t n = first + static_cast<uint32_t>(at / w.k), k = static_cast<uint32_t>(at % w.k);
    const bool four = w.format == FORMAT_U4;
    const uint32_t pair = k / 8 % (four ? 4 : 2) * (four ? 4 : 16);
    const uint32_t mask = four ? 15 : 255, up = four ? 16 : 8;
    const char *row = static_cast<const char *>(w.data) + (size_t)n * whole_bytes(w.format, w.k);
    uint4 block = *reinterpret_cast<const uint4 *>(row + whole_bytes(w.format, k) / 16 * 16);
    size_t column =
        (size_t)(w.scales.n ? n : 0) * whole_columns(w) + (w.scales.k ? k / w.scales.k : 0);
    float scale = static_cast<const float *>(w.scales.data)[column];
    float zero = w.zeros ? whole_number(w.zeros[column]) : 0;
    const uint32_t words[] = {block.x, block.y, block.z, block.w};
    float8 out;
#pragma unroll
    for (int t = 0; t < 4; t++) {
        out.v[2 * t] = (whole_number(words[t] >> pair & mask) - zero) * scale;
        out.v[2 * t + 1] = (whole_number(words[t] >> pair >> up & mask) - zero) * scale;
    }
    store_whole(to, at, dtype, out);
}

static bool nothing_behind(const struct matmul_args *a)
{
    return !a->gated && !a->activates && !a->norm_out.weight && !a->norm_in.squares &&
           (!a->adds || a->y_dtype == DTYPE_F32);
}

bool matmul_whole_copied_can(const struct matmul_args *a)
{
    return whole_regular(&a->w) && a->rows.max > GEMV_ROWS_MAX && nothing_behind(a) &&
           a->x_dtype != DTYPE_F32 && a->scratch &&
           whole_scratch_bytes(&a->w, a->rows.max) <= a->scratch_bytes;
}

cudaError_t matmul_whole_copied(const struct matmul_args *a, cudaStream_t stream)
{
    uint32_t each = copy_rows(&a->w);
    cudaError_t result = cudaSuccess;
    for (uint32_t first = 0; first < a->w.n && result == cudaSuccess; first += each) {
        struct matmul_args some = *a;
        uint32_t rows = a->w.n - first < each ? a->w.n - first : each;
        some.w = {};
        some.w.data = a->scratch;
        some.w.format = format_plain(a->x_dtype);
        some.w.n = rows;
        some.w.k = a->w.k;
        some.y = static_cast<char *>(a->y) + (size_t)first * dtype_bytes(a->y_dtype);
        if (a->bias)
            some.bias =
                static_cast<const char *>(a->bias) + (size_t)first * dtype_bytes(a->bias_dtype);
        some.scratch = NULL;
        some.scratch_bytes = 0;
        result =
            launch(copy_kernel, dim3(ceil_div((uint64_t)rows * a->w.k, COPY_THREADS * COPY_EACH)),
                   COPY_THREADS, 0, stream, a->w, a->scratch, a->x_dtype, first, rows);
        if (result == cudaSuccess)
            result = op_matmul(&some, stream);
    }
    return result;
}

/* ---- by an order ---- */

__global__ void __launch_bounds__(ORDER_THREADS)
    order_kernel(const uint16_t *x, uint32_t stride, const uint32_t *order, uint32_t k,
                 uint16_t *to)
{
    uint32_t at = blockIdx.x * ORDER_THREADS + threadIdx.x;
    uint32_t from = at < k ? order[at] : 0; /* a weight's, which may be read before the wait */
    grid_wait();
    grid_trigger();
    if (at < k)
        to[(size_t)blockIdx.y * k + at] = x[(size_t)blockIdx.y * stride + from];
}

/* Some rows of a product, as it is once x is in order; their number in ret->rows.max. */
static struct matmul_args ordered_some(const struct matmul_args *a, uint32_t first)
{
    struct matmul_args some = *a;
    uint32_t each = order_rows(&a->w, a->rows.max), left = a->rows.max - first;
    size_t bytes = order_bytes(&a->w, a->rows.max);
    some.rows.first += first;
    some.rows.max = left < each ? left : each;
    some.w.order = NULL;
    some.x = a->scratch;
    some.x_stride = a->w.k;
    some.y = static_cast<char *>(a->y) + (size_t)first * a->y_stride * dtype_bytes(a->y_dtype);
    some.scratch = static_cast<char *>(a->scratch) + bytes;
    some.scratch_bytes = a->scratch_bytes - bytes;
    return some;
}

/* All rows at once where a norm stands beside it: that is of few rows. */
bool matmul_whole_ordered_can(const struct matmul_args *a)
{
    if (!a->w.order || !a->w.k || a->x_dtype == DTYPE_F32 || !a->scratch || !a->rows.max ||
        order_bytes(&a->w, a->rows.max) > a->scratch_bytes)
        return false;
    struct matmul_args some = ordered_some(a, 0);
    return matmul_fuses(&some);
}

cudaError_t matmul_whole_ordered(const struct matmul_args *a, cudaStream_t stream)
{
    cudaError_t result = cudaSuccess;
    for (uint32_t first = 0; first < a->rows.max && result == cudaSuccess;) {
        struct matmul_args some = ordered_some(a, first);
        const uint16_t *x = static_cast<const uint16_t *>(a->x) + (size_t)first * a->x_stride;
        result = launch(order_kernel, dim3(ceil_div(a->w.k, ORDER_THREADS), some.rows.max),
                        ORDER_THREADS, 0, stream, x, a->x_stride, a->w.order, a->w.k,
                        static_cast<uint16_t *>(a->scratch));
        if (result == cudaSuccess)
            result = op_matmul(&some, stream);
        first += some.rows.max;
    }
    return result;
}

/* ---- any shape ---- */

__global__ void __launch_bounds__(ANY_WARPS *WARP)
    whole_any_kernel(const __grid_constant__ struct matmul_args a)
{
    grid_wait();
    grid_trigger();
    uint32_t rows = range_rows(a.rows), first = blockIdx.y * ANY_ROWS;
    uint32_t n = blockIdx.x * ANY_WARPS + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (n >= a.w.n || first >= rows)
        return;
    float sum[ANY_ROWS] = {};
    for (uint32_t k = lane; k < a.w.k; k += WARP) {
        float w = whole_element(a.w, n, k);
        uint32_t column = a.w.order ? a.w.order[k] : k;
#pragma unroll
        for (int i = 0; i < ANY_ROWS; i++)
            if (first + i < rows)
                sum[i] += w * load_value(a.x, (size_t)(first + i) * a.x_stride + column, a.x_dtype);
    }
#pragma unroll
    for (int i = 0; i < ANY_ROWS; i++) {
        float y = warp_sum(sum[i]);
        if (lane != 0 || first + i >= rows)
            continue;
        size_t at = (size_t)(first + i) * a.y_stride + n;
        if (a.bias)
            y += load_value(a.bias, n, a.bias_dtype);
        if (a.adds)
            y += load_value(a.y, at, a.y_dtype);
        store_value(a.y, at, a.y_dtype, y);
    }
}

bool matmul_whole_any_can(const struct matmul_args *a)
{
    bool scales = a->w.scales.data ? a->w.scales.dtype == DTYPE_F32 : !a->w.zeros;
    return scales && nothing_behind(a) && a->w.input.rounding == ROUNDING_NONE;
}

cudaError_t matmul_whole_any(const struct matmul_args *a, cudaStream_t stream)
{
    return launch(whole_any_kernel,
                  dim3(ceil_div(a->w.n, ANY_WARPS), ceil_div(a->rows.max, ANY_ROWS)),
                  ANY_WARPS * WARP, 0, stream, *a);
}
