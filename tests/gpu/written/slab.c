/* Of the module for initcheck (matmul.cu): slabs of keys and values begin as NaN, where the
 * product leaves them as they come (--wrap=mem_slab).
 *
 * Attention reads whole pieces of a block, and makes nothing of positions that no query sees, the
 * unwritten ones among them. To initcheck a read is a read. That nothing comes of them is seen by
 * tests whose caches hold NaN there (tests/bench/kernels_attention.cu). */
#include "gpu/base/cuda_error.h"
#include "gpu/memory/pools.h"

int __real_mem_slab(struct mem *mem, uint64_t bytes, void **ret, struct error *error);
int __wrap_mem_slab(struct mem *mem, uint64_t bytes, void **ret, struct error *error);

int __wrap_mem_slab(struct mem *mem, uint64_t bytes, void **ret, struct error *error)
{
    int status = __real_mem_slab(mem, bytes, ret, error);
    if (status)
        return status;
    CUDA_TRY(cudaMemsetAsync(*ret, 0xff, bytes, mem->stream), error);
    return 0;
}
