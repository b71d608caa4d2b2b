/* The grammar of strict JSON, checked over the bare text: no allocation, no recursion, one pass.
 *
 * Private to json.c. What it accepts, cJSON parses the same way. Duplicate keys are not its matter,
 * since keys are compared after their escapes are resolved; it only says where one stands.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "protocol/base/error.h"

#define JSON_DEPTH_MAX 64
#define JSON_INTEGER_MAX ((uint64_t)1 << 53)

/* values_max 0: no limit. */
int json_scan(const char *text, size_t length, uint32_t depth_max, uint32_t values_max,
              struct error *error);

/* The byte offset of the key of a member of an accepted text; objects are counted in the order in
 * which they open. */
size_t json_scan_key(const char *text, size_t length, uint64_t object, uint64_t member);
