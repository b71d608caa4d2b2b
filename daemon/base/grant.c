#include "daemon/base/grant.h"

#include <inttypes.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/api_key.h"
#include "daemon/base/priority.h"

#define ENTRY_MAX 128 /* bytes */
#define KEY_PREFIX "key/"
#define PRIORITY "priority"
#define WEIGHT "weight"

static int read_who(const char *who, uint64_t *ret_user, struct error *error)
{
    size_t digits = strspn(who, "0123456789");
    if (strncmp(who, KEY_PREFIX, strlen(KEY_PREFIX)) == 0 && who[strlen(KEY_PREFIX)]) {
        *ret_user = keys_user_of(who + strlen(KEY_PREFIX), strlen(who + strlen(KEY_PREFIX)));
        return 0;
    }
    if (digits > 0 && !who[digits] && strtoull(who, NULL, 10) < UINT32_MAX && digits <= 10) {
        *ret_user = strtoull(who, NULL, 10);
        return 0;
    }
    const struct passwd *entry = *who ? getpwnam(who) : NULL;
    if (!entry)
        return error_set(error, ERR_BAD_CONFIG, "users: there is no user \"%s\"", who);
    *ret_user = entry->pw_uid;
    return 0;
}

static int read_number(const char *who, const char *name, const char *text, long low, long high,
                       long *ret_number, struct error *error)
{
    char *end;
    bool good = strspn(text, "-0123456789") == strlen(text) && *text;
    long number = strtol(text, &end, 10);
    if (!good || *end)
        return error_set(error, ERR_BAD_CONFIG, "users: %s: %s=NUMBER is expected, not \"%s=%s\"",
                         who, name, name, text);
    if (number < low || number > high)
        return error_set(error, ERR_BAD_CONFIG, "users: %s: %s must lie between %ld and %ld", who,
                         name, low, high);
    *ret_number = number;
    return 0;
}

/* NAME=N, each once. */
static int read_value(const char *who, const char *value, struct grant *grant, struct error *error)
{
    const size_t priority = strlen(PRIORITY), weight = strlen(WEIGHT);
    long number = 0;
    int rc;
    if (strncmp(value, PRIORITY "=", priority + 1) == 0 && !grant->has_priority) {
        rc = read_number(who, PRIORITY, value + priority + 1, WAITING_PRIORITY_MIN,
                         WAITING_PRIORITY_MAX, &number, error);
        grant->has_priority = true;
        grant->priority_max = (int32_t)number;
    } else if (strncmp(value, WEIGHT "=", weight + 1) == 0 && grant->weight == 0) {
        rc = read_number(who, WEIGHT, value + weight + 1, 1, GRANT_WEIGHT_MAX, &number, error);
        grant->weight = (uint32_t)number;
    } else {
        rc = error_set(error, ERR_BAD_CONFIG,
                       "users: %s: priority=NUMBER or weight=NUMBER is expected, each once, not "
                       "\"%s\"",
                       who, value);
    }
    return rc;
}

/* WHO:NAME=N, or two of these behind each other, in place. */
static int read_entry(struct grants *grants, char *entry, struct error *error)
{
    char *values = strchr(entry, ':');
    struct grant grant = {.user = 0};
    if (!values)
        return error_set(error, ERR_BAD_CONFIG,
                         "users: WHO:priority=NUMBER is expected, not \"%s\"", entry);
    *values++ = '\0';
    int rc = read_who(entry, &grant.user, error);
    for (char *next; !rc && values; values = next) {
        next = strchr(values, ':');
        if (next)
            *next++ = '\0';
        rc = read_value(entry, values, &grant, error);
    }
    for (uint32_t i = 0; !rc && i < grants->count; i++)
        if (grants->grants[i].user == grant.user)
            rc = error_set(error, ERR_BAD_CONFIG, "users: %s stands there twice", entry);
    if (!rc && grants->count == GRANTS_MAX)
        rc = error_limit(error, ERR_BAD_CONFIG, GRANTS_MAX, GRANTS_MAX + 1,
                         "users: at most %d entries", GRANTS_MAX);
    if (!rc)
        grants->grants[grants->count++] = grant;
    return rc;
}

int grants_read(struct grants *ret_grants, const char *text, struct error *error)
{
    struct grants grants = {.count = 0};
    for (const char *at = text + strspn(text, ", "); *at;) {
        char entry[ENTRY_MAX];
        size_t length = strcspn(at, ", ");
        if (length >= sizeof(entry))
            return error_limit(error, ERR_BAD_CONFIG, sizeof(entry) - 1, length,
                               "users: an entry has at most %zu bytes", sizeof(entry) - 1);
        memcpy(entry, at, length);
        entry[length] = '\0';
        int rc = read_entry(&grants, entry, error);
        if (rc)
            return rc;
        at += length;
        at += strspn(at, ", ");
    }
    *ret_grants = grants;
    return 0;
}

static const struct grant *grant_of(const struct grants *grants, uint64_t user)
{
    for (uint32_t i = 0; i < grants->count; i++)
        if (grants->grants[i].user == user)
            return &grants->grants[i];
    return NULL;
}

int32_t grants_priority(const struct grants *grants, uint64_t user, bool admin, int32_t usual)
{
    const struct grant *grant = grant_of(grants, user);
    if (admin)
        return WAITING_PRIORITY_MAX;
    return grant && grant->has_priority ? grant->priority_max : usual;
}

uint32_t grants_weight(const struct grants *grants, uint64_t user, uint32_t usual)
{
    const struct grant *grant = grant_of(grants, user);
    return grant && grant->weight > 0 ? grant->weight : usual;
}
