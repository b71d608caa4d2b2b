/* Instructions that CUDA C++ has no words for: matrix products of a warp, and copies that run by
 * themselves and count their bytes on a barrier in shared memory. */
#pragma once

#include <cuda.h>

#include "gpu/kernels/common/half.cuh"

__device__ __forceinline__ uint32_t shared_address(const void *pointer)
{
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

namespace HALF
{

/* c += a * b: a is 16 x 16 (rows g and g + 8; columns 2t, 2t + 1 and 2t + 8, 2t + 9), b 16 x 8
 * (the same columns of a as rows; column g), c 16 x 8 (rows g, g + 8; columns 2t, 2t + 1), where
 * g = lane / 4 and t = lane % 4. */
__device__ __forceinline__ void mma_half(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                         uint32_t a3, uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." HALF_PTX "." HALF_PTX ".f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

} // namespace HALF

/* c += a * b: a is 16 x 8 (rows g and g + 8; columns t and t + 4), b 8 x 8 (the same as rows;
 * column g), c as mma_half() has it. */
__device__ __forceinline__ void mma_tf32(float (&c)[4], const uint32_t (&a)[4], float b0, float b1)
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(__float_as_uint(b0)),
                   "r"(__float_as_uint(b1)));
}

__device__ __forceinline__ uint32_t tf32_of(float value)
{
    uint32_t out;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(out) : "f"(value));
    return out;
}

__device__ __forceinline__ void load_matrices(uint32_t (&out)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(address)
                 : "memory");
}

__device__ __forceinline__ void load_matrices_transposed(uint32_t (&out)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(address)
                 : "memory");
}

__device__ __forceinline__ uint4 load_shared(uint32_t address)
{
    uint4 out;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out.x), "=r"(out.y), "=r"(out.z), "=r"(out.w)
                 : "r"(address)
                 : "memory");
    return out;
}

__device__ __forceinline__ uint32_t load_shared_word(uint32_t address)
{
    uint32_t out;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(out) : "r"(address) : "memory");
    return out;
}

__device__ __forceinline__ uint32_t load_shared_byte(uint32_t address)
{
    uint32_t out;
    asm volatile("ld.shared.u8 %0, [%1];" : "=r"(out) : "r"(address) : "memory");
    return out;
}

__device__ __forceinline__ uint32_t load_word(const void *from)
{
    uint32_t out;
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(out) : "l"(from) : "memory");
    return out;
}

__device__ __forceinline__ void store_shared(uint32_t address, const uint4 &value)
{
    asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(value.x), "r"(value.y),
                 "r"(value.z), "r"(value.w)
                 : "memory");
}

__device__ __forceinline__ uint32_t word_of(const uint4 &from, int word)
{
    return word == 0 ? from.x : word == 1 ? from.y : word == 2 ? from.z : from.w;
}

/* 16 bytes by the thread itself, in the background; zeros where not `valid`. */
__device__ __forceinline__ void copy_async(uint32_t to, const void *from, bool valid)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(valid ? 16 : 0)
                 : "memory");
}

/* Four bytes by the thread itself, likewise, of which the last are zeros and not read where
 * `bytes` is less. */
__device__ __forceinline__ void copy_word(uint32_t to, const void *from, uint32_t bytes)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void copy_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int PENDING> __device__ __forceinline__ void copy_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* One lane of a whole warp, always the same, of which the compiler knows that it is alone. */
__device__ __forceinline__ bool warp_elect()
{
    uint32_t chosen;
    asm volatile("{\n"
                 ".reg .pred chosen;\n"
                 "elect.sync _|chosen, 0xffffffff;\n"
                 "selp.u32 %0, 1, 0, chosen;\n"
                 "}"
                 : "=r"(chosen));
    return chosen;
}

__device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals)
                 : "memory");
}

/* After barrier_init, before others (or bulk copies) use the barriers. */
__device__ __forceinline__ void barrier_init_done()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra over;\n"
                 "bra again;\n"
                 "over:\n"
                 "}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

/* Whether the phase of this parity has ended. */
__device__ __forceinline__ bool barrier_test(uint32_t barrier, uint32_t parity)
{
    uint32_t done;
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, done;\n"
                 "}"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return done;
}

/* Arrives once all of this thread's own copies until here (copy_async, copy_word) are there; one
 * of those that the barrier was made for. */
__device__ __forceinline__ void copies_arrive(uint32_t barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

/* For what is read once: it shall not push out of the L2 what is read again. */
__device__ __forceinline__ uint64_t policy_once()
{
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

/* For what all SMs read. */
__device__ __forceinline__ uint64_t policy_again()
{
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

/* Of every thread that has read shared memory which a bulk copy is to overwrite, before it says
 * that it has: copies come there another way (the async proxy), and know of reads by this alone. */
__device__ __forceinline__ void reads_before_copy()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* `bytes`, a multiple of 16, between addresses that are too; counted on the barrier. */
__device__ __forceinline__ void copy_bulk(uint32_t to, const void *from, uint32_t bytes,
                                          uint32_t barrier)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
        "[%3];" ::"r"(to),
        "l"(from), "r"(bytes), "r"(barrier)
        : "memory");
}

__device__ __forceinline__ void copy_bulk(uint32_t to, const void *from, uint32_t bytes,
                                          uint32_t barrier, uint64_t policy)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1], %2, [%3], %4;" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
                 : "memory");
}

/* The box of a tensor_map() whose first value is k of `row`; `to` is a multiple of 1024. */
__device__ __forceinline__ void copy_box(uint32_t to, const CUtensorMap *map, uint32_t k,
                                         uint32_t row, uint32_t barrier, uint64_t policy)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::"
                 "cache_hint [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
                 "l"(map), "r"(k), "r"(row), "r"(barrier), "l"(policy)
                 : "memory");
}

/* The box of a tensor_map_halves() whose rows are those from 8 `eight` on of both of a matrix's
 * halves; likewise. */
__device__ __forceinline__ void copy_box_halves(uint32_t to, const CUtensorMap *map, uint32_t k,
                                                uint32_t eight, uint32_t matrix, uint32_t barrier,
                                                uint64_t policy)
{
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::"
                 "cache_hint [%0], [%1, {%2, %3, %3, %4, %5}], [%6], %7;" ::"r"(to),
                 "l"(map), "r"(k), "r"(0), "r"(eight), "r"(matrix), "r"(barrier), "l"(policy)
                 : "memory");
}

/* Registers of a warpgroup, from here on; a multiple of 8. One branch per role, in one if/else. */
template <int COUNT> __device__ __forceinline__ void registers_more()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

template <int COUNT> __device__ __forceinline__ void registers_less()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

/* ---- clusters ---- */

__device__ __forceinline__ uint32_t cluster_rank()
{
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

/* All threads of all blocks of the cluster; what they wrote before is seen behind it. */
__device__ __forceinline__ void cluster_sync()
{
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
}

/* The two halves of a first meeting, behind which others' shared memory may be written. */
__device__ __forceinline__ void cluster_here()
{
    __syncwarp();
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

__device__ __forceinline__ void cluster_all_here()
{
    __syncwarp();
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* The same place of another block's shared memory. */
__device__ __forceinline__ uint32_t cluster_address(uint32_t address, uint32_t rank)
{
    uint32_t out;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(out) : "r"(address), "r"(rank));
    return out;
}

__device__ __forceinline__ float4 cluster_load(uint32_t address)
{
    float4 out;
    asm volatile("ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(out.x), "=f"(out.y), "=f"(out.z), "=f"(out.w)
                 : "r"(address));
    return out;
}

__device__ __forceinline__ void cluster_store(uint32_t address, const float4 &value)
{
    asm volatile("st.shared::cluster.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(address), "f"(value.x),
                 "f"(value.y), "f"(value.z), "f"(value.w)
                 : "memory");
}

#endif
