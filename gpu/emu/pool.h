/* Memory pools: stream-ordered allocation over extents. The calling thread does the bookkeeping,
 * under the lock of the device's memory. Any thread, but for pool_reset(): set-up only.
 */
#pragma once

#include "gpu/emu/device.h"

struct CUmemPoolHandle_st {
    uint32_t magic;
    struct device *device;
    struct list link;    /* in the device's memory */
    struct list extents; /* guarded by the memory's lock, as all below */
    bool opportunistic;
    int follow_events, internal_dependencies; /* kept, no effect: see README.md */
    uint64_t bytes_max, threshold;
    uint64_t held, held_high, used, used_high;
};

struct CUmemPoolHandle_st *pool_make(struct device *device, uint64_t bytes_max);
/* After the host has synchronised: memory above the release threshold goes back. */
void pool_synchronised(struct device *device);
void pool_reset(struct device *device);
uint32_t pool_live(struct device *device);
uint64_t pool_bytes_used(struct device *device);
