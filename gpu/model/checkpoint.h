/* The tensors of a Hugging Face directory: model.safetensors, or the shards that
 * model.safetensors.index.json names. Never a glob: some repositories carry the weights twice.
 *
 * Opening reads headers only. It checks that each weight of the config exists once, with the right
 * shape and a dtype that is computed here, inside its file and overlapping nothing; tensors that
 * the config does not ask for are tolerated, but held to the same bounds. Files are read with pread
 * alone, so a file cut short under us is an error, not a signal.
 *
 * The caller owns the checkpoint; tensors are borrowed from it. Opening and closing: one thread.
 * checkpoint_read: any thread, several at once.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "gpu/model/config.h"
#include "gpu/model/weight.h"

#define CHECKPOINT_FILES_MAX 512

struct checkpoint;

struct checkpoint_tensor {
    enum model_dtype dtype;
    struct weight_shape shape;
    uint64_t bytes;
    uint32_t file;   /* index of the shard */
    uint64_t offset; /* of the first byte, in that file */
};

/* Sets config->tied where the checkpoint has no lm_head.weight (as transformers does).
 * ERR_BAD_MODEL with file, tensor and value. */
int checkpoint_open(const char *directory, struct model_config *config,
                    struct checkpoint **ret_checkpoint, struct error *error);
void checkpoint_close(struct checkpoint *checkpoint);

/* The weight's place, or NULL where the config has no such weight. Per-layer weights only with
 * layer < config->layers, others with layer 0. */
const struct checkpoint_tensor *checkpoint_weight(const struct checkpoint *checkpoint,
                                                  enum weight_role role, uint32_t layer);

uint32_t checkpoint_files(const struct checkpoint *checkpoint);
uint64_t checkpoint_bytes(const struct checkpoint *checkpoint); /* of all weights asked for */

/* Exactly `bytes` bytes of the tensor from its byte `offset` on; offset + bytes <= tensor->bytes.
 */
int checkpoint_read(const struct checkpoint *checkpoint, const struct checkpoint_tensor *tensor,
                    uint64_t offset, size_t bytes, void *buffer, struct error *error);
