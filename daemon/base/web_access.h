/* Who may call the HTTP API by which name, from which web page, and for whom: the lists of the options
 * http-names, cors-origins and trusted-keys. They are texts of options; nothing is kept. Any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "protocol/base/error.h"

struct options;

#define WEB_NAME_MAX 253 /* bytes of a host's name */
#define WEB_ORIGIN_MAX 300

/* Whether each entry is one, and the lists go together with each other and insecure-loopback.
 * ERR_BAD_CONFIG names the option and the entry. */
int web_access_check(const struct options *options, struct error *error);

/* The host's name, without its port, whatever case its letters have. */
bool web_access_name(const struct options *options, const char *name);
/* The header Origin, byte for byte. */
bool web_access_origin(const struct options *options, const char *origin);
/* The name of a key. */
bool web_access_trusts(const struct options *options, const char *key);
