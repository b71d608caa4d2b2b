/* A model that is served: what it is called, its texts, who waits for it, and the replicas that
 * compute it. A daemon has several where `model` names several; each has queue, turns and figures
 * of its own, and requests name it. The first is meant where none is named, and the only one that
 * has adapters (served_adapters.h).
 *
 * Its names and its texts do not change once the first connection is taken: any thread reads them,
 * and what `info` says beside sizes. The rest is the loop's.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/base/model_list.h"
#include "daemon/base/model_name.h"
#include "daemon/request/model_reload.h"
#include "daemon/request/model_sleep.h"
#include "daemon/request/wait_queue.h"
#include "gpu/gpu.h"
#include "protocol/base/clock.h"

struct constraint_cache;
struct model_text;
struct replica;
struct tokenizer_scratch;

struct served_model {
    uint32_t number;       /* among those that are served, from 0 on */
    struct gpu_model info; /* its id: the first of the names */
    struct model_names names;
    const struct model_text *text; /* borrowed; NULL: there are no texts */
    uint32_t context_max;          /* tokens of a sequence */
    uint64_t kv_tokens;            /* what its KV memory holds at most */
    uint64_t load; /* differs between any two loads: what one has cached is nothing to the next */
    struct constraint_cache *constraints; /* owned */
    struct tokenizer_scratch
        *scratch;              /* owned; of texts that are read on the loop; NULL until then */
    struct replica **replicas; /* those of the server that are its own */
    uint32_t replica_count;

    struct model_sleep sleep;
    struct model_version version;
    struct waiting waiting;
    uint32_t running; /* sequences that its replicas hold */
    uint32_t owed;    /* of those, such as were sent before their turn */
    double wait_us;   /* smoothed time between two sequences that leave the queue */
    time_us left_us;  /* when the last one did */
    uint64_t requests, prompt_tokens, generated_tokens; /* since the start */
};
