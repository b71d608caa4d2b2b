/* One block; bound by latency. */
#include "gpu/kernels/step/packed_plan.h"
#include "gpu/kernels/common/clock.cuh"
#include "gpu/kernels/common/device.cuh"
#include "gpu/kernels/step/step_end.h"

#define PUBLISH_THREADS 512

__device__ static void copy_words(void *to, const void *from, size_t bytes)
{
    for (size_t i = threadIdx.x; i < bytes / 4; i += PUBLISH_THREADS)
        static_cast<uint32_t *>(to)[i] = static_cast<const uint32_t *>(from)[i];
}

__global__ void __launch_bounds__(PUBLISH_THREADS) publish_kernel(struct step_end_args a)
{
    grid_trigger();
    grid_wait();
    struct step_control control = *a.control;
    size_t samples = min(a.counts->samples, a.samples_max);
    char *result = static_cast<char *>(control.result);
    copy_words(result + control.result_samples, a.samples, samples * sizeof *a.samples);
    if (control.result_tops)
        copy_words(result + control.result_tops, a.tops,
                   samples * sizeof *a.tops * GPU_LOGPROBS_MAX);
    for (uint32_t i = threadIdx.x; control.tokens_out && i < a.slots_max; i += PUBLISH_THREADS)
        control.tokens_out[i] = a.slots[i].last;
    __syncthreads();
    if (threadIdx.x == 0) {
        struct result_head head = {control.step, control.start_ns, clock_now_ns(), 0};
        *reinterpret_cast<struct result_head *>(result) = head;
    }
}

cudaError_t op_step_end(const struct step_end_args *args, cudaStream_t stream)
{
    return launch(publish_kernel, dim3(1), PUBLISH_THREADS, 0, stream, *args);
}
