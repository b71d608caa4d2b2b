/* sluice-cuda.so for compute-sanitizer's initcheck, for tests/gpu/sanitizer.py: the module's own
 * objects, but the linker sends products by cuBLASLt through here (--wrap). The product knows
 * nothing of it.
 *
 * cuBLASLt's kernels write through tensor maps, which initcheck does not follow, so that whatever
 * they make counts as never written. Here the values that a product promises to write, and nothing
 * beside them, are written before it is made. By a kernel: with cudaMemset2DAsync instead a daemon
 * was not ready within a minute.
 */
#include <cublasLt.h>
#include <cuda_runtime.h>

#define THREADS 256

/* A column's values follow each other, columns come at a distance; both in bytes, and even. */
__global__ void columns_write(char *to, size_t column, size_t distance)
{
    for (size_t i = threadIdx.x * 2; i < column; i += THREADS * 2)
        *reinterpret_cast<unsigned short *>(to + blockIdx.x * distance + i) = 0;
}

static bool ask(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t what, void *ret,
                size_t size)
{
    size_t written;
    return cublasLtMatrixLayoutGetAttribute(layout, what, ret, size, &written) ==
           CUBLAS_STATUS_SUCCESS;
}

static bool matrix_write(void *to, cublasLtMatrixLayout_t layout, cudaStream_t stream)
{
    uint64_t rows, columns;
    int64_t distance;
    uint32_t type;
    if (!ask(layout, CUBLASLT_MATRIX_LAYOUT_ROWS, &rows, sizeof rows) ||
        !ask(layout, CUBLASLT_MATRIX_LAYOUT_COLS, &columns, sizeof columns) ||
        !ask(layout, CUBLASLT_MATRIX_LAYOUT_LD, &distance, sizeof distance) ||
        !ask(layout, CUBLASLT_MATRIX_LAYOUT_TYPE, &type, sizeof type))
        return false;
    size_t size = type == CUDA_R_32F ? 4 : 2;
    columns_write<<<static_cast<unsigned>(columns), THREADS, 0, stream>>>(
        static_cast<char *>(to), rows * size, static_cast<size_t>(distance) * size);
    return cudaGetLastError() == cudaSuccess;
}

extern "C" cublasStatus_t __real_cublasLtMatmul(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void *alpha, const void *a,
    cublasLtMatrixLayout_t of_a, const void *b, cublasLtMatrixLayout_t of_b, const void *beta,
    const void *c, cublasLtMatrixLayout_t of_c, void *d, cublasLtMatrixLayout_t of_d,
    const cublasLtMatmulAlgo_t *algo, void *workspace, size_t bytes, cudaStream_t stream);

extern "C" cublasStatus_t __wrap_cublasLtMatmul(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void *alpha, const void *a,
    cublasLtMatrixLayout_t of_a, const void *b, cublasLtMatrixLayout_t of_b, const void *beta,
    const void *c, cublasLtMatrixLayout_t of_c, void *d, cublasLtMatrixLayout_t of_d,
    const cublasLtMatmulAlgo_t *algo, void *workspace, size_t bytes, cudaStream_t stream)
{
    if (*static_cast<const float *>(beta) == 0.0f && !matrix_write(d, of_d, stream))
        return CUBLAS_STATUS_EXECUTION_FAILED;
    return __real_cublasLtMatmul(handle, operation, alpha, a, of_a, b, of_b, beta, c, of_c, d, of_d,
                                 algo, workspace, bytes, stream);
}
