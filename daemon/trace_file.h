/* The traces of all replicas, and the one file that they go into: as soon as all are full, by a
 * thread off the loop; at the end of the daemon what there is, if that was not to be.
 *
 * loop thread.
 */
#pragma once

#include "daemon/background.h"
#include "daemon/trace.h"

struct trace_file {
    const char *path; /* borrowed; NULL: no profile is asked for */
    struct background *background;
    struct trace *traces[GPU_DEVICES_MAX]; /* borrowed */
    uint32_t count;
    struct task task;
    bool written; /* or being written */
    bool busy;
};

/* A trace was closed, or may have been. */
void trace_file_turn(struct trace_file *file);
/* The workers have stopped. Nothing is busy any more. */
void trace_file_end(struct trace_file *file);
