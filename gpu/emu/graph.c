#include "gpu/emu/graph.h"

#include <stdlib.h>
#include <string.h>

#include "gpu/emu/call.h"
#include "gpu/emu/capture.h"
#include "gpu/emu/device.h"
#include "gpu/emu/work.h"

#define GRAPH_MAGIC 0x47524148u
#define EXEC_MAGIC 0x45584543u

struct CUgraphNode_st {
    uint32_t number; /* in its graph */
    uint32_t branch;
    int32_t after;
    struct work work; /* ends the struct: followed by the arguments */
};

struct CUgraph_st {
    uint32_t magic;
    struct device *device;
    uint32_t branches;
    int priority[GRAPH_BRANCHES_MAX];
    uint32_t count, capacity;
    struct CUgraphNode_st **node;
};

struct CUgraphExec_st {
    uint32_t magic;
    struct lock lock; /* launches of one graph follow each other */
    struct CUgraph_st *graph;
    struct CUstream_st *branch[GRAPH_BRANCHES_MAX]; /* [0] is that of the launch */
    struct CUstream_st *last_stream;                /* where the last launch ended */
    uint64_t last_seq;
    uint64_t seq[]; /* of each node in the launch at hand */
};

static atomic_uint live;

uint32_t graph_live(void)
{
    return atomic_load(&live);
}

void graph_reset(void)
{
    atomic_store(&live, 0); /* what the program did not destroy it has leaked */
}

struct CUgraph_st *graph_make(struct device *device)
{
    struct CUgraph_st *graph = calloc(1, sizeof(*graph));
    if (!graph)
        return NULL;
    graph->magic = GRAPH_MAGIC;
    graph->device = device;
    atomic_fetch_add(&live, 1);
    return graph;
}

void graph_branch(struct CUgraph_st *graph, uint32_t branch, int priority)
{
    graph->priority[branch] = priority;
    graph->branches = branch + 1;
}

void graph_free(struct CUgraph_st *graph)
{
    for (uint32_t i = 0; i < graph->count; i++)
        free(graph->node[i]);
    free(graph->node);
    graph->magic = 0;
    free(graph);
    atomic_fetch_sub(&live, 1);
}

static struct CUgraphNode_st *node_make(const struct work *work, const void *args, size_t size)
{
    struct CUgraphNode_st *node = aligned_alloc(16, (sizeof(*node) + size + 15) & ~(size_t)15);
    if (!node)
        return NULL;
    node->work = *work;
    node->work.size = (uint32_t)size;
    if (size > 0)
        memcpy(node->work.args, args, size);
    return node;
}

int32_t graph_append(struct CUgraph_st *graph, uint32_t branch, const struct work *work,
                     const void *args, size_t size, int32_t after)
{
    if (graph->count == graph->capacity) {
        uint32_t capacity = graph->capacity ? graph->capacity * 2 : 64;
        struct CUgraphNode_st **bigger = realloc(graph->node, capacity * sizeof(*bigger));
        if (!bigger)
            return -1;
        graph->node = bigger;
        graph->capacity = capacity;
    }
    struct CUgraphNode_st *node = node_make(work, args, size);
    if (!node)
        return -1;
    node->number = graph->count;
    node->branch = branch;
    node->after = after;
    graph->node[graph->count++] = node;
    return (int32_t)node->number;
}

/* For each node and branch, the last node of that branch that surely came before (plus one). */
cudaError_t graph_close(struct CUgraph_st *graph)
{
    uint32_t branches = graph->branches;
    size_t row = branches;
    uint32_t *before = calloc((graph->count + 1) * row, sizeof(*before));
    uint32_t *current = calloc(row * row, sizeof(*current));
    int32_t last[GRAPH_BRANCHES_MAX];
    cudaError_t error = before && current ? cudaSuccess : cudaErrorMemoryAllocation;
    for (uint32_t i = 0; i < branches; i++)
        last[i] = -1;
    for (uint32_t i = 0; i < graph->count && error == cudaSuccess; i++) {
        const struct CUgraphNode_st *node = graph->node[i];
        uint32_t *own = current + node->branch * row;
        for (size_t j = 0; j < row && node->after >= 0; j++) {
            uint32_t seen = before[(size_t)node->after * row + j];
            own[j] = own[j] > seen ? own[j] : seen;
        }
        own[node->branch] = i + 1;
        last[node->branch] = (int32_t)i;
        memcpy(before + i * row, own, row * sizeof(*own));
    }
    for (uint32_t j = 1; j < branches && error == cudaSuccess; j++) {
        if (current[j] < (uint32_t)(last[j] + 1))
            error = cudaErrorStreamCaptureUnjoined;
    }
    free(before);
    free(current);
    return error;
}

/* --- calls ----------------------------------------------------------------------------------- */

static struct CUgraph_st *graph_from(cudaGraph_t graph)
{
    return graph && graph->magic == GRAPH_MAGIC ? graph : NULL;
}

static struct CUgraphExec_st *exec_from(cudaGraphExec_t exec)
{
    return exec && exec->magic == EXEC_MAGIC ? exec : NULL;
}

cudaError_t cudaGraphDestroy(cudaGraph_t handle)
{
    ENTER(cudaGraphDestroy);
    struct CUgraph_st *graph = graph_from(handle);
    if (!graph)
        return call_fail(cudaErrorInvalidValue);
    graph_free(graph);
    return cudaSuccess;
}

/* Waits are edges, not nodes. */
cudaError_t cudaGraphGetNodes(cudaGraph_t handle, cudaGraphNode_t *nodes, size_t *count)
{
    ENTER(cudaGraphGetNodes);
    struct CUgraph_st *graph = graph_from(handle);
    if (!graph || !count)
        return call_fail(cudaErrorInvalidValue);
    size_t found = 0;
    for (uint32_t i = 0; i < graph->count; i++) {
        if (graph->node[i]->work.kind == WORK_WAIT)
            continue;
        if (nodes && found < *count)
            nodes[found] = graph->node[i];
        found++;
    }
    if (!nodes || found < *count)
        *count = found;
    return cudaSuccess;
}

const char *emu_graph_node_name(cudaGraphNode_t node)
{
    return node->work.kind == WORK_KERNEL ? node->work.kernel.name : NULL;
}

static struct CUgraph_st *graph_copy(const struct CUgraph_st *from)
{
    struct CUgraph_st *graph = graph_make(from->device);
    if (!graph)
        return NULL;
    for (uint32_t i = 0; i < from->branches; i++)
        graph_branch(graph, i, from->priority[i]);
    for (uint32_t i = 0; i < from->count; i++) {
        const struct CUgraphNode_st *node = from->node[i];
        if (graph_append(graph, node->branch, &node->work, node->work.args, node->work.size,
                         node->after) < 0) {
            graph_free(graph);
            return NULL;
        }
    }
    return graph;
}

static void exec_free(struct CUgraphExec_st *exec)
{
    for (uint32_t i = 1; i < exec->graph->branches; i++) {
        if (exec->branch[i])
            stream_retire(exec->branch[i]);
    }
    graph_free(exec->graph);
    exec->magic = 0;
    free(exec);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *ret_exec, cudaGraph_t handle,
                                 unsigned long long flags)
{
    ENTER(cudaGraphInstantiate);
    struct CUgraph_st *graph = graph_from(handle);
    if (!graph || !ret_exec || flags)
        return call_fail(cudaErrorInvalidValue);
    struct CUgraphExec_st *exec = calloc(1, sizeof(*exec) + graph->count * sizeof(exec->seq[0]));
    if (!exec || !(exec->graph = graph_copy(graph))) {
        free(exec);
        return call_fail(cudaErrorMemoryAllocation);
    }
    exec->magic = EXEC_MAGIC;
    for (uint32_t i = 1; i < graph->branches; i++) {
        exec->branch[i] = stream_make(graph->device, graph->priority[i], false);
        if (!exec->branch[i]) {
            exec_free(exec);
            return call_fail(cudaErrorMemoryAllocation);
        }
    }
    *ret_exec = exec;
    return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t handle, cudaStream_t stream)
{
    ENTER(cudaGraphUpload);
    if (!exec_from(handle) || !stream_from(stream))
        return call_fail(cudaErrorInvalidValue);
    return cudaSuccess; /* nothing to carry over */
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t handle)
{
    ENTER(cudaGraphExecDestroy);
    struct CUgraphExec_st *exec = exec_from(handle);
    if (!exec)
        return call_fail(cudaErrorInvalidValue);
    exec_free(exec); /* works under way were copied into their streams */
    return cudaSuccess;
}

static cudaError_t replay(struct CUgraphExec_st *exec, struct CUstream_st *stream)
{
    struct CUgraph_st *graph = exec->graph;
    exec->branch[0] = stream;
    cudaError_t error = cudaSuccess;
    if (exec->last_stream)
        error = stream_wait(stream, exec->last_stream, exec->last_seq);
    uint64_t start = stream_issued(stream);
    for (uint32_t i = 0; i < graph->count && error == cudaSuccess; i++) {
        const struct CUgraphNode_st *node = graph->node[i];
        struct CUstream_st *branch = exec->branch[node->branch];
        if (node->work.kind != WORK_WAIT) {
            exec->seq[i] = stream_enqueue(branch, &node->work, node->work.args, node->work.size);
            error = exec->seq[i] ? cudaSuccess : cudaErrorMemoryAllocation;
            continue;
        }
        if (node->after < 0)
            error = stream_wait(branch, stream, start);
        else
            error = stream_wait(branch, exec->branch[graph->node[node->after]->branch],
                                exec->seq[node->after]);
        exec->seq[i] = stream_issued(branch);
    }
    exec->last_stream = stream;
    exec->last_seq = stream_issued(stream);
    return error;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream_handle)
{
    ENTER(cudaGraphLaunch);
    struct CUgraphExec_st *exec = exec_from(handle);
    struct CUstream_st *stream = stream_from(stream_handle);
    if (!exec || !stream)
        return call_fail(cudaErrorInvalidValue);
    if (stream->capture)
        return capture_refuses(stream); /* child graphs are not supported */
    if (stream->device != exec->graph->device)
        return call_fail(cudaErrorInvalidValue);
    lock_take(&exec->lock);
    cudaError_t error = replay(exec, stream);
    lock_drop(&exec->lock);
    return error == cudaSuccess ? error : call_fail(error);
}

cudaError_t emu_graph_set_args(cudaGraphExec_t handle, cudaGraphNode_t node, const void *args,
                               size_t size)
{
    struct CUgraphExec_st *exec = exec_from(handle);
    if (!exec || node->number >= exec->graph->count)
        return call_fail(cudaErrorInvalidValue);
    struct work *work = &exec->graph->node[node->number]->work;
    if (work->kind != WORK_KERNEL || work->size != size)
        return call_fail(cudaErrorInvalidValue);
    lock_take(&exec->lock);
    memcpy(work->args, args, size);
    lock_drop(&exec->lock);
    return cudaSuccess;
}
