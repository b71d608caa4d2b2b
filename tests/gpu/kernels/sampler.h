/* op_sample over a scene: every row of the step with GPU_SAMPLE gets a row of logits. */
#pragma once

#include "gpu/kernels/sampling/sample.h"
#include "tests/gpu/kernels/scene.h"

struct sampler_rig {
    uint32_t vocab, stride, eos_count;
    int32_t eos[GPU_EOS_MAX];
    float *logits; /* [SCENE_ROWS_MAX][stride]: set before sampler_run, kept by it */
    void *device, *samples, *tops;
    const struct step_control *control; /* device; NULL: the op does not end the step */
    const uint32_t *masks; /* NULL, or [samples][mask_words]: a row's logits are then its slot's */
    uint32_t mask_words;
    struct gpu_sample sample[SCENE_ROWS_MAX];
    struct gpu_top top[SCENE_ROWS_MAX][GPU_LOGPROBS_MAX];
};

void sampler_begin(struct sampler_rig *sampler, uint32_t vocab);
void sampler_end(struct sampler_rig *sampler);
void sampler_run(struct sampler_rig *sampler, const struct scene *scene); /* after scene_step */
float *sampler_row(const struct sampler_rig *sampler, uint32_t index);

/* log softmax of a row, in doubles. */
double sampler_logprob(const struct sampler_rig *sampler, uint32_t index, uint32_t token);
