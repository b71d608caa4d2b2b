#include "gpu/kernels/matmul/cublaslt_tune.h"

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
