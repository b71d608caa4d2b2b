/* The tensors of a Hugging Face directory: model.safetensors, or the shards that
 * model.safetensors.index.json names. Never a glob: some repositories carry the weights twice.
 *
 * Opening reads headers only. Matching checks that each tensor that is wanted exists, with the
 * right shape and a dtype that is computed here; inside its file and overlapping nothing are all of
 * them, those that nobody asks for as well. Files are read with pread alone, so a file cut short
 * under us is an error, not a signal.
 *
 * The caller owns the checkpoint; tensors are borrowed from it. Opening and closing: one thread.
 * checkpoint_read: any thread, several at once.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/checkpoint/model_dtype.h"
#include "gpu/checkpoint/words.h"
#include "protocol/base/error.h"

#define CHECKPOINT_FILES_MAX 512

struct checkpoint;

/* Matrices are row major, [outputs][inputs], as PyTorch's Linear keeps them. */
struct checkpoint_shape {
    uint32_t rank; /* 1 or 2 */
    uint32_t rows;
    uint32_t columns;  /* 1 where rank is 1 */
    uint32_t matrices; /* or vectors, of these sizes, one behind another: a size before; 0: one */
    uint32_t block;    /* bytes that each column is: a size behind; 0: it is an element */
};

struct checkpoint_wanted {
    const char *name;
    struct words words; /* how elements lie in it, for checkpoint_words */
    struct checkpoint_shape shape;
    uint32_t dtypes; /* a bit of each that it may have; 0: MODEL_NUMBERS */
    bool squeezed;   /* sizes of 1 do not count: [], [1] and [1, 1] are one shape */
};

struct checkpoint_tensor {
    enum model_dtype dtype;
    struct words words;
    struct checkpoint_shape shape;
    uint64_t bytes;
    uint32_t file;   /* index of the shard */
    uint64_t offset; /* of the first byte, in that file */
};

/* ERR_BAD_MODEL with file, tensor and value. */
int checkpoint_open(const char *directory, struct checkpoint **ret_checkpoint, struct error *error);
/* One file of that name; `config` says in messages what its tensors are held to. Both static. */
int checkpoint_open_file(const char *directory, const char *file, const char *config,
                         struct checkpoint **ret_checkpoint, struct error *error);
void checkpoint_close(struct checkpoint *checkpoint); /* NULL is allowed */

/* A tensor of the files that nobody wants. */
struct checkpoint_rest {
    const char *file, *name;
    struct checkpoint_tensor at; /* without dtype and shape */
};

struct checkpoint_visitor {
    int (*visit)(const struct checkpoint_visitor *visitor, const struct checkpoint *checkpoint,
                 const struct checkpoint_rest *rest, struct error *error);
    const void *context;
};

/* Until it is matched. */
bool checkpoint_has(const struct checkpoint *checkpoint, const char *name);
/* Once: finds what is wanted, then shows `rest` (NULL: nobody minds) what else is in the files,
 * named by an index or not, and forgets all names. ERR_BAD_MODEL as above, and what `visit` gives.
 */
int checkpoint_match(struct checkpoint *checkpoint, const struct checkpoint_wanted *wanted,
                     uint32_t count, const struct checkpoint_visitor *rest, struct error *error);
/* The place of what was wanted as the i-th. */
const struct checkpoint_tensor *checkpoint_tensor(const struct checkpoint *checkpoint, uint32_t i);

uint32_t checkpoint_files(const struct checkpoint *checkpoint);
uint64_t checkpoint_bytes(const struct checkpoint *checkpoint); /* of all that was wanted */

/* Exactly `bytes` bytes of the tensor from its byte `offset` on; offset + bytes <= tensor->bytes.
 */
int checkpoint_read(const struct checkpoint *checkpoint, const struct checkpoint_tensor *tensor,
                    uint64_t offset, size_t bytes, void *buffer, struct error *error);
