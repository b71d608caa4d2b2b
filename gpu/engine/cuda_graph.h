/* Decode steps as CUDA graphs, one per bucket of rows and of context.
 *
 * A step whose rows are single tokens that at most sample takes the graph of the smallest bucket
 * that holds it. The first two that want it run eagerly, and behind the second it is captured, in
 * the shadow of that step and the one before it: the capture costs milliseconds of the host. (The
 * first's kernels may have had to be loaded, so that the device has little left to do behind it.)
 * Nothing that the host knows of one step is baked in: counts, lengths, positions and tables come
 * from device memory, where expand puts them, and the address of the plan is replaced before each
 * launch. Rows beyond the step's own write nowhere.
 *
 * Graphs hold no memory nodes. Their scratch is an arena of the scratch pool; as they all run in
 * the compute stream, one after the other, one arena of the largest bucket's size serves all. When
 * the engine is idle, arena and graphs are dropped.
 *
 * Thread: the rank's own. Owns graphs and arena. A capture that fails is no error: the bucket stays
 * eager until the graphs are dropped.
 */
#pragma once

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#include "gpu/gpu.h"
#include "gpu/program/program.h"

#define GRAPH_ROWS 24     /* buckets of rows */
#define GRAPH_CONTEXTS 11 /* and of context: 256, 1024, ... */
/* Tokens are counted or not; some row has an adapter or none; rows have many adapters or few; a
 * head's rows go on from their own states or not. */
#define GRAPH_KINDS (8 * ADAPT_SPREADS)

struct batch;
struct rank;
struct launch;
struct program;

struct cuda_graph {
    cudaGraphExec_t exec;   /* NULL: not captured */
    cudaGraphNode_t expand; /* whose plan is replaced */
    cudaGraph_t source;     /* the node is of this */
    bool wanted;            /* by a step before */
    bool refused;
};

struct cuda_graph_key {
    uint32_t rows, context; /* indices of buckets */
    bool counts, adapted, own;
    enum adapt_spread spread;
};

struct cuda_graphs {
    const struct program *program; /* what is captured */
    const struct batch *batch;     /* with the limits as its bounds */
    bool off;                      /* every step runs eagerly */
    void *arena;
    uint64_t arena_bytes;
    struct cuda_graph table[GRAPH_ROWS][GRAPH_CONTEXTS][GRAPH_KINDS];
};

/* Whether the plan's rows can run as a graph, and as which; of `launch` what a slot counts and
 * whether rows have adapters, and many. */
bool cuda_graph_fits(const struct rank *rank, const struct cuda_graphs *graphs,
                     const struct gpu_plan *plan, const struct launch *launch,
                     struct cuda_graph_key *ret);
bool cuda_graph_exists(const struct cuda_graphs *graphs, const struct cuda_graph_key *key);

/* The bounds of a bucket, for a step that runs eagerly. Ranks that share a model all take them: one
 * may lack the graph that the others have, and they make the same sums all the same. */
void cuda_graph_bound(const struct rank *rank, const struct cuda_graphs *graphs,
                      const struct cuda_graph_key *key, struct batch *ret);

/* The bounds and the scratch with which a captured step runs. */
void cuda_graph_place(const struct rank *rank, const struct cuda_graphs *graphs,
                      const struct cuda_graph_key *key, struct launch *launch);

/* In place of program_run. An error ends the engine. */
int cuda_graph_launch(struct rank *rank, struct cuda_graphs *graphs,
                      const struct cuda_graph_key *key, const struct launch *launch,
                      struct error *error);

/* After a step that ran eagerly for want of a graph was enqueued: what is next to be done. */
void cuda_graph_capture(struct rank *rank, struct cuda_graphs *graphs,
                        const struct cuda_graph_key *key, const struct launch *launch);

/* Drops all graphs and the arena. Steps in flight end as they would: a graph that runs is freed
 * behind its end, the arena in stream order. One that cannot be destroyed stays as it is, and with
 * it the arena, which it would be launched on. */
int cuda_graph_drop(struct rank *rank, struct cuda_graphs *graphs, struct error *error);
