/* Products of e4m3 in any shape, and of many rows of inputs as they are.
 *
 * The latter: some rows of w at a time become 16-bit numbers in scratch, few enough that they stay
 * in the L2, and what multiplies such numbers does so. Their rounding to 16 bits is this way's own.
 * The former: a warp per output and eight rows, as in matmul_any.cu. */
#include "gpu/kernels/common/e4m3.cuh"
#include "gpu/kernels/matmul/rounded.cuh"
#include "gpu/kernels/matmul/whole.cuh"

#define ANY_WARPS 8
#define ANY_ROWS 8
#define WIDEN_THREADS 256
#define WIDEN_EACH 16
#define WIDEN_BYTES (24u << 20)

/* ---- 16 bits ---- */

static uint32_t widen_rows(const struct weight *w)
{
    uint32_t rows = WIDEN_BYTES / (w->k * 2u + 1) / 16 * 16;
    rows = rows ? rows : 16;
    return rows < w->n ? rows : w->n;
}

size_t matmul_scratch_bytes(const struct weight *w, uint32_t rows)
{
    if (whole_is(w->format))
        return whole_scratch_bytes(w, rows);
    if (w->format != FORMAT_E4M3)
        return 0;
    if (w->input.rounding != ROUNDING_NONE)
        return rounded_cut(w, rows, NULL).total;
    return rows > GEMV_ROWS_MAX ? (size_t)widen_rows(w) * w->k * 2 : 0;
}

/* Elements in a row of memory, from row `first` of w on; 16 for each thread. */
__global__ void __launch_bounds__(WIDEN_THREADS)
    widen_kernel(const struct weight w, void *to, enum dtype dtype, uint32_t first, uint32_t rows)
{
    uint64_t at = ((uint64_t)blockIdx.x * WIDEN_THREADS + threadIdx.x) * WIDEN_EACH;
    uint64_t end = (uint64_t)rows * w.k;
    const uint8_t *from = static_cast<const uint8_t *>(w.data) + (uint64_t)first * w.k;
    grid_wait();
    grid_trigger();
    if (at >= end)
        return;
    uint32_t row = static_cast<uint32_t>(at / w.k), k = static_cast<uint32_t>(at % w.k);
    if (w.k % WIDEN_EACH || w.scales.k % WIDEN_EACH) { /* they may be of two rows or scales */
        for (uint32_t i = 0; i < WIDEN_EACH && at + i < end; i++) {
            row = static_cast<uint32_t>((at + i) / w.k);
            k = static_cast<uint32_t>((at + i) % w.k);
            store_value(to, at + i, dtype,
                        e4m3_value(from[at + i]) * weight_scale(w, first + row, k));
        }
        return;
    }
    uint4 bytes = *reinterpret_cast<const uint4 *>(from + at);
    float v[WIDEN_EACH], scale = weight_scale(w, first + row, k);
#pragma unroll
    for (uint32_t i = 0; i < WIDEN_EACH; i += 2) {
        uint32_t word = i < 4 ? bytes.x : i < 8 ? bytes.y : i < 12 ? bytes.z : bytes.w;
        float2 pair = unpack(e4m3_widen2(word >> i % 4 * 8 & 0xffff), DTYPE_F16);
        v[i] = pair.x * scale;
        v[i + 1] = pair.y * scale;
    }
    store_whole(to, at, dtype, {{v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]}});
    store_whole(to, at + 8, dtype, {{v[8], v[9], v[10], v[11], v[12], v[13], v[14], v[15]}});
}

bool matmul_widened_can(const struct matmul_args *a)
{
    bool behind = !a->gated && !a->activates && !a->norm_out.weight && !a->norm_in.squares &&
                  (!a->adds || a->y_dtype == DTYPE_F32);
    return a->rows.max > GEMV_ROWS_MAX && a->w.input.rounding == ROUNDING_NONE && behind &&
           a->w.k > 0 && a->x_dtype != DTYPE_F32 && a->scratch &&
           reinterpret_cast<uintptr_t>(a->w.data) % 16 == 0 &&
           matmul_scratch_bytes(&a->w, a->rows.max) <= a->scratch_bytes;
}

cudaError_t matmul_widened(const struct matmul_args *a, cudaStream_t stream)
{
    uint32_t each = widen_rows(&a->w);
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
        result = launch(widen_kernel,
                        dim3(ceil_div((uint64_t)rows * a->w.k, WIDEN_THREADS * WIDEN_EACH)),
                        WIDEN_THREADS, 0, stream, a->w, a->scratch, a->x_dtype, first, rows);
        if (result == cudaSuccess)
            result = op_matmul(&some, stream);
    }
    return result;
}

/* ---- any shape ---- */

/* x as the product reads it: of `r` where it was rounded. */
__device__ __forceinline__ float any_x(const struct matmul_args &a, const struct rounded &r,
                                       uint32_t row, uint32_t k)
{
    if (!r.bytes)
        return load_value(a.x, (size_t)row * a.x_stride + k, a.x_dtype);
    uint32_t group = r.groups > 1 ? k / a.w.input.group : 0;
    return e4m3_value(r.bytes[(size_t)row * r.stride + k]) *
           r.scales[rounded_scale_at(r, row, group)];
}

__global__ void __launch_bounds__(ANY_WARPS *WARP)
    any_e4m3_kernel(const __grid_constant__ struct matmul_args a, const struct rounded r)
{
    grid_wait();
    grid_trigger();
    uint32_t first = blockIdx.y * ANY_ROWS;
    uint32_t n = blockIdx.x * ANY_WARPS + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (n >= a.w.n)
        return;
    const uint8_t *weights = static_cast<const uint8_t *>(a.w.data) + (size_t)n * a.w.k;
    float sum[ANY_ROWS] = {};
    for (uint32_t k = lane; k < a.w.k; k += WARP) {
        float w = e4m3_value(weights[k]) * weight_scale(a.w, n, k);
#pragma unroll
        for (int i = 0; i < ANY_ROWS; i++)
            if (first + i < a.rows.max)
                sum[i] += w * any_x(a, r, first + i, k);
    }
#pragma unroll
    for (int i = 0; i < ANY_ROWS; i++) {
        float y = warp_sum(sum[i]);
        if (lane != 0 || first + i >= a.rows.max)
            continue;
        size_t at = (size_t)(first + i) * a.y_stride + n;
        if (a.bias)
            y += load_value(a.bias, n, a.bias_dtype);
        if (a.adds)
            y += load_value(a.y, at, a.y_dtype);
        store_value(a.y, at, a.y_dtype, y);
    }
}

bool matmul_any_e4m3_can(const struct matmul_args *a)
{
    bool rounds = a->w.input.rounding != ROUNDING_NONE;
    bool behind = !a->norm_out.weight && !a->norm_in.squares && !a->gated && !a->activates &&
                  (!a->adds || a->y_dtype == DTYPE_F32);
    bool scales = !a->w.scales.data || a->w.scales.dtype == DTYPE_F32;
    return behind && scales && !a->w.zeros && !a->w.order && (!rounds || rounded_can(a));
}

cudaError_t matmul_any_e4m3(const struct matmul_args *a, cudaStream_t stream)
{
    struct rounded r = {};
    cudaError_t result = cudaSuccess;
    if (a->w.input.rounding != ROUNDING_NONE) {
        r = rounded_cut(&a->w, a->rows.max, a->scratch);
        result = rounded_make(a, &r, stream);
    }
    if (result != cudaSuccess)
        return result;
    return launch(any_e4m3_kernel,
                  dim3(ceil_div(a->w.n, ANY_WARPS), ceil_div(a->rows.max, ANY_ROWS)),
                  ANY_WARPS * WARP, 0, stream, *a, r);
}
