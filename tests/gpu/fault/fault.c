/* sluice-cuda.so with a kernel that goes wrong, for tests/gpu/operate.py and sanitize.py: the
 * module's own objects, but the linker sends the engine's step_submit and cuda_graph_capture
 * through here (--wrap). The product knows nothing of it.
 *
 * SLUICE_TEST_FAULT=KIND:N puts a kernel before the kernels of step N, and says so on stderr:
 *   trap, spin    one that traps; one that spins for a minute
 *   overrun       one that writes behind the last byte of the first KV block that is there
 *   race, unwritten, barrier    one with a race in shared memory; that reads what nobody wrote;
 *                 that leaves half of a warp out of a barrier
 * SLUICE_TEST_BUCKETS=1 says on stderr which bucket each captured graph is of.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/base/cuda_error.h"
#include "gpu/engine/engine.h"
#include "tests/gpu/fault/fault.h"

int __real_step_submit(struct rank *rank, const struct gpu_plan *plan, struct error *error);
int __wrap_step_submit(struct rank *rank, const struct gpu_plan *plan, struct error *error);
void __real_cuda_graph_capture(struct rank *rank, struct cuda_graphs *graphs,
                               const struct cuda_graph_key *key, const struct launch *launch);
void __wrap_cuda_graph_capture(struct rank *rank, struct cuda_graphs *graphs,
                               const struct cuda_graph_key *key, const struct launch *launch);

static cudaError_t plant_trap(struct rank *rank)
{
    return fault_trap(rank->lane.compute);
}

static cudaError_t plant_spin(struct rank *rank)
{
    return fault_spin(rank->lane.compute);
}

static cudaError_t plant_overrun(struct rank *rank)
{
    const struct slabs *slabs = &rank->slabs[0];
    for (uint32_t i = 0; i < slabs->slabs_max; i++) {
        if (slabs->base[i])
            return fault_overrun(slabs->base[i], slabs->block_bytes, rank->lane.compute);
    }
    return cudaErrorInvalidValue; /* asked for in a step before the first block */
}

/* Memory of its own, of which nothing is ever written or freed. */
static cudaError_t plant_in(cudaError_t (*plant)(void *, cudaStream_t), struct rank *rank)
{
    void *at = NULL;
    cudaError_t failed = cudaMalloc(&at, 256);
    return failed == cudaSuccess ? plant(at, rank->lane.compute) : failed;
}

static cudaError_t plant_race(struct rank *rank)
{
    return plant_in(fault_race, rank);
}

static cudaError_t plant_unwritten(struct rank *rank)
{
    return plant_in(fault_unwritten, rank);
}

static cudaError_t plant_barrier(struct rank *rank)
{
    return plant_in(fault_barrier, rank);
}

static const struct {
    const char *name;
    cudaError_t (*plant)(struct rank *rank);
} kinds[] = {{"trap", plant_trap},           {"spin", plant_spin}, {"overrun", plant_overrun},
             {"unwritten", plant_unwritten}, {"race", plant_race}, {"barrier", plant_barrier}};

int __wrap_step_submit(struct rank *rank, const struct gpu_plan *plan, struct error *error)
{
    const char *fault = getenv("SLUICE_TEST_FAULT");
    const char *colon = fault ? strchr(fault, ':') : NULL;
    bool now = colon && strtoull(colon + 1, NULL, 10) == plan->step;
    for (size_t i = 0; now && i < sizeof kinds / sizeof kinds[0]; i++) {
        size_t length = strlen(kinds[i].name);
        if ((size_t)(colon - fault) != length || strncmp(fault, kinds[i].name, length) != 0)
            continue;
        CUDA_TRY(kinds[i].plant(rank), error);
        fprintf(stderr, "fault: %s in step %llu\n", kinds[i].name, (unsigned long long)plan->step);
    }
    return __real_step_submit(rank, plan, error);
}

void __wrap_cuda_graph_capture(struct rank *rank, struct cuda_graphs *graphs,
                               const struct cuda_graph_key *key, const struct launch *launch)
{
    bool there = cuda_graph_exists(graphs, key);
    __real_cuda_graph_capture(rank, graphs, key, launch);
    if (!there && cuda_graph_exists(graphs, key) && getenv("SLUICE_TEST_BUCKETS"))
        fprintf(stderr, "graph bucket: rows %u, context %u, counts %d\n", key->rows, key->context,
                key->counts);
}
