#include "daemon/worker/layout.h"

#include <inttypes.h>
#include <stdio.h>

/* Beside weights a device needs room for KV and scratch: at least an eighth of its memory. */
static bool fits(const struct layout_facts *facts, uint64_t parts)
{
    uint64_t room = facts->memory_bytes - facts->memory_bytes / 8;
    return facts->weight_bytes / parts <= room;
}

/* Powers of two: heads divide by little else. */
static uint32_t least_tp(const struct layout_facts *facts, uint32_t pp, uint32_t most)
{
    uint32_t tp = 1;
    while (tp <= most && !fits(facts, (uint64_t)tp * pp))
        tp *= 2;
    return tp <= most ? tp : 0;
}

static int choose_tp(const struct layout_facts *facts, struct layout *layout, struct error *error)
{
    if (layout->tp)
        return 0;
    uint64_t per_replica = facts->devices / (layout->dp ? layout->dp : 1);
    uint32_t most = (uint32_t)(per_replica / layout->pp);
    layout->tp = least_tp(facts, layout->pp, most);
    /* One device may still do: the loader knows better than this estimate, and says so. */
    if (!layout->tp && most <= 1)
        layout->tp = 1;
    if (!layout->tp)
        return error_limit(
            error, ERR_DEVICE_MEMORY, facts->memory_bytes * facts->devices, facts->weight_bytes,
            "weights of %" PRIu64 " bytes do not fit on %u devices with %" PRIu64 " bytes free",
            facts->weight_bytes, facts->devices, facts->memory_bytes);
    return 0;
}

int layout_choose(const struct options *options, const struct layout_facts *facts,
                  struct layout *ret_layout, char reason[LAYOUT_REASON_MAX], struct error *error)
{
    struct layout layout = {
        .dp = (uint32_t)options->dp, .tp = (uint32_t)options->tp, .pp = (uint32_t)options->pp};
    const bool asked = layout.dp && layout.tp;
    int rc = choose_tp(facts, &layout, error);
    if (rc)
        return rc;
    const uint32_t group = layout.tp * layout.pp;
    if (!layout.dp)
        layout.dp = facts->devices / group;
    const uint32_t used = layout.dp * group;
    if (used == 0 || used > facts->devices || (facts->named && used != facts->devices))
        return error_limit(error, ERR_BAD_CONFIG, facts->devices, used ? used : group,
                           "dp * tp * pp is %u devices, and there are %u", used ? used : group,
                           facts->devices);
    snprintf(reason, LAYOUT_REASON_MAX,
             "dp %u, tp %u, pp %u on %u of %u devices: %s (weights %" PRIu64 " MiB, %" PRIu64
             " MiB free on a device)",
             layout.dp, layout.tp, layout.pp, used, facts->devices,
             asked           ? "as asked"
             : options->tp   ? "as many replicas as there are devices"
             : group == 1    ? "the model fits on one device"
             : layout.tp > 1 ? "the fewest devices that hold the model"
                             : "as asked",
             facts->weight_bytes >> 20, facts->memory_bytes >> 20);
    *ret_layout = layout;
    return 0;
}

int layout_check_room(const struct layout *layout, const struct layout_facts *facts,
                      struct error *error)
{
    const uint64_t weights = facts->weight_bytes / (layout->tp * layout->pp);
    const uint64_t least = weights + facts->slab_bytes;
    if (least <= facts->memory_bytes)
        return 0;
    return error_limit(error, ERR_BAD_CONFIG, facts->memory_bytes, least,
                       "gpu-memory-max and gpu-memory-reserve leave %" PRIu64
                       " bytes of a device: at least %" PRIu64 " are needed, %" PRIu64
                       " for weights and %" PRIu64 " for a slab of KV (slab-size)",
                       facts->memory_bytes, least, weights, facts->slab_bytes);
}
