#include "gpu/kernels/step/step_end.h"

#include <string.h>

#include "gpu/emu/emu.h"
#include "gpu/kernels/common/clock_cpu.h"

static void publish(const void *data, uint32_t index)
{
    (void)index;
    const struct step_end_args *args = data;
    const struct step_control *control = dev(args->control);
    const struct batch_counts *counts = dev(args->counts);
    uint32_t samples = counts->samples < args->samples_max ? counts->samples : args->samples_max;
    char *result = dev(control->result);
    if (samples)
        memcpy(result + control->result_samples, dev(args->samples),
               samples * sizeof *args->samples);
    if (samples && control->result_tops)
        memcpy(result + control->result_tops, dev(args->tops),
               samples * sizeof *args->tops * GPU_LOGPROBS_MAX);
    int32_t *tokens = control->tokens_out ? dev(control->tokens_out) : NULL;
    const struct batch_slot *slots = dev(args->slots);
    for (uint32_t i = 0; tokens && i < args->slots_max; i++)
        tokens[i] = slots[i].last;
    *(struct result_head *)result = (struct result_head){
        .step = control->step,
        .start_ns = control->start_ns,
        .end_ns = clock_now_ns(),
    };
}

cudaError_t op_step_end(const struct step_end_args *args, cudaStream_t stream)
{
    return emu_launch(stream, "publish", publish, args, sizeof *args, 1);
}
