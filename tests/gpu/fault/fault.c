/* sluice-cuda.so with a kernel that goes wrong, for tests/gpu/operate.py: the module's own objects,
 * but the linker sends the engine's step_submit through here (--wrap). The product knows nothing of
 * it.
 *
 * SLUICE_TEST_FAULT=trap:N or spin:N puts a kernel that traps, or one that spins for a minute,
 * before the kernels of step N, and says so on stderr.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/cuda.h"
#include "gpu/engine.h"
#include "tests/gpu/fault/fault.h"

int __real_step_submit(struct rank *rank, const struct gpu_plan *plan, struct error *error);
int __wrap_step_submit(struct rank *rank, const struct gpu_plan *plan, struct error *error);

int __wrap_step_submit(struct rank *rank, const struct gpu_plan *plan, struct error *error)
{
    const char *fault = getenv("SLUICE_TEST_FAULT");
    const char *colon = fault ? strchr(fault, ':') : NULL;
    if (colon && strtoull(colon + 1, NULL, 10) == plan->step) {
        bool trap = strncmp(fault, "trap", 4) == 0;
        CUDA_TRY(trap ? fault_trap(rank->lane.compute) : fault_spin(rank->lane.compute), error);
        fprintf(stderr, "fault: %s in step %llu\n", trap ? "trap" : "spin",
                (unsigned long long)plan->step);
    }
    return __real_step_submit(rank, plan, error);
}
