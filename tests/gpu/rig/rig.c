#include "tests/gpu/rig/rig.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum gpu_dtype rig_dtype = GPU_DTYPE_AUTO;

struct weight *rig_weight(const struct rank *rank, const char *tensor)
{
    return &rank->weights.at[op_list_weight(rank->program.list, tensor)];
}

static void swap(struct weight *a, struct weight *b)
{
    struct weight kept = *a;
    *a = *b;
    *b = kept;
}

void rig_stages_swap(struct rank *a, struct rank *b)
{
    uint32_t j = 0;
    for (uint32_t i = 0; i < a->program.op_count; i++) {
        const struct op *one = &a->program.ops[i], *other = NULL;
        if (one->layer < 0 || one->weight == LIST_NONE)
            continue;
        for (; j < b->program.op_count && !other; j++) {
            bool fits = b->program.ops[j].layer >= 0 && b->program.ops[j].weight != LIST_NONE;
            other = fits ? &b->program.ops[j] : NULL;
        }
        if (other)
            swap(&a->weights.at[one->weight], &b->weights.at[other->weight]);
    }
}

void rig_without(struct rank *rank, enum op_kind kind)
{
    struct program *program = &rank->program;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < program->op_count; i++) {
        if (program->ops[i].kind != kind)
            program->ops[kept++] = program->ops[i];
    }
    program->op_count = kept;
    (void)program_fuse(program, NULL);
}

/* Sums that become means in the end. */
static void add(struct rig_error *error, const struct gpu_score *scores,
                const struct reference_prompt *prompt, double far)
{
    for (uint32_t i = 0; i + 1 < prompt->count; i++) {
        double off = fabs((double)scores[i].logprob - (double)prompt->logprobs[i]);
        if (isnan(off))
            off = INFINITY;
        error->mean += off;
        error->max = fmax(error->max, off);
        error->far += off > far;
    }
}

static void divide(struct rig_error *error, const struct reference *reference)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < REFERENCE_PROMPTS; i++)
        count += reference->prompts[i].count - 1;
    error->mean /= count;
    error->far /= count;
}

struct rig_error rig_compare(const struct engine_client_job *jobs,
                             const struct reference *reference)
{
    struct rig_error error = {0};
    for (uint32_t i = 0; i < REFERENCE_PROMPTS; i++)
        add(&error, jobs[i].scores, &reference->prompts[i],
            fmax(RIG_FAR, reference->bf16_max_error));
    divide(&error, reference);
    return error;
}

struct rig_error rig_compare_scores(const struct gpu_score scores[][REFERENCE_TOKENS],
                                    const struct reference *reference)
{
    struct rig_error error = {0};
    for (uint32_t i = 0; i < REFERENCE_PROMPTS; i++)
        add(&error, scores[i], &reference->prompts[i], fmax(RIG_FAR, reference->bf16_max_error));
    divide(&error, reference);
    return error;
}

void rig_tell(const char *name, struct rig_error error)
{
    if (getenv("RIG_TELL"))
        printf("%-24s mean %.1e worst %.1e, %.1f %% far off\n", name, error.mean, error.max,
               100 * error.far);
}

void rig_score_jobs(struct engine_client_job *jobs, const struct reference *reference)
{
    for (uint32_t i = 0; i < REFERENCE_PROMPTS; i++)
        jobs[i] = (struct engine_client_job){.prompt = reference->prompts[i].tokens,
                                             .prompt_len = reference->prompts[i].count,
                                             .score = true};
}
