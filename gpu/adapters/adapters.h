/* Low-rank adapters beside a model, as PEFT writes them: y = W x + scale * B (A x).
 *
 * A site is a product of a layer that some adapter changes; an op ADAPT stands behind it. What an
 * adapter has is a list of its own, of A and B alone, so that it is loaded and shared out over
 * ranks as a model's weights are: the part p of site s has A in the weight `a[s][p]`, where parts
 * of one tensor have one, and B in `b[s][p]`; LIST_NONE: it has none. The list's ops say
 * which weights a layer takes: for each part an ADAPT, with A as its weight and B as its bias.
 *
 * Owns lists and open files. Making and dropping: one thread; read by any.
 */
#pragma once

#include <stdint.h>

#include "gpu/checkpoint/checkpoint.h"
#include "gpu/gpu.h"
#include "gpu/graph/op_list.h"

#define ADAPTER_RANK_MAX 256
#define ADAPTERS_LIST 4 /* words for each row of a step, by which kernels take them */
/* And words of a step. */
#define ADAPTERS_SUMS(rank_max) (512 * 8 * LIST_PARTS_MAX * (((rank_max) + 15) / 16 * 16) + 4)
#define ADAPTER_CONFIG_BYTES_MAX (1u << 20)

/* adapter_config.json, as far as it is heeded. */
struct adapter_config {
    uint32_t rank;
    float scale;
};

/* ERR_BAD_MODEL names file, key and value. */
int adapter_config_load(const char *directory, struct adapter_config *ret, struct error *error);

struct adapter {
    struct adapter_config config;
    struct op_list list;
    struct checkpoint *checkpoint; /* tensors as the list numbers them */
    weight_id (*a)[LIST_PARTS_MAX], (*b)[LIST_PARTS_MAX]; /* of each site */
};

struct adapters {
    uint32_t count, site_count, rank_max;
    uint32_t places;       /* numbers that plans may name */
    float most;            /* see adapter_room */
    struct adapter widest; /* what a place holds, where there are more than `count`: all of every site */
    struct adapter *at;    /* [count]; number n of a plan is at[n - 1] */
};

/* Places beyond those that are named. 0 of them: no more than these. */
struct adapter_room {
    uint32_t places, rank_max;
    float most; /* the greatest finite number of the device's dtype */
};

/* ERR_BAD_MODEL where an element of some B is none, or greater than `most`: kernels multiply B of an
 * adapter with 0 of rows that have another one, and no adapter may change those. Reads all B. */
int adapter_numbers_check(const struct adapter *adapter, float most, struct error *error);

/* Reads all, and puts an ADAPT behind each product of `list` that one of them changes. ERR_BAD_MODEL,
 * ERR_BAD_CONFIG, ERR_NO_MEMORY; names the adapter. Nothing is kept then but what is in `list`.
 * With room for more every product of a layer is a site. */
int adapters_open(const struct gpu_adapter *named, uint32_t count, struct adapter_room room,
                  struct op_list *list, struct adapters *ret, struct error *error);
void adapters_drop(struct adapters *adapters);

/* One more, by the sites that are there. Any thread; `list` is only read. */
int adapter_open(const struct gpu_adapter *named, const struct adapters *adapters,
                 const struct op_list *list, struct adapter *ret, struct error *error);
void adapter_drop(struct adapter *adapter);
