/* What a device's streams, copies and allocations cost on this machine, as `sluiced --calibrate`
 * shows it beside a program's own curves. Nothing is chosen by it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define GPU_MACHINE_STREAMS_MAX 9 /* numbers of streams: 1, 2, 4 to 256 */
#define GPU_MACHINE_THREADS 4

/* How memory is taken and given back again. */
enum gpu_machine_allocator {
    GPU_MACHINE_DIRECT,  /* cudaMalloc, cudaFree */
    GPU_MACHINE_RELEASE, /* a pool whose release threshold is 0 */
    GPU_MACHINE_KEEP,    /* a pool that keeps what it has */
    GPU_MACHINE_ALLOCATORS
};

/* How copies in, kernels and copies out of some batches are enqueued. */
enum gpu_machine_issue {
    GPU_MACHINE_SEQUENTIAL,  /* all in one stream */
    GPU_MACHINE_BLOCKING,    /* a stream a stage; the host waits behind each */
    GPU_MACHINE_INTERLEAVED, /* a stream a stage, events between them; batch after batch */
    GPU_MACHINE_GROUPED,     /* the same; all copies in, all kernels, all copies out */
    GPU_MACHINE_ISSUES
};

struct gpu_machine {
    bool emulated; /* the CPU device: copies and kernels are threads of this process */
    uint32_t copy_engines;

    double rates[2][2]; /* bytes a second: [pinned][out] alone */
    double both_rate;   /* pinned, in and out at once; their sum */

    uint64_t allocation_bytes;
    struct {
        double us;         /* of taking and giving back, and waiting for the stream */
        double others;     /* times as long as alone that another thread's kernels took meanwhile */
        double longest_us; /* of one of those kernels, with its launch */
    } allocators[GPU_MACHINE_ALLOCATORS];
    uint64_t kept_bytes,
        trimmed_bytes; /* that the keeping pool held at the end, and once trimmed */

    uint32_t batches;
    uint64_t batch_bytes; /* each way */
    double stage_us[3];   /* of a batch alone: copied in, kernel, copied out */
    double issue_us[GPU_MACHINE_ISSUES];

    uint32_t stream_count;
    uint32_t streams[GPU_MACHINE_STREAMS_MAX];
    double streams_gain[GPU_MACHINE_STREAMS_MAX]; /* times one kernel's rate, a kernel in each */
    double default_gain; /* as many kernels as GPU_MACHINE_THREADS in one thread's default stream */
    double threads_gain; /* the same, each in the default stream of a thread of its own */
};
