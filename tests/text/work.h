/* Work: what code really does, counted without a clock: the branches it passes, and what it has the
 * C library go through, 16 bytes to one. The code is compiled to call here at each branch, and its
 * calls to the library are wrapped (CMakeLists.txt).
 *
 * Each bound is looked at while the code runs, so that what would never end is found, too. One
 * thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/base/halt.h"

struct work_bounds {
    uint64_t spare;    /* work that need not be counted by the code itself */
    uint64_t per_step; /* and how much one of its steps may stand for */
    uint64_t held_max; /* bytes of the heap at a time */
    uint64_t halt_max; /* work after a halt */
    void (*over)(const char *what, uint64_t found, uint64_t allowed); /* does not return */
};

/* Counting begins; `steps` is where the code counts its own, and may come later (NULL). The halt is
 * set once so much work is done; UINT64_MAX: never. */
void work_begin(const struct work_bounds *bounds, struct halt *halt, uint64_t halt_at);
void work_steps(const uint64_t *steps);
uint64_t work_end(void); /* all that was done */

void __sanitizer_cov_trace_pc(void);
