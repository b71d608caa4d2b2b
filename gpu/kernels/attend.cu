/* Which kernels attend: rows choose their path on the device, by q_len; here the host's bounds say
 * which paths can have rows at all. */
#include "gpu/kernels/attend.cuh"

cudaError_t op_attend(const struct attend_args *args, cudaStream_t stream)
{
    uint32_t left = (args->batch.q_len_max > ATTEND_DECODE_MAX ? ATTEND_PREFILL : 0) |
                    (args->batch.decode_len_max ? ATTEND_DECODE : 0);
    if ((left & ATTEND_DECODE) && attend_decode_can(args)) {
        cudaError_t result = attend_decode(args, stream);
        if (result != cudaSuccess)
            return result;
        left &= ~ATTEND_DECODE;
    }
    if ((left & ATTEND_PREFILL) && attend_wgmma_can(args)) {
        cudaError_t result = attend_wgmma(args, stream);
        if (result != cudaSuccess)
            return result;
        left &= ~ATTEND_PREFILL;
    }
    if (left && attend_prefill_can(args))
        return attend_prefill(args, left, stream);
    return left ? attend_any(args, left, stream) : cudaSuccess;
}
