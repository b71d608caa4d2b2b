#include "gpu/comm/p2p_group.h"

#include <assert.h>
#include <string.h>

#include "gpu/base/cuda_error.h"
#include "gpu/base/device.h"
#include "gpu/kernels/collective/all_gather.h"
#include "gpu/kernels/collective/allreduce_norm.h"
#include "gpu/kernels/collective/allreduce_wide_norm.h"

/* A device that cannot be asked is not reached; its start will say why. */
static bool reach(struct p2p_group *office)
{
    for (uint32_t i = 0; i < office->ranks * office->ranks; i++) {
        int can = 1;
        office->apart[0] = office->devices[i / office->ranks];
        office->apart[1] = office->devices[i % office->ranks];
        if (i / office->ranks != i % office->ranks &&
            cudaDeviceCanAccessPeer(&can, office->apart[0], office->apart[1]) != cudaSuccess)
            can = 0;
        (void)cudaGetLastError();
        if (!can)
            return false;
    }
    return true;
}

int p2p_group_open(struct p2p_group *office, uint32_t ranks, const int *devices,
                   struct error *error)
{
    *office = (struct p2p_group){.ranks = ranks};
    memcpy(office->devices, devices, ranks * sizeof *devices);
    pthread_mutex_init(&office->lock, NULL);
    if (ranks > INBOX_RANKS_MAX)
        return 0;
    office->open = reach(office);
    for (uint32_t i = 0; i < ranks; i++) {
        if (!p2p_tally_make(&office->desk[i].tally)) {
            p2p_group_close(office);
            return error_set(error, ERR_NO_MEMORY, "no memory for a group of %u devices", ranks);
        }
    }
    return 0;
}

void p2p_group_close(struct p2p_group *office)
{
    for (uint32_t i = 0; i < INBOX_RANKS_MAX; i++)
        p2p_tally_free(office->desk[i].tally);
    pthread_mutex_destroy(&office->lock);
}

void p2p_group_abort(struct p2p_group *office)
{
    pthread_mutex_lock(&office->lock);
    for (uint32_t i = 0; i < INBOX_RANKS_MAX; i++) {
        if (office->desk[i].let_go)
            *(volatile uint32_t *)office->desk[i].let_go = 1;
    }
    pthread_mutex_unlock(&office->lock);
}

/* The others' memory becomes readable and writable from this rank's device. */
static int peers_reach(const struct p2p *p2p, struct error *error)
{
    const struct p2p_group *office = p2p->office;
    for (uint32_t i = 0; i < office->ranks; i++) {
        if (i == p2p->rank)
            continue;
        cudaError_t failed = cudaDeviceEnablePeerAccess(office->devices[i], 0);
        if (failed == cudaSuccess)
            continue;
        if (failed != cudaErrorPeerAccessAlreadyEnabled)
            return error_set(error, ERR_DEVICE, "device %d cannot use the memory of device %d: %s",
                             office->devices[p2p->rank], office->devices[i],
                             cudaGetErrorString(failed));
        (void)cudaGetLastError();
    }
    return 0;
}

static uint32_t slice_of(uint32_t vocab, uint32_t ranks)
{
    return (vocab + ranks - 1) / ranks;
}

/* Bytes of one row's slice: parts stay aligned whatever the slice is. */
static uint64_t slice_row_bytes(const struct p2p *p2p, uint32_t vocab)
{
    return (uint64_t)slice_of(vocab, p2p->office->ranks) * sizeof(float);
}

/* A rank's part for as many rows as sums can have: a sum's row is ALLREDUCE_STEP values of two
 * bytes at least. */
static uint64_t wide_part_bytes(void)
{
    uint64_t rows = device_traits.post_bytes / (ALLREDUCE_STEP * sizeof(uint16_t));
    return mem_round(rows * WIDE_VALUES * sizeof(float));
}

int p2p_open(struct p2p *p2p, struct p2p_group *office, uint32_t rank, struct p2p_model model,
             struct mem *mem, struct error *error)
{
    *p2p = (struct p2p){.office = office, .rank = rank};
    if (!office->open)
        return 0;
    int status = peers_reach(p2p, error);
    if (status)
        return status;
    uint64_t row = slice_row_bytes(p2p, model.vocab), part = device_traits.slice_bytes;
    p2p->turn_bytes = office->ranks * device_traits.post_bytes;
    p2p->slice_bytes = office->ranks * mem_round(part > row ? part : row);
    p2p->wide_bytes = model.wide ? office->ranks * wide_part_bytes() : 0;
    uint64_t bytes = 2 * (p2p->turn_bytes + p2p->slice_bytes) + p2p->wide_bytes;
    void *memory = NULL, *let_go = NULL;
    status = mem_fixed(mem, bytes, &memory, error);
    if (!status)
        status = mem_pinned(mem, sizeof(uint32_t), &let_go, error);
    if (status)
        return status;
    *(uint32_t *)let_go = 0;
    CUDA_TRY(cudaMemsetAsync(memory, INBOX_EMPTY, bytes, cudaStreamPerThread), error);
    office->desk[rank].memory = memory;
    pthread_mutex_lock(&office->lock);
    office->desk[rank].let_go = let_go;
    pthread_mutex_unlock(&office->lock);
    p2p->sum_bytes = device_traits.post_bytes;
    return 0;
}

void p2p_close(struct p2p *p2p)
{
    if (!p2p->office)
        return;
    pthread_mutex_lock(&p2p->office->lock);
    if (p2p->rank < INBOX_RANKS_MAX)
        p2p->office->desk[p2p->rank].let_go = NULL;
    pthread_mutex_unlock(&p2p->office->lock);
    *p2p = (struct p2p){0};
}

void p2p_begin(struct p2p *p2p)
{
    p2p->sums = p2p->slices = 0;
}

bool p2p_can_allreduce(const struct p2p *p2p, uint32_t rows, uint32_t size, enum dtype dtype)
{
    return size % ALLREDUCE_STEP == 0 && size <= ALLREDUCE_SIZE_MAX &&
           (uint64_t)rows * size * dtype_bytes(dtype) <= p2p->sum_bytes;
}

bool p2p_can_gather(const struct p2p *p2p)
{
    return p2p->sum_bytes > 0;
}

/* Inboxes that lie `at` bytes into every rank's memory. */
static struct inboxes inboxes_at(const struct p2p *p2p, uint64_t at, uint64_t bytes)
{
    const struct p2p_group *office = p2p->office;
    struct inboxes inboxes = {
        .rank = p2p->rank,
        .ranks = office->ranks,
        .part_bytes = bytes / office->ranks,
        .let_go = office->desk[p2p->rank].let_go,
    };
    for (uint32_t i = 0; i < office->ranks; i++) {
        inboxes.at[i] = office->desk[i].memory + at;
        inboxes.tally[i] = office->desk[i].tally;
    }
    return inboxes;
}

int p2p_allreduce_norm(struct p2p *p2p, const struct norm_args *norm, cudaStream_t stream,
                       struct error *error)
{
    struct allreduce_norm_args args = {
        .norm = *norm,
        .inboxes = inboxes_at(p2p, p2p->sums++ % 2 * p2p->turn_bytes, p2p->turn_bytes),
    };
    CUDA_TRY(op_allreduce_norm(&args, stream), error);
    return 0;
}

int p2p_allreduce_wide_norm(struct p2p *p2p, const struct wide_norm_args *norm, cudaStream_t stream,
                            struct error *error)
{
    uint64_t at = 2 * (p2p->turn_bytes + p2p->slice_bytes);
    struct allreduce_wide_norm_args args = {.norm = *norm,
                                            .inboxes = inboxes_at(p2p, at, p2p->wide_bytes)};
    uint64_t bytes = (uint64_t)norm->rows.max * WIDE_VALUES * sizeof(float);
    assert(bytes <= args.inboxes.part_bytes);
    CUDA_TRY(op_allreduce_wide_norm(&args, stream), error);
    return 0;
}

int p2p_all_gather(struct p2p *p2p, struct row_range rows, float *x, uint32_t vocab,
                   cudaStream_t stream, struct error *error)
{
    uint64_t part = p2p->slice_bytes / p2p->office->ranks;
    uint32_t fit = (uint32_t)(part / slice_row_bytes(p2p, vocab));
    for (uint32_t first = 0; first < rows.max; first += fit) {
        uint64_t at = 2 * p2p->turn_bytes + p2p->slices++ % 2 * p2p->slice_bytes;
        struct all_gather_args args = {
            .rows = {.count = rows.count,
                     .first = rows.first + first,
                     .max = rows.max - first < fit ? rows.max - first : fit},
            .x = x + (uint64_t)first * vocab,
            .width = vocab,
            .share = slice_of(vocab, p2p->office->ranks),
            .inboxes = inboxes_at(p2p, at, p2p->slice_bytes),
        };
        CUDA_TRY(op_all_gather(&args, stream), error);
    }
    return 0;
}
