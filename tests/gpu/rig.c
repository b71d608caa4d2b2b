#include "tests/gpu/rig.h"

#include <math.h>

enum gpu_dtype rig_dtype = GPU_DTYPE_AUTO;

struct rig_error rig_compare(const struct talk_job *jobs, const struct reference *reference)
{
    struct rig_error error = {0, 0};
    double sum = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < REFERENCE_PROMPTS; i++) {
        const struct reference_prompt *prompt = &reference->prompts[i];
        for (uint32_t j = 0; j + 1 < prompt->count; j++, count++) {
            double off = fabs((double)jobs[i].scores[j].logprob - (double)prompt->logprobs[j]);
            if (isnan(off))
                off = INFINITY;
            sum += off;
            error.max = fmax(error.max, off);
        }
    }
    error.mean = sum / count;
    return error;
}
