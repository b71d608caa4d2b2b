/* Values that a block of a cluster writes to another one's shared memory, where they count as bytes
 * of a barrier there, as copies do: whoever waits for them needs no meeting. */
#pragma once

#include "gpu/kernels/common/mma.cuh"

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* Both addresses are of the other block (cluster_address()). */
__device__ __forceinline__ void cluster_push(uint32_t address, float value, uint32_t barrier)
{
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, "
                 "[%2];" ::"r"(address),
                 "f"(value), "r"(barrier)
                 : "memory");
}

/* At this block's barrier, for what others push; it is seen behind it. */
__device__ __forceinline__ void cluster_wait(uint32_t barrier, uint32_t parity)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n"
                 "}\n" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

#endif
