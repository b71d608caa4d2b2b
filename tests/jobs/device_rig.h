/* The lanes of whatever device the test program was linked with, and one program on them. */
#pragma once

#include "gpu/jobs/gpu_jobs.h"

struct device_rig {
    struct gpu_jobs *jobs;
    int wake_fd;
    struct program program;
};

/* false: there is no device, and the test is to be skipped. */
bool device_rig_open(struct device_rig *rig, const char *module,
                     const struct gpu_jobs_options *options);
void device_rig_submit(struct device_rig *rig, struct gpu_chunk *chunk);
struct gpu_chunk *device_rig_wait(struct device_rig *rig); /* for one that has ended well */
/* Nothing synchronised, was allocated or copied outside the pools; then stops. */
struct gpu_jobs_counters device_rig_close(struct device_rig *rig);

/* The same numbers from every opening on, below a bound. */
uint32_t device_rig_draw(uint32_t below);
/* A checksum (FNV-1a) that goes on where `sum` stands; it starts at DEVICE_RIG_SUM. */
#define DEVICE_RIG_SUM 14695981039346656037u
uint64_t device_rig_sum(uint64_t sum, const void *bytes, size_t length);
