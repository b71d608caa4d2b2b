/* Which way a product goes: by the table of what there is, the fastest first. */
#include "gpu/kernels/matmul/matmul.cuh"
#include "gpu/kernels/matmul/whole.cuh"

static bool any_can(const struct matmul_args *args)
{
    return !args->gated && !args->activates && !args->norm_out.weight && !args->norm_in.squares &&
           (!args->adds || args->y_dtype == DTYPE_F32);
}

static bool lt_can(const struct matmul_args *args)
{
    return args->rows.max > GEMV_ROWS_MAX && any_can(args) && matmul_lt_can(args);
}

bool tiles_can(const struct matmul_args *args)
{
    return bf16::matmul_tiles_can(args) || f16::matmul_tiles_can(args);
}

cudaError_t tiles_run(const struct matmul_args *args, cudaStream_t stream)
{
    return args->w.format == FORMAT_BF16 ? bf16::matmul_tiles(args, stream)
                                         : f16::matmul_tiles(args, stream);
}

/* What is not gated goes there by the tuner's choice: cublaslt.cu. Where bits may not depend on the
 * number of rows everything does. */
static bool gated_tiles_can(const struct matmul_args *args)
{
    return (args->gated || args->invariant) && tiles_can(args);
}

#define BF16 MATMUL_READS(FORMAT_BF16)
#define F16 MATMUL_READS(FORMAT_F16)
#define F32 MATMUL_READS(FORMAT_F32)
#define E4M3 MATMUL_READS(FORMAT_E4M3)
#define WHOLE (MATMUL_READS(FORMAT_U4) | MATMUL_READS(FORMAT_U8))

static const struct matmul_backend backends[] = {
    {"small bf16", BF16, false, bf16::gemv_can, bf16::gemv},
    {"small f16", F16, false, f16::gemv_can, f16::gemv},
    {"gated bf16", BF16, false, bf16::matmul_gated_can, bf16::matmul_gated},
    {"gated f16", F16, false, f16::matmul_gated_can, f16::matmul_gated},
    {"gated tiles", BF16 | F16, false, gated_tiles_can, tiles_run, .steady = true},
    {"cublaslt", BF16 | F16 | F32, false, lt_can, matmul_lt},
    {"any", BF16 | F16 | F32, false, any_can, matmul_any, .steady = true},
    {"rounding e4m3", E4M3, true, gemv_rounded_can, gemv_rounded},
    {"scaled e4m3", E4M3, true, matmul_scaled_can, matmul_scaled, true},
    {"small e4m3", E4M3, true, gemv_e4m3_can, gemv_e4m3},
    {"widened e4m3", E4M3, true, matmul_widened_can, matmul_widened},
    {"any e4m3", E4M3, true, matmul_any_e4m3_can, matmul_any_e4m3},
    {"small whole bf16", WHOLE, true, bf16::gemv_whole_can, bf16::gemv_whole},
    {"small whole f16", WHOLE, true, f16::gemv_whole_can, f16::gemv_whole},
    {"whole bf16", WHOLE, true, bf16::matmul_whole_can, bf16::matmul_whole},
    {"whole f16", WHOLE, true, f16::matmul_whole_can, f16::matmul_whole},
    {"ordered whole", WHOLE, true, matmul_whole_ordered_can, matmul_whole_ordered},
    {"copied whole", WHOLE, true, matmul_whole_copied_can, matmul_whole_copied},
    {"any whole", WHOLE, true, matmul_whole_any_can, matmul_whole_any},
};

#define BACKENDS (sizeof backends / sizeof backends[0])

bool matmul_fuses(const struct matmul_args *args)
{
    for (size_t i = 0; i < BACKENDS; i++) {
        if (matmul_backend_can(&backends[i], args))
            return true;
    }
    return false;
}

cudaError_t op_matmul(const struct matmul_args *args, cudaStream_t stream)
{
    for (size_t i = 0; i < BACKENDS; i++) {
        if (!matmul_backend_can(&backends[i], args))
            continue;
        if (args->rows.max == 0 || args->w.n == 0)
            return cudaSuccess;
        cudaError_t result = backends[i].run(args, stream);
        if (result != cudaErrorNotSupported)
            return result;
    }
    return cudaErrorNotSupported;
}
