#include "gpu/base/profile.h"

#include <assert.h>
#include <time.h>

#include "gpu/base/cuda_error.h"

int profile_open(struct profile *profile, uint64_t steps, struct error *error)
{
    profile->steps = steps;
    for (int place = 0; steps && place < PROFILE_PLACES; place++) {
        for (int mark = 0; mark < PROFILE_MARKS; mark++)
            CUDA_TRY(
                cudaEventCreateWithFlags(&profile->places[place].events[mark], cudaEventDefault),
                error);
    }
    return 0;
}

/* `steps` stays: after a failure the last host function may be asking for it. */
void profile_close(struct profile *profile)
{
    for (int place = 0; place < PROFILE_PLACES; place++) {
        for (int mark = 0; mark < PROFILE_MARKS; mark++) {
            if (profile->places[place].events[mark])
                (void)cudaEventDestroy(profile->places[place].events[mark]);
            profile->places[place].events[mark] = NULL;
        }
    }
}

uint64_t profile_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void profile_begin(struct profile *profile, const struct gpu_plan *plan)
{
    if (!profile_covers(profile, plan->step))
        return;
    profile->places[plan->step % PROFILE_PLACES].host = (struct gpu_profile){
        .enqueue = {.begin_ns = profile_now_ns()},
        .rows = plan->row_count,
        .tokens = plan->token_count,
        .slabs = plan->slab_count,
    };
}

void profile_end(struct profile *profile, uint64_t step)
{
    if (profile_covers(profile, step))
        profile->places[step % PROFILE_PLACES].host.enqueue.end_ns = profile_now_ns();
}

int profile_record(struct profile *profile, uint64_t step, enum profile_mark mark,
                   cudaStream_t stream, struct error *error)
{
    if (!profile_covers(profile, step))
        return 0;
    struct profile_place *place = &profile->places[step % PROFILE_PLACES];
    CUDA_TRY(cudaEventRecord(place->events[mark], stream), error);
    place->peer = place->peer || mark == PROFILE_PEER_LAST;
    return 0;
}

/* Never negative: the marks are asked for in the order in which they pass. */
static uint64_t between_ns(const struct profile_place *place, enum profile_mark first,
                           enum profile_mark last)
{
    float ms = 0;
    if (cudaEventElapsedTime(&ms, place->events[first], place->events[last]) != cudaSuccess)
        return 0;
    return ms > 0 ? (uint64_t)((double)ms * 1e6) : 0;
}

static uint64_t step_ns(const struct profile *profile, uint64_t step, enum profile_mark first,
                        enum profile_mark last)
{
    return profile_covers(profile, step)
               ? between_ns(&profile->places[step % PROFILE_PLACES], first, last)
               : 0;
}

uint64_t profile_in_ns(const struct profile *profile, uint64_t step)
{
    return step_ns(profile, step, PROFILE_IN_FIRST, PROFILE_IN_LAST);
}

uint64_t profile_out_ns(const struct profile *profile, uint64_t step)
{
    return step_ns(profile, step, PROFILE_OUT_FIRST, PROFILE_OUT_LAST);
}

void profile_read(const struct profile *profile, uint64_t step, struct gpu_span compute,
                  uint64_t told_ns, struct gpu_profile *ret)
{
    assert(profile_covers(profile, step));
    const struct profile_place *place = &profile->places[step % PROFILE_PLACES];
    struct gpu_span in, out;
    in.begin_ns = compute.end_ns - between_ns(place, PROFILE_IN_FIRST, PROFILE_COMPUTE_LAST);
    in.end_ns = in.begin_ns + between_ns(place, PROFILE_IN_FIRST, PROFILE_IN_LAST);
    out.begin_ns = compute.end_ns + between_ns(place, PROFILE_COMPUTE_LAST, PROFILE_OUT_FIRST);
    out.end_ns = out.begin_ns + between_ns(place, PROFILE_OUT_FIRST, PROFILE_OUT_LAST);
    *ret = place->host;
    ret->lanes[GPU_COMPUTE] = compute;
    ret->lanes[GPU_COPY_IN] = in;
    ret->lanes[GPU_COPY_OUT] = out;
    if (place->peer) {
        uint64_t begin_ns =
            compute.end_ns + between_ns(place, PROFILE_COMPUTE_LAST, PROFILE_PEER_FIRST);
        uint64_t took_ns = between_ns(place, PROFILE_PEER_FIRST, PROFILE_PEER_LAST);
        ret->lanes[GPU_PEER] = (struct gpu_span){begin_ns, begin_ns + took_ns};
    }
    ret->told_ns = told_ns;
}
