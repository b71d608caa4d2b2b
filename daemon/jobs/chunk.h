/* Chunks: waiting jobs of one program, put together for a lane (gpu/jobs/gpu_jobs.h).
 *
 * The jobs stand in one list, in the order in which their turns came. A chunk takes the first and,
 * of the others of its program, whoever still fits. A job that is larger than a chunk goes in
 * pieces, one a chunk, and stands behind the others after each, so that it holds nobody up. Pure.
 * Worker's thread.
 */
#pragma once

#include <stdint.h>

#include "daemon/base/seq.h"
#include "daemon/jobs/job.h"
#include "gpu/jobs/gpu_jobs.h"
#include "protocol/base/list.h"

struct chunk {
    struct gpu_chunk base;
    struct gpu_piece pieces[GPU_JOBS_PIECES_MAX];
    struct seq *seqs[GPU_JOBS_PIECES_MAX]; /* whose each piece is */
    struct list link;
    time_us since_us; /* when it was enqueued */
    uint64_t bytes;   /* that are copied in, or out if those are more */
};

struct chunk_limits {
    uint64_t bytes; /* of the inputs, and of the outputs */
    uint64_t all;   /* with scratch */
    uint32_t items; /* 0: as many as fit */
};

/* Takes pieces from the list of seq.run_link, which is not empty, until the chunk is full; how
 * many. Jobs whose last row it takes leave the list. 0: the first, which did fit when it was
 * accepted, does not any more: its program's scratch() contradicts itself. */
uint32_t chunk_fill(struct chunk *chunk, struct list *waiting, const struct chunk_limits *limits);
/* Nothing of it was enqueued: its pieces are the jobs' again, which stand at the head of the list.
 */
void chunk_give_back(struct chunk *chunk, struct list *waiting);

/* Rows of size 0 that a piece may have, from `next` on; 0: not even the smallest fits. */
uint64_t chunk_rows(const struct tensor_job *job, uint64_t next, const struct chunk_limits *limits);
/* Whether it can be computed at all; ERR_TOO_LARGE says what it takes. */
int chunk_check(const struct tensor_job *job, const struct chunk_limits *limits,
                struct error *error);
