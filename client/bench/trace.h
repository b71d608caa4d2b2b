/* Arrivals and lengths out of a file, one JSON object per line: timestamp (milliseconds),
 * input_length, output_length, and if wanted priority; other fields are ignored. Several public
 * traces have this form. */
#pragma once

#include <stdint.h>

#include "client/bench/workload.h"

/* *ret_items is the caller's to free; sorted by due_us, the first due at 0. */
int trace_read(const char *path, uint32_t max, struct item **ret_items, uint32_t *ret_count,
               struct error *error);
