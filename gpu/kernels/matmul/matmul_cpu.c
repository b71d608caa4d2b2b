/* An index of the kernel is a run of outputs for all rows. Inside it, blocks of outputs by blocks
 * of rows that a core's cache holds; every output is computed alone (cpu/simd.h). */
#include "gpu/kernels/matmul/matmul_cpu.h"

#include "gpu/kernels/cpu/body.h"
#include "gpu/kernels/matmul/cublaslt_tune.h"

#define MATMUL_ROWS 32                /* of one block, at most */
#define MATMUL_CACHE (256u << 10)     /* bytes of x in one block */
#define MATMUL_INDEX_WORK (64u << 10) /* elements of w that are worth an index */

uint32_t matmul_outputs(const struct matmul_args *args)
{
    uint32_t k = args->w.k ? args->w.k : 1, outputs = MATMUL_INDEX_WORK / k;
    outputs = outputs / 4 * 4;
    return outputs < 4 ? 4 : outputs > MATMUL_OUTPUTS ? MATMUL_OUTPUTS : outputs;
}

static uint32_t matmul_block_rows(const struct matmul_args *args)
{
    uint32_t rows = MATMUL_CACHE / 4 / (args->w.k ? args->w.k : 1) / 4 * 4;
    return rows < 8 ? 8 : rows > MATMUL_ROWS ? MATMUL_ROWS : rows;
}

void matmul_store(const struct matmul_args *args, float *sums, uint32_t first, uint32_t outputs,
                  uint32_t row, uint32_t rows)
{
    float bias[MATMUL_OUTPUTS];
    if (args->bias)
        number_widen(bias, number_at(dev(args->bias), args->bias_dtype, first), args->bias_dtype,
                     outputs);
    for (uint32_t r = 0; r < rows; r++) {
        float *sum = sums + (size_t)r * MATMUL_OUTPUTS;
        if (args->bias)
            for (uint32_t i = 0; i < outputs; i++)
                sum[i] += bias[i];
        void *to = body_at(args->y, args->y_dtype, row + r, args->y_stride);
        number_round(number_at(to, args->y_dtype, first), sum, args->y_dtype, outputs);
    }
}

static void matmul_block(const void *params, uint32_t index)
{
    const struct matmul_args *args = params;
    const struct simd *simd = simd_best();
    float sums[MATMUL_ROWS * MATMUL_OUTPUTS];
    uint32_t outputs = matmul_outputs(args), first = index * outputs;
    uint32_t rows = body_rows(&args->rows), step = matmul_block_rows(args);
    if (outputs > args->w.n - first)
        outputs = args->w.n - first;
    for (uint32_t row = 0; row < rows; row += step) {
        struct simd_panel panel = {
            .w = body_at(args->w.data, format_info(args->w.format).dtype, first, args->w.k),
            .x = body_at(args->x, args->x_dtype, row, args->x_stride),
            .y = sums,
            .w_stride = args->w.k,
            .x_stride = args->x_stride,
            .y_stride = MATMUL_OUTPUTS,
            .n = outputs,
            .rows = rows - row < step ? rows - row : step,
            .k = args->w.k,
            .w_dtype = format_info(args->w.format).dtype,
            .x_dtype = args->x_dtype,
        };
        simd->panel(&panel);
        matmul_store(args, sums, first, outputs, row, panel.rows);
    }
}

static bool matmul_plain(const struct matmul_args *args)
{
    return !args->gated && !args->activates && !args->adds && !args->norm_out.weight &&
           !args->norm_in.squares;
}

static cudaError_t matmul_panels(const struct matmul_args *args, cudaStream_t stream)
{
    uint32_t outputs = matmul_outputs(args);
    return body_launch(stream, "product", matmul_block, args, sizeof *args,
                       args->rows.max ? ((uint64_t)args->w.n + outputs - 1) / outputs : 0);
}

static const struct matmul_backend backends[] = {
    {"panels", MATMUL_READS(FORMAT_F32) | MATMUL_READS(FORMAT_BF16) | MATMUL_READS(FORMAT_F16),
     false, matmul_plain, matmul_panels, .steady = true},
    {"dequantized", MATMUL_READS(FORMAT_E4M3) | MATMUL_READS(FORMAT_U4) | MATMUL_READS(FORMAT_U8),
     true, matmul_dequantized_can, matmul_dequantized, .steady = true},
};

#define BACKENDS (sizeof backends / sizeof backends[0])

static const struct matmul_backend *backend_of(const struct matmul_args *args)
{
    for (size_t i = 0; i < BACKENDS; i++) {
        if (matmul_plain(args) && matmul_backend_can(&backends[i], args))
            return &backends[i];
    }
    return NULL;
}

bool matmul_fuses(const struct matmul_args *args)
{
    return backend_of(args) != NULL;
}

cudaError_t op_matmul(const struct matmul_args *args, cudaStream_t stream)
{
    const struct matmul_backend *backend = backend_of(args);
    return backend ? backend->run(args, stream) : cudaErrorNotSupported;
}

/* ---- there is nothing to choose, so nothing is timed ---- */

cudaError_t tune_matmul(const struct matmul_args *args, const void *const *weights,
                        uint32_t weight_count, cudaStream_t stream)
{
    (void)args, (void)weights, (void)weight_count, (void)stream;
    return cudaSuccess;
}

bool tune_known(const struct matmul_args *args)
{
    (void)args;
    return true;
}

int tune_load(const char *dir)
{
    (void)dir;
    return 0;
}

int tune_save(const char *dir)
{
    (void)dir;
    return 0;
}
