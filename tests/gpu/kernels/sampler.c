#include "tests/gpu/kernels/sampler.h"

#include <math.h>

void sampler_begin(struct sampler_rig *sampler, uint32_t vocab)
{
    *sampler = (struct sampler_rig){.vocab = vocab, .stride = vocab + rig_between(0, 5)};
    /* Up to the bound of a batch, which may lie above its count (scene.c): rows there may be read. */
    size_t count = (size_t)(SCENE_ROWS_MAX + SCENE_BOUND_SLACK) * sampler->stride;
    sampler->logits = calloc(count, sizeof(float));
    sampler->device = rig_new(NULL, count * sizeof(float));
    sampler->samples = rig_new(NULL, sizeof sampler->sample);
    sampler->tops = rig_new(NULL, sizeof sampler->top);
}

void sampler_end(struct sampler_rig *sampler)
{
    free(sampler->logits);
}

float *sampler_row(const struct sampler_rig *sampler, uint32_t index)
{
    return sampler->logits + (size_t)index * sampler->stride;
}

void sampler_run(struct sampler_rig *sampler, const struct scene *scene)
{
    size_t scratch = sample_scratch_bytes(scene->batch.samples_max, sampler->vocab);
    struct sample_args args = {
        .batch = scene->batch,
        .logits = sampler->device,
        .stride = sampler->stride,
        .vocab = sampler->vocab,
        .eos_count = sampler->eos_count,
        .samples = sampler->samples,
        .tops = sampler->tops,
        .control = sampler->control,
        .slots_max = scene->slots,
        .scratch_bytes = scratch,
    };
    void *memory = NULL;
    if (sampler->masks) {
        args.batch.samples_max = scene->counts.samples; /* every row exists */
        args.masks = rig_new(sampler->masks, (size_t)scene->counts.samples * sampler->mask_words *
                                                 sizeof *sampler->masks);
        args.mask_words = sampler->mask_words;
    }
    memcpy(args.eos, sampler->eos, sizeof args.eos);
    if (scratch)
        OK(cudaMalloc(&memory, scratch));
    args.scratch = memory;
    OK(cudaMemsetAsync(sampler->samples, 0xa5, sizeof sampler->sample, rig_stream));
    OK(cudaMemsetAsync(sampler->tops, 0xa5, sizeof sampler->top, rig_stream));
    if (!sampler->masks) /* else they are where rows were kept */
        OK(cudaMemcpyAsync(sampler->device, sampler->logits,
                           (size_t)scene->counts.samples * sampler->stride * sizeof(float),
                           cudaMemcpyHostToDevice, rig_stream));
    rig_wait();
    OK(op_sample(&args, rig_stream));
    rig_read(sampler->sample, sampler->samples, sizeof sampler->sample);
    rig_read(sampler->top, sampler->tops, sizeof sampler->top);
    if (memory)
        OK(cudaFree(memory));
    for (uint32_t i = scene->counts.samples; i < SCENE_ROWS_MAX; i++)
        ck_assert_uint_eq(sampler->sample[i].top_count, 0xa5a5a5a5u);
}

double sampler_logprob(const struct sampler_rig *sampler, uint32_t index, uint32_t token)
{
    const float *logits = sampler_row(sampler, index);
    double greatest = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < sampler->vocab; i++)
        if ((double)logits[i] > greatest)
            greatest = (double)logits[i];
    for (uint32_t i = 0; i < sampler->vocab; i++)
        if (logits[i] == logits[i])
            sum += exp((double)logits[i] - greatest);
    return (double)logits[token] - greatest - log(sum);
}
