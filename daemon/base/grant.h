/* Grants: what configuration gives to single users beyond what everybody has (option `users`).
 *
 * A text of entries with commas between, each WHO:priority=N, WHO:weight=N or both, a colon before
 * each: WHO is a user's name, a uid, or key/NAME for who calls by that key of api-key-file;
 * `priority` is the highest that it may ask for, `weight` its part beside others within a priority.
 * loop thread
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "protocol/base/error.h"

#define GRANTS_MAX 128
#define GRANT_WEIGHT_MAX 10000

struct grant {
    uint64_t user;
    bool has_priority;
    int32_t priority_max;
    uint32_t weight; /* 0: not given */
};

struct grants {
    uint32_t count;
    struct grant grants[GRANTS_MAX];
};

/* ERR_BAD_CONFIG names the entry; *ret_grants is untouched then. Asks the system for names. */
int grants_read(struct grants *ret_grants, const char *text, struct error *error);
/* The highest priority that the user may ask for; admins may ask for any. */
int32_t grants_priority(const struct grants *grants, uint64_t user, bool admin, int32_t usual);
uint32_t grants_weight(const struct grants *grants, uint64_t user, uint32_t usual);
