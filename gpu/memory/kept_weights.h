/* A model's weights in host memory, as they stand on its devices: converted, fused, repacked. They
 * are copied there once beside steps, stay while the model sleeps, and waking is a copy of them.
 *
 * Each rank's part is in chunks, and a draft model's, which stands behind them (gpu/engine/keep.c).
 * Filling goes chunk by chunk; only when all of all parts are there are they of use, and what is
 * filled half is dropped. When the devices are given back the pages are mapped alone (unpin), and
 * are registered again, chunk by chunk, as they are copied.
 *
 * Beside them stands what else the next engine need not do again on the same devices: `warm`.
 *
 * Threads: one at a time; the ranks of a starting engine each send their own part; kept_memory any.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "gpu/gpu.h"
#include "gpu/memory/pools.h"

struct kept_chunk {
    void *base; /* NULL: not there */
    bool pinned;
};

struct kept_part {
    uint64_t bytes;
    uint32_t count;
    struct kept_chunk *chunks; /* [count] of chunk_bytes, the last what is left */
};

struct gpu_kept {
    uint64_t limit;       /* of host_pages_reserve() */
    uint64_t reserved;    /* of all parts, from before the first page to the last one's end */
    uint64_t chunk_bytes;
    int device;           /* one of those that it was filled from */
    bool whole;
    atomic_bool refused;  /* some of its pages were not registered again */
    bool warm;            /* kernels of its engine's steps are loaded (engine/warmup.h): until unpin */
    struct kept_part parts[GPU_DEVICES_MAX];
    _Atomic uint64_t bytes, pinned;
};

int kept_weights_make(uint64_t limit, uint64_t chunk_bytes, struct gpu_kept **ret_kept,
                      struct error *error);
void kept_weights_free(struct gpu_kept *kept);

/* All parts' bytes of the limit, until they are dropped; ERR_NO_MEMORY. */
int kept_weights_reserve(struct gpu_kept *kept, uint64_t bytes, struct error *error);
/* `number` is a part's. Room for its chunks, and for none of their pages. */
int kept_weights_begin(struct gpu_kept *kept, uint32_t number, uint64_t bytes, struct error *error);
/* Pages of a chunk; then its bytes from the device's weights, on a stream that the caller waits
 * for. */
int kept_weights_take(struct gpu_kept *kept, uint32_t number, uint32_t chunk, struct error *error);
int kept_weights_copy(struct gpu_kept *kept, uint32_t number, uint32_t chunk, const void *weights,
                      cudaStream_t stream, struct error *error);
/* All that there is goes. */
void kept_weights_drop(struct gpu_kept *kept);

/* Whether a part's weights of so many bytes are there. */
bool kept_weights_has(const struct gpu_kept *kept, uint32_t number, uint64_t bytes);
/* Enqueues a chunk's copy to its place in the device's weights. ERR_NO_MEMORY: its pages were not
 * registered again. */
int kept_weights_send(struct gpu_kept *kept, uint32_t number, uint32_t chunk, void *weights,
                      cudaStream_t stream, struct error *error);
/* Copies from and to it have ended, and the devices are given back next. */
void kept_weights_unpin(struct gpu_kept *kept);
void kept_weights_memory(const struct gpu_kept *kept, uint64_t *ret_pinned, uint64_t *ret_mapped);
