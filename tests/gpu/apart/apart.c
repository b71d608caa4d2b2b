/* sluice-cuda.so for compute-sanitizer's memcheck, for tests/gpu/sanitizer.py: the module's own
 * objects, but the linker sends slabs and scratch through here (--wrap). The product knows nothing
 * of it.
 *
 * Pools put allocations side by side, where what is written too far is the next one's. Here each is
 * an allocation of its own by cudaMalloc, behind which memcheck leaves room that is nobody's
 * (--padding); with `--slab-size 1` a slab is one block, so that each block of keys and values is
 * such an allocation. Frees wait for the device: nothing of the pools' order is seen here.
 */
#include "gpu/base/cuda_error.h"
#include "gpu/memory/pools.h"

int __wrap_mem_slab(struct mem *mem, uint64_t bytes, void **ret, struct error *error);
int __wrap_mem_slab_free(struct mem *mem, void *base, uint64_t bytes, struct error *error);
int __wrap_mem_scratch(struct mem *mem, uint64_t bytes, void **ret, struct error *error);
int __wrap_mem_scratch_free(struct mem *mem, void *base, uint64_t bytes, struct error *error);

static int take(_Atomic uint64_t *used, uint64_t bytes, void **ret, struct error *error)
{
    CUDA_TRY(cudaMalloc(ret, bytes), error);
    atomic_fetch_add(used, bytes);
    return 0;
}

static int give(_Atomic uint64_t *used, void *base, uint64_t bytes, struct error *error)
{
    CUDA_TRY(cudaFree(base), error);
    atomic_fetch_sub(used, bytes);
    return 0;
}

int __wrap_mem_slab(struct mem *mem, uint64_t bytes, void **ret, struct error *error)
{
    return take(&mem->numbers.kv_used, bytes, ret, error);
}

int __wrap_mem_slab_free(struct mem *mem, void *base, uint64_t bytes, struct error *error)
{
    return give(&mem->numbers.kv_used, base, bytes, error);
}

int __wrap_mem_scratch(struct mem *mem, uint64_t bytes, void **ret, struct error *error)
{
    return take(&mem->numbers.scratch_used, bytes, ret, error);
}

int __wrap_mem_scratch_free(struct mem *mem, void *base, uint64_t bytes, struct error *error)
{
    return give(&mem->numbers.scratch_used, base, bytes, error);
}
