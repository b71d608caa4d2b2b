/* Decode attention on sm_90 of keys and values in e4m3, of any number of rows: the kernel of
 * attention_decode_throughput.cu with the arithmetic of attention_math_eight.cuh. */
#include "gpu/kernels/attention/attention_decode_warps.cuh"
#include "gpu/kernels/attention/attention_tuned.cuh"

namespace HALF
{

bool attention_decode_eight_can(const struct attention_args *args)
{
    uint32_t dim = args->head_dim;
    return device_props()->major == 9 && args->dtype == DTYPE_HALF &&
           args->kv.format == FORMAT_E4M3 && (dim == 64 || dim == 96 || dim == 128 || dim == 256) &&
           (args->softcap == 0 || dim > 64) && args->q_stride % 8 == 0 &&
           reinterpret_cast<uintptr_t>(args->q) % 16 == 0;
}

cudaError_t attention_decode_eight(const struct attention_args *args, cudaStream_t stream)
{
    const struct batch &batch = args->batch;
    struct decode_scratch scratch = attention_decode_scratch(args);
    size_t record = sizeof(float2) + sizeof(float) * args->head_dim;
    bool splits = batch.context_max > ATTENTION_SPLIT;
    bool whole =
        splits && record_bytes(&batch, args->heads, args->head_dim) > scratch.capacity * record;
    cudaError_t result = warps_launch_any<true>(args, &scratch, whole, stream);
    if (result != cudaSuccess || !splits || !scratch.row_record)
        return result;
    return attention_combine(args, &scratch, stream);
}

} // namespace HALF
