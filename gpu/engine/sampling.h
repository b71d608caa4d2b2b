/* Sampling by masks, behind the steps: what gpu.h's sample() does on a rank.
 *
 * The masks, and the batch that the sampler is to see, are written to a place of a pinned ring and go
 * to the device in one copy; the same sampler as a step's takes the logits that the slots kept
 * (kernels/sampling/sample.h), and its samples come back as a step's results do, with an end of
 * their own. Nothing is allocated: the places are made at start, the sampler's scratch stands
 * behind the kept logits.
 *
 * Thread: the rank's own; sampling_results the leader's.
 */
#pragma once

#include <stdint.h>

#include "gpu/gpu.h"

struct rank;

struct sampling_place {
    uint64_t number; /* 0: unused */
    uint32_t count;
    bool tops;
    void *masks_pinned, *masks; /* struct sampling_head and the masks; masks: device */
    void *result_pinned, *result;
};

struct sampling_ring {
    uint64_t submitted; /* number of the last sampling */
    uint32_t mask_words;
    uint64_t bytes; /* of all places, one behind the other */
    struct sampling_place places[GPU_SAMPLINGS_MAX];
};

/* Of a rank that samples. */
int sampling_ring_open(struct rank *rank, struct error *error);
/* Says how much state.kept takes. */
void kept_measure(struct rank *rank);

/* As gpu_api.sample; nothing where another stage samples. */
int sampling_submit(struct rank *rank, const struct gpu_sampling *sampling, struct error *error);
void sampling_results(const struct rank *rank, uint64_t number, struct gpu_results *ret_results);
