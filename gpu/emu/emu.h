/* What the emulated CUDA runtime has beyond NVIDIA's: launching a kernel's CPU body, and what tests
 * need to be stricter than a device (engines, faults, counters). Included by *_cpu.c files and
 * tests only; everything else sees <cuda_runtime_api.h>. Any thread, but where a line says
 * otherwise.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

enum emu_engine {
    EMU_THREADS,       /* streams share a few threads: the product. Under TSan: as the next one */
    EMU_STREAM_THREAD, /* every stream its own thread: no order but CUDA's can hide */
    EMU_STEPPER,       /* no threads: emu_step runs one head at a time, chosen from the seed */
};

struct emu_options {
    enum emu_engine engine;
    uint32_t devices;      /* 0 means 1 */
    uint64_t memory_bytes; /* per device; 0 means what the machine has available, shared out */
    uint32_t team_threads; /* of a greatest-priority stream's kernels; 0 means one per CPU */
    uint64_t seed;         /* of the stepper */
    bool lazy;             /* created streams of the least priority run only where nothing else can */
    bool poison;           /* device memory is filled with 0xff when allocated and when freed */
    bool strict;           /* a copy from or to pageable memory on a created stream aborts */
    bool faults_from_environment; /* read SLUICE_EMU_FAULT=call:nth:error[,...] */
};

/* Starts over: what the last set-up left is dropped, streams, memory, errors, faults and counters
 * alike. No other thread may be inside a CUDA call. Without it, the first call sets up the product:
 * one device, threads, neither poison nor strict. Fails only for want of memory or threads. */
cudaError_t emu_setup(const struct emu_options *options);

/* Enqueues a kernel: `kernel(args, index)` once for every index below count, in no order, on the
 * stream's own threads. `args` are copied now, at most EMU_ARGS_MAX bytes, 16-aligned for the
 * kernel. `name` is for messages and must live on. An index should be worth some microseconds. */
#define EMU_ARGS_MAX 4096
cudaError_t emu_launch(cudaStream_t stream, const char *name,
                       void (*kernel)(const void *args, uint32_t index), const void *args,
                       size_t args_size, uint32_t count);

/* Tallies: how streams of several devices meet, as kernels do by flags in each other's memory. A
 * tally belongs to one stream, which raises it; `level` holds a stream until `other` stands as high
 * as its own. Both go into graphs like kernels, and every replay counts anew. A sticky error lets
 * go who waits. Freed once no stream holds work with it. */
cudaStream_t emu_tally_make(void); /* NULL for want of memory */
void emu_tally_free(cudaStream_t tally);
cudaError_t emu_tally_raise(cudaStream_t stream, cudaStream_t tally);
cudaError_t emu_tally_level(cudaStream_t stream, cudaStream_t own, cudaStream_t other);

/* The readable alias of a device address; for kernels only. The address itself faults when read. */
extern ptrdiff_t emu_alias_offset;
static inline void *dev(const void *device_pointer)
{
    return (void *)((uintptr_t)device_pointer + (uintptr_t)emu_alias_offset);
}

/* Replaces the parameters of a captured kernel in an instantiated graph, from its next launch on:
 * the emulation's side of cudaGraphExecKernelNodeSetParams. `size` must be as captured. */
cudaError_t emu_graph_set_args(cudaGraphExec_t exec, cudaGraphNode_t node, const void *args,
                               size_t size);
/* The name that a kernel node was launched with; NULL for other nodes. */
const char *emu_graph_node_name(cudaGraphNode_t node);

/* Stepper: runs one stream's head. False when nothing can run. Synchronising calls step by
 * themselves until they are satisfied, and abort when that can never be. */
bool emu_step(void);

/* Calls, as fault points and counters. */
enum emu_call {
#define CALL(name, parameters) EMU_##name,
#include "gpu/emu/cudart.def"
#undef CALL
    EMU_launch, /* emu_launch */
    EMU_CALLS
};

/* The nth call from now (1 is the next) fails with `error` and does nothing. A sticky error
 * (cudaErrorIllegalAddress, cudaErrorLaunchFailure, ...) stays: from then on every call returns
 * it, queued work is dropped and host functions are not called. One fault per call at a time;
 * nth 0 disarms. */
void emu_fault_set(enum emu_call call, uint64_t nth, cudaError_t error);
void emu_fault_skip_wait(uint64_t nth); /* nth cudaStreamWaitEvent: success, but no wait */
void emu_fault_hang(uint64_t nth);      /* nth kernel launched never ends (until a sticky error) */
/* From a kernel: the context breaks with this sticky error, as by a trap or an illegal access. */
void emu_break(cudaError_t sticky);
/* The memory that this process may hold on each device, since others hold the rest. UINT64_MAX
 * lifts it. Lower than what is held is fine: nothing more is given then. */
void emu_memory_limit(uint64_t bytes);

uint64_t emu_calls(enum emu_call call); /* since set-up */
const char *emu_call_name(enum emu_call call);
uint64_t emu_pageable_copies(void); /* copies from or to memory that is not pinned */

/* What is alive: created and not destroyed. All zero at the end of a clean test. */
struct emu_live {
    uint32_t streams; /* created ones, not the per-thread defaults */
    uint32_t events;
    uint32_t pools;
    uint32_t graphs; /* and instantiated graphs */
    uint32_t host_ranges;
    uint64_t device_bytes; /* allocated, not freed */
};
struct emu_live emu_live(void);
