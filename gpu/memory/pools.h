/* A GPU's memory: two pools and what lives as long as the engine.
 *
 *   fixed    cudaMalloc before the first step: weights, rings, slot state. Freed at the end.
 *   pinned   host memory for the rings and for staging. Freed at the end.
 *   scratch  a pool: what one step needs, sized to the step, and what an open slot keeps beside its
 *            KV. The pool keeps what was freed, until the engine is idle and trims it.
 *   kv       a pool of slab-sized allocations only, so that it cannot fragment. A slab is freed
 *            whole; trimming returns it to the device.
 *
 * Both pools reuse memory only where streams and events order it: opportunistic reuse and internal
 * dependencies are off, since the one makes addresses depend on timing and the other adds waits
 * that nobody wrote. All pool memory is allocated and freed on the compute stream.
 *
 * Sizes in bytes. Thread: the rank's own; mem_read any. Owns the pools and all fixed and pinned
 * memory; pool memory is owned by who allocated it.
 */
#pragma once

#include <cuda_runtime_api.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "gpu/gpu.h"

#define MEM_FIXED_MAX (32 + GPU_ADAPTERS_MAX) /* allocations of the fixed class, and of the pinned class */
#define MEM_ALIGN 256

struct mem_limits {
    uint64_t memory_max;     /* of this process on the device, all engines together; 0: no limit */
    uint64_t memory_reserve; /* left to others */
    uint64_t kv_max;         /* 0: no limit */
};

/* Written by the rank's thread alone, read by any. */
struct mem_numbers {
    _Atomic uint64_t fixed, pinned, kv_used, kv_held, scratch_used, scratch_held, graphs;
    _Atomic uint64_t device_free, device_total;
    _Atomic uint64_t late; /* fixed and pinned allocations after mem_settle */
};

struct mem_range {
    void *base;
    uint64_t bytes;
};

struct mem {
    struct mem_limits limits;
    cudaMemPool_t scratch, kv;
    cudaStream_t stream; /* compute */
    bool settled;
    bool own_limit; /* what was refused last, memory_max or memory_reserve forbids for ever */
    int device;
    uint64_t told; /* of what the process holds on the device, this engine's part */
    /* Slabs that were freed beside steps: since `given`, and before it. */
    cudaEvent_t given;
    bool slabs_freed, slabs_given;
    uint32_t fixed_count, pinned_count;
    struct mem_range fixed[MEM_FIXED_MAX], pinned[MEM_FIXED_MAX];
    struct mem_numbers numbers;
};

/* Of the current device; `stream` is its compute stream. On failure nothing is left behind. */
int mem_open(struct mem *mem, int device, cudaStream_t stream, const struct mem_limits *limits,
             struct error *error);
/* Every pool allocation was freed before, unless the device failed. ERR_DEVICE or what a call said:
 * something could not be freed. It is the process's until that ends, and counts as held. */
int mem_close(struct mem *mem, struct error *error);

/* Fixed and pinned memory is zeroed nowhere. mem_settle says that set-up is over: what is allocated
 * later is counted. Fixed memory that is refused before waits until no other engine of the process
 * is between mem_warmup_begin and mem_warmup_end, and is asked for again. */
int mem_fixed(struct mem *mem, uint64_t bytes, void **ret, struct error *error);
int mem_pinned(struct mem *mem, uint64_t bytes, void **ret, struct error *error);
void mem_settle(struct mem *mem);
/* Any thread. What an engine takes from the pools between these it gives back before the second;
 * it takes nothing fixed meanwhile. */
void mem_warmup_begin(void);
void mem_warmup_end(void);
bool mem_is_pinned(const struct mem *mem, const void *at, uint64_t bytes);
/* Frees one fixed or pinned allocation early: staging that only loading needs. Where that fails it
 * stays known: mem_close() tries again, and tells. */
int mem_fixed_free(struct mem *mem, void *base, struct error *error);
int mem_pinned_free(struct mem *mem, void *base, struct error *error);

/* ERR_DEVICE_MEMORY where the device or a limit refuses; the pools are as they were then. */
int mem_scratch(struct mem *mem, uint64_t bytes, void **ret, struct error *error);
int mem_scratch_free(struct mem *mem, void *base, uint64_t bytes, struct error *error);
/* Scratch that outlives its step, for captured ones. */
int mem_arena(struct mem *mem, uint64_t bytes, void **ret, struct error *error);
int mem_arena_free(struct mem *mem, void *base, uint64_t bytes, struct error *error);
int mem_slab(struct mem *mem, uint64_t bytes, void **ret, struct error *error);
int mem_slab_free(struct mem *mem, void *base, uint64_t bytes, struct error *error);

/* After a step was enqueued: returns a part of what freed slabs leave unused in the KV pool, once the
 * stream has passed the frees. Waits for nothing; a part at a time, so that the step after it is
 * enqueued in time. */
int mem_housekeep(struct mem *mem, struct error *error);
/* Idle only, after a synchronisation: gives the device back what the pools hold unused. */
int mem_trim(struct mem *mem, struct error *error);

void mem_read(const struct mem *mem, struct gpu_memory *ret); /* any thread */

static inline uint64_t mem_round(uint64_t bytes)
{
    return (bytes + MEM_ALIGN - 1) / MEM_ALIGN * MEM_ALIGN;
}
