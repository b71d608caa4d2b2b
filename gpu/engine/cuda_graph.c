#include "gpu/engine/cuda_graph.h"

#include <stdlib.h>

#include "gpu/base/cuda_error.h"
#include "gpu/engine/engine.h"
#include "gpu/kernels/attention/attention.h"
#include "protocol/base/minimum.h"

#define CONTEXT_FIRST ATTENTION_SPLIT /* up to here attention has nothing to combine */

/* 1, 2, 4, 8, then three steps to each doubling at most: padded rows cost. */
static uint32_t bucket_rows(uint32_t index)
{
    static const uint32_t rows[GRAPH_ROWS] = {1,   2,   4,   8,   12,  16,   24,   32,
                                              48,  64,  96,  128, 160, 192,  224,  256,
                                              320, 384, 448, 512, 768, 1024, 2048, 4096};
    return rows[index];
}

static uint32_t bucket_context(const struct rank *rank, uint32_t index)
{
    uint64_t context = (uint64_t)CONTEXT_FIRST << 2 * index;
    uint32_t most = rank->engine->facts.limits.context_max;
    return context < most ? (uint32_t)context : most;
}

bool cuda_graph_fits(const struct rank *rank, const struct cuda_graphs *graphs,
                     const struct gpu_plan *plan, const struct launch *launch,
                     struct cuda_graph_key *ret)
{
    if (graphs->off || arrival_on(&rank->arrival) || !plan->row_count || plan->move_count ||
        plan->token_count != plan->row_count)
        return false;
    uint32_t end = 0;
    for (uint32_t i = 0; i < plan->row_count; i++) {
        const struct gpu_row *row = &plan->rows[i];
        if (row->want & ~(GPU_SAMPLE | GPU_LOGPROBS | GPU_KEEP))
            return false;
        if (row->position + 1 > end)
            end = row->position + 1;
    }
    struct cuda_graph_key key = {.counts = launch->counts,
                                 .adapted = launch->adapted,
                                 .spread = launch->spread,
                                 .own = launch->takes == TAKES_OWN};
    while (key.rows < GRAPH_ROWS && bucket_rows(key.rows) < plan->row_count)
        key.rows++;
    while (key.context < GRAPH_CONTEXTS && bucket_context(rank, key.context) < end)
        key.context++;
    if (key.rows == GRAPH_ROWS || key.context == GRAPH_CONTEXTS)
        return false;
    *ret = key;
    return true;
}

static uint32_t kind_of(const struct cuda_graph_key *key)
{
    return key->spread * 8 + (key->own ? 4 : 0) + (key->adapted ? 2 : 0) +
           (key->counts ? 1 : 0);
}

static struct cuda_graph *graph_at(struct cuda_graphs *graphs, const struct cuda_graph_key *key)
{
    return &graphs->table[key->rows][key->context][kind_of(key)];
}

bool cuda_graph_exists(const struct cuda_graphs *graphs, const struct cuda_graph_key *key)
{
    return graphs->table[key->rows][key->context][kind_of(key)].exec != NULL;
}

/* The step's batch with the bucket's bounds. */
static struct batch bucket_batch(const struct rank *rank, const struct cuda_graphs *graphs,
                                 uint32_t rows, uint32_t context)
{
    struct batch batch = *graphs->batch;
    batch.rows_max = batch.tokens_max = batch.samples_max =
        min_u32(rows, rank->engine->facts.limits.rows_max);
    batch.scores_max = batch.embeds_max = batch.moves_max = 0;
    attention_bounds_clear(&batch);
    batch.q_len_max = batch.decode_len_max = 1;
    batch.context_max = bucket_context(rank, context);
    return batch;
}

void cuda_graph_bound(const struct rank *rank, const struct cuda_graphs *graphs,
                      const struct cuda_graph_key *key, struct batch *ret)
{
    struct batch batch = bucket_batch(rank, graphs, bucket_rows(key->rows), key->context);
    batch.seen = ret->seen;
    *ret = batch;
}

static int graph_clear(struct cuda_graph *graph, struct error *error)
{
    if (graph->exec)
        CUDA_TRY(cudaGraphExecDestroy(graph->exec), error);
    graph->exec = NULL;
    if (graph->source)
        CUDA_TRY(cudaGraphDestroy(graph->source), error);
    *graph = (struct cuda_graph){.exec = NULL};
    return 0;
}

static int graphs_clear(struct cuda_graphs *graphs, struct error *error)
{
    int status = 0;
    for (uint32_t i = 0; i < GRAPH_ROWS; i++) {
        for (uint32_t j = 0; j < GRAPH_CONTEXTS; j++) {
            for (uint32_t kind = 0; kind < GRAPH_KINDS; kind++) {
                struct cuda_graph *graph = &graphs->table[i][j][kind];
                status = first_failure(status, graph_clear(graph, status ? NULL : error));
            }
        }
    }
    return status;
}

int cuda_graph_drop(struct rank *rank, struct cuda_graphs *graphs, struct error *error)
{
    int status = graphs_clear(graphs, error);
    if (!status && graphs->arena)
        status = mem_arena_free(&rank->mem, graphs->arena, graphs->arena_bytes, error);
    if (status)
        return status;
    graphs->arena = NULL;
    graphs->arena_bytes = 0;
    return 0;
}

/* Room for every bucket of this context. Graphs of the arena before are gone with it: a longer
 * context than any before is rare. */
static int arena_ensure(struct rank *rank, struct cuda_graphs *graphs,
                        const struct cuda_graph_key *key, struct error *error)
{
    struct batch batch =
        bucket_batch(rank, graphs, rank->engine->facts.limits.rows_max, key->context);
    uint64_t bytes = program_scratch_bytes(graphs->program, &batch);
    if (bytes <= graphs->arena_bytes)
        return 0;
    int status = cuda_graph_drop(rank, graphs, error);
    if (!status)
        status = mem_arena(&rank->mem, bytes, &graphs->arena, error);
    if (status)
        return status;
    graphs->arena_bytes = bytes;
    /* Kernels read rows up to a bucket's bound before they know how many there are. */
    CUDA_TRY(cudaMemsetAsync(graphs->arena, 0, bytes, rank->lane.compute), error);
    return 0;
}

static int expand_node(cudaGraph_t source, cudaGraphNode_t *ret, struct error *error)
{
    size_t count = 0;
    CUDA_TRY(cudaGraphGetNodes(source, NULL, &count), error);
    cudaGraphNode_t *nodes = calloc(count ? count : 1, sizeof *nodes);
    if (!nodes)
        return error_set(error, ERR_NO_MEMORY, "no memory for %zu graph nodes", count);
    cudaError_t failed = cudaGraphGetNodes(source, nodes, &count);
    *ret = NULL;
    for (size_t i = 0; failed == cudaSuccess && i < count && !*ret; i++) {
        if (expand_is(nodes[i]))
            *ret = nodes[i];
    }
    free(nodes);
    if (failed != cudaSuccess)
        return cuda_fail(failed, "cudaGraphGetNodes", error);
    return *ret ? 0 : error_set(error, ERR_INTERNAL, "the captured step has no expand node");
}

/* What is captured is thrown away where a launch failed; the stream leaves the capture either way.
 */
static int capture(struct rank *rank, const struct program *program, const struct launch *launch,
                   cudaGraph_t *ret_source, struct error *error)
{
    cudaStream_t compute = rank->lane.compute;
    CUDA_TRY(cudaStreamBeginCapture(compute, cudaStreamCaptureModeThreadLocal), error);
    int status = program_run(program, launch, error);
    cudaError_t failed = cudaStreamEndCapture(compute, ret_source);
    enum cudaStreamCaptureStatus still = cudaStreamCaptureStatusNone;
    if (failed != cudaSuccess && cudaStreamIsCapturing(compute, &still) == cudaSuccess &&
        still != cudaStreamCaptureStatusNone)
        (void)cudaStreamEndCapture(compute, ret_source);
    if (!status && failed != cudaSuccess)
        status = cuda_fail(failed, "cudaStreamEndCapture", error);
    return status;
}

static int graph_make(struct rank *rank, struct cuda_graphs *graphs,
                      const struct cuda_graph_key *key, const struct launch *eager,
                      struct cuda_graph *graph, struct error *error)
{
    struct launch launch = {
        .batch = bucket_batch(rank, graphs, bucket_rows(key->rows), key->context),
        .wire = eager->wire,
        .counts = key->counts,
        .adapted = key->adapted,
        .spread = key->spread,
        .takes = key->own ? TAKES_OWN : TAKES_KEPT,
    };
    int status = arena_ensure(rank, graphs, key, error);
    if (status)
        return status;
    launch.scratch = graphs->arena;
    status = capture(rank, graphs->program, &launch, &graph->source, error);
    if (!status)
        status = expand_node(graph->source, &graph->expand, error);
    if (status)
        return status;
    CUDA_TRY(cudaGraphInstantiate(&graph->exec, graph->source, 0), error);
    CUDA_TRY(cudaGraphUpload(graph->exec, rank->lane.compute), error);
    return 0;
}

void cuda_graph_capture(struct rank *rank, struct cuda_graphs *graphs,
                        const struct cuda_graph_key *key, const struct launch *launch)
{
    struct cuda_graph *graph = graph_at(graphs, key);
    if (graph->exec || graph->refused)
        return;
    if (!graph->wanted) {
        graph->wanted = true;
        return;
    }
    struct error error;
    int status = graph_make(rank, graphs, key, launch, graph, &error);
    if (status) {
        /* The arena may have taken all graphs with it, this one's place included. */
        (void)graph_clear(graph, NULL);
        graph->refused = true;
        engine_log(rank->engine, GPU_LOG_WARNING,
                   "a decode step of %u rows stays without a graph: %s", bucket_rows(key->rows),
                   error.text);
        return;
    }
    rank_count(&rank->counters.captures, true);
}

void cuda_graph_place(const struct rank *rank, const struct cuda_graphs *graphs,
                      const struct cuda_graph_key *key, struct launch *launch)
{
    launch->batch = bucket_batch(rank, graphs, bucket_rows(key->rows), key->context);
    launch->scratch = graphs->arena;
}

int cuda_graph_launch(struct rank *rank, struct cuda_graphs *graphs,
                      const struct cuda_graph_key *key, const struct launch *launch,
                      struct error *error)
{
    struct cuda_graph *graph = graph_at(graphs, key);
    struct launch bucket = {
        .batch = bucket_batch(rank, graphs, bucket_rows(key->rows), key->context),
        .wire = launch->wire,
        .scratch = graphs->arena,
        .adapted = key->adapted,
        .spread = key->spread,
        .takes = key->own ? TAKES_OWN : TAKES_KEPT,
    };
    struct step_begin_args expand = program_begin(graphs->program, &bucket);
    CUDA_TRY(expand_retarget(graph->exec, graph->expand, &expand), error);
    CUDA_TRY(cudaGraphLaunch(graph->exec, rank->lane.compute), error);
    rank_count(&rank->counters.graph_steps, true);
    return 0;
}
