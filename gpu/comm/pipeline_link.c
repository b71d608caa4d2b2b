#include "gpu/comm/pipeline_link.h"

#include "gpu/base/cuda_error.h"

void pipeline_link_chain(struct pipeline_link *link, struct pipeline_link *before, int device)
{
    *link = (struct pipeline_link){.before = before, .device = device};
    pthread_mutex_init(&link->lock, NULL);
    pthread_cond_init(&link->changed, NULL);
    if (before)
        before->after = link;
}

void pipeline_link_ends(struct pipeline_link *link, struct pipeline_link *first,
                        struct pipeline_link *last)
{
    link->first = first;
    link->last = last;
}

static void event_drop(cudaEvent_t *event)
{
    if (*event)
        (void)cudaEventDestroy(*event);
    *event = NULL;
}

void pipeline_link_drop(struct pipeline_link *link)
{
    if (!link->first)
        return;
    event_drop(&link->made);
    event_drop(&link->arrived);
    event_drop(&link->taken);
    for (uint32_t i = 0; i < PIPELINE_LINK_PLACES; i++)
        event_drop(&link->returned[i]);
    pthread_cond_destroy(&link->changed);
    pthread_mutex_destroy(&link->lock);
    link->first = NULL;
}

void pipeline_link_abort(struct pipeline_link *link)
{
    if (!link->first)
        return;
    pthread_mutex_lock(&link->lock);
    link->cut = true;
    pthread_cond_broadcast(&link->changed);
    pthread_mutex_unlock(&link->lock);
}

/* Without it a copy goes through the host's memory, which is slower and nothing else. */
static int peer_open(int peer, int device, struct error *error)
{
    int can = 0;
    if (peer == device)
        return 0;
    CUDA_TRY(cudaDeviceCanAccessPeer(&can, device, peer), error);
    cudaError_t status = can ? cudaDeviceEnablePeerAccess(peer, 0) : cudaSuccess;
    if (status == cudaErrorPeerAccessAlreadyEnabled)
        (void)cudaGetLastError();
    else if (status != cudaSuccess)
        return cuda_fail(status, "cudaDeviceEnablePeerAccess", error);
    return 0;
}

static int events_open(struct pipeline_link *link, struct error *error)
{
    cudaEvent_t *events[] = {&link->made, &link->arrived, &link->taken};
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++)
        CUDA_TRY(cudaEventCreateWithFlags(events[i], cudaEventDisableTiming), error);
    for (uint32_t i = 0; link == link->last && i < link->places; i++)
        CUDA_TRY(cudaEventCreateWithFlags(&link->returned[i], cudaEventDisableTiming), error);
    return 0;
}

static int memory_open(struct pipeline_link *link, struct mem *mem, uint64_t state_bytes,
                       struct error *error)
{
    uint64_t tokens = sizeof *link->tokens * link->places * link->slots;
    void *at = NULL;
    int status = link->before ? mem_fixed(mem, state_bytes, &link->inbox, error) : 0;
    if (!status && link->after)
        status = mem_fixed(mem, state_bytes, &link->outbox, error);
    if (!status && (link == link->first || link == link->last))
        status = mem_fixed(mem, tokens, &at, error);
    link->tokens = at;
    return status;
}

int pipeline_link_open(struct pipeline_link *link, struct mem *mem,
                       const struct pipeline_link_limits *limits, struct error *error)
{
    int least = 0, greatest = 0;
    link->slots = limits->slots;
    link->places = limits->places;
    link->profile = limits->profile;
    CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest), error);
    CUDA_TRY(cudaStreamCreateWithPriority(&link->stream, cudaStreamNonBlocking, greatest), error);
    int status = events_open(link, error);
    if (!status)
        status = memory_open(link, mem, limits->state_bytes, error);
    if (!status && link->after)
        status = peer_open(link->after->device, link->device, error);
    if (!status && link == link->last)
        status = peer_open(link->first->device, link->device, error);
    return status;
}

int pipeline_link_drain(struct pipeline_link *link, struct error *error)
{
    if (link->first != link)
        return 0;
    /* May wait: no step is in flight any more, only what the last ones brought back. */
    for (uint32_t i = 0; i < link->places && link->last->returned[i]; i++)
        CUDA_TRY(cudaEventSynchronize(link->last->returned[i]), error);
    return 0;
}

void pipeline_link_close(struct pipeline_link *link)
{
    if (link->stream)
        (void)cudaStreamDestroy(link->stream);
    link->stream = NULL;
}

/* ---- a step's way ---- */

int pipeline_link_await_tokens(struct pipeline_link *link, uint64_t of, cudaStream_t compute,
                               struct error *error)
{
    CUDA_TRY(cudaStreamWaitEvent(compute, link->last->returned[of % link->places], 0), error);
    return 0;
}

static void handed_tell(struct pipeline_link *link, uint64_t step)
{
    pthread_mutex_lock(&link->lock);
    link->handed = step;
    pthread_cond_broadcast(&link->changed);
    pthread_mutex_unlock(&link->lock);
}

static int handed_await(struct pipeline_link *link, uint64_t step, struct error *error)
{
    pthread_mutex_lock(&link->lock);
    while (link->handed < step && !link->cut)
        pthread_cond_wait(&link->changed, &link->lock);
    bool there = link->handed >= step;
    pthread_mutex_unlock(&link->lock);
    return there ? 0 : error_set(error, ERR_DEVICE, "the stage before has failed");
}

static int copy(void *to, const void *from, uint64_t bytes, cudaStream_t stream,
                struct error *error)
{
    if (bytes)
        CUDA_TRY(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream), error);
    return 0;
}

int pipeline_link_recv(struct pipeline_link *link, uint64_t step, const struct stage_state *state,
                       cudaStream_t compute, struct error *error)
{
    int status = handed_await(link->before, step, error);
    if (status)
        return status;
    CUDA_TRY(cudaStreamWaitEvent(compute, link->before->arrived, 0), error);
    status = copy(state->residual, link->inbox, state->bytes, compute, error);
    if (status)
        return status;
    CUDA_TRY(cudaEventRecord(link->taken, compute), error);
    return 0;
}

static int profiled(struct pipeline_link *link, uint64_t step, enum profile_mark mark,
                    struct error *error)
{
    return link->profile ? profile_record(link->profile, step, mark, link->stream, error) : 0;
}

static int peer_copy(struct pipeline_link *link, uint64_t step, uint64_t bytes, struct error *error)
{
    const struct pipeline_link *after = link->after;
    int status = profiled(link, step, PROFILE_PEER_FIRST, error);
    if (status)
        return status;
    if (bytes)
        CUDA_TRY(cudaMemcpyPeerAsync(after->inbox, after->device, link->outbox, link->device, bytes,
                                     link->stream),
                 error);
    return profiled(link, step, PROFILE_PEER_LAST, error);
}

int pipeline_link_send(struct pipeline_link *link, uint64_t step, const struct stage_state *state,
                       cudaStream_t compute, struct error *error)
{
    if (step > 1)
        CUDA_TRY(cudaStreamWaitEvent(compute, link->arrived, 0), error);
    int status = copy(link->outbox, state->residual, state->bytes, compute, error);
    if (status)
        return status;
    CUDA_TRY(cudaEventRecord(link->made, compute), error);
    CUDA_TRY(cudaStreamWaitEvent(link->stream, link->made, 0), error);
    if (step > 1)
        CUDA_TRY(cudaStreamWaitEvent(link->stream, link->after->taken, 0), error);
    status = peer_copy(link, step, state->bytes, error);
    if (status)
        return status;
    CUDA_TRY(cudaEventRecord(link->arrived, link->stream), error);
    handed_tell(link, step);
    return 0;
}

int pipeline_link_return(struct pipeline_link *link, uint64_t step, cudaStream_t stream,
                         struct error *error)
{
    const struct pipeline_link *first = link->first;
    CUDA_TRY(cudaMemcpyPeerAsync(pipeline_link_tokens(first, step), first->device,
                                 pipeline_link_tokens(link, step), link->device,
                                 sizeof *link->tokens * link->slots, stream),
             error);
    CUDA_TRY(cudaEventRecord(link->returned[step % link->places], stream), error);
    return 0;
}
