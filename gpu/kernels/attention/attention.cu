/* Which kernels attend: rows choose their path on the device, by q_len; here the host's bounds say
 * which paths can have rows at all. */
#include "gpu/kernels/attention/attention_plan.cuh"
#include "gpu/kernels/attention/attention_prefill_spans.cuh"
#include "gpu/kernels/common/device_props.cuh"

static size_t decode_bytes(const struct batch *bounds, uint32_t heads, uint32_t head_dim)
{
    if (bounds->context_max <= ATTENTION_SPLIT || !bounds->decode_len_max)
        return 0;
    size_t bytes = record_bytes(bounds, heads, head_dim);
    return header_bytes(bounds->rows_max) + (bytes < RECORD_BYTES_MAX ? bytes : RECORD_BYTES_MAX) +
           256;
}

/* Both have the same room, one behind the other. */
size_t attention_scratch_bytes(const struct batch *bounds, uint32_t heads, uint32_t head_dim)
{
    const struct device_props *device = device_props();
    size_t bytes = decode_bytes(bounds, heads, head_dim);
    size_t spans = device->major == 9
                       ? spans_scratch_bytes(bounds, heads, head_dim, device->processors)
                       : 0;
    return bytes > spans ? bytes : spans;
}

cudaError_t op_attention(const struct attention_args *args, cudaStream_t stream)
{
    uint32_t left = (args->batch.q_len_max > ATTENTION_DECODE_MAX ? ATTENTION_PREFILL : 0) |
                    (args->batch.decode_len_max ? ATTENTION_DECODE : 0);
    cudaError_t result = cudaSuccess;
    if (args->dtype == DTYPE_BF16)
        result = bf16::attention_tuned(args, &left, stream);
    else if (args->dtype == DTYPE_F16)
        result = f16::attention_tuned(args, &left, stream);
    return result != cudaSuccess || !left ? result : attention_any(args, left, stream);
}
