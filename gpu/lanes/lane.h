/* A lane: streams for copies in, kernels and copies out, and a ring of slots, each of which carries one
 * chunk at a time.
 *
 *   in       H2D(n)     H2D(n+1)
 *   compute       kernels(n)   kernels(n+1)          `compute_count` of them
 *   out                   D2H(n)     D2H(n+1)
 *   notify                      host function(n)
 *
 * Of a chunk, events order one stream behind another: the inputs are there (each compute stream
 * waits), each compute stream is through (out waits), the outputs are on the host (notify waits). None
 * can be left out: tests/jobs/lanes_test.c takes each away.
 *
 * The host function stores the slot's state and writes to the eventfd: it owns nothing, frees nothing,
 * locks nothing, and makes no CUDA call. Device memory is taken on `in`, and given back there once the
 * host knows that the chunk has ended.
 *
 * Thread: the worker's. Owns its streams, events and staging.
 */
#pragma once

#include <cuda_runtime_api.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "gpu/jobs/gpu_jobs.h"
#include "gpu/lanes/lane_times.h"

#define LANE_STAGING_ALIGN 256u

enum slot_state { SLOT_FREE, SLOT_UNDER_WAY, SLOT_ENDED };

struct lane;

struct lane_slot {
    struct lane *lane;
    atomic_uint state; /* enum slot_state; ENDED is written by the host function */
    struct gpu_chunk *chunk;
    unsigned char *staging_in, *staging_out; /* pinned */
    cudaEvent_t inputs_there, outputs_on_host;
    cudaEvent_t through[SLUICE_STREAMS_MAX];
    struct lane_times times;
    void *memory; /* of the chunk, on the device: in block, out block, scratch, taken */
    uint64_t memory_bytes, in_bytes, out_bytes, scratch_bytes;
    uint64_t out_at[GPU_JOBS_PIECES_MAX]; /* where the outputs of each piece begin in the out block */
};

/* Written by the worker's thread alone, read by any. */
struct lane_numbers {
    _Atomic uint64_t chunks, pieces, bytes_in, bytes_out, overlapped;
    _Atomic uint64_t used, pinned, allocations, synchronizes, pageable_copies;
};

struct lane {
    cudaStream_t in, out, notify, compute[SLUICE_STREAMS_MAX];
    cudaEvent_t events[SLUICE_EVENTS_MAX]; /* the programs' */
    uint32_t compute_count, event_count, ring;
    cudaMemPool_t pool;       /* borrowed */
    struct lane_clock *clock; /* of all lanes; borrowed */
    const struct sluice_cuda *cuda; /* likewise; NULL on the CPU device */
    uint32_t number;
    int wake_fd;
    uint64_t in_room, out_room; /* bytes of each slot's staging */
    uint64_t copy_most;         /* bytes of one copy */
    bool settled;               /* set-up is over: what is allocated later is counted */
    struct lane_numbers *numbers; /* of all lanes; borrowed */
    struct copy_crew *crew;       /* likewise; may be NULL */
    struct lane_slot slots[GPU_JOBS_RING_MAX];
};

/* Bytes that the table of so many pieces takes in front of the inputs. */
static inline uint64_t lane_table_bytes(uint32_t pieces)
{
    uint64_t bytes = (uint64_t)pieces * sizeof(struct sluice_item);
    return (bytes + LANE_STAGING_ALIGN - 1) / LANE_STAGING_ALIGN * LANE_STAGING_ALIGN;
}

/* On failure nothing is left behind. wake_fd, pool, clock, cuda, number and numbers are set. */
int lane_open(struct lane *lane, const struct gpu_jobs_options *options, struct error *error);
void lane_close(struct lane *lane);

/* A slot that carries nothing; NULL: none. */
struct lane_slot *lane_free_slot(struct lane *lane);
int lane_submit(struct lane_slot *slot, struct gpu_chunk *chunk, struct error *error);
/* Of a slot that has ended: copies the outputs, gives the memory back, and the chunk. */
int lane_take(struct lane_slot *slot, struct gpu_chunk **ret_chunk, struct error *error);
int lane_synchronize(struct lane *lane, struct error *error);
