#include "gpu/engine/rings.h"

#include <assert.h>
#include <string.h>

static_assert(sizeof(struct pack_head) % 8 == 0, "sections behind the head are aligned");

int ring_open(struct ring *ring, struct mem *mem, const struct gpu_limits *limits, uint32_t hidden,
              struct error *error)
{
    assert(limits->depth < RING_PLACES_MAX);
    memset(ring, 0, sizeof *ring);
    ring->plan_bytes = mem_round(pack_bytes_max(limits));
    ring->result_bytes = mem_round(result_bytes_max(limits, hidden));
    ring->count = limits->depth + 1;
    size_t place = ring->plan_bytes + ring->result_bytes;
    void *pinned = NULL, *device = NULL;
    int status = mem_pinned(mem, place * ring->count, &pinned, error);
    if (!status)
        status = mem_fixed(mem, place * ring->count, &device, error);
    if (status)
        return status;
    for (uint32_t i = 0; i < ring->count; i++) {
        char *host = (char *)pinned + i * place, *gpu = (char *)device + i * place;
        ring->places[i] = (struct ring_place){
            .plan_pinned = host,
            .plan = gpu,
            .result_pinned = host + ring->plan_bytes,
            .result = gpu + ring->plan_bytes,
        };
    }
    return 0;
}
