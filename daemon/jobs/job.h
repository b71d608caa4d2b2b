/* A job: one item for a program, as a sequence (daemon/base/seq.h) carries it; and the program.
 *
 * A job is made and freed by the loop, with its request, and is the worker's while the sequence is.
 * Its tensors lie in memory of the request: copied from a message, or shared by the client.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "gpu/jobs/program.h"

#define JOB_PROGRAMS_MAX 32
#define JOB_REASON_MAX 256
#define JOB_PATH_MAX 4400

struct job_program {
    struct program program;
    char path[JOB_PATH_MAX];   /* of its module */
    char record[JOB_PATH_MAX]; /* of the file that says that it is off */
    /* Chunks of it on the device. Written by the worker, read by whoever finds the process at its
     * end. */
    atomic_uint under_way;

    /* Loop only. */
    bool off;
    char reason[JOB_REASON_MAX]; /* why it is off; a line */
    uint64_t live;               /* jobs that were accepted and have not ended */
    uint64_t jobs_total, failed_total, bytes_in_total, bytes_out_total;
    uint64_t done_total, done_us_total, queue_us_total; /* of those that came to their results */
};

struct tensor_job {
    /* Set by the loop before the sequence is sent. */
    struct job_program *program;
    uint64_t sizes[SLUICE_SIZES_MAX];
    union sluice_value values[SLUICE_PARAMETERS_MAX];
    const void *inputs[SLUICE_TENSORS_MAX];
    void *outputs[SLUICE_TENSORS_MAX];
    uint64_t in_bytes, out_bytes; /* of its tensors, each padded as in a message */
    bool shared; /* outputs lie in memory of the client's: nothing is told but the end */

    /* Loop only, once it has ended: what was told of its outputs. */
    uint32_t told_outputs;
    uint64_t told_bytes; /* of the next one */

    /* Worker only; zero when it is sent. */
    uint64_t next;      /* the first row that no piece has */
    uint32_t under_way; /* pieces of it on the device */
    bool taken;         /* all rows have pieces */
    bool stopped;       /* no further piece: it was cancelled, or has failed */
};
