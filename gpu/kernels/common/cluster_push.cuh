/* What a block of a cluster tells another one through its shared memory, for kernels in which not
 * all threads have time to meet: values, which count as bytes of a barrier there, as copies do, and
 * arrivals. */
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

/* At a barrier of any block of the cluster, told by its address there (cluster_address()), by who
 * has only read, and wants no order of what was written. */
__device__ __forceinline__ void cluster_arrive_read(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* The same behind what this thread wrote. */
__device__ __forceinline__ void cluster_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier)
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
