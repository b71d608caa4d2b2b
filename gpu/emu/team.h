/* The threads that share one stream's kernels: the stream's own, so that they order nothing else.
 */
#pragma once

#include "gpu/emu/stream.h"

/* Runs every index of the kernel, on the caller's thread and, where that pays, on the team's. */
void team_run(struct CUstream_st *stream, const struct work *kernel);
void team_stop(struct team *team); /* NULL allowed */
