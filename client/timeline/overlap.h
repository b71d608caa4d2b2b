/* How much of the stages of chunks ran at once, and how much could. Pure. */
#pragma once

#include "client/timeline/chunk_list.h"

/* Below this the stages ran one after the other, but for their seams. */
#define OVERLAP_LEAST 1.1

/* A stage's engine: one for copies to the device, its kernels' units, one for copies back. An engine
 * is busy while a stage of any chunk is between its begin and its end: what several chunks do there
 * at once counts once, and so does a copy that waits behind another. So the sum over the engines is
 * at most STAGES times what elapsed. */
struct overlap {
    uint64_t span_ns;    /* from the first begin to the last end */
    uint64_t elapsed_ns; /* of that, while a chunk was under way */
    uint64_t busy_ns[STAGES], bytes[STAGES];
    uint64_t sum_ns;   /* of busy_ns: what the stages take one after the other */
    double at_once;    /* sum_ns over elapsed_ns */
    double model_ns;   /* what chunks of these times take when engines are all that they wait for */
    double model_once; /* sum_ns over model_ns */
};

/* Of a list that is sorted and not empty. */
int overlap_measure(const struct chunk_list *list, struct overlap *ret_overlap,
                    struct error *error);

/* The model: each stage is an engine of its own, which takes the batches in order, one at a time.
 * When the last stage of the last batch ends. */
double overlap_model(const double times[STAGES], uint64_t batches);
