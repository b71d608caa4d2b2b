#include "daemon/base/grant.h"

#include <inttypes.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/api_key.h"
#include "daemon/base/priority.h"

#define ENTRY_MAX 128 /* bytes */
#define KEY_PREFIX "key/"
#define PRIORITY_PREFIX "priority="

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

static int read_value(const char *who, const char *value, int32_t *ret_priority,
                      struct error *error)
{
    char *end;
    size_t length = strlen(PRIORITY_PREFIX);
    const char *number = strncmp(value, PRIORITY_PREFIX, length) == 0 ? value + length : "";
    bool good = strspn(number, "-0123456789") == strlen(number) && *number;
    long priority = strtol(number, &end, 10);
    if (!good || *end)
        return error_set(error, ERR_BAD_CONFIG,
                         "users: %s: priority=NUMBER is expected, not \"%s\"", who, value);
    if (priority < WAITING_PRIORITY_MIN || priority > WAITING_PRIORITY_MAX)
        return error_set(error, ERR_BAD_CONFIG, "users: %s: priority must lie between %d and %d",
                         who, WAITING_PRIORITY_MIN, WAITING_PRIORITY_MAX);
    *ret_priority = (int32_t)priority;
    return 0;
}

/* WHO:priority=N, in place. */
static int read_entry(struct grants *grants, char *entry, struct error *error)
{
    char *values = strchr(entry, ':');
    struct grant grant = {.user = 0};
    if (!values)
        return error_set(error, ERR_BAD_CONFIG,
                         "users: WHO:priority=NUMBER is expected, not \"%s\"", entry);
    *values++ = '\0';
    int rc = read_who(entry, &grant.user, error);
    if (!rc)
        rc = read_value(entry, values, &grant.priority_max, error);
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

int32_t grants_priority(const struct grants *grants, uint64_t user, bool admin, int32_t usual)
{
    if (admin)
        return WAITING_PRIORITY_MAX;
    for (uint32_t i = 0; i < grants->count; i++)
        if (grants->grants[i].user == user)
            return grants->grants[i].priority_max;
    return usual;
}
