#include "gpu/base/device.h"

#include <cuda_runtime_api.h>

#include "gpu/base/cuda_error.h"
#include "gpu/kernels/common/device_context.h"
#include "gpu/kernels/matmul/matmul.h"

const char device_name[] = "cuda";

const struct device_traits device_traits = {
    .slots_max = 512,
    .tokens_max = 8192,
    .block_tokens = 32,
    .slab_bytes = 64u << 20,
    .host_bytes = 1u << 30,
    .host_chunk_bytes = 64u << 20,
    .embed_bytes = 8u << 20,
    .logit_bytes = 512u << 20,
    .workspace_bytes = MATMUL_WORKSPACE_BYTES,
    .post_bytes = 1u << 20,
    .slice_bytes = 4u << 20,
    .scratch_keep_bytes = 256u << 20, /* steps of about 1,000 tokens of an 8B model */
    .staging_bytes = 16u << 20,
};

int device_dtype(enum gpu_dtype asked, enum model_dtype own, enum dtype *ret, struct error *error)
{
    (void)error;
    bool f16 = asked == GPU_DTYPE_AUTO ? own == MODEL_F16 : asked == GPU_DTYPE_F16;
    *ret = f16 ? DTYPE_F16 : DTYPE_BF16;
    return 0;
}

int device_prepare(const struct gpu_options *options, struct error *error)
{
    (void)options;
    (void)error;
    return 0;
}

int device_take(int device, struct error *error)
{
    CUDA_TRY(cudaSetDevice(device), error);
    CUDA_TRY(device_reserve(device), error);
    return 0;
}

/* What the library keeps of the context goes first: it would be stale. */
int device_give(int device, struct error *error)
{
    CUDA_TRY(cudaSetDevice(device), error);
    matmul_forget(device);
    CUDA_TRY(device_reset(device), error);
    return 0;
}
