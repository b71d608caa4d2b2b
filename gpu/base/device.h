/* What differs between the devices beyond the kernels' bodies: one file per module defines this.
 * Any thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "gpu/checkpoint/model_dtype.h"
#include "gpu/gpu.h"
#include "gpu/kernels/common/kernel.h"

struct device_traits {
    uint32_t slots_max;          /* where the options do not say */
    uint32_t tokens_max;         /* of a step, likewise */
    uint32_t block_tokens;       /* likewise */
    uint64_t slab_bytes;         /* likewise */
    uint64_t host_bytes;         /* for KV blocks, likewise */
    uint64_t host_chunk_bytes;   /* likewise */
    uint64_t embed_bytes;        /* room for a step's embeddings in the results */
    uint64_t logit_bytes;        /* room for a step's logits, in scratch */
    uint64_t workspace_bytes;    /* of products */
    uint64_t post_bytes;         /* of the largest sum over ranks that goes peer to peer */
    uint64_t slice_bytes;        /* of a rank's slices of logits, as many rows at a time */
    uint64_t scratch_keep_bytes; /* unused scratch that no slab takes, so that small steps go on */
    uint64_t staging_bytes;      /* of each piece through which weights are loaded */
    bool invariant;              /* all kernels are so, whatever gpu_options says */
};

extern const char device_name[]; /* "cpu", "cuda" */
extern const struct device_traits device_traits;

/* The dtype of activations, keys and values, and vectors, and on CUDA of matrices, of a model whose
 * matrices come in `own`. ERR_BAD_CONFIG where the device does not compute in what is asked for. */
int device_dtype(enum gpu_dtype asked, enum model_dtype own, enum dtype *ret, struct error *error);

/* Makes it the thread's, before anything runs on it: its context takes no more of the device than
 * kernels need. */
int device_take(int device, struct error *error);
/* As in gpu/gpu.h. */
int device_give(int device, struct error *error);

/* Before any other call on a device; once per process, later calls do nothing. */
int device_prepare(const struct gpu_options *options, struct error *error);
