/* Meetings of some threads of a cluster of blocks, by a barrier in each block's shared memory, for
 * kernels in which others have no time to meet: cluster_sync() wants all threads. */
#pragma once

#include "gpu/kernels/common/mma.cuh"

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* At a barrier of any block of the cluster, told by its address there (cluster_address()). */
__device__ __forceinline__ void cluster_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier)
                 : "memory");
}

/* For others of the cluster, at this block's barrier; what they wrote before is seen behind it. */
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

__device__ __forceinline__ float cluster_load_value(uint32_t address)
{
    float out;
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(out) : "r"(address));
    return out;
}

#endif
