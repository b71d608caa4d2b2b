/* Which of the tuned kernels attend. */
#include "gpu/kernels/attention/attention_tuned.cuh"

namespace HALF
{

cudaError_t attention_tuned(const struct attention_args *args, uint32_t *left, cudaStream_t stream)
{
    cudaError_t result = cudaSuccess;
    if (args->invariant && attention_decode_latency_can(args)) {
        *left = 0;
        return attention_invariant(args, stream);
    }
    if (args->invariant) /* attention_any has one way for all rows */
        return cudaSuccess;
    if ((*left & ATTENTION_DECODE) && attention_decode_latency_can(args)) {
        result = attention_decode_latency(args, stream);
        *left &= ~ATTENTION_DECODE;
    }
    if ((*left & ATTENTION_DECODE) && attention_decode_eight_can(args)) {
        result = attention_decode_eight(args, stream);
        *left &= ~ATTENTION_DECODE;
    }
    if (result == cudaSuccess && (*left & ATTENTION_PREFILL) && attention_prefill_wgmma_can(args)) {
        result = attention_prefill_wgmma(args, stream);
        *left &= ~ATTENTION_PREFILL;
    }
    if (result == cudaSuccess && *left && attention_prefill_can(args)) {
        result = attention_prefill(args, *left, stream);
        *left = 0;
    }
    return result;
}

} // namespace HALF
