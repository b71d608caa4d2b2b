/* Threads that copy between jobs' tensors and staging: memory and PCIe are faster than one core.
 *
 * The worker adds what is to be copied and then runs it: threads and worker take slices until none
 * is left, and run returns when all are copied. Small copies are made at once. A thread that finds
 * nothing looks again for a moment, then sleeps. Without threads all of it is memcpy.
 *
 * Thread: the worker's. After open nothing is allocated.
 */
#pragma once

#include <stdint.h>

#include "gpu/jobs/gpu_jobs.h"

#define COPY_CREW_MAX ((uint32_t)GPU_JOBS_COPY_THREADS_MAX)

struct copy_crew; /* opaque */

/* threads: 0 to COPY_CREW_MAX beside the worker; *ret is NULL for 0. bytes, copies: the most that
 * are added between two runs. */
int copy_crew_open(struct copy_crew **ret, uint32_t threads, uint64_t bytes, uint32_t copies,
                   struct error *error);
void copy_crew_close(struct copy_crew *crew); /* NULL is allowed, here and everywhere */

void copy_crew_add(struct copy_crew *crew, void *to, const void *from, uint64_t bytes);
void copy_crew_run(struct copy_crew *crew);
