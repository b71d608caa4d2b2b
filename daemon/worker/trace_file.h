/* The traces of all replicas, and the one file that they go into: as soon as all are full, by a
 * thread of its own, since whoever reads file and summary may let it wait; at the end of the daemon
 * what there is, if that was not to be. A daemon that
 * ends because its device failed, or that is told twice to end, leaves the file empty.
 *
 * Path and file are its own: options go when they are read again. loop thread.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "daemon/worker/completion_queue.h"
#include "daemon/worker/trace.h"

struct trace_file {
    char *path;                            /* owned; NULL: no profile is asked for */
    FILE *file;                            /* owned; NULL once it is written */
    struct completion_queue *completions;  /* borrowed; wakes the loop when it is written */
    struct trace *traces[GPU_DEVICES_MAX]; /* borrowed */
    uint32_t count;
    pthread_t thread;
    bool busy;           /* being written */
    atomic_bool written; /* by the thread, which is done then */
};

/* Makes the file, empty, so that a path that cannot be written is known before anything runs. */
int trace_file_open(struct trace_file *file, const char *path, struct completion_queue *completions,
                    struct error *error);
/* A trace was closed, or the file is written, or may be. */
void trace_file_turn(struct trace_file *file);
/* The workers have stopped, and nothing is busy any more. Zeroed memory is allowed. */
void trace_file_end(struct trace_file *file);
