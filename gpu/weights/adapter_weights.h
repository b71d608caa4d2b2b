/* Adapters (gpu/adapters) on a rank's device: A and B as the rank has them, and for each site a
 * table of where they are, which kernels read (kernels/adapt/adapt.h).
 *
 * A piece of fixed memory for each adapter and one for the table, from start to stop. Thread: the
 * rank's own. */
#pragma once

#include "gpu/adapters/adapters.h"
#include "gpu/kernels/adapt/adapt.h"
#include "gpu/weights/loader.h"

struct adapter_weights {
    uint32_t count, rank_max;
    struct weights *at;               /* [count] */
    const struct adapt_place *places; /* device: [sites][count]; without A: not this rank's */
};

/* The layers that the rank has. */
struct adapter_layers {
    uint32_t first, end;
};

/* What they take on a rank like this one, without the table. */
int adapter_weights_bytes(const struct adapters *adapters, struct adapter_layers layers,
                          const struct weights_source *like, uint64_t *ret_bytes,
                          struct error *error);

/* `like`: the model's source on this rank, whose list, ops and checkpoint are not read. What is
 * loaded is there once the streams were waited for. */
int adapter_weights_open(struct adapter_weights *weights, const struct adapters *adapters,
                         struct adapter_layers layers, const struct weights_source *like,
                         struct streams *lane, struct mem *mem, struct error *error);
void adapter_weights_close(struct adapter_weights *weights);
