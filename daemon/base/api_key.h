/* API keys: a file with lines "NAME KEY" and "# comment". Who calls by TCP is the key's name, or
 * NAME/USER where that is a trusted key's which names one: so a key's name has no '/'.
 * Several keys may have one name, so that a new one is known before the old one goes.
 *
 * A given key is compared with all of them in a time that depends on neither. loop thread
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/base/error.h"

#define KEY_MAX 256 /* bytes of a key */
#define KEY_NAME_MAX 64
#define KEYS_MAX 1024
/* Users that are no uid of the system have numbers from here on; the first is who called by TCP and
 * was asked for no key. */
#define KEY_USER_FIRST (UINT64_C(1) << 32)
#define KEY_USER_ANONYMOUS KEY_USER_FIRST

struct key;

struct keys {
    struct key *keys;
    uint32_t count;
};

/* ERR_BAD_CONFIG with file and line. The error never holds a key. */
int keys_load(struct keys *keys, const char *path, struct error *error);
int keys_read(struct keys *keys, const char *name, const char *text, size_t length,
              struct error *error);
void keys_free(struct keys *keys);

/* What may be a key's name, or a user's: printable, without spaces, and not long. */
bool keys_is_name(const char *name, size_t length);
/* Whether there is a key of that name. */
bool keys_have(const struct keys *keys, const char *name, size_t length);
/* Under which names become users' numbers, for the process's whole life: before any other call. A
 * trusted key's users choose their names, and must not find one that is another's number. */
void keys_set_secret(uint64_t first, uint64_t second);
/* SipHash-2-4 under the secret. */
uint64_t keys_hash(const char *bytes, size_t length);
/* The user that a key's name stands for. */
uint64_t keys_user_of(const char *name, size_t length);
/* The user that the header's value "Bearer KEY" stands for, or where there is no such header the key
 * itself; 0 when it is none's. NULL is allowed.
 * *ret_name: the key's name, which is the keys' own; untouched when it is none's. */
uint64_t keys_user(const struct keys *keys, const char *authorization, const char *key,
                   const char **ret_name);
