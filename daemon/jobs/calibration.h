/* How large chunks should be, and how many lanes there should be, for one program on one device: by
 * running it through the worker that serves jobs, at every size and number of a sweep.
 *
 * Rates are of inputs and outputs together, from the host's memory to the host's memory, with all
 * that the worker does for a chunk; items are made up: zeros, parameters as they stand where a
 * request does not say them, as many rows as a chunk holds. Nothing else may run on the device.
 *
 * Beside it stands what the machine's streams, copies and allocations cost (gpu/jobs/gpu_machine.h).
 *
 * One thread, before there is a loop.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "daemon/jobs/job_worker.h"

#define CALIBRATION_CHUNKS_MAX 16
#define CALIBRATION_LANES_MAX 5
/* The least memory is chosen that comes so near to the best rate. */
#define CALIBRATION_NEAR 0.97

/* Chunks double from the least to the most, lanes from 1 to the most. */
struct calibration_range {
    uint64_t chunk_min, chunk_max;
    uint32_t lanes_max;
    uint64_t data_min;    /* that goes through a point each way; more where its lanes hold more */
    uint64_t pass_us;     /* and where it would take less than this */
    uint64_t staging_max; /* a point whose lanes hold more is left out */
    uint64_t limit_us;    /* of the sweep: what does not fit is made shorter, then left out */
};

struct calibration_point {
    uint64_t chunk_bytes;
    uint32_t lanes;
    uint64_t bytes;    /* of inputs and outputs; 0: it was left out, or an item does not fit */
    uint64_t took_us;
    uint32_t jobs;     /* of a pass */
    bool late;         /* there was no time for it, or only for a few jobs */
    double rate;       /* bytes of a second */
    double stage_us[3]; /* of a chunk: copied in, kernels, copied out; the mean */
};

struct calibration {
    uint32_t chunk_count, lane_count;
    struct calibration_point points[CALIBRATION_CHUNKS_MAX][CALIBRATION_LANES_MAX];
    const struct calibration_point *best, *chosen;
};

/* The sweep. options: of the lanes; their number and chunk_bytes are the sweep's.
 * Blocks until all of it ran, or its time is over: what a point takes is known from the one before
 * it, so that a program whose chunks take minutes is measured at few of them. */
int calibration_run(const struct gpu_jobs_api *api, struct job_programs *programs,
                    const struct job_worker_options *options, const struct calibration_range *range,
                    struct calibration *ret_calibration, struct error *error);
/* Sets best and chosen; false where no point has a rate. Pure. */
bool calibration_choose(struct calibration *calibration);

/* What is told of it. */
struct calibration_told {
    const struct calibration *calibration;
    const struct gpu_machine *machine;
    const char *program, *device;
};

/* calibration_print.c. As a configuration file: all but the choice are comments. */
void calibration_print(const struct calibration_told *told, FILE *file);
/* The most streams whose gain was still nine tenths of their number. */
uint32_t calibration_knee(const struct gpu_machine *machine);
void calibration_bytes(uint64_t bytes, char text[32]);

/* calibration_store.c. The same, in the place of what stands of it in a configuration file, which is
 * made where there is none. */
int calibration_store(const struct calibration_told *told, const char *path, struct error *error);

/* calibration_page.c. A page of HTML whose curves are SVG, and the same as JSON. */
void calibration_page(const struct calibration_told *told, FILE *file);
void calibration_json(const struct calibration_told *told, FILE *file);
/* Both: `path`, and beside it the name with .json in the place of .html. */
int calibration_write(const struct calibration_told *told, const char *path, struct error *error);
