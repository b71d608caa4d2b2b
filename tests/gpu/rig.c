#include "tests/gpu/rig.h"

#include <math.h>

enum gpu_dtype rig_dtype = GPU_DTYPE_AUTO;

/* Sums that become means in the end. */
static void add(struct rig_error *error, const struct gpu_score *scores,
                const struct reference_prompt *prompt)
{
    for (uint32_t i = 0; i + 1 < prompt->count; i++) {
        double off = fabs((double)scores[i].logprob - (double)prompt->logprobs[i]);
        if (isnan(off))
            off = INFINITY;
        error->mean += off;
        error->max = fmax(error->max, off);
    }
}

static void divide(struct rig_error *error, const struct reference *reference)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < REFERENCE_PROMPTS; i++)
        count += reference->prompts[i].count - 1;
    error->mean /= count;
}

struct rig_error rig_compare(const struct talk_job *jobs, const struct reference *reference)
{
    struct rig_error error = {0, 0};
    for (uint32_t i = 0; i < REFERENCE_PROMPTS; i++)
        add(&error, jobs[i].scores, &reference->prompts[i]);
    divide(&error, reference);
    return error;
}

struct rig_error rig_compare_scores(const struct gpu_score scores[][REFERENCE_TOKENS],
                                    const struct reference *reference)
{
    struct rig_error error = {0, 0};
    for (uint32_t i = 0; i < REFERENCE_PROMPTS; i++)
        add(&error, scores[i], &reference->prompts[i]);
    divide(&error, reference);
    return error;
}

void rig_score_jobs(struct talk_job *jobs, const struct reference *reference)
{
    for (uint32_t i = 0; i < REFERENCE_PROMPTS; i++)
        jobs[i] = (struct talk_job){.prompt = reference->prompts[i].tokens,
                                    .prompt_len = reference->prompts[i].count,
                                    .score = true};
}
