/* What the tests of the engine need of the device under it, so that they run on both: rig_emu.c and
 * rig_cuda.c differ, nothing else. One thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "tests/gpu/rig/engine_client.h"
#include "tests/gpu/rig/reference.h"

/* What the tests' engines are asked to compute in. */
extern enum gpu_dtype rig_dtype;

/* Starts over with threads, poison and strictness where the device has them. False: there is none.
 */
bool rig_setup(void);
bool rig_several(uint32_t devices); /* the same; false: there are not so many */
bool rig_step(void);                /* one piece of work of a stepped engine; false: none can run */

/* The weight on a rank that has a part of that name, "model.norm.weight". */
struct weight *rig_weight(const struct rank *rank, const char *tensor);
/* Ranks of two stages take each other's weights, layer by layer. */
void rig_stages_swap(struct rank *a, struct rank *b);
/* The rank leaves out all ops of a kind. */
void rig_without(struct rank *rank, enum op_kind kind);

/* Device memory of an idle engine. */
void rig_fetch(void *host, const void *device, size_t bytes);
void rig_store(void *device, const void *host, size_t bytes);

/* How far the scores of jobs (the reference's prompts, in order) are from the reference's. */
struct rig_error {
    double mean, max; /* infinite where one is not a number */
    double far;       /* the part off by more than RIG_FAR, and than PyTorch's own bf16 ever is */
};
#define RIG_FAR 0.15
struct rig_error rig_compare(const struct engine_client_job *jobs,
                             const struct reference *reference);
/* A line of it, where RIG_TELL is set. */
void rig_tell(const char *name, struct rig_error error);
/* The same of scores that stand apart, a prompt's in a row. */
struct rig_error rig_compare_scores(const struct gpu_score scores[][REFERENCE_TOKENS],
                                    const struct reference *reference);
/* Those prompts, to be scored. */
void rig_score_jobs(struct engine_client_job *jobs, const struct reference *reference);

/* Whether that is right for the device's dtypes, and whether it is clearly wrong. */
bool rig_right(struct rig_error error, const struct reference *reference);
/* The same where inputs are rounded: in 16 bits some fall on the other side of an edge. */
bool rig_right_rounded(struct rig_error error, const struct reference *reference);
bool rig_near(struct rig_error error); /* of two runs of ours */
bool rig_wrong(struct rig_error error, const struct reference *reference);
