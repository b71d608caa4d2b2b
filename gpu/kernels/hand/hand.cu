/* A block per row at a time, which keeps the row in registers until its greatest value is known. Of
 * a norm the next row is on its way meanwhile; of an activation, whose rows are long, another block
 * is. Bound by memory: a value is read once, and a byte written of it.
 * Figures: tests/bench/EXPERIMENTS.md. */
#include "gpu/kernels/common/device_props.cuh"
#include "gpu/kernels/hand/hand.h"
#include "gpu/kernels/matmul/rounded.cuh"
#include "gpu/kernels/norm/norm.cuh"

#define RESIDENT 1024 /* threads of an SM, with as many registers as a norm may need */
#define NORM_TURNS_MAX 4
#define ACTIVATION_THREADS 1024
#define ACTIVATION_TURNS_MAX 4

/* Where a thread's turn is in its row. */
__device__ __forceinline__ uint32_t hand_at(int turn)
{
    return (turn * blockDim.x + threadIdx.x) * 8;
}

/* What a thread has of a row of the residual, and of what is added to it. */
template <int TURNS, bool ADDS> struct norm_values {
    float8 value[TURNS], add[ADDS ? TURNS : 1];
};

template <int TURNS, bool ADDS>
__device__ __forceinline__ void norm_load(norm_values<TURNS, ADDS> &to, const struct norm_args &a,
                                          uint32_t row)
{
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++) {
        uint32_t i = hand_at(turn);
        to.value[turn] = {};
        if (i >= a.size)
            continue;
        to.value[turn] =
            load_whole(a.residual, (size_t)row * a.residual_stride + i, a.residual_dtype);
        if (ADDS)
            to.add[turn] = load_whole(a.delta, (size_t)row * a.delta_stride + i, a.delta_dtype);
    }
}

/* Whole block: the row with what is added becomes what op_norm would store of it, in the order of
 * norm.cu. */
template <int TURNS, bool ADDS>
__device__ __forceinline__ void norm_row(norm_values<TURNS, ADDS> &row_of,
                                         const float8 (&weight)[TURNS], const struct norm_args &a,
                                         uint32_t row, float *scratch)
{
    float squares = 0;
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++) {
        uint32_t i = hand_at(turn);
        if (ADDS && i < a.size) {
            norm_add(row_of.value[turn], row_of.add[turn], a);
            store_whole(a.residual, (size_t)row * a.residual_stride + i, a.residual_dtype,
                        row_of.value[turn]);
        }
        squares = norm_squares(squares, row_of.value[turn]);
    }
    float scale = norm_scale(block_sum(squares, scratch), a.size, a.eps);
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++) {
        row_of.value[turn] = norm_scaled(row_of.value[turn], scale, weight[turn]);
#pragma unroll
        for (int j = 0; j < 8; j++)
            row_of.value[turn].v[j] = round_value(row_of.value[turn].v[j], a.out_dtype);
    }
}

template <int TURNS, bool ADDS>
__global__ void __launch_bounds__(NORM_THREADS)
    hand_norm_kernel(const __grid_constant__ struct norm_args a, const struct weight_input how,
                     const struct rounded to)
{
    const bool ahead = TURNS == 1; /* longer rows have no registers left, and a block each */
    __shared__ float scratch[WARP];
    norm_values<TURNS, ADDS> now, next;
    float8 weight[TURNS];
    grid_trigger();
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++)
        weight[turn] = norm_weights(a.weight, hand_at(turn), a.size, a.weight_dtype, a.offset);
    grid_wait();
    const uint32_t rows = range_rows(a.rows);
    if (ahead && blockIdx.x < rows)
        norm_load(next, a, blockIdx.x);
    for (uint32_t row = blockIdx.x; row < rows; row += gridDim.x) {
        if (ahead) {
            now = next;
            if (row + gridDim.x < rows)
                norm_load(next, a, row + gridDim.x);
        } else {
            norm_load(now, a, row);
        }
        norm_row(now, weight, a, row, scratch);
        rounded_row(now.value, how, to, row, scratch);
    }
}

template <enum activation KIND, bool GATED, int TURNS>
__global__ void __launch_bounds__(ACTIVATION_THREADS)
    hand_activation_kernel(const __grid_constant__ struct activation_args a,
                           const struct weight_input how, const struct rounded to)
{
    __shared__ float scratch[WARP];
    const uint32_t row = blockIdx.x;
    uint4 word[TURNS], up[TURNS];
    float8 value[TURNS] = {};
    grid_trigger();
    grid_wait();
    const uint16_t *in = static_cast<const uint16_t *>(a.in) + (size_t)row * a.in_stride;
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++) {
        uint32_t i = hand_at(turn);
        if (i >= a.size)
            break;
        word[turn] = *reinterpret_cast<const uint4 *>(in + i);
        if (GATED)
            up[turn] = *reinterpret_cast<const uint4 *>(in + a.size + i);
    }
    if (row >= range_rows(a.rows)) /* rows up to the bound can be read: no wait for the count */
        return;
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++) {
        if (hand_at(turn) >= a.size)
            break;
        const uint32_t first[4] = {word[turn].x, word[turn].y, word[turn].z, word[turn].w};
        const uint32_t by[4] = {up[turn].x, up[turn].y, up[turn].z, up[turn].w};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float2 x = unpack(first[j], a.dtype);
            x = make_float2(activated<KIND>(x.x), activated<KIND>(x.y));
            if (GATED) {
                float2 u = unpack(by[j], a.dtype);
                x = make_float2(x.x * u.x, x.y * u.y);
            }
            x = unpack(pack(x.x, x.y, a.dtype), a.dtype);
            value[turn].v[2 * j] = x.x;
            value[turn].v[2 * j + 1] = x.y;
        }
    }
    rounded_row(value, how, to, row, scratch);
}

/* ---- host ---- */

static bool how_can(const struct weight_input *how)
{
    bool groups = how->group >= 8 && how->group <= 8 * WARP && (how->group & (how->group - 1)) == 0;
    return how->rounding == ROUNDING_TOKEN || how->rounding == ROUNDING_STATIC ||
           (how->rounding == ROUNDING_GROUP && groups);
}

/* What is handed on has room where 16-bit values would be. */
static bool out_can(void *out, uint32_t size, uint32_t stride, enum dtype dtype, uint32_t rows,
                    const struct weight_input *how)
{
    return rows > MATMUL_GATED_MAX && how_can(how) && size > 0 && size % 16 == 0 &&
           stride >= size && dtype != DTYPE_F32 && reinterpret_cast<uintptr_t>(out) % 16 == 0;
}

bool hand_norm_fuses(const struct norm_args *a, const struct weight_input *how)
{
    uintptr_t places =
        reinterpret_cast<uintptr_t>(a->residual) | reinterpret_cast<uintptr_t>(a->delta);
    return device_props()->major == 9 && a->form == NORM_SCALED && !a->delta_normed && a->out &&
           a->out != a->delta && a->out != a->residual && places % 16 == 0 &&
           (a->residual_stride | (a->delta ? a->delta_stride : 0)) % 8 == 0 &&
           a->size <= NORM_THREADS * 8 * NORM_TURNS_MAX &&
           out_can(a->out, a->size, a->out_stride, a->out_dtype, a->rows.max, how);
}

template <bool ADDS>
static cudaError_t norm_launch(const struct norm_args *a, const struct weight_input *how,
                               cudaStream_t stream)
{
    struct rounded to = rounded_handed(how, a->size, a->rows.max, a->out);
    unsigned threads = norm_threads(a->size), turns = ceil_div(a->size, threads * 8);
    unsigned together = device_props()->processors * (RESIDENT / threads);
    dim3 grid(turns <= 1 && a->rows.max > together ? together : a->rows.max);
    return launch(turns <= 1   ? hand_norm_kernel<1, ADDS>
                  : turns <= 2 ? hand_norm_kernel<2, ADDS>
                               : hand_norm_kernel<NORM_TURNS_MAX, ADDS>,
                  grid, threads, 0, stream, *a, *how, to);
}

cudaError_t op_hand_norm(const struct norm_args *args, const struct weight_input *how,
                         cudaStream_t stream)
{
    if (!hand_norm_fuses(args, how))
        return cudaErrorNotSupported;
    return args->delta ? norm_launch<true>(args, how, stream)
                       : norm_launch<false>(args, how, stream);
}

bool hand_activation_fuses(const struct activation_args *a, const struct weight_input *how)
{
    return device_props()->major == 9 && a->out != a->in && a->in_stride % 8 == 0 &&
           reinterpret_cast<uintptr_t>(a->in) % 16 == 0 &&
           a->size <= ACTIVATION_THREADS * 8 * ACTIVATION_TURNS_MAX &&
           out_can(a->out, a->size, a->out_stride, a->dtype, a->rows.max, how);
}

template <enum activation KIND, bool GATED>
static cudaError_t activation_launch(const struct activation_args *a,
                                     const struct weight_input *how, cudaStream_t stream)
{
    struct rounded to = rounded_handed(how, a->size, a->rows.max, a->out);
    unsigned eights = a->size / 8;
    unsigned turns = eights > 1024 ? ACTIVATION_TURNS_MAX : eights > 256 ? 2 : 1;
    return launch(turns == 1   ? hand_activation_kernel<KIND, GATED, 1>
                  : turns == 2 ? hand_activation_kernel<KIND, GATED, 2>
                               : hand_activation_kernel<KIND, GATED, ACTIVATION_TURNS_MAX>,
                  dim3(a->rows.max), ceil_div(eights, WARP * turns) * WARP, 0, stream, *a, *how,
                  to);
}

cudaError_t op_hand_activation(const struct activation_args *args, const struct weight_input *how,
                               cudaStream_t stream)
{
    if (!hand_activation_fuses(args, how))
        return cudaErrorNotSupported;
    if (args->kind == ACTIVATE_SILU)
        return args->gated ? activation_launch<ACTIVATE_SILU, true>(args, how, stream)
                           : activation_launch<ACTIVATE_SILU, false>(args, how, stream);
    return args->gated ? activation_launch<ACTIVATE_GELU_TANH, true>(args, how, stream)
                       : activation_launch<ACTIVATE_GELU_TANH, false>(args, how, stream);
}
