#include "gpu/emu/fifo.h"

#include <sys/mman.h>

#include "gpu/emu/work.h"

#define CHUNK_BYTES (64 * 1024)

/* A piece of a queue's storage: works are laid one after the other, and the piece is used again
 * when the last of them is done. In steady state no heap is touched. */
struct chunk {
    struct chunk *next;
    uint32_t used, live;
    _Alignas(16) unsigned char bytes[];
};

static struct chunk *chunk_with_room(struct fifo *fifo, uint32_t bytes)
{
    struct chunk *chunk = fifo->chunk;
    if (chunk && chunk->used + bytes <= CHUNK_BYTES - sizeof(*chunk))
        return chunk;
    chunk = fifo->spare;
    if (chunk) {
        fifo->spare = chunk->next;
    } else {
        chunk = mmap(NULL, CHUNK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (chunk == MAP_FAILED)
            return NULL;
    }
    chunk->next = NULL;
    chunk->used = chunk->live = 0;
    fifo->chunk = chunk; /* the one before goes to `spare` with its last work */
    return chunk;
}

static void chunk_release(struct fifo *fifo, struct chunk *chunk)
{
    if (--chunk->live > 0)
        return;
    chunk->used = 0;
    if (chunk != fifo->chunk) {
        chunk->next = fifo->spare;
        fifo->spare = chunk;
    }
}

/* A plain loop on purpose: memcpy would be seen by ThreadSanitizer, as a write to storage that was
 * used before by a thread that CUDA does not order before this one. */
static void copy_unseen(unsigned char *to, const unsigned char *from, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        to[i] = from[i];
        __asm__ volatile("" ::: "memory");
    }
}

struct work *fifo_push(struct fifo *fifo, const struct work *from, const void *args, size_t size)
{
    uint32_t bytes = (uint32_t)((sizeof(struct work) + size + 15) & ~(size_t)15);
    struct chunk *chunk = chunk_with_room(fifo, bytes);
    if (!chunk)
        return NULL;
    struct work *work = (struct work *)(chunk->bytes + chunk->used);
    chunk->used += bytes;
    chunk->live++;
    copy_unseen((unsigned char *)work, (const unsigned char *)from, sizeof(*work));
    copy_unseen(work->args, args, size);
    work->size = (uint32_t)size;
    work->chunk = chunk;
    work->next = NULL;
    work->seq = ++fifo->issued;
    if (fifo->tail)
        fifo->tail->next = work;
    else
        fifo->head = work;
    fifo->tail = work;
    return work;
}

void fifo_pop(struct fifo *fifo)
{
    struct work *head = fifo->head;
    fifo->head = head->next;
    if (!fifo->head)
        fifo->tail = NULL;
    chunk_release(fifo, head->chunk);
}

void fifo_free(struct fifo *fifo)
{
    while (fifo->head) {
        struct work *work = fifo->head;
        fifo->head = work->next;
        if (--work->chunk->live == 0 && work->chunk != fifo->chunk)
            munmap(work->chunk, CHUNK_BYTES);
    }
    while (fifo->spare) {
        struct chunk *chunk = fifo->spare;
        fifo->spare = chunk->next;
        munmap(chunk, CHUNK_BYTES);
    }
    if (fifo->chunk)
        munmap(fifo->chunk, CHUNK_BYTES);
}
