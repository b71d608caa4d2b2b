/* Addresses of HTTP listeners: "unix:PATH", "HOST:PORT" and "[HOST]:PORT", with commas between.
 * HOST is a number or localhost. Before the loop starts.
 */
#pragma once

#include <stdbool.h>

#include "daemon/net/listen.h"

struct address {
    struct listener listener; /* open */
    bool tcp, loopback;
};

/* Opens the first of the list; *list moves behind it, to "" after the last. */
int address_open(const char **list, struct address *ret_address, struct error *error);
