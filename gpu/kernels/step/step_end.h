/* The last kernel of a step: what the sampler left at its fixed place goes to the step's place in
 * the ring of results, packed, with the step's head before it; and where the plan asks for that,
 * the last token of every slot, for another device. Scores and embeddings are there already: no
 * captured step has any. A step that samples is ended by op_sample (sample.h). */
#pragma once

#include "gpu/kernels/step/step_begin.h"

struct step_end_args {
    const struct step_control *control;
    const struct batch_counts *counts;
    const struct gpu_sample *samples; /* [samples_max] */
    const struct gpu_top *tops;       /* [samples_max][GPU_LOGPROBS_MAX] */
    const struct batch_slot *slots;   /* [slots_max] */
    uint32_t samples_max, slots_max;
};

OP_C cudaError_t op_step_end(const struct step_end_args *args, cudaStream_t stream);
