/* How the devices are shared out: dp replicas of tp x pp devices each.
 *
 * What the options leave open (0) is chosen: the fewest devices per replica that hold the model
 * with room to work in, then as many replicas as there are devices. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/base/option.h"
#include "protocol/base/error.h"

struct layout {
    uint32_t dp, tp, pp;
};

struct layout_facts {
    uint32_t devices;      /* that may be used */
    bool named;            /* by the user: all of them are to be used */
    uint64_t memory_bytes; /* free on the fullest of them, less what stays reserved */
    uint64_t weight_bytes; /* of the whole model */
    uint64_t slab_bytes;   /* a slab of KV of each group, on one device; for layout_check_room() */
};

#define LAYOUT_REASON_MAX 200

/* `reason` says why, for the log. ERR_BAD_CONFIG where the numbers do not go together,
 * ERR_DEVICE_MEMORY where the model fits on no number of devices that there is. */
int layout_choose(const struct options *options, const struct layout_facts *facts,
                  struct layout *ret_layout, char reason[LAYOUT_REASON_MAX], struct error *error);

/* Whether weights and a slab of KV go into memory_bytes on each device, which without the loader is
 * known at the least: ERR_BAD_CONFIG, naming the options that leave so little. */
int layout_check_room(const struct layout *layout, const struct layout_facts *facts,
                      struct error *error);
