/* Jobs on a device: what the daemon's worker of programs knows of it. No CUDA type is in sight here,
 * as in gpu.h.
 *
 * The unit is a chunk: pieces of items of one program that go over a lane together (gpu/jobs/README.md).
 * Several are under way at once and they end in any order; each end writes to the worker's eventfd, and
 * nothing polls.
 *
 * Threads: all calls are the worker's, but for those tagged "any". None of them blocks, except those
 * tagged "blocks". From start on none of them allocates memory of the heap.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "gpu/gpu.h"
#include "gpu/jobs/gpu_machine.h"
#include "gpu/jobs/program.h"

#define GPU_JOBS_LANES_MAX 16
#define GPU_JOBS_RING_MAX 4
#define GPU_JOBS_PIECES_MAX 256 /* of a chunk */
#define GPU_JOBS_COPY_THREADS_MAX 16

struct gpu_jobs; /* opaque */

struct gpu_jobs_options {
    int device;           /* its number, in the order of gpu.h */
    uint32_t lanes;       /* 1 to GPU_JOBS_LANES_MAX */
    uint32_t ring;        /* chunks of a lane that are under way, 1 to GPU_JOBS_RING_MAX */
    uint64_t chunk_bytes; /* of inputs, and of outputs: staging of this size each way per chunk */
    uint64_t memory_max;  /* of device memory for all chunks together; 0: what the device has */
    bool background;      /* a model is more urgent: least priority, else the greatest */
    uint32_t copy_threads; /* that copy to and from staging beside the worker; 0: it does alone */
    uint32_t stream_count, event_count; /* the most that a program has */
    uint32_t cpu_threads, cpu_devices;  /* CPU device: as in gpu.h */
};

/* An item, or rows of one. The host's memory is the caller's until the chunk is back. */
struct gpu_piece {
    uint64_t sizes[SLUICE_SIZES_MAX];
    uint64_t first, whole; /* where its rows begin in the item, and how many that has: size 0 */
    union sluice_value values[SLUICE_PARAMETERS_MAX];
    const void *inputs[SLUICE_TENSORS_MAX]; /* the piece's own rows */
    void *outputs[SLUICE_TENSORS_MAX];      /* NULL: nobody wants it any more */
};

/* When a chunk's stages ran, on a clock of the device's that begins anywhere. Of a copy also the time
 * in which it waited for its engine; of kernels, from the first of its streams that began to the last
 * that was through. */
struct gpu_chunk_times {
    struct gpu_span in, kernels, out;
    uint64_t bytes_in, bytes_out; /* that were copied */
    uint32_t lane;
};

/* Owned by the caller, and not touched from submit until take gives it back. */
struct gpu_chunk {
    const struct program *program;
    uint32_t count;
    struct gpu_piece *pieces;
    bool pinned;    /* inputs and outputs lie in pinned memory, which is copied from and to as it is */
    bool timed;     /* asks for its times, which cost its streams some events */
    int32_t status; /* what the program's enqueue() returned: not 0, no output was written */
    struct gpu_chunk_times times; /* of one that is timed */
};

struct gpu_jobs_memory {
    uint64_t used, held; /* bytes of the pool: by chunks, and with what it keeps */
    uint64_t pinned;     /* bytes of staging */
};

struct gpu_jobs_counters {
    uint64_t chunks, pieces, bytes_in, bytes_out; /* copied to and from the device */
    uint64_t overlapped;   /* chunks that were enqueued while others were under way */
    uint64_t allocations;  /* outside the pool, after start; stays 0 */
    uint64_t synchronizes; /* while chunks were under way; 0 until stop */
    uint64_t pageable_copies; /* stays 0 */
};

struct gpu_jobs_api {
    /* any, blocks. Opens the device's lanes; nothing is running. */
    int (*open)(const struct gpu_jobs_options *options, struct gpu_jobs **ret_jobs,
                struct error *error);
    /* blocks. Streams, pool, staging. wake_fd: an eventfd of the caller, written after every chunk; it
     * outlives the lanes, and of a device that failed it stays open for good. */
    int (*start)(struct gpu_jobs *jobs, int wake_fd, struct error *error);

    /* How many chunks submit takes now. */
    uint32_t (*room)(const struct gpu_jobs *jobs);
    /* Copies the inputs and enqueues; there is room, and inputs and outputs of its pieces take no more
     * than chunk_bytes each (shape.h). ERR_DEVICE_MEMORY: nothing was
     * enqueued, and it may pass once others have ended. ERR_DEVICE: the lanes are dead. */
    int (*submit)(struct gpu_jobs *jobs, struct gpu_chunk *chunk, struct error *error);
    /* A chunk that has ended, its outputs copied; NULL: none. */
    struct gpu_chunk *(*take)(struct gpu_jobs *jobs, struct error *error);
    /* Asks the device whether it still works, once in a timed wait. */
    enum gpu_progress (*query)(struct gpu_jobs *jobs, struct error *error);
    /* blocks shortly; nothing is under way. What the pool holds unused goes back to the device. */
    int (*trim)(struct gpu_jobs *jobs, struct error *error);

    void (*memory)(const struct gpu_jobs *jobs, struct gpu_jobs_memory *ret_memory);       /* any */
    void (*counters)(const struct gpu_jobs *jobs, struct gpu_jobs_counters *ret_counters); /* any */

    /* blocks: waits for what is under way, unless the device failed. Then streams and memory. */
    void (*stop)(struct gpu_jobs *jobs);
    void (*close)(struct gpu_jobs *jobs);

    /* any, blocks for about limit_us; nothing else runs on the device. Before open, or after. */
    int (*measure)(const struct gpu_jobs_options *options, uint64_t limit_us,
                   struct gpu_machine *ret_machine, struct error *error);
};

/* The second symbol that a device module exports. */
extern const struct gpu_jobs_api gpu_jobs;
