/* Graphs: captured work, and its replay.
 *
 * A graph is a list of works in the order of capture, each on a branch; a wait names the node it
 * waits for. An instantiated graph owns one internal stream for every branch but the first, which
 * is played on the stream of the launch. Replay enqueues the works into these streams, so that
 * branches run, and race, like the streams they were captured from.
 *
 * A graph is used by one thread at a time, as with CUDA; launches of an instantiated one follow each
 * other. graph_reset() is for set-up only.
 */
#pragma once

#include "gpu/emu/stream.h"

#define GRAPH_BRANCHES_MAX 16

struct CUgraph_st *graph_make(struct device *device); /* NULL for want of memory */
/* Takes note of a branch and of the priority of the stream it is captured from. */
void graph_branch(struct CUgraph_st *graph, uint32_t branch, int priority);
void graph_free(struct CUgraph_st *graph);
/* Returns the node's number, or -1 for want of memory. `after`: the node that a wait waits for, -1
 * for the start of the graph. */
int32_t graph_append(struct CUgraph_st *graph, uint32_t branch, const struct work *work,
                     const void *args, size_t size, int32_t after);
/* Checks that all branches have been joined to the first one. */
cudaError_t graph_close(struct CUgraph_st *graph);

void graph_reset(void);
uint32_t graph_live(void);
