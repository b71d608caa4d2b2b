#include "gpu/profile.h"

#include "gpu/cuda.h"

int profile_open(struct profile *profile, struct error *error)
{
    profile->on = true;
    for (int step = 0; step < PROFILE_STEPS; step++) {
        for (int mark = 0; mark < PROFILE_MARKS; mark++)
            CUDA_TRY(cudaEventCreateWithFlags(&profile->events[step][mark], cudaEventDefault),
                     error);
    }
    return 0;
}

void profile_close(struct profile *profile)
{
    for (int step = 0; step < PROFILE_STEPS; step++) {
        for (int mark = 0; mark < PROFILE_MARKS; mark++) {
            if (profile->events[step][mark])
                (void)cudaEventDestroy(profile->events[step][mark]);
        }
    }
    *profile = (struct profile){0};
}

int profile_record(struct profile *profile, uint64_t step, enum profile_mark mark,
                   cudaStream_t stream, struct error *error)
{
    if (!profile->on)
        return 0;
    CUDA_TRY(cudaEventRecord(profile->events[step % PROFILE_STEPS][mark], stream), error);
    return 0;
}

static uint64_t between_ns(const struct profile *profile, uint64_t step, enum profile_mark first,
                           enum profile_mark last)
{
    const cudaEvent_t *events = profile->events[step % PROFILE_STEPS];
    float ms = 0;
    if (!profile->on || cudaEventElapsedTime(&ms, events[first], events[last]) != cudaSuccess)
        return 0;
    return (uint64_t)((double)ms * 1e6);
}

uint64_t profile_in_ns(const struct profile *profile, uint64_t step)
{
    return between_ns(profile, step, PROFILE_IN_FIRST, PROFILE_IN_LAST);
}

uint64_t profile_out_ns(const struct profile *profile, uint64_t step)
{
    return between_ns(profile, step, PROFILE_OUT_FIRST, PROFILE_OUT_LAST);
}
