/* Fills a model's weights: from a checkpoint through staging, or on the device from a seed.
 *
 * A tensor, or this rank's rows or columns of it, goes through in pieces of whole rows. A helper thread reads pieces into pinned staging,
 * in a ring; this thread sends each over bulk_in into device staging and has compute convert it
 * into its place, so that disk, copy and conversion work on three pieces at a time. The helper
 * makes no CUDA call. Staging exists only while loading.
 *
 * Thread: the rank's own, before its first step; blocks until the last piece is enqueued.
 */
#pragma once

#include <stdatomic.h>

#include "gpu/lane.h"
#include "gpu/weights.h"

struct loader {
    struct lane *lane;
    struct mem *mem;
    const struct weights_source *source;
    const struct weights *weights;
    _Atomic uint32_t *progress; /* thousandths */
};

/* ERR_BAD_MODEL and ERR_IO from reading, ERR_DEVICE and ERR_DEVICE_MEMORY from the device. The
 * conversions may still run on compute when this returns. */
int loader_run(const struct loader *loader, struct error *error);
