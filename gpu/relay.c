#include "gpu/relay.h"

#include "gpu/cuda.h"

void relay_chain(struct relay *relay, struct relay *before, int device)
{
    *relay = (struct relay){.before = before, .device = device};
    pthread_mutex_init(&relay->lock, NULL);
    pthread_cond_init(&relay->changed, NULL);
    if (before)
        before->after = relay;
}

void relay_ends(struct relay *relay, struct relay *first, struct relay *last)
{
    relay->first = first;
    relay->last = last;
}

static void event_drop(cudaEvent_t *event)
{
    if (*event)
        (void)cudaEventDestroy(*event);
    *event = NULL;
}

void relay_drop(struct relay *relay)
{
    if (!relay->first)
        return;
    event_drop(&relay->made);
    event_drop(&relay->arrived);
    event_drop(&relay->taken);
    for (uint32_t i = 0; i < RELAY_PLACES; i++)
        event_drop(&relay->returned[i]);
    pthread_cond_destroy(&relay->changed);
    pthread_mutex_destroy(&relay->lock);
    relay->first = NULL;
}

void relay_abort(struct relay *relay)
{
    if (!relay->first)
        return;
    pthread_mutex_lock(&relay->lock);
    relay->cut = true;
    pthread_cond_broadcast(&relay->changed);
    pthread_mutex_unlock(&relay->lock);
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

static int events_open(struct relay *relay, struct error *error)
{
    cudaEvent_t *events[] = {&relay->made, &relay->arrived, &relay->taken};
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++)
        CUDA_TRY(cudaEventCreateWithFlags(events[i], cudaEventDisableTiming), error);
    for (uint32_t i = 0; relay == relay->last && i < relay->places; i++)
        CUDA_TRY(cudaEventCreateWithFlags(&relay->returned[i], cudaEventDisableTiming), error);
    return 0;
}

static int memory_open(struct relay *relay, struct mem *mem, uint64_t state_bytes,
                       struct error *error)
{
    uint64_t tokens = sizeof *relay->tokens * relay->places * relay->slots;
    void *at = NULL;
    int status = relay->before ? mem_fixed(mem, state_bytes, &relay->inbox, error) : 0;
    if (!status && relay->after)
        status = mem_fixed(mem, state_bytes, &relay->outbox, error);
    if (!status && (relay == relay->first || relay == relay->last))
        status = mem_fixed(mem, tokens, &at, error);
    relay->tokens = at;
    return status;
}

int relay_open(struct relay *relay, struct mem *mem, const struct relay_limits *limits,
               struct error *error)
{
    int least = 0, greatest = 0;
    relay->slots = limits->slots;
    relay->places = limits->places;
    relay->profile = limits->profile;
    CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest), error);
    CUDA_TRY(cudaStreamCreateWithPriority(&relay->stream, cudaStreamNonBlocking, greatest), error);
    int status = events_open(relay, error);
    if (!status)
        status = memory_open(relay, mem, limits->state_bytes, error);
    if (!status && relay->after)
        status = peer_open(relay->after->device, relay->device, error);
    if (!status && relay == relay->last)
        status = peer_open(relay->first->device, relay->device, error);
    return status;
}

int relay_drain(struct relay *relay, struct error *error)
{
    if (relay->first != relay)
        return 0;
    /* May wait: no step is in flight any more, only what the last ones brought back. */
    for (uint32_t i = 0; i < relay->places && relay->last->returned[i]; i++)
        CUDA_TRY(cudaEventSynchronize(relay->last->returned[i]), error);
    return 0;
}

void relay_close(struct relay *relay)
{
    if (relay->stream)
        (void)cudaStreamDestroy(relay->stream);
    relay->stream = NULL;
}

/* ---- a step's way ---- */

int relay_await_tokens(struct relay *relay, uint64_t of, cudaStream_t compute, struct error *error)
{
    CUDA_TRY(cudaStreamWaitEvent(compute, relay->last->returned[of % relay->places], 0), error);
    return 0;
}

static void handed_tell(struct relay *relay, uint64_t step)
{
    pthread_mutex_lock(&relay->lock);
    relay->handed = step;
    pthread_cond_broadcast(&relay->changed);
    pthread_mutex_unlock(&relay->lock);
}

static int handed_await(struct relay *relay, uint64_t step, struct error *error)
{
    pthread_mutex_lock(&relay->lock);
    while (relay->handed < step && !relay->cut)
        pthread_cond_wait(&relay->changed, &relay->lock);
    bool there = relay->handed >= step;
    pthread_mutex_unlock(&relay->lock);
    return there ? 0 : error_set(error, ERR_DEVICE, "the stage before has failed");
}

static int copy(void *to, const void *from, uint64_t bytes, cudaStream_t stream,
                struct error *error)
{
    if (bytes)
        CUDA_TRY(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream), error);
    return 0;
}

int relay_take(struct relay *relay, uint64_t step, const struct stage_state *state,
               cudaStream_t compute, struct error *error)
{
    int status = handed_await(relay->before, step, error);
    if (status)
        return status;
    CUDA_TRY(cudaStreamWaitEvent(compute, relay->before->arrived, 0), error);
    status = copy(state->residual, relay->inbox, state->bytes, compute, error);
    if (status)
        return status;
    CUDA_TRY(cudaEventRecord(relay->taken, compute), error);
    return 0;
}

static int profiled(struct relay *relay, uint64_t step, enum profile_mark mark, struct error *error)
{
    return relay->profile ? profile_record(relay->profile, step, mark, relay->stream, error) : 0;
}

static int peer_copy(struct relay *relay, uint64_t step, uint64_t bytes, struct error *error)
{
    const struct relay *after = relay->after;
    int status = profiled(relay, step, PROFILE_PEER_FIRST, error);
    if (status)
        return status;
    if (bytes)
        CUDA_TRY(cudaMemcpyPeerAsync(after->inbox, after->device, relay->outbox, relay->device,
                                     bytes, relay->stream),
                 error);
    return profiled(relay, step, PROFILE_PEER_LAST, error);
}

int relay_give(struct relay *relay, uint64_t step, const struct stage_state *state,
               cudaStream_t compute, struct error *error)
{
    if (step > 1)
        CUDA_TRY(cudaStreamWaitEvent(compute, relay->arrived, 0), error);
    int status = copy(relay->outbox, state->residual, state->bytes, compute, error);
    if (status)
        return status;
    CUDA_TRY(cudaEventRecord(relay->made, compute), error);
    CUDA_TRY(cudaStreamWaitEvent(relay->stream, relay->made, 0), error);
    if (step > 1)
        CUDA_TRY(cudaStreamWaitEvent(relay->stream, relay->after->taken, 0), error);
    status = peer_copy(relay, step, state->bytes, error);
    if (status)
        return status;
    CUDA_TRY(cudaEventRecord(relay->arrived, relay->stream), error);
    handed_tell(relay, step);
    return 0;
}

int relay_return(struct relay *relay, uint64_t step, cudaStream_t stream, struct error *error)
{
    const struct relay *first = relay->first;
    CUDA_TRY(cudaMemcpyPeerAsync(relay_tokens(first, step), first->device,
                                 relay_tokens(relay, step), relay->device,
                                 sizeof *relay->tokens * relay->slots, stream),
             error);
    CUDA_TRY(cudaEventRecord(relay->returned[step % relay->places], stream), error);
    return 0;
}
