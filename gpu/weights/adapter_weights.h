/* Adapters (gpu/adapters) on a rank's device: A and B as the rank has them, and for each site a
 * table of where they are, which kernels read (kernels/adapt/adapt.h).
 *
 * A piece of fixed memory for each adapter and one for the table, from start to stop. Where there
 * are more places than adapters at the start, one piece holds them all, each with room for the
 * widest adapter; further ones are read into it beside steps, over streams and staging of their own:
 * kernels look at the entries of adapters that rows name alone, so nothing waits for anything.
 *
 * Thread: the rank's own, but adapter_weights_load (any, one at a time). */
#pragma once

#include "gpu/adapters/adapters.h"
#include "gpu/kernels/adapt/adapt.h"
#include "gpu/weights/loader.h"

struct adapter_weights {
    uint32_t count, rank_max;         /* count: places */
    struct weights *at;               /* [count] */
    const struct adapt_place *places; /* device: [sites][count]; without A: not this rank's */
    struct adapt_place *table;        /* pinned: the same */
    /* Where there are more places than adapters at the start. */
    char *memory;
    uint64_t each; /* 0: there are not */
    struct streams aside; /* compute and bulk_in alone */
    struct loader_staging staging;
};

/* The layers that the rank has. */
struct adapter_layers {
    uint32_t first, end;
};

/* What they and empty places take on a rank like this one, without the table. */
int adapter_weights_bytes(const struct adapters *adapters, struct adapter_layers layers,
                          const struct weights_source *like, uint64_t *ret_bytes,
                          struct error *error);

/* `like`: the model's source on this rank, whose list, ops and checkpoint are not read. What is
 * loaded is there once the streams were waited for. */
int adapter_weights_open(struct adapter_weights *weights, const struct adapters *adapters,
                         struct adapter_layers layers, const struct weights_source *like,
                         struct streams *lane, struct mem *mem, struct error *error);
/* Into place `number`, which no step in flight has a row of. The rank's device is current. Blocks
 * until all is there. */
int adapter_weights_load(struct adapter_weights *weights, const struct adapters *adapters,
                         struct adapter_layers layers, const struct adapter *adapter,
                         uint32_t number, const struct weights_source *like, struct error *error);
void adapter_weights_close(struct adapter_weights *weights);
