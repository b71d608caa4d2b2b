#include "gpu/memory/kept_weights.h"

#include <assert.h>
#include <stdlib.h>

#include "gpu/base/cuda_error.h"
#include "gpu/memory/host_pages.h"

static uint64_t chunk_size(const struct gpu_kept *kept, const struct kept_part *part,
                           uint32_t chunk)
{
    uint64_t left = part->bytes - chunk * kept->chunk_bytes;
    return left < kept->chunk_bytes ? left : kept->chunk_bytes;
}

int kept_weights_make(uint64_t limit, uint64_t chunk_bytes, struct gpu_kept **ret_kept,
                      struct error *error)
{
    struct gpu_kept *kept = calloc(1, sizeof *kept);
    if (!kept)
        return error_set(error, ERR_NO_MEMORY, "no memory for a list of chunks");
    kept->limit = limit;
    kept->chunk_bytes = chunk_bytes;
    *ret_kept = kept;
    return 0;
}

void kept_weights_free(struct gpu_kept *kept)
{
    if (kept)
        kept_weights_drop(kept);
    free(kept);
}

/* ---- filled ------------------------------------------------------------------------------------
 */

int kept_weights_reserve(struct gpu_kept *kept, uint64_t bytes, struct error *error)
{
    assert(kept->reserved == 0);
    int status = host_pages_reserve(kept->limit, bytes, error);
    if (!status)
        kept->reserved = bytes;
    return status;
}

int kept_weights_begin(struct gpu_kept *kept, uint32_t number, uint64_t bytes, struct error *error)
{
    struct kept_part *part = &kept->parts[number];
    assert(bytes > 0 && !part->chunks && !kept->whole);
    uint64_t count = (bytes + kept->chunk_bytes - 1) / kept->chunk_bytes;
    struct kept_chunk *chunks =
        count <= UINT32_MAX ? calloc(count, sizeof *part->chunks) : NULL;
    if (!chunks)
        return error_set(error, ERR_NO_MEMORY, "no memory for a list of chunks");
    *part = (struct kept_part){.bytes = bytes, .count = (uint32_t)count, .chunks = chunks};
    return 0;
}

int kept_weights_take(struct gpu_kept *kept, uint32_t number, uint32_t chunk, struct error *error)
{
    struct kept_part *part = &kept->parts[number];
    uint64_t bytes = chunk_size(kept, part, chunk);
    assert(!part->chunks[chunk].base);
    int status = host_pages_make(bytes, &part->chunks[chunk].base, error);
    if (status)
        return status;
    part->chunks[chunk].pinned = true;
    atomic_fetch_add_explicit(&kept->bytes, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&kept->pinned, bytes, memory_order_relaxed);
    return 0;
}

int kept_weights_copy(struct gpu_kept *kept, uint32_t number, uint32_t chunk, const void *weights,
                      cudaStream_t stream, struct error *error)
{
    const struct kept_part *part = &kept->parts[number];
    const char *from = (const char *)weights + chunk * kept->chunk_bytes;
    CUDA_TRY(cudaMemcpyAsync(part->chunks[chunk].base, from, chunk_size(kept, part, chunk),
                             cudaMemcpyDeviceToHost, stream),
             error);
    return 0;
}

/* How much of it stays the driver's. */
static uint64_t part_drop(struct gpu_kept *kept, struct kept_part *part)
{
    uint64_t stays = 0;
    for (uint32_t i = 0; i < part->count; i++) {
        const struct kept_chunk *chunk = &part->chunks[i];
        uint64_t bytes = chunk_size(kept, part, i);
        if (!chunk->base)
            continue;
        if (!host_pages_drop(chunk->base, bytes, chunk->pinned)) {
            stays += bytes;
            continue;
        }
        atomic_fetch_sub_explicit(&kept->bytes, bytes, memory_order_relaxed);
        if (chunk->pinned)
            atomic_fetch_sub_explicit(&kept->pinned, bytes, memory_order_relaxed);
    }
    free(part->chunks);
    *part = (struct kept_part){.chunks = NULL};
    return stays;
}

void kept_weights_drop(struct gpu_kept *kept)
{
    if (atomic_load_explicit(&kept->pinned, memory_order_relaxed) > 0)
        (void)cudaSetDevice(kept->device); /* unregistering makes a context where there is none */
    uint64_t stays = 0;
    for (uint32_t i = 0; i < GPU_DEVICES_MAX; i++)
        stays += part_drop(kept, &kept->parts[i]);
    host_pages_return(kept->reserved - stays);
    kept->reserved = 0;
    kept->whole = false;
    atomic_store(&kept->refused, false);
}

/* ---- read --------------------------------------------------------------------------------------
 */

bool kept_weights_has(const struct gpu_kept *kept, uint32_t number, uint64_t bytes)
{
    return kept && kept->whole && kept->parts[number].bytes == bytes;
}

static int pin(struct gpu_kept *kept, struct kept_chunk *chunk, uint64_t bytes, struct error *error)
{
    if (chunk->pinned)
        return 0;
    int status = host_pages_pin(chunk->base, bytes, error);
    if (status) {
        atomic_store(&kept->refused, true);
        return status;
    }
    chunk->pinned = true;
    atomic_fetch_add_explicit(&kept->pinned, bytes, memory_order_relaxed);
    return 0;
}

int kept_weights_send(struct gpu_kept *kept, uint32_t number, uint32_t chunk, void *weights,
                      cudaStream_t stream, struct error *error)
{
    const struct kept_part *part = &kept->parts[number];
    uint64_t bytes = chunk_size(kept, part, chunk);
    int status = pin(kept, &part->chunks[chunk], bytes, error);
    if (status)
        return status;
    CUDA_TRY(cudaMemcpyAsync((char *)weights + chunk * kept->chunk_bytes, part->chunks[chunk].base,
                             bytes, cudaMemcpyHostToDevice, stream),
             error);
    return 0;
}

void kept_weights_unpin(struct gpu_kept *kept)
{
    kept->warm = false; /* kernels go with the device's context */
    if (atomic_load_explicit(&kept->pinned, memory_order_relaxed) > 0)
        (void)cudaSetDevice(kept->device);
    for (uint32_t r = 0; r < GPU_DEVICES_MAX; r++)
        for (uint32_t i = 0; i < kept->parts[r].count; i++) {
            struct kept_chunk *chunk = &kept->parts[r].chunks[i];
            if (!chunk->pinned || !host_pages_unpin(chunk->base))
                continue;
            chunk->pinned = false;
            atomic_fetch_sub_explicit(&kept->pinned, chunk_size(kept, &kept->parts[r], i),
                                      memory_order_relaxed);
        }
}

void kept_weights_memory(const struct gpu_kept *kept, uint64_t *ret_pinned, uint64_t *ret_mapped)
{
    uint64_t bytes = atomic_load_explicit(&kept->bytes, memory_order_relaxed);
    uint64_t pinned = atomic_load_explicit(&kept->pinned, memory_order_relaxed);
    *ret_pinned = pinned;
    *ret_mapped = bytes > pinned ? bytes - pinned : 0;
}
