/* How what is repeated is timed. */
#include <stdlib.h>
#include <time.h>

#include "gpu/base/cuda_error.h"
#include "gpu/lanes/machine.h"

uint64_t machine_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int by_value(const void *left, const void *right)
{
    const double *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

int machine_middle_ns(struct machine *machine, machine_turn *turn, const void *argument,
                      double *ret_ns, struct error *error)
{
    double took[MACHINE_TURNS];
    int count = 0;
    int rc = turn(machine, argument, error);
    const uint64_t until = machine_now_ns() + machine->turns_ns;
    while (!rc && count < MACHINE_TURNS && (count == 0 || machine_now_ns() < until)) {
        const uint64_t begin = machine_now_ns();
        rc = turn(machine, argument, error);
        took[count++] = (double)(machine_now_ns() - begin);
    }
    if (rc)
        return rc;
    qsort(took, (size_t)count, sizeof(took[0]), by_value);
    *ret_ns = took[count / 2];
    return 0;
}

int machine_synchronize(struct machine *machine, uint32_t streams, struct error *error)
{
    for (uint32_t i = 0; i < streams; i++)
        CUDA_TRY(cudaStreamSynchronize(machine->streams[i]), error);
    return 0;
}
