/* Grants: what configuration gives to single users beyond what everybody has (option `users`).
 *
 * A text of entries with commas between, each WHO:priority=N: WHO is a user's name, a uid, or
 * key/NAME for who calls by that key of api-key-file; N is the highest priority that it may ask
 * for. loop thread
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "protocol/base/error.h"

#define GRANTS_MAX 128

struct grant {
    uint64_t user;
    int32_t priority_max;
};

struct grants {
    uint32_t count;
    struct grant grants[GRANTS_MAX];
};

/* ERR_BAD_CONFIG names the entry; *ret_grants is untouched then. Asks the system for names. */
int grants_read(struct grants *ret_grants, const char *text, struct error *error);
/* The highest priority that the user may ask for; admins may ask for any. */
int32_t grants_priority(const struct grants *grants, uint64_t user, bool admin, int32_t usual);
