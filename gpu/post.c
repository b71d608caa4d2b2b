#include "gpu/post.h"

#include <string.h>

#include "gpu/cuda.h"
#include "gpu/device.h"
#include "gpu/kernels/collect.h"
#include "gpu/kernels/reduce.h"

/* A device that cannot be asked is not reached; its start will say why. */
static bool reach(struct post_office *office)
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

int post_office_open(struct post_office *office, uint32_t ranks, const int *devices,
                     struct error *error)
{
    *office = (struct post_office){.ranks = ranks};
    memcpy(office->devices, devices, ranks * sizeof *devices);
    pthread_mutex_init(&office->lock, NULL);
    if (ranks > INBOX_RANKS_MAX)
        return 0;
    office->open = reach(office);
    for (uint32_t i = 0; i < ranks; i++) {
        if (!post_tally_make(&office->desk[i].tally)) {
            post_office_close(office);
            return error_set(error, ERR_NO_MEMORY, "no memory for a group of %u devices", ranks);
        }
    }
    return 0;
}

void post_office_close(struct post_office *office)
{
    for (uint32_t i = 0; i < INBOX_RANKS_MAX; i++)
        post_tally_free(office->desk[i].tally);
    pthread_mutex_destroy(&office->lock);
}

void post_let_go(struct post_office *office)
{
    pthread_mutex_lock(&office->lock);
    for (uint32_t i = 0; i < INBOX_RANKS_MAX; i++) {
        if (office->desk[i].let_go)
            *(volatile uint32_t *)office->desk[i].let_go = 1;
    }
    pthread_mutex_unlock(&office->lock);
}

/* The others' memory becomes readable and writable from this rank's device. */
static int peers_reach(const struct post *post, struct error *error)
{
    const struct post_office *office = post->office;
    for (uint32_t i = 0; i < office->ranks; i++) {
        if (i == post->rank)
            continue;
        cudaError_t failed = cudaDeviceEnablePeerAccess(office->devices[i], 0);
        if (failed == cudaSuccess)
            continue;
        if (failed != cudaErrorPeerAccessAlreadyEnabled)
            return error_set(error, ERR_DEVICE, "device %d cannot use the memory of device %d: %s",
                             office->devices[post->rank], office->devices[i],
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
static uint64_t slice_row_bytes(const struct post *post, uint32_t vocab)
{
    return (uint64_t)slice_of(vocab, post->office->ranks) * sizeof(float);
}

int post_open(struct post *post, struct post_office *office, uint32_t rank, uint32_t vocab,
              struct mem *mem, struct error *error)
{
    *post = (struct post){.office = office, .rank = rank};
    if (!office->open)
        return 0;
    int status = peers_reach(post, error);
    if (status)
        return status;
    uint64_t row = slice_row_bytes(post, vocab), part = device_traits.slice_bytes;
    post->turn_bytes = office->ranks * device_traits.post_bytes;
    post->slice_bytes = office->ranks * mem_round(part > row ? part : row);
    uint64_t bytes = 2 * (post->turn_bytes + post->slice_bytes);
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
    post->sum_bytes = device_traits.post_bytes;
    return 0;
}

void post_close(struct post *post)
{
    if (!post->office)
        return;
    pthread_mutex_lock(&post->office->lock);
    if (post->rank < INBOX_RANKS_MAX)
        post->office->desk[post->rank].let_go = NULL;
    pthread_mutex_unlock(&post->office->lock);
    *post = (struct post){0};
}

void post_begin(struct post *post)
{
    post->sums = post->slices = 0;
}

bool post_sums(const struct post *post, uint32_t rows, uint32_t size, enum dtype dtype)
{
    return size % REDUCE_STEP == 0 && size <= REDUCE_SIZE_MAX &&
           (uint64_t)rows * size * dtype_bytes(dtype) <= post->sum_bytes;
}

bool post_logits(const struct post *post)
{
    return post->sum_bytes > 0;
}

/* Inboxes that lie `at` bytes into every rank's memory. */
static struct inboxes inboxes_at(const struct post *post, uint64_t at, uint64_t bytes)
{
    const struct post_office *office = post->office;
    struct inboxes inboxes = {
        .rank = post->rank,
        .ranks = office->ranks,
        .part_bytes = bytes / office->ranks,
        .let_go = office->desk[post->rank].let_go,
    };
    for (uint32_t i = 0; i < office->ranks; i++) {
        inboxes.at[i] = office->desk[i].memory + at;
        inboxes.tally[i] = office->desk[i].tally;
    }
    return inboxes;
}

int post_norm(struct post *post, const struct norm_args *norm, cudaStream_t stream,
              struct error *error)
{
    struct reduce_args args = {
        .norm = *norm,
        .inboxes = inboxes_at(post, post->sums++ % 2 * post->turn_bytes, post->turn_bytes),
    };
    CUDA_TRY(op_reduce(&args, stream), error);
    return 0;
}

int post_collect(struct post *post, struct span rows, float *x, uint32_t vocab, cudaStream_t stream,
                 struct error *error)
{
    uint64_t part = post->slice_bytes / post->office->ranks;
    uint32_t fit = (uint32_t)(part / slice_row_bytes(post, vocab));
    for (uint32_t first = 0; first < rows.max; first += fit) {
        uint64_t at = 2 * post->turn_bytes + post->slices++ % 2 * post->slice_bytes;
        struct collect_args args = {
            .rows = {.count = rows.count,
                     .first = rows.first + first,
                     .max = rows.max - first < fit ? rows.max - first : fit},
            .x = x + (uint64_t)first * vocab,
            .width = vocab,
            .share = slice_of(vocab, post->office->ranks),
            .inboxes = inboxes_at(post, at, post->slice_bytes),
        };
        CUDA_TRY(op_collect(&args, stream), error);
    }
    return 0;
}
