/* Which of the tuned kernels attend. */
#include "gpu/kernels/attend_tuned.cuh"

namespace NARROW
{

cudaError_t attend_tuned(const struct attend_args *args, uint32_t *left, cudaStream_t stream)
{
    cudaError_t result = cudaSuccess;
    if ((*left & ATTEND_DECODE) && attend_decode_can(args)) {
        result = attend_decode(args, stream);
        *left &= ~ATTEND_DECODE;
    }
    if (result == cudaSuccess && (*left & ATTEND_PREFILL) && attend_wgmma_can(args)) {
        result = attend_wgmma(args, stream);
        *left &= ~ATTEND_PREFILL;
    }
    if (result == cudaSuccess && *left && attend_prefill_can(args)) {
        result = attend_prefill(args, *left, stream);
        *left = 0;
    }
    return result;
}

} // namespace NARROW
