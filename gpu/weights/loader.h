/* Fills a model's weights: from a checkpoint through staging, or on the device from a seed.
 *
 * A tensor, or this rank's rows or columns of it, goes through in pieces of whole rows. Helper threads
 * read pieces into pinned staging, a ring, several at a time; this thread sends each, in order, over
 * bulk_in into device staging and has compute convert it into its place, so that reading, copy and
 * conversion go on side by side. The helpers make no CUDA call. Staging exists only while loading.
 *
 * Thread: the rank's own, before its first step; blocks until the last piece is enqueued.
 */
#pragma once

#include <stdatomic.h>

#include "gpu/base/streams.h"
#include "gpu/weights/weights.h"

/* For loads that are beside steps and take no memory of their own: pieces of so many bytes, in
 * loader_staging_bytes each on both sides. */
struct loader_staging {
    void *pinned, *device;
    uint64_t piece;
};
#define LOADER_PLACES 8 /* pieces on their way: one with each reader, read, being copied, being converted */
static inline uint64_t loader_staging_bytes(uint64_t piece)
{
    return LOADER_PLACES * piece;
}

struct loader {
    struct streams *lane; /* bulk_in and compute */
    struct mem *mem;
    const struct loader_staging *staging; /* NULL: of mem, while loading */
    const struct weights_source *source;
    const struct weights *weights;
    _Atomic uint32_t *progress; /* thousandths */
};

/* ERR_BAD_MODEL and ERR_IO from reading, ERR_DEVICE and ERR_DEVICE_MEMORY from the device. The
 * conversions may still run on compute when this returns. */
int loader_run(const struct loader *loader, struct error *error);
