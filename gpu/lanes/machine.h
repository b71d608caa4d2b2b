/* Measures what gpu/jobs/gpu_machine.h tells. It has the device for itself, synchronises and
 * allocates as it likes, and gives all back. Each measurement is repeated until its share of time
 * is over, and made once at least.
 *
 * Thread: any one. */
#pragma once

#include <cuda_runtime_api.h>

#include "gpu/jobs/gpu_machine.h"
#include "protocol/base/error.h"

#define MACHINE_STREAMS_MAX 256
#define MACHINE_BATCHES 12u
#define MACHINE_BATCH_BYTES ((uint64_t)4 << 20)
#define MACHINE_BYTES (MACHINE_BATCHES * MACHINE_BATCH_BYTES)
#define MACHINE_TURNS 7 /* of which the middle one counts */

struct machine {
    int device;
    uint64_t turns_ns; /* share of time of one measurement */
    uint32_t stream_count;
    cudaStream_t streams[MACHINE_STREAMS_MAX];
    cudaEvent_t events[2][MACHINE_BATCHES];    /* copied in, computed */
    void *pinned[2], *pageable[2], *memory[2]; /* of MACHINE_BYTES: in, out */
};

/* limit_us: of all together, about; what has begun goes on to its end. */
int machine_measure(int device, uint64_t limit_us, struct gpu_machine *ret, struct error *error);

/* ---- the parts of it ---------------------------------------------------------------------------
 */

/* What is repeated: enqueues, and returns when all of it is through. */
typedef int machine_turn(struct machine *machine, const void *argument, struct error *error);

uint64_t machine_now_ns(void);
/* The middle one of the turns, after one that does not count. */
int machine_middle_ns(struct machine *machine, machine_turn *turn, const void *argument,
                      double *ret_ns, struct error *error);
int machine_synchronize(struct machine *machine, uint32_t streams, struct error *error);

int machine_copies(struct machine *machine, struct gpu_machine *ret, struct error *error);
int machine_memory(struct machine *machine, struct gpu_machine *ret, struct error *error);
int machine_issue(struct machine *machine, struct gpu_machine *ret, struct error *error);
int machine_streams(struct machine *machine, struct gpu_machine *ret, struct error *error);
